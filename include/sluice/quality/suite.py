"""Reads a Great Expectations suite into frozen data: from the JSON that it writes, or from Python that builds one."""

from __future__ import annotations

import codecs
import difflib
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

import msgspec

from sluice.errors import DeclarationError
from sluice.foreign_code import foreign_code
from sluice.quality.expectations import EXPECTATIONS, Kind
from sluice.quality.patterns import like_problem, regex_problem
from sluice.storage import Storage
from sluice.typed_json import decode_as

Policy = Literal["warn", "drop", "quarantine", "fail"]
"""What happens when an expectation fails."""
Severity = Literal["critical", "warning", "info"]

_MAX_BYTES = 4 * 1024 * 1024
_MAX_EXPECTATIONS = 1000
_RUNTIME = frozenset({"batch_id", "result_format", "catch_exceptions", "windows", "library_metadata"})
"""Arguments that a suite may hold and that say nothing about the rows."""
_ROW_POLICIES = ("drop", "quarantine")
_KEYS = (
    *("type", "kwargs", "meta", "severity", "id", "notes", "description", "success_on_last_run"),
    *("expectation_context", "rendered_content", *sorted(_RUNTIME)),
)
"""What Great Expectations keeps of an expectation; what else is there, it passes over."""
_OURS = ("policy", "approximate", "source")
_POLICY_ELSEWHERE = ("policy", "action", "on_failure", "on_fail", "on_error", "failure_action", "on_violation")
_OURS_OF_SUITE = ("history", "gate", "measured", "sample")
MAX_SAMPLE = 200
_TESTS_ELSEWHERE = {
    **dict.fromkeys(["not_null", "is_complete", "isComplete"], "expect_column_values_to_not_be_null"),
    **dict.fromkeys(["unique", "is_unique", "isUnique"], "expect_column_values_to_be_unique"),
    **dict.fromkeys(["accepted_values", "is_in", "isContainedIn"], "expect_column_values_to_be_in_set"),
    **dict.fromkeys(["accepted_range", "between"], "expect_column_values_to_be_between"),
    **dict.fromkeys(["row_count", "has_size", "hasSize"], "expect_table_row_count_to_be_between"),
}
"""The tests of dbt and Deequ, and the expectations that ask the same."""
_POLICIES_ELSEWHERE = {
    **dict.fromkeys(["error", "abort", "stop", "block", "expect_or_fail", "critical"], "fail"),
    **dict.fromkeys(["filter", "skip", "remove", "expect_or_drop", "discard"], "drop"),
    **dict.fromkeys(["dead_letter", "dlq", "isolate", "reject"], "quarantine"),
    **dict.fromkeys(["warning", "log", "info", "ignore", "expect"], "warn"),
}
_SEVERITIES_ELSEWHERE = {
    **dict.fromkeys(["error", "high", "fatal", "fail"], "critical"),
    **dict.fromkeys(["warn", "medium"], "warning"),
    **dict.fromkeys(["low", "debug"], "info"),
}
_ARGUMENTS_ELSEWHERE = {
    "min": "min_value", "max": "max_value", "values": "value_set", "allowed": "value_set", "set": "value_set",
    "pattern": "regex", "columns": "column_list", "column_name": "column", "where": "row_condition", "type": "type_",
}  # fmt: skip


@dataclass(frozen=True)
class Expectation:
    """One expectation of a suite."""

    id: str
    """Great Expectations' own id when the suite has one, else a digest of type and arguments: stable over runs."""
    type: str
    kwargs: Mapping[str, Any]
    """As the suite has them."""
    arguments: Mapping[str, Any]
    """As Great Expectations reads them: numbers are floats where it makes them so, defaults are filled in."""
    policy: Policy
    severity: Severity = "critical"
    meta: Mapping[str, Any] = field(default_factory=dict)
    is_approximate: bool = False
    """Whether a sketch may answer what is exact only in a second reading."""
    source: str | None = None
    """The source whose columns it speaks of, in place of those of the result."""
    place: str = ""
    """Where it stands, for messages."""

    @property
    def kind(self) -> Kind:
        """What the library's table says about it."""
        return EXPECTATIONS[self.type]

    @property
    def is_reread(self) -> bool:
        """Whether no aggregate of fixed size answers it, so that the rows have to be read again."""
        return self.kind.path == "reread" or (self.kind.path == "sketch" and not self.is_approximate)

    @property
    def mostly(self) -> float:
        """The share of rows that must be as expected."""
        return float(self.arguments.get("mostly", 1.0))


@dataclass(frozen=True)
class Suite:
    """A suite of expectations."""

    name: str
    expectations: tuple[Expectation, ...]
    """About the result."""
    meta: Mapping[str, Any] = field(default_factory=dict)
    source: str = ""
    """The file or function that it comes from."""
    contracts: tuple[Expectation, ...] = ()
    """About the columns of sources."""

    @property
    def sample(self) -> int:
        """How many unexpected values each check of rows keeps in the run record."""
        return int(self.meta.get("sluice", {}).get("sample", 0))

    def without_history(self) -> Suite:
        """The suite for rows that are no run of the live stream: rules about history say nothing of them."""
        return replace(self, meta={"sluice": {"sample": self.sample}})


class _Row(msgspec.Struct, kw_only=True):
    type: str
    kwargs: dict[str, Any] = {}
    meta: dict[str, Any] | None = None
    severity: str | None = None
    id: str | None = None


class _File(msgspec.Struct, kw_only=True):
    name: str
    expectations: list[_Row]
    meta: dict[str, Any] | None = None


class _Keys(msgspec.Struct, kw_only=True):
    """What a file has, whether it means something or not."""

    expectations: list[dict[str, msgspec.Raw]]


def read_suite(location: str, *, storage: Storage) -> Suite | None:
    """Read a suite from the JSON file that Great Expectations keeps it in; None when there is none.

    Does not import the library.

    Raises:
        DeclarationError: Something in it is wrong; the message names the expectation.
        StorageError: It can't be read.
    """
    content = storage.read(location, max_bytes=_MAX_BYTES)
    return None if content is None else parse_suite(content, source=location)


def build_suite(build: Callable[[], Any], *, source: str) -> Suite:
    """Take a suite from a function that builds an `ExpectationSuite`, which imports Great Expectations.

    Raises:
        DeclarationError: The function fails or gives something else, or something in the suite is wrong.
    """
    with foreign_code("the function that builds the suite fails", where=lambda _: source):
        built = build()
        as_json = getattr(built, "to_json_dict", None)
        if as_json is None or not hasattr(built, "expectations"):
            raise DeclarationError(
                f"the function gives a {type(built).__name__}", where=source, remedy="return an `ExpectationSuite`"
            )
        content = json.dumps(as_json()).encode()
    return parse_suite(content, source=source)


def parse_suite(content: bytes, *, source: str) -> Suite:
    """Read a suite from JSON text.

    Raises:
        DeclarationError: Something in it is wrong; the message names the expectation.
    """
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise DeclarationError("the suite is no UTF-8", where=source, remedy="save it as UTF-8")
    try:
        # Some editors put a mark at the beginning that nobody sees.
        content = content.removeprefix(codecs.BOM_UTF8)
        file, written = decode_as(content, _File), decode_as(content, _Keys)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        is_old = any(name in content for name in (b'"expectation_type"', b'"expectation_suite_name"'))
        raise DeclarationError(
            f"the suite does not parse: {exc}" if content.strip() else "the suite is empty",
            where=source,
            remedy="it is of Great Expectations before 1.0: write `type` for `expectation_type`, and `name` for"
            " `expectation_suite_name`"
            if is_old
            else "write it as Great Expectations does",
        ) from exc
    if len(file.expectations) > _MAX_EXPECTATIONS:
        raise DeclarationError(
            f"the suite has {len(file.expectations)} expectations",
            where=source,
            remedy=f"split it: at most {_MAX_EXPECTATIONS}",
        )
    found: dict[str, Expectation] = {}
    for number, (row, keys) in enumerate(zip(file.expectations, written.expectations, strict=True), 1):
        expectation = _expectation(row, f"{source}, expectation {number}")
        _check_keys(keys, expectation)
        for known in (expectation.id, _digest(row)):
            if known in found:
                raise DeclarationError(
                    f"`{row.type}` is there twice", where=f"{found[known].place} and {number}", remedy="remove one"
                )
        found[expectation.id] = found[_digest(row)] = expectation
    _check_suite_meta(file.meta or {}, source)
    unique = tuple({id(expectation): expectation for expectation in found.values()}.values())
    contracts = tuple(expectation for expectation in unique if expectation.source is not None)
    about_result = tuple(expectation for expectation in unique if expectation.source is None)
    return Suite(file.name, about_result, file.meta or {}, source, contracts)


def _check_keys(keys: Iterable[str], expectation: Expectation) -> None:
    """Refuse what stands where nobody reads it, and means something elsewhere."""
    for name in keys:
        if name in _KEYS:
            continue
        remedy = None
        if name in _POLICY_ELSEWHERE:
            remedy = 'write it as "meta": {"sluice": {"policy": "drop"}}'
        elif name in _OURS:
            remedy = f'write it as "meta": {{"sluice": {{"{name}": ...}}}}'
        elif name in expectation.kind.arguments or name in _ARGUMENTS_ELSEWHERE:
            remedy = f'write it into "kwargs", as `{_ARGUMENTS_ELSEWHERE.get(name, name)}`'
        elif (near := _near(name, _KEYS)) is not None:
            remedy = f"did you mean `{near}`?"
        if remedy is not None:
            raise DeclarationError(f"`{name}` means nothing there", where=expectation.place, remedy=remedy)


def _check_meta_keys(meta: Mapping[str, Any], misplaced: Iterable[str], place: str) -> None:
    """Refuse what was meant for `meta.sluice`; what else is in `meta` is for others."""
    for name in meta:
        if name in misplaced:
            raise DeclarationError(
                f"`meta` has `{name}`, which means nothing there",
                where=place,
                remedy=f'write it as {{"sluice": {{"{name}": ...}}}}',
            )
        if name != "sluice" and difflib.get_close_matches(name.lower(), ["sluice"], cutoff=0.8):
            raise DeclarationError(f"`meta` has `{name}`", where=place, remedy="did you mean `sluice`?")


def _check_suite_meta(meta: Mapping[str, Any], source: str) -> None:
    _check_meta_keys(meta, ("gate", "measured"), source)
    ours, place = meta.get("sluice", {}), f"{source}, meta.sluice"
    if not isinstance(ours, dict):
        raise DeclarationError("`meta.sluice` is no object", where=source, remedy='write {"sluice": {"sample": 20}}')
    _check_names(ours, _OURS_OF_SUITE, place)
    sample = ours.get("sample", 0)
    if not isinstance(sample, int) or isinstance(sample, bool) or not 0 <= sample <= MAX_SAMPLE:
        raise DeclarationError(
            f"`sample` is {sample!r}", where=place, remedy=f"keep 0 to {MAX_SAMPLE} unexpected values of each check"
        )


def _check_names(ours: Mapping[str, Any], known: tuple[str, ...], place: str) -> None:
    for name in ours:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            raise DeclarationError(
                f"`meta.sluice` has no `{name}`",
                where=place,
                remedy=f"did you mean `{near[0]}`?" if near else f"it has: {', '.join(known)}",
            )


def _expectation(row: _Row, place: str) -> Expectation:
    if row.type not in EXPECTATIONS:
        meant = _TESTS_ELSEWHERE.get(row.type) or _near(row.type, EXPECTATIONS)
        raise DeclarationError(
            f"there is no expectation `{row.type[:100]}`",
            where=place,
            remedy=f"did you mean `{meant}`?" if meant else "use a core expectation of Great Expectations 1.24",
        )
    place = f"{place}, {row.type}"
    kind = EXPECTATIONS[row.type]
    arguments = _arguments(row, kind, place)
    severity = row.severity or "critical"
    if severity not in get_args(Severity):
        meant = _SEVERITIES_ELSEWHERE.get(severity.lower())
        raise DeclarationError(
            f"`severity` is {severity!r}",
            where=place,
            remedy=f"did you mean `{meant}`?" if meant else f"use one of: {', '.join(get_args(Severity))}",
        )
    ours = _our_meta(row, place)
    policy = ours.get("policy", "fail" if severity == "critical" else "warn")
    if policy not in get_args(Policy):
        meant = _POLICIES_ELSEWHERE.get(str(policy).lower()) or _near(str(policy), get_args(Policy))
        raise DeclarationError(
            f"`policy` is {policy!r}",
            where=place,
            remedy=f"did you mean `{meant}`?" if meant else f"use one of: {', '.join(get_args(Policy))}",
        )
    if policy in _ROW_POLICIES and not (kind.level == "row" and kind.path == "exact"):
        raise DeclarationError(
            f"`policy` is `{policy}`, but there are no rows to {policy}",
            where=place,
            remedy="use `warn` or `fail`: it looks at the table as a whole, or its rows are known only when written",
        )
    is_approximate = ours.get("approximate", False)
    if not isinstance(is_approximate, bool) or (is_approximate and kind.path != "sketch"):
        raise DeclarationError(
            f"`approximate` is {is_approximate!r}",
            where=place,
            remedy="use true or false, and only for an expectation that a sketch can answer",
        )
    about = ours.get("source")
    if about is not None and (not isinstance(about, str) or kind.path != "schema"):
        raise DeclarationError(
            f"`source` is {about!r}",
            where=place,
            remedy="name a source, and only in an expectation about columns: rows are checked when they are the result",
        )
    return Expectation(
        id=row.id or _digest(row),
        type=row.type,
        kwargs=row.kwargs,
        arguments=arguments,
        policy=policy,
        severity=severity,  # type: ignore[arg-type]  # it is one: checked above
        meta=row.meta or {},
        is_approximate=is_approximate,
        source=about,
        place=place,
    )


def _our_meta(row: _Row, place: str) -> dict[str, Any]:
    _check_meta_keys(row.meta or {}, ("policy",), place)
    ours = (row.meta or {}).get("sluice", {})
    if not isinstance(ours, dict):
        raise DeclarationError("`meta.sluice` is no object", where=place, remedy='write {"sluice": {"policy": "warn"}}')
    _check_names(ours, _OURS, place)
    return ours


def _arguments(row: _Row, kind: Kind, place: str) -> dict[str, Any]:
    known = kind.arguments
    for name, value in row.kwargs.items():
        if name not in known and name not in _RUNTIME:
            meant = _ARGUMENTS_ELSEWHERE.get(name)
            meant = meant if meant in known else _near(name, known)
            raise DeclarationError(
                f"there is no argument `{name}`",
                where=place,
                remedy=f"did you mean `{meant}`?" if meant else f"it takes: {', '.join(known)}",
            )
        if isinstance(value, dict) and "$PARAMETER" in value:
            raise DeclarationError(
                f"`{name}` is a suite parameter", where=place, remedy="write the value: a stream has no parameters"
            )
    found = {}
    for name, argument in known.items():
        value = row.kwargs.get(name)
        if value is None:
            if argument.is_required:
                raise DeclarationError(f"`{name}` is missing", where=place, remedy="give it")
            found[name] = argument.default
            continue
        try:
            found[name] = argument.check(value)
        except (ValueError, OverflowError) as exc:
            raise DeclarationError(f"`{name}` is {_short(value)}", where=place, remedy=f"it {exc}") from exc
    _check_together(found, row, place)
    return found


def _check_together(found: Mapping[str, Any], row: _Row, place: str) -> None:
    """What arguments say only together: bounds that leave nothing, patterns that can't run."""
    low, high = found.get("min_value"), found.get("max_value")
    if row.type.startswith("expect_column_value") and "min_value" in found and low is None and high is None:
        raise DeclarationError("it has neither `min_value` nor `max_value`", where=place, remedy="give one or both")
    if low is not None and high is not None:
        try:
            is_empty = low > high
        except TypeError as exc:
            raise DeclarationError(
                f"`min_value` is {_short(row.kwargs['min_value'])} and `max_value` {_short(row.kwargs['max_value'])}",
                where=place,
                remedy="give two of a kind: numbers, dates, times with a zone, or times without",
            ) from exc
        if is_empty:
            raise DeclarationError(
                "`min_value` is greater than `max_value`", where=place, remedy="exchange them: no value could pass"
            )
    for pattern in [found.get("regex"), *(found.get("regex_list") or [])]:
        problem = regex_problem(pattern) if pattern is not None else None
        if problem:
            raise DeclarationError(
                f"the regex {_short(pattern)} does not compile: {problem}",
                where=place,
                remedy="correct it: Spark runs Java's regular expressions",
            )
    for pattern in [found.get("like_pattern"), *(found.get("like_pattern_list") or [])]:
        problem = like_problem(pattern, found.get("escape") or "\\") if pattern is not None else None
        if problem:
            raise DeclarationError(
                f"the pattern {_short(pattern)} can't run: {problem}", where=place, remedy="correct it, or its `escape`"
            )


def _near(name: str, known: Iterable[str]) -> str | None:
    """The known name that was probably meant; None when none is near."""
    return next(iter(difflib.get_close_matches(name, list(known), n=1)), None)


def _digest(row: _Row) -> str:
    about = ((row.meta or {}).get("sluice") or {}).get("source")
    told = [row.type, row.kwargs] if about is None else [row.type, row.kwargs, about]
    text = json.dumps(told, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
