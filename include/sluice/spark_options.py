"""The options of Spark's file formats, under their snake_case names, and how a declaration's options are checked.

The tables are Spark 4.2's own (`JSONOptions.getAllOptions` and its siblings); a test compares them with the running
Spark, so that an upgrade can't leave them behind.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Any

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


def snake_case(option: str) -> str:
    """The name that a declaration uses for one of Spark's options: `timestampNTZFormat` is `timestamp_ntz_format`."""
    words = re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", option.replace(".", "_"))
    return re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", words).lower()


def spark_options(
    given: Mapping[str, Any], known: Iterable[str], *, place: str, ours: Iterable[str] = ()
) -> dict[str, str]:
    """Turn a declaration's options into Spark's.

    Args:
        given: Values by snake_case name: strings, numbers or booleans.
        known: The names, as Spark spells them, that are allowed.
        place: What is declared, for the message.
        ours: Further valid names that the caller has taken out already; they are offered when a name is misspelt.

    Raises:
        DeclarationError: A name is unknown, or a value is no string, number or boolean.
    """
    names = {snake_case(name): name for name in known}
    options = {}
    for name, value in given.items():
        if name not in names:
            near = difflib.get_close_matches(name, [*names, *ours], n=1, cutoff=0.5)
            remedy = f"did you mean `{near[0]}`?" if near else f"valid are: {', '.join(sorted({*names, *ours}))}"
            raise DeclarationError(f"unknown option `{name}`", where=place, remedy=remedy)
        if isinstance(value, bool):
            options[names[name]] = str(value).lower()
        elif isinstance(value, str | int | float):
            options[names[name]] = str(value)
        else:
            raise DeclarationError(
                f"option `{name}` is {value!r}", where=place, remedy="give a string, a number or a boolean"
            )
    return options


def check_format(name: str, place: str) -> None:
    """Refuse a file format that Spark does not ship.

    Raises:
        DeclarationError: It is not one of `FORMATS`.
    """
    if name not in FORMATS:
        raise DeclarationError(f"unknown format {name!r}", where=place, remedy=f"use one of: {', '.join(FORMATS)}")
