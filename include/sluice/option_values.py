"""What the values of Spark's options may be, as far as that can be told without a JVM.

A check gets the text that Spark would get. What it refuses, Spark 4.2 refuses too, or reads as something else without a
word: an unknown `mode` as PERMISSIVE, `mm` in a date as minutes. A test with Spark walks through what each takes and
refuses.
"""

from __future__ import annotations

import codecs
import difflib
import json
import re
import zoneinfo
from collections.abc import Callable, Iterable, Mapping

Check = Callable[[str], str | None]
"""Gets a value, and says what to write in its place; None when it is right."""

_WHOLE = re.compile(r"[+-]?\d{1,10}")
_MOST = 2**31 - 1
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_SEPARATOR = re.compile(r"""(?:[^\\]|\\[trbf"'\\])+""", re.DOTALL)
_ELEMENT = re.compile(r"[^\W\d][\w.:-]*")
_AVRO_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OFFSET = re.compile(
    r"(?:UTC|GMT|UT)?[+-](?:(?:0?\d|1[0-7])(?:(?::[0-5]?\d|[0-5]\d)(?::?[0-5]\d)?)?|18(?::?00?(?::?00)?)?)|Z|GMT0"
)
_SHORT_ZONES = re.compile(
    "A[CEGRS]T|BET|BST|C[ANST]T|E[AC]T|EST|HST|I[ES]T|JST|MIT|MST|N[ES]T|P[LNRS]T|SST|VST",
)
"""Names of zones that Java has of old, beside those of the time zone database."""
_QUOTED = re.compile(r"'[^']*'")
_NO_LETTERS = re.compile(r"[AbBcCeIfgijJlnNoPprRtTU]")
"""What neither Spark's formatter takes in a pattern nor the one that it had before."""
_WEEKS = re.compile(r"[wWuF]")
_TOO_LONG = re.compile(r"d{3,}|D{4,}|[GMLE]{5,}|[qQ]{5,}|y{7,}|H{3,}|h{3,}|m{3,}|s{3,}|S{10,}|a{2,}|k{3,}|K{3,}")
_STRFTIME = re.compile(r"%(-?[A-Za-z%])")
_T = "'T'"
_JAVA_LETTERS = {
    "Y": "yyyy", "y": "yy", "m": "MM", "d": "dd", "H": "HH", "I": "hh", "M": "mm", "S": "ss", "f": "SSSSSS", "b": "MMM",
    "B": "MMMM", "a": "EEE", "A": "EEEE", "j": "DDD", "p": "a", "z": "xx", "Z": "z", "%": "%", "F": "yyyy-MM-dd",
    "T": "HH:mm:ss", "-d": "d", "-m": "M", "-H": "H",
}  # fmt: skip
"""What Python's letters are in a pattern of Java's."""
_PATTERN = "write a pattern of Java's, as `yyyy-MM-dd HH:mm:ss`; put other letters between single quotes"


def any_text(_value: str) -> None:
    """Takes whatever it is."""


def boolean(value: str) -> str | None:
    """`true` or `false`."""
    return None if value.lower() in {"true", "false"} else "give True or False"


def whole_number(value: str) -> str | None:
    """A whole number, also one that stands for no limit."""
    return None if _WHOLE.fullmatch(value) else "give a whole number"


def above_zero(value: str) -> str | None:
    """A whole number above 0."""
    return None if _WHOLE.fullmatch(value) and 0 < int(value) <= _MOST else "give a whole number above 0"


def above_zero_or_none(value: str) -> str | None:
    """A whole number above 0, or -1 for no limit."""
    return None if value == "-1" or above_zero(value) is None else "give a whole number above 0, or -1 for no limit"


def number(value: str) -> str | None:
    """A number."""
    return None if _NUMBER.fullmatch(value) else "give a number"


def character(value: str) -> str | None:
    """One character, or none."""
    return None if len(value.encode("utf-16-le")) <= 2 else 'give one character, or "" for none'


def separator(value: str) -> str | None:
    """Characters, some of them behind a backslash."""
    return None if _SEPARATOR.fullmatch(value) else r'give characters, as ";" or "\t"; a backslash is written twice'


def line_separator(value: str) -> str | None:
    """Any characters."""
    return None if value else r'give the characters that end a line, as "\n"'


def short_line_separator(value: str) -> str | None:
    """One or two characters."""
    return line_separator(value) or (None if len(value) <= 2 else r'give one character or two, as "\n" or "\r\n"')


def letters(value: str) -> str | None:
    """Letters, without a dot."""
    return None if not value or value.isalpha() else f"give letters only: {''.join(filter(str.isalpha, value))!r}"


def element(value: str) -> str | None:
    """The name of an element of XML."""
    return None if _ELEMENT.fullmatch(value) else 'give the name of an element, as "row", without brackets'


def no_brackets(value: str) -> str | None:
    """Text of XML, without the brackets around it."""
    return "leave the brackets out" if set(value) & set("<>") else None


def some_text(value: str) -> str | None:
    """Anything but nothing."""
    return None if value else "give at least one character"


def java_charset(value: str) -> str | None:
    """The name of a charset that Java has, as far as Python knows it."""
    try:
        is_known = value.lower().startswith("x-") or bool(codecs.lookup(value))
    except LookupError:
        is_known = False
    return None if value and is_known else 'name a charset, as "UTF-8" or "ISO-8859-1"'


def avro_name(value: str) -> str | None:
    """The name of a record of Avro."""
    return None if _AVRO_NAME.fullmatch(value) else 'give letters, digits and underscores, as "Visit"'


def avro_namespace(value: str) -> str | None:
    """Names of Avro with dots between them, or none."""
    is_right = not value or all(_AVRO_NAME.fullmatch(part) for part in value.split("."))
    return None if is_right else 'give names with dots between them, as "com.example"'


def avro_schema(value: str) -> str | None:
    """A schema of Avro, which is JSON."""
    try:
        json.loads(value)
    except (ValueError, RecursionError):
        return "give Avro's schema as JSON"
    return None


def every_file(value: str) -> str | None:
    """`true`: Spark would pass over planned files by their names, without a word."""
    return None if value.lower() == "true" else 'leave it out, and choose files by `path_glob_filter="*.avro"`'


def of_functions(_value: str) -> str | None:
    """What Spark heeds in a function, and not in what it reads."""
    return "leave it out: Spark heeds it in `from_avro` alone, and fails at a file that is broken"


def up_to_15(value: str) -> str | None:
    """A whole number up to 15."""
    return None if _WHOLE.fullmatch(value) and int(value) <= 15 else "give a whole number up to 15"


def time_zone(value: str) -> str | None:
    """The name of a time zone, or an offset."""
    if _OFFSET.fullmatch(value) or _SHORT_ZONES.fullmatch(value) or value.startswith("SystemV/"):
        return None
    known = zoneinfo.available_timezones()
    # Without a time zone database, only Spark can tell.
    if value in known or value == "UT" or not known:
        return None
    near = _near(value, known, cutoff=0.75)
    return f"did you mean `{near}`?" if near else 'name a zone, as "Europe/Vienna", or an offset, as "+01:00"'


def one_of(*names: str, words: Mapping[str, str] | None = None, has_case: bool = False, others: str = "") -> Check:
    """A check for one of some names.

    Args:
        names: What may be written.
        words: What other tools call so, in lower case, and ours.
        has_case: Whether only this spelling is taken.
        others: A character that only names have that a check can't know; with it, everything is taken.
    """

    def check(value: str) -> str | None:
        if value in names or (not has_case and value.lower() in map(str.lower, names)):
            return None
        if others and others in value:
            return None
        meant = (words or {}).get(value.lower()) or _near(value, names)
        return f"did you mean `{meant}`?" if meant else f"use one of: {', '.join(names)}"

    return check


orc_codec = one_of("none", "uncompressed", "snappy", "zlib", "lzo", "lz4", "brotli", "zstd", words={"gzip": "zlib"})
"""A codec of ORC files, as an option and as a setting of Spark."""
parquet_codec = one_of(
    *("none", "uncompressed", "snappy", "gzip", "lzo", "lz4", "lz4_raw", "brotli", "zstd"), words={"gz": "gzip"}
)
"""The same of Parquet files."""


def _near(value: str, names: Iterable[str], cutoff: float = 0.6) -> str | None:
    by_lower = {name.lower(): name for name in names}
    near = difflib.get_close_matches(value.lower(), by_lower, n=1, cutoff=cutoff)
    return by_lower[near[0]] if near else None


def date_pattern(value: str) -> str | None:
    """A pattern of dates or times, whichever formatter of Spark's reads it."""
    plain = _QUOTED.sub("", value)
    if _STRFTIME.search(plain):
        java = _from_strftime(value)
        return _PATTERN if java is None else f"write it with Java's letters: `{java}`"
    if "'" in plain:
        return "close the single quotes"
    if "T" in plain and plain == value and not _NO_LETTERS.search(plain.replace("T", "")):
        return f"put the T between single quotes: `{value.replace('T', _T)}`"
    if _NO_LETTERS.search(plain):
        return _PATTERN
    return _another_meaning(value, set(plain))


def _another_meaning(value: str, has: set[str]) -> str | None:
    """What to write in place of letters that mean something else than what they are mostly written for."""
    if "Y" in has and "w" not in has:
        meant = value.replace("D", "d") if "M" in has else value
        return f"`Y` is the year of a week: write `{meant.replace('Y', 'y')}`"
    if "uu" in value and "u" in has:
        return f"Spark has no `u` for the year: write `{value.replace('u', 'y')}`"
    if {"y", "d", "m"} <= has and not has & {"M", "L", "D"}:
        return f"`m` are minutes: write `{re.sub('m+', _as_months, value, count=1)}`"
    if {"M", "D"} <= has and "d" not in has:
        return f"`D` is the day of the year: write `{value.replace('D', 'd')}`"
    return None


def _as_months(minutes: re.Match[str]) -> str:
    return minutes[0].upper()


def _from_strftime(value: str) -> str | None:
    """A pattern of Python's `strftime` with Java's letters; None when it has something that Java has not."""
    texts, directives = _STRFTIME.split(value)[::2], _STRFTIME.split(value)[1::2]
    if any(directive not in _JAVA_LETTERS for directive in directives):
        return None
    # A `Z` behind a time says that it is UTC, which a `Z` between quotes would not.
    literal = [re.sub(r"[A-Za-z]+", lambda found: "X" if found[0] == "Z" else f"'{found[0]}'", text) for text in texts]
    return "".join(
        text + _JAVA_LETTERS.get(letter, "") for text, letter in zip(literal, [*directives, ""], strict=True)
    )


def current_pattern(value: str) -> str | None:
    """A pattern that Spark's own formatter takes; the one that it had before took more."""
    plain = _QUOTED.sub("", value)
    if "h" in plain.lower() and "H" not in plain and "a" not in plain:
        return f"`h` needs `a`, for AM and PM: write `{value.replace('h', 'H')}`"
    if (found := _WEEKS.search(plain)) is not None:
        return f"Spark has no `{found[0][0]}` any more: leave it out"
    if (found := _TOO_LONG.search(plain)) is not None:
        return f"Spark takes no `{found[0]}`: write fewer of them"
    if set(plain) & set("{}#") or plain.count("[") != plain.count("]"):
        return "put `{`, `}`, `#`, `[` and `]` between single quotes; `[...]` is what may be missing"
    return None


def pattern_to_read(value: str) -> str | None:
    """A pattern that Spark's own formatter reads with."""
    if found := set(_QUOTED.sub("", value)) & set("EFqQ"):
        return f"Spark reads no `{min(found)}`: read the column as a string, and parse it in the transform"
    return current_pattern(value)


charset = one_of(
    *("UTF-8", "UTF-16", "UTF-16BE", "UTF-16LE", "UTF-32", "ISO-8859-1", "US-ASCII"),
    words={
        **dict.fromkeys(["utf8", "utf-8-sig", "utf_8", "utf-8-bom"], "UTF-8"),
        **dict.fromkeys(["latin1", "latin-1", "iso8859-1", "cp1252", "windows-1252"], "ISO-8859-1"),
        "ascii": "US-ASCII",
    },
)
"""What texts are encoded by."""
