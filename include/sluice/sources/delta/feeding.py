"""Writes the versions that a test bench gives to a Delta source."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self, cast

from sluice.delta_log.commit_times import newest_version, stamp_commits
from sluice.errors import DeclarationError
from sluice.locations import local_path
from sluice.sources.bench import FedSource, Feed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

TRACKED = "schemaTrackingLocation"


class FedDeltaTable(FedSource):
    """A Delta table to which versions are added one by one."""

    path: str
    options: Mapping[str, str]

    def placed(self, place_of: Callable[[str], str]) -> Self:
        options = {key: place_of(value) if key == TRACKED else value for key, value in self.options.items()}
        return cast("Self", replace(cast("Any", self), path=place_of(self.path), table=None, options=options))

    def check_feed(self, feed: Feed, *, is_content: bool) -> None:
        if is_content:
            raise DeclarationError("a Delta table has rows, and no files of text", where=feed.place, remedy="give rows")
        if feed.folder:
            raise DeclarationError(
                "a Delta table has folders of its own", where=feed.place, remedy="leave out `folder`"
            )

    def fed_columns(self, session: Callable[[], SparkSession]) -> StructType | None:
        from deltalake import DeltaTable
        from pyspark.sql.types import StructType

        table = local_path(self.path)
        if not DeltaTable.is_deltatable(table):
            return None
        found: StructType = StructType.fromJson(json.loads(DeltaTable(table).schema().to_json()))
        return found

    def feed(self, rows: DataFrame | bytes, feed: Feed) -> str:
        from deltalake import write_deltalake

        table, frame = local_path(self.path), cast("DataFrame", rows)
        before = newest_version(table)
        write_deltalake(table, frame.toArrow(), mode="append")
        stamp_commits(table, feed.now, after=before)
        return f"version {newest_version(table)}"
