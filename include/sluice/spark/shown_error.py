"""What records and pages tell of an error: Spark's words without the literals of a transform and without rows.

Spark quotes whatever failed: an expression with a salt in it, a row that it can't cast, a whole query in SQL. So it is
told as its plans are (see `shown_plan`): what is known to be neither literal nor row stays, everything else is `?`. Of
an error with a condition, Spark says which of its words are parameters; in any other text, what stands in quotes and
brackets is taken for one. The literals that a query is known to hold are masked wherever they stand.

All of what was said is in the driver's log, which only its owner can read.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sluice.foreign_code import error_line, is_failure
from sluice.spark.query_words import NO_WORDS, QueryWords, words_at
from sluice.spark.shown_plan import MASK, masked_expression

_MOST = 2000
"""How many characters of an error are kept."""
_ENDS = ("\n\tat ", "\nJVM stacktrace", "\n=== Streaming Query ===", "\n at [Source", ";\n")
_NAMES = re.compile(
    r"(?i)(?:.*(?:column|field|object|table|view|source|function|routine|relation|alias|attr|parameter|argument)"
    r"(?:name|path|list|s)*|(?:bad|duplicate|missing|unknown|allowed|available|parsed|expected)?(?:col|field)(?:s|names?)?"
    r"|.*names?|proposals?|suggestions?|searchpath|schema|.*schema|database|namespace|catalog)"
)
"""Parameters that are names of columns and the like: those are told, but what an unnamed column is called after."""
_PLAIN = re.compile(
    r"(?i).*(?:type|types|class|clazz|config|conf|confkey|configkey|path|location|mode|id|uuid|version|num|size|count"
    r"|index|pos|limit|precision|scale|provider|format|operation|operator|docroot|link|jointype|command)"
    r"|(?:actual|expected|required)num.*|num.*|max.*size|min|upper|lower|line|supported.*|op"
)
"""Parameters of which no value comes from rows or literals."""
_TEXTS = re.compile(
    r"(?i)(?:msg|message|reason|hint|error|details?|explain|advice|additional.*|causedby|stats|.*requirement)"
)
"""Parameters that are errors themselves, or parts of their words."""
_WRAPPERS = frozenset({"STREAM_FAILED", "FOREACH_BATCH_USER_FUNCTION_ERROR"})
"""Conditions that say no more than that something else failed."""
OF_BATCH_FUNCTION = "FOREACH_BATCH_USER_FUNCTION_ERROR"
"""That of whatever a function raises that a batch is handed to."""
_USERS_WORDS = re.compile(r"(\[(?:USER_RAISED_EXCEPTION|ASSERT_TRUE)[A-Z_.]*\]).*", re.DOTALL)
"""What an expression of the transform says, row by row."""
_ROW = re.compile(r"(violated by row with values:).*", re.DOTALL)
"""What a constraint of Delta's says, of which only the text is known."""
_OF_DATA = "22"
"""The class of SQL's states that tell of values: Java's own errors below are about it, in any words."""
_OF_DATA_TOO = frozenset({"UNSUPPORTED_FEATURE.AES_MODE"})
"""Conditions that do as well, which have another state."""
_OF_ROWS = frozenset({"mode", "padding", "path"})
"""Parameters that elsewhere are of the declaration, and in such an error are of a row: a path into a variant."""
_WORDLESS = frozenset({"java.lang.ClassNotFoundException", "java.lang.NoClassDefFoundError"})
"""Errors of Java's whose message is a name alone."""
_TRACE = re.compile(r"Traceback \(most recent call last\):")
_FRAME = re.compile(r'^ *File "([^"\n]+)", line (\d+)', re.MULTILINE)
_LIBRARY = re.compile(r"/(?:site-packages|pyspark(?:\.zip)?)/")
_RAISED = re.compile(r"^(?P<kind>[A-Za-z_][\w.]*)(?:: (?P<words>.*))?$", re.MULTILINE)
_SQL = re.compile(r"\s*== SQL(?: \(.*?\))? ==\s.*?(?=== \w+(?: \(.*?\))? ==|\Z)", re.DOTALL)
_TYPE = (
    "(?:ARRAY|BIGINT|BINARY|BOOLEAN|CHAR|DATE|DECIMAL|DOUBLE|FLOAT|INT|INTERVAL|MAP|NUMERIC|OBJECT|SMALLINT|STRING|STRUCT"
    "|TIME|TIMESTAMP|TIMESTAMP_LTZ|TIMESTAMP_NTZ|TINYINT|VARCHAR|VARIANT|VOID)"
)
_PARTITION = re.compile(r"(/[\w.%-]+=)[^/]*|((?<![\w/.%-])[\w.%-]+=)[^/\s'\"]*(?=/)")
"""A part of a path that says which value a column has in the files below it."""
_CONDITION = re.compile(r"\[(?P<name>[A-Z][A-Z0-9_]{3,}(?:\.[A-Z0-9_]+)*)\]")
_KEPT = re.compile(
    rf"{_CONDITION.pattern}|\(s\)|\(\)|\(line \d+, pos \d+\)|\[id = [0-9a-f-]+, runId = [0-9a-f-]+\]"
    rf'|"[\w.]+" was called from|"spark\.[\w.]+"|`\w+`|"{_TYPE}(?:\(\d+(?:,\d+)?\))?"'
)
_OWN = re.compile(
    r"'\[Dataset/DataFrame\]\.withWatermark\(\)'|'correctness'|\"late rows\"|(?<=\boption)\(\"\w+\", \.\.\.\)"
    r"|(?<=\b[oO]ption )'[\w.]+'|'[\w.]+'(?= (?:is not|must be) specified)"
    r"|(?<=\bInvalid value )'-?\d+[a-z]{0,3}'(?=\. The option )"
)
"""Words of Spark's own that it writes in quotes and brackets: names of options, and numbers that one was given."""
_QUOTED = re.compile(
    r"(?<!\w)'.*?'(?!\w)|(?<!\w)\".*?\"(?!\w)|`.*?`|\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)|\[(?!`)(?:[^\[\]]|\[[^\[\]]*\])*\]"
    r"|(?<!\w)['\"(\[](?!`).*",
    re.DOTALL,
)
"""What stands in quotes or brackets; what is opened and never closed goes on to the end."""


def spark_message(exc: BaseException, *, is_of_rows: bool = False, told: Collection[str] = ()) -> str:
    """An error and its causes, without the JVM's stack, without literals, and without rows.

    Args:
        exc: The error.
        is_of_rows: Whether rows were at work, so that the words of somebody's function may be those of a row.
        told: What may be told, though it is a literal of the project's: values of settings that the error is about.
    """
    if (gone := _gone(exc)) is not None:
        return gone
    words = words_at(exc).telling(told)
    if is_of_rows and _is_of_a_function(exc):
        return f"{type(exc).__name__}: {MASK}{_place(error_line(exc))}"
    said: list[str] = []
    links = list(_links(exc))
    for number, link in enumerate(links):
        if link.condition in _WRAPPERS and number + 1 < len(links):
            continue
        shown = _shown(link, words)
        if shown and not any(shown in known for known in said):
            said.append(shown)
    return "; caused by: ".join(said)[:_MOST] or type(exc).__name__


def _gone(exc: BaseException) -> str | None:
    """That Spark is gone, where an error comes of that; its own words tell of a port that refuses."""
    code = getattr(exc, "code", None)
    if type(exc).__module__.startswith("grpc") and callable(code) and getattr(code(), "name", "") == "UNAVAILABLE":
        return "the Spark Connect server can't be reached any more: it has ended, or was killed"
    is_of_py4j = type(exc).__name__ == "Py4JNetworkError" or isinstance(exc, ConnectionError | EOFError)
    last = exc.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    if is_of_py4j and last is not None and str(last.tb_frame.f_globals.get("__name__")).startswith("py4j."):
        return "Spark's JVM is gone: it was killed, or has ended for want of memory"
    return None


def is_refusal(exc: Exception) -> bool:
    """Whether Spark says something of what it was asked, and nothing of itself, or of what it could not reach."""
    from pyspark.errors import AnalysisException, IllegalArgumentException, UnsupportedOperationException

    java = getattr(exc, "java_exception", None)
    condition, _ = _condition(exc if java is None else java)
    is_told = condition is not None and not condition.startswith("INTERNAL_ERROR")
    return is_told or isinstance(exc, AnalysisException | IllegalArgumentException | UnsupportedOperationException)


def unforeseen_words(exc: BaseException) -> str | None:
    """The same of an error of Spark's that nobody has made one of ours; None of any other."""
    is_of_spark = type(exc).__module__.partition(".")[0] in {"pyspark", "py4j"}
    return spark_message(exc) if is_of_spark else None


def shown_text(text: str, words: QueryWords = NO_WORDS, *, is_of_spark: bool = False) -> str:
    """The words of an error of which only the text is known.

    Args:
        text: The text.
        words: What is known of the query.
        is_of_spark: Whether Spark has written it, and no function of somebody's.
    """
    for end in _ENDS:
        text = text.partition(end)[0]
    trace = _TRACE.search(text)
    if trace is not None:
        return f"{shown_text(text[: trace.start()], words)} {_shown_trace(text[trace.end() :])}".strip()
    text = _ROW.sub(rf"\1 {MASK}", _USERS_WORDS.sub(rf"\1 {MASK}", _SQL.sub(" ", text)))
    if _CONDITION.search(text) is None:
        # What a library quotes below its first line is what it failed of.
        text = text.strip().partition("\n")[0]
    shown, at = [], 0
    while (found := _QUOTED.search(text, at)) is not None:
        kept = _KEPT.match(text, found.start()) or (_OWN.match(text, found.start()) if is_of_spark else None)
        shown.append(text[at : found.start()])
        piece = kept[0] if kept is not None else found[0]
        shown.append(piece if kept is not None else _shown_piece(piece, words))
        at = found.start() + len(piece)
    return words.masked(_without_values(" ".join("".join([*shown, text[at:]]).split())))


def _shown(link: _Link, words: QueryWords) -> str:
    text = link.text
    if not link.parameters or _TRACE.search(text) is not None:
        return shown_text(text, words, is_of_spark=link.is_of_spark)
    shown: list[str] = []
    for name, value in sorted(link.parameters.items(), key=lambda item: -len(item[1])):
        if not value.strip():
            continue
        before = r"(?<!\w)" if re.match(r"\w", value) else ""
        after = r"(?!\w)" if re.search(r"\w\Z", value) else ""
        text = re.sub(before + re.escape(value) + after, f"\0{len(shown)}\0", text)
        is_of_row = link.is_of_data and name in _OF_ROWS
        shown.append(_shown_piece(value, words) if is_of_row else _shown_parameter(name, value, words, link))
    # Only now: a value may have the same signs in it.
    for end in _ENDS:
        text = text.partition(end)[0]
    text = words.masked(_SQL.sub(" ", text), is_of_spark=True)
    told = re.sub("\0(\\d+)\0", lambda found: shown[int(found[1])], text)
    return _without_values(" ".join(told.split()))


def _without_values(text: str) -> str:
    """A text without the values that the folders of partitions are named by."""
    return _PARTITION.sub(lambda found: f"{found[1] or found[2]}{MASK}", text)


def _shown_parameter(name: str, value: str, words: QueryWords, link: _Link) -> str:
    if _TEXTS.fullmatch(name):
        return shown_text(value, words, is_of_spark=link.is_of_spark)
    if _PLAIN.fullmatch(name) or _KEPT.fullmatch(value):
        return words.masked(value)
    if _NAMES.fullmatch(name) and not re.search(r"[(=<>+*/%'\"]", value):
        return words.masked(value)
    return _shown_piece(value, words)


def _shown_piece(piece: str, words: QueryWords) -> str:
    """What may be an expression, with `?` for its literals; the names of a list stay."""
    bare = piece.strip("`'\"")
    if bare.startswith("spark.") or (bare in words.columns and bare not in words.literals):
        return piece
    if piece.startswith("`"):
        return "`, `".join(_shown_name(name, words) for name in piece.split("`, `"))
    quote = piece[0] if piece[:1] in {"'", '"'} else ""
    inner = piece.strip(quote) if quote else piece
    return f"{quote}{masked_expression(inner, words.columns)}{quote}"


def _shown_name(name: str, words: QueryWords) -> str:
    if re.fullmatch(r"`?[\w.`]+`?", name):
        return words.masked(name)
    first, last = "`" * name.startswith("`"), "`" * name.endswith("`")
    return f"{first}{masked_expression(name.strip('`'), words.columns)}{last}"


def _shown_trace(trace: str) -> str:
    """The class of what Python raised, and the line; its words are those of whoever wrote the function.

    Of what pyspark raises, the condition is told as well; it is in the line that called pyspark.
    """
    frames = _FRAME.findall(trace)
    own = [frame for frame in frames if _LIBRARY.search(frame[0]) is None] or frames
    found = next((found for found in _RAISED.finditer(trace) if found["kind"].rpartition(".")[2][:1].isupper()), None)
    place = _place(f"{own[-1][0]}:{own[-1][1]}" if own else None)
    if found is None:
        return f"an exception: {MASK}{place}"
    condition = _CONDITION.match(found["words"] or "") if found["kind"].startswith("pyspark.") else None
    return f"{found['kind']}: {'' if condition is None else f'{condition[0]} '}{MASK}{place}"


def _place(line: str | None) -> str:
    return f" at {line}" if line is not None else ""


@dataclass(frozen=True)
class _Link:
    """An error of Spark, or one of its causes; of any other error there is only the text."""

    text: str
    condition: str | None
    parameters: Mapping[str, str] | None
    is_of_data: bool
    """Whether it is about a value of a row."""
    is_of_spark: bool
    """Whether Spark has raised it, and no function of somebody's."""


def _links(exc: BaseException) -> Iterator[_Link]:
    # Where pyspark does not know an exception of Java's, py4j shows its stack, and all causes in one text.
    cause, is_of_data = getattr(exc, "java_exception", None), False
    if cause is None:
        is_of_data = _is_of_data(exc)
        is_of_spark = type(exc).__module__.startswith("pyspark.")
        yield _Link(_text(exc), *_condition(exc), is_of_data, is_of_spark)
        origin = getattr(exc, "_origin", None)
        cause = origin.getCause() if origin is not None else None
    while cause is not None:
        condition, parameters = _condition(cause)
        kind = str(cause.getClass().getName())
        # Java's own words below such an error may be any.
        text = kind if is_of_data and condition is None else str(cause.getMessage() or kind)
        if kind in _WORDLESS:
            text = f"{kind}: {text}"
        is_of_data = is_of_data or _is_of_data(cause)
        yield _Link(text, condition, parameters, is_of_data, is_of_spark=True)
        cause = cause.getCause()


def _is_of_data(found: Any) -> bool:
    """Whether an error is about a value of a row, as its SQL state says; also of a Java object."""
    try:
        return str(found.getSqlState() or "").startswith(_OF_DATA) or found.getCondition() in _OF_DATA_TOO
    except Exception:  # an error of Java's own has none
        return False


def _text(exc: BaseException) -> str:
    try:
        return str(exc)
    except BaseException as hostile:
        if not is_failure(hostile):
            raise
        return type(exc).__name__


def _condition(found: Any) -> tuple[str | None, Mapping[str, str] | None]:
    """Also of a Java object, which has methods of the same names."""
    if isinstance(found, Exception) and not hasattr(found, "getMessageParameters"):
        return None, None
    try:
        return found.getCondition(), dict(found.getMessageParameters() or {})
    except Exception:  # an error of Java's own has none
        return None, None


def _is_of_a_function(exc: BaseException) -> bool:
    """Whether somebody's function may have raised it: neither Spark, nor a library, nor the system has."""
    is_known = hasattr(exc, "getMessageParameters") or isinstance(exc, OSError)
    module = type(exc).__module__.partition(".")[0]
    return not is_known and module not in {"py4j", "pyspark", "deltalake", "pyarrow", "grpc", "sluice"}
