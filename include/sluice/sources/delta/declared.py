"""How a Delta table is declared as a source."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sluice.declaration_checks import check_booleans, check_limit, check_pattern, declares
from sluice.declared_table import declared_place, path_or_name
from sluice.errors import DeclarationError
from sluice.option_values import any_text, boolean
from sluice.other_names import SOURCE_WORDS
from sluice.sources.contract import parse_starting
from sluice.sources.delta.source import DeltaSource
from sluice.spark_options import spark_options


def _never_lost(text: str) -> str | None:
    """What is wrong with a value of `fail_on_data_loss`: a plan refuses versions that are gone, whatever Spark does."""
    if text == "false":
        return "leave it out: a plan refuses versions that are gone (`INPUT_GONE`), and passes over none"
    return boolean(text)


_OPTIONS = {
    "failOnDataLoss": _never_lost,
    **dict.fromkeys(["readChangeFeed", "withEventTimeOrder"], boolean),
    **dict.fromkeys(["excludeRegex", "schemaTrackingLocation"], any_text),
}
_ITS_OWN = (
    "table",
    "starting",
    "starting_version",
    "max_files_per_batch",
    "max_bytes_per_batch",
    "max_offsets_per_batch",
    "skip_change_commits",
    "ignore_deletes",
)


@declares("sources.delta()", SOURCE_WORDS)
def delta(
    path: str | None = None,
    *,
    starting: str | datetime = "earliest",
    starting_version: int | None = None,
    max_files_per_batch: int | None = None,
    max_bytes_per_batch: int | None = None,
    max_offsets_per_batch: int | None = None,
    skip_change_commits: bool = False,
    ignore_deletes: bool = False,
    table: str | None = None,
    **options: Any,
) -> DeltaSource:
    """Declare a Delta table as a source.

    Args:
        path: The table's folder; relative to the project, absolute, or a URL.
        starting: Where a first run begins: `earliest` (the table as it is then, and every change after), `latest`
            (changes from now on) or a time (changes committed at or after it).
        starting_version: Begin with the changes of this version in place of a snapshot.
        max_files_per_batch: The most files of one batch; 1,000 when no limit is declared, as in Spark.
        max_bytes_per_batch: A batch ends with the file that reaches this many bytes.
        max_offsets_per_batch: The most table versions of one batch.
        skip_change_commits: Pass over versions that delete or rewrite rows.
        ignore_deletes: Pass over versions that only delete rows.
        table: In place of a path, the table's name in a catalog of Spark's: `table`, `database.table` or
            `catalog.database.table`. Where it is, `[tables]` of `sluice.toml` says, or `spark.sql.warehouse.dir`.
        options: Further options of Delta's streaming reader, in snake_case.

    Raises:
        DeclarationError: An option is unknown or its value is not what it must be.
    """
    place = declared_place("sources.delta", path, table)
    known = spark_options(options, _OPTIONS, place=place, ours=_ITS_OWN, words=SOURCE_WORDS)
    where, name = path_or_name(path, table, place)
    check_limit(max_files_per_batch, "max_files_per_batch", place)
    check_limit(max_bytes_per_batch, "max_bytes_per_batch", place)
    check_limit(max_offsets_per_batch, "max_offsets_per_batch", place)
    check_booleans(place, skip_change_commits=skip_change_commits, ignore_deletes=ignore_deletes)
    if starting_version is not None:
        if not isinstance(starting_version, int) or isinstance(starting_version, bool) or starting_version < 0:
            raise DeclarationError(
                f"`starting_version` is {starting_version!r}", where=place, remedy="give a version number, 0 or above"
            )
        if starting != "earliest":
            raise DeclarationError("`starting` and `starting_version` are both set", where=place, remedy="keep one")
    if "exclude_regex" in options:
        check_pattern(options["exclude_regex"], "exclude_regex", place)
    return DeltaSource(
        path=where,
        table=name,
        starting=parse_starting(starting, place),
        starting_version=starting_version,
        max_files_per_batch=max_files_per_batch,
        max_bytes_per_batch=max_bytes_per_batch,
        max_offsets_per_batch=max_offsets_per_batch,
        skip_change_commits=skip_change_commits,
        ignore_deletes=ignore_deletes,
        options=known,
    )
