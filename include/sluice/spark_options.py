"""The options of Spark's file formats, under their snake_case names, and how a declaration's options are checked.

The tables are Spark 4.2's own (`JSONOptions.getAllOptions` and its siblings); a test compares them with the running
Spark, so that an upgrade can't leave them behind.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from sluice.declaration_checks import refuse_name, snake_case
from sluice.errors import DeclarationError
from sluice.option_values import (
    Check,
    above_zero,
    above_zero_or_none,
    any_text,
    avro_name,
    avro_namespace,
    avro_schema,
    boolean,
    character,
    charset,
    current_pattern,
    date_pattern,
    element,
    every_file,
    java_charset,
    letters,
    line_separator,
    no_brackets,
    number,
    of_functions,
    one_of,
    orc_codec,
    parquet_codec,
    pattern_to_read,
    separator,
    short_line_separator,
    some_text,
    time_zone,
    up_to_15,
)
from sluice.schema_text import read_schema

_CODECS = ("none", "uncompressed", "bzip2", "deflate", "gzip", "lz4", "snappy")
_CODEC_WORDS = {"gz": "gzip", "zip": "gzip", "bz2": "bzip2", "zlib": "deflate", "no": "none"}
_text_codec = one_of(*_CODECS, words=_CODEC_WORDS, others=".")
"""A codec of Hadoop's may be given by its class."""
_mode = one_of(
    *("PERMISSIVE", "DROPMALFORMED", "FAILFAST"),
    words={
        **dict.fromkeys(["fail", "error", "raise", "strict", "abort"], "FAILFAST"),
        **dict.fromkeys(["drop", "ignore", "skip"], "DROPMALFORMED"),
        **dict.fromkeys(["null", "lenient", "permit"], "PERMISSIVE"),
    },
)
_quote_handling = one_of("STOP_AT_CLOSING_QUOTE", "BACK_TO_DELIMITER", "STOP_AT_DELIMITER", "SKIP_VALUE", "RAISE_ERROR")
_rebase = one_of("EXCEPTION", "CORRECTED", "LEGACY", has_case=True)
_avro_codec = one_of("uncompressed", "deflate", "snappy", "bzip2", "xz", "zstandard", words={"zstd": "zstandard"})
_FORMAT_NAME = re.compile(r"[\w.$-]+")
_DATES = "dateFormat timeFormat timestampFormat timestampNTZFormat"


def _each(names: str, check: Check) -> dict[str, Check]:
    return dict.fromkeys(names.split(), check)


FORMATS: Mapping[str, Mapping[str, Check]] = {
    "avro": {
        **_each("enableStableIdentifiersForUnionType positionalFieldMatching", boolean),
        **_each("avroSchemaUrl stableIdentifierPrefixForUnionType", any_text),
        "avroSchema": avro_schema,
        "compression": _avro_codec,
        "datetimeRebaseMode": _rebase,
        "ignoreExtension": every_file,
        "mode": of_functions,
        "recordName": avro_name,
        "recordNamespace": avro_namespace,
        "recursiveFieldMaxDepth": up_to_15,
    },
    "binaryFile": {},
    "csv": {
        **_each("columnPruning enableDateTimeParsingFallback enforceSchema escapeQuotes header", boolean),
        **_each("ignoreLeadingWhiteSpace ignoreTrailingWhiteSpace inferSchema multiLine preferDate quoteAll", boolean),
        **_each("charToEscapeQuoteEscaping comment escape quote", character),
        **_each("delimiter sep", separator),
        **_each("codec compression", _text_codec),
        **_each("inputBufferSize maxColumns", above_zero),
        **_each(_DATES, date_pattern),
        **_each(
            "charset columnNameOfCorruptRecord emptyValue encoding locale nanValue negativeInf nullValue", any_text
        ),
        **_each("positiveInf singleVariantColumn", any_text),
        "extension": letters,
        "lineSep": short_line_separator,
        "maxCharsPerColumn": above_zero_or_none,
        "mode": _mode,
        "samplingRatio": number,
        "timeZone": time_zone,
        "unescapedQuoteHandling": _quote_handling,
    },
    "json": {
        **_each("allowBackslashEscapingAnyCharacter allowComments allowNonNumericNumbers", boolean),
        **_each(
            "allowNumericLeadingZeros allowSingleQuotes allowUnquotedControlChars allowUnquotedFieldNames", boolean
        ),
        **_each("dropFieldIfAllNull enableDateTimeParsingFallback ignoreNullFields inferTimestamp multiLine", boolean),
        **_each("prefersDecimal pretty primitivesAsString sortKeys useUnsafeRow", boolean),
        **_each("writeNonAsciiCharacterAsCodePoint", boolean),
        **_each(_DATES, date_pattern),
        **_each("charset columnNameOfCorruptRecord encoding locale singleVariantColumn", any_text),
        "compression": _text_codec,
        "lineSep": line_separator,
        "mode": _mode,
        "samplingRatio": number,
        "timeZone": time_zone,
    },
    "orc": {**_each("compression orc.compress", orc_codec), "mergeSchema": boolean},
    "parquet": {
        **_each("compression parquet.compression", parquet_codec),
        **_each("datetimeRebaseMode int96RebaseMode", _rebase),
        "mergeSchema": boolean,
    },
    "text": {"compression": _text_codec, "encoding": any_text, "lineSep": line_separator, "wholetext": boolean},
    "xml": {
        **_each("ignoreNamespace ignoreSurroundingSpaces inferSchema multiLine preferDate prefersDecimal", boolean),
        **_each("excludeAttribute useLegacyXMLParser validateName", boolean),
        **_each("arrayElementName attributePrefix columnNameOfCorruptRecord indent locale nullValue", any_text),
        **_each("rowValidationXSDPath singleVariantColumn wildcardColName", any_text),
        **_each("charset encoding", java_charset),
        **_each("rootTag rowTag", element),
        "declaration": no_brackets,
        "valueTag": some_text,
        **_each(_DATES, date_pattern),
        "compression": _text_codec,
        "mode": _mode,
        "samplingRatio": number,
        "timeZone": time_zone,
    },
}
"""Spark's options by file format, with what their values may be."""
_TYPES_REFUSED = {"avro": ("variant",), "csv": ("array", "map", "struct", "void")}
"""Types that a format has no files of."""
WHOLE_FILES = "path string, modificationTime timestamp, length bigint, content binary"
"""What Spark makes of a file of whatever kind (`binaryFile`)."""
_EARLIER_PATTERNS = "spark.sql.legacy.timeParserPolicy", "LEGACY"
_EVERY_CHARSET = "spark.sql.legacy.javaCharsets", "true"


def spark_options(
    given: Mapping[str, Any],
    known: Mapping[str, Check],
    *,
    place: str,
    ours: Iterable[str] = (),
    words: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, str]:
    """Turn a declaration's options into Spark's.

    Args:
        given: Values by snake_case name: strings, numbers or booleans.
        known: The names, as Spark spells them, that are allowed, and what their values may be.
        place: What is declared, for the message.
        ours: Further valid names that the caller has taken out already; they are offered when a name is misspelt.
        words: Names of other tools, in snake_case, and what to do about each.

    Raises:
        DeclarationError: A name is unknown, or a value is none that Spark takes.
    """
    names = {snake_case(name): name for name in known}
    options = {}
    for name, value in given.items():
        if name not in names:
            refuse_name(name, {*names, *ours}, what="option", place=place, words=words)
        text = _text(name, value, place)
        wrong = known[names[name]](text)
        if wrong is not None:
            raise DeclarationError(f"option `{name}` is {value!r}", where=place, remedy=wrong)
        options[names[name]] = text
    return options


def check_format_name(name: object, place: str) -> None:
    """Refuse what is no name of a format: Spark takes a word, or the name of a class.

    Raises:
        DeclarationError: It is none.
    """
    if not isinstance(name, str) or not _FORMAT_NAME.fullmatch(name):
        meant = name.strip() if isinstance(name, str) else ""
        raise DeclarationError(
            f"{name!r} is no format",
            where=place,
            remedy=f"write it as {meant!r}" if _FORMAT_NAME.fullmatch(meant) else "name one that Spark knows",
        )


def any_options(given: Mapping[str, Any], place: str) -> dict[str, str]:
    """Options that only Spark knows, as texts.

    Raises:
        DeclarationError: A value is no string, number or boolean.
    """
    return {name: _text(name, value, place) for name, value in given.items()}


def _text(name: str, value: object, place: str) -> str:
    """An option's value as Spark takes it."""
    if not isinstance(value, str | int | float):
        raise DeclarationError(
            f"option `{name}` is {'None' if value is None else f'a {type(value).__name__}'}",
            where=place,
            remedy="give a string, a number or a boolean",
        )
    return str(value).lower() if isinstance(value, bool) else str(value)


def check_settings(
    file_format: str, options: Mapping[str, str], conf: Mapping[str, str], *, schema: str | None = None, place: str
) -> None:
    """Refuse values that Spark takes with other settings only than a project has.

    Args:
        file_format: One of `FORMATS`.
        options: What `spark_options` made.
        conf: The project's settings of Spark.
        schema: What files are read as; None where they are written, or their schema is Spark's.
        place: What is declared, for the message.

    Raises:
        DeclarationError: Spark does not take one.
    """
    for names, (setting, value), check in (
        (_DATES.split(), _EARLIER_PATTERNS, pattern_to_read if schema is not None else current_pattern),
        (["charset", "encoding"] if file_format in {"csv", "json"} else [], _EVERY_CHARSET, charset),
    ):
        if conf.get(setting, "").lower() == value.lower():
            continue
        for name in names:
            wrong = check(options[name]) if name in options else None
            if wrong is not None:
                either = f"{wrong} Or" if wrong.endswith("?") else f"{wrong}; or"
                raise DeclarationError(
                    f"option `{snake_case(name)}` is {options[name]!r}",
                    where=place,
                    remedy=f'{either} set `"{setting}" = "{value}"` under [spark.conf]',
                )
    found = None if schema is None else read_schema(schema)
    if found is not None and found.alike is not None and conf.get("spark.sql.caseSensitive", "").lower() != "true":
        raise DeclarationError(
            f"`schema` has `{found.alike[0]}` and `{found.alike[1]}`, which are one name to Spark",
            where=place,
            remedy='rename one, or set `"spark.sql.caseSensitive" = true` under [spark.conf]',
        )


def check_together(file_format: str, options: Mapping[str, str], place: str) -> None:
    """Refuse options that do not go with each other, whether files are read or written.

    Args:
        file_format: One of `FORMATS`.
        options: What `spark_options` made.
        place: What is declared, for the message.

    Raises:
        DeclarationError: Spark would refuse them.
    """
    if file_format != "xml":
        return
    if "rowTag" not in options:
        raise DeclarationError(
            "`row_tag` is missing", where=place, remedy='name the element that is a row: row_tag="visit"'
        )
    value_tag = options.get("valueTag", "_VALUE")
    if value_tag == options.get("attributePrefix", "_"):
        raise DeclarationError(
            f"`value_tag` and `attribute_prefix` are both {value_tag!r}", where=place, remedy="let them differ"
        )


def check_reading(file_format: str, options: Mapping[str, str], schema: str | None, place: str) -> None:
    """Refuse options that do not go with each other, or with the schema.

    Args:
        file_format: One of `FORMATS`.
        options: What `spark_options` made.
        schema: What the files are read as; None when it is Spark's.
        place: What is declared, for the message.

    Raises:
        DeclarationError: Spark would refuse them.
    """
    check_together(file_format, options, place)
    found = None if schema is None else read_schema(schema)
    columns = None if found is None else found.columns
    encoding = options.get("encoding", options.get("charset", "UTF-8")).upper()
    if file_format == "json" and encoding != "UTF-8" and options.get("multiLine", "").lower() != "true":
        if encoding in {"UTF-16", "UTF-32"}:
            raise DeclarationError(
                f"Spark reads no lines in {encoding}",
                where=place,
                remedy="say `multi_line=True`, or name the byte order",
            )
        if "lineSep" not in options:
            raise DeclarationError(
                f"Spark finds no lines in {encoding} by itself", where=place, remedy=r'say `line_sep="\n"`'
            )
    _check_types(file_format, columns or {}, place)
    corrupt = options.get("columnNameOfCorruptRecord", "")
    if columns is not None and columns.get(corrupt, "string") != "string":
        raise DeclarationError(
            f"`column_name_of_corrupt_record` names `{corrupt}`, which is {columns[corrupt]}",
            where=place,
            remedy="make it a string in the schema",
        )
    variant = options.get("singleVariantColumn")
    # Beside it, a column for corrupt records and those of folders may stand.
    if columns is not None and variant is not None and columns.get(variant) != "variant":
        raise DeclarationError(
            f"`single_variant_column` is {variant!r}, which is no variant in the schema",
            where=place,
            remedy=f'write it as schema="{variant or "v"} variant"',
        )


def _check_types(file_format: str, columns: Mapping[str, str], place: str) -> None:
    """Refuse types that files of a format can't have.

    Raises:
        DeclarationError: There is one.
    """
    wrong = next((name for name, kind in columns.items() if kind in _TYPES_REFUSED.get(file_format, ())), None)
    if wrong is not None:
        raise DeclarationError(
            f"`{wrong}` is {columns[wrong]}, which {file_format} does not have",
            where=place,
            remedy="declare the type that is in the files"
            if file_format == "avro"
            else "read it as a string, and parse it in the transform",
        )
    if file_format == "text" and columns and "string" not in columns.values():
        raise DeclarationError(
            "a line of text is a string", where=place, remedy='leave out `schema`, or write "value string"'
        )


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
