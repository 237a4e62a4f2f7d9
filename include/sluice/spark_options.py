"""The options of Spark's file formats, under their snake_case names, and how a declaration's options are checked.

The tables are Spark 4.2's own (`JSONOptions.getAllOptions` and its siblings); a test compares them with the running
Spark, so that an upgrade can't leave them behind.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from sluice.declaring import refuse_name, snake_case
from sluice.errors import DeclarationError

_JSON = """allowBackslashEscapingAnyCharacter allowComments allowNonNumericNumbers allowNumericLeadingZeros
    allowSingleQuotes allowUnquotedControlChars allowUnquotedFieldNames charset columnNameOfCorruptRecord compression
    dateFormat dropFieldIfAllNull enableDateTimeParsingFallback encoding ignoreNullFields inferTimestamp lineSep locale
    mode multiLine prefersDecimal pretty primitivesAsString samplingRatio singleVariantColumn sortKeys timeFormat
    timeZone timestampFormat timestampNTZFormat useUnsafeRow writeNonAsciiCharacterAsCodePoint"""
_CSV = """charToEscapeQuoteEscaping charset codec columnNameOfCorruptRecord columnPruning comment compression dateFormat
    delimiter emptyValue enableDateTimeParsingFallback encoding enforceSchema escape escapeQuotes extension header
    ignoreLeadingWhiteSpace ignoreTrailingWhiteSpace inferSchema inputBufferSize lineSep locale maxCharsPerColumn
    maxColumns mode multiLine nanValue negativeInf nullValue positiveInf preferDate quote quoteAll samplingRatio sep
    singleVariantColumn timeFormat timeZone timestampFormat timestampNTZFormat unescapedQuoteHandling"""
_PARQUET = "compression datetimeRebaseMode int96RebaseMode mergeSchema parquet.compression"
_ORC = "compression mergeSchema orc.compress"
_TEXT = "compression encoding lineSep wholetext"

FORMATS: Mapping[str, tuple[str, ...]] = {
    "csv": tuple(_CSV.split()),
    "json": tuple(_JSON.split()),
    "orc": tuple(_ORC.split()),
    "parquet": tuple(_PARQUET.split()),
    "text": tuple(_TEXT.split()),
}
"""Spark's option names by file format."""


def spark_options(
    given: Mapping[str, Any],
    known: Iterable[str],
    *,
    place: str,
    ours: Iterable[str] = (),
    words: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, str]:
    """Turn a declaration's options into Spark's.

    Args:
        given: Values by snake_case name: strings, numbers or booleans.
        known: The names, as Spark spells them, that are allowed.
        place: What is declared, for the message.
        ours: Further valid names that the caller has taken out already; they are offered when a name is misspelt.
        words: Names of other tools, in snake_case, and what to do about each.

    Raises:
        DeclarationError: A name is unknown, or a value is no string, number or boolean.
    """
    names = {snake_case(name): name for name in known}
    options = {}
    for name, value in given.items():
        if name not in names:
            refuse_name(name, {*names, *ours}, what="option", place=place, words=words)
        if isinstance(value, bool):
            options[names[name]] = str(value).lower()
        elif isinstance(value, str | int | float):
            options[names[name]] = str(value)
        else:
            raise DeclarationError(
                f"option `{name}` is {'None' if value is None else f'a {type(value).__name__}'}",
                where=place,
                remedy="give a string, a number or a boolean",
            )
    return options


def options_elsewhere(file_format: str) -> dict[str, str]:
    """The options, in snake_case, that other formats have and this one does not, and what to say of each."""
    formats: dict[str, list[str]] = {}
    for other, options in FORMATS.items():
        for option in {*options} - {*FORMATS[file_format]}:
            formats.setdefault(snake_case(option), []).append(other)
    return {
        name: f"leave it out: it is an option of {' and '.join(found)}, not of {file_format}"
        for name, found in formats.items()
    }


def check_format(name: object, place: str, instead: Mapping[str, str]) -> None:
    """Refuse a file format that Spark does not ship.

    Args:
        name: The format.
        place: What is declared, for the message.
        instead: What to declare for things that are no formats of files.

    Raises:
        DeclarationError: It is not one of `FORMATS`.
    """
    if name not in FORMATS:
        known = f"use one of: {', '.join(FORMATS)}"
        raise DeclarationError(f"unknown format {name!r}", where=place, remedy=instead.get(str(name).lower(), known))
