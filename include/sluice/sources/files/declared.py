"""How files that arrive in a folder are declared as a source."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sluice.declaration_checks import check_booleans, check_limit, check_path, declares
from sluice.errors import DeclarationError
from sluice.option_values import any_text, boolean
from sluice.other_names import FORMAT_WORDS, KIND_WORDS, SOURCE_WORDS
from sluice.schema_text import schema_problem
from sluice.sources.contract import parse_starting
from sluice.sources.files.source import FilesSource
from sluice.spark_options import FORMATS, WHOLE_FILES, check_format, check_reading, options_elsewhere, spark_options
from sluice.times import duration_ms

_PASSED_THROUGH = {"ignoreMissingFiles": boolean, "ignoreCorruptFiles": boolean, "basePath": any_text}
_ITS_OWN = (
    *("format", "schema", "starting", "max_files_per_batch", "max_bytes_per_batch", "max_file_age", "latest_first"),
    *("file_name_only", "recursive_file_lookup", "path_glob_filter"),
)


@declares("sources.files()", SOURCE_WORDS)
def files(
    path: str,
    *,
    format: str,  # noqa: A002 - Spark's own name
    schema: str | None = None,
    starting: str | datetime = "earliest",
    max_files_per_batch: int | None = None,
    max_bytes_per_batch: int | None = None,
    max_file_age: str | None = None,
    latest_first: bool = False,
    file_name_only: bool = False,
    recursive_file_lookup: bool = False,
    path_glob_filter: str | None = None,
    **options: Any,
) -> FilesSource:
    """Declare files that arrive in a folder.

    Args:
        path: A folder or a Hadoop glob; relative to the project, absolute, or a URL.
        format: `json`, `csv`, `parquet`, `orc`, `text`, `avro`, `xml` or `binaryFile`.
        schema: The columns as a DDL string (`"id bigint, at timestamp"`); may be left out for `text`, and
            must be for `binaryFile`, whose columns are Spark's own.
        starting: Where a first run begins: `earliest` (every file), `latest` (files that arrive from now on) or a
            time (files that arrived at or after it).
        max_files_per_batch: The most files of one batch.
        max_bytes_per_batch: The most bytes of one batch; one larger file makes a batch of its own.
        max_file_age: Ignore files this much older than the newest that was taken (`"7d"`); off by default.
        latest_first: Take the newest files first.
        file_name_only: Recognise a file by its name alone, whatever folder it is in.
        recursive_file_lookup: Search every folder below, and take none as a partition.
        path_glob_filter: A glob that file names must match.
        options: Further options of Spark's reader for the format, in snake_case.

    Raises:
        DeclarationError: An option is unknown or its value is not what it must be.
    """
    place = f"sources.files({path!r})"
    check_path(path, place)
    check_format(format, place, {**KIND_WORDS["sluice.sources"], **FORMAT_WORDS})
    _check_limits(max_files_per_batch, max_bytes_per_batch, place)
    flags = {"file_name_only": file_name_only, "recursive_file_lookup": recursive_file_lookup}
    check_booleans(place, latest_first=latest_first, **flags)
    _check_glob(path_glob_filter, place)
    _check_schema(schema, format, place)
    words = {**options_elsewhere(format), **SOURCE_WORDS}
    given = spark_options(options, {**FORMATS[format], **_PASSED_THROUGH}, place=place, ours=_ITS_OWN, words=words)
    check_reading(format, given, schema, place)
    return FilesSource(
        path=path,
        format=format,
        schema=WHOLE_FILES if format == "binaryFile" else schema,
        starting=parse_starting(starting, place),
        max_files_per_batch=max_files_per_batch,
        max_bytes_per_batch=max_bytes_per_batch,
        max_file_age_ms=None if max_file_age is None else duration_ms(max_file_age, "max_file_age", place),
        latest_first=latest_first,
        file_name_only=file_name_only,
        recursive_file_lookup=recursive_file_lookup,
        path_glob_filter=path_glob_filter,
        options=given,
    )


def _check_limits(max_files: int | None, max_bytes: int | None, place: str) -> None:
    check_limit(max_files, "max_files_per_batch", place)
    check_limit(max_bytes, "max_bytes_per_batch", place)
    if max_files is not None and max_bytes is not None:
        raise DeclarationError(
            "`max_files_per_batch` and `max_bytes_per_batch` are both set",
            where=place,
            remedy="Spark takes one of them",
        )


def _check_glob(path_glob_filter: object, place: str) -> None:
    if path_glob_filter is not None and (not isinstance(path_glob_filter, str) or not path_glob_filter):
        raise DeclarationError(
            f"`path_glob_filter` is {path_glob_filter!r}", where=place, remedy='give a pattern, as "*.json"'
        )


def _check_schema(schema: str | None, format: str, place: str) -> None:  # noqa: A002 - Spark's own name
    if schema is not None and (wrong := schema_problem(schema)) is not None:
        raise DeclarationError(wrong.problem, where=place, remedy=wrong.remedy)
    if format == "binaryFile":
        if schema is not None:
            raise DeclarationError(
                "`schema` is given, and the columns of `binaryFile` are Spark's own",
                where=place,
                remedy=f"leave it out: they are {WHOLE_FILES}",
            )
        return
    if schema is None and format != "text":
        raise DeclarationError(
            "`schema` is missing", where=place, remedy='give the columns as DDL: schema="id bigint, at timestamp"'
        )
