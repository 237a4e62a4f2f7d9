"""Reads a Delta table in a test bench, and gives its commits the time there."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

from sluice.delta_log.commit_times import newest_version, stamp_commits
from sluice.locations import local_path, spark_location
from sluice.sinks.bench import ReadBackSink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType


class ReadBackDeltaTable(ReadBackSink):
    """A Delta table on this machine."""

    commits_folder: ClassVar[str] = "_delta_log"

    path: str

    def placed(self, place_of: Callable[[str], str], stream: str) -> Self:
        return cast("Self", replace(cast("Any", self), path=place_of(self.path), table=None))

    def kept_rows(
        self, spark: SparkSession, result: Callable[[], StructType], *, only_newest: bool
    ) -> tuple[StructType | None, Iterable[Mapping[str, Any]]]:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaProtocolError
        from pyspark.sql.types import StructType

        place = local_path(self.path)
        if not DeltaTable.is_deltatable(place):
            return None, []
        table = DeltaTable(place)
        try:
            found = table.to_pyarrow_table().to_pylist()
        except DeltaProtocolError:
            # What only Delta itself reads, such as a table with deletion vectors.
            frame = spark.read.format("delta").load(spark_location(self.path))
            return frame.schema, frame.toArrow().to_pylist()
        return StructType.fromJson(json.loads(table.schema().to_json())), found

    def newest_commit(self) -> int:
        return newest_version(local_path(self.path))

    def stamp_commits(self, now: datetime, *, after: int) -> None:
        stamp_commits(local_path(self.path), now, after=after)
