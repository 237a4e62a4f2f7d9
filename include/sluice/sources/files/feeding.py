"""Writes the files that a test bench gives to a source of files."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

from sluice.errors import DeclarationError
from sluice.locations import local_path
from sluice.sources.bench import FedSource, Feed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_CORRUPT = "columnNameOfCorruptRecord"
_WRITER = {"csv": {"ignoreLeadingWhiteSpace": "false", "ignoreTrailingWhiteSpace": "false"}}
"""What Spark's writer of a format must be told to write all of a value."""


class FedFiles(FedSource):
    """A folder into which files are written one by one."""

    path: str
    format: str
    schema: str | None
    options: Mapping[str, str]

    def placed(self, place_of: Callable[[str], str]) -> Self:
        options = {key: value for key, value in self.options.items() if key != "basePath"}
        path = place_of(self.path)
        changed = replace(cast("Any", self), path=path, options=options, path_glob_filter=None, within=None)
        return cast("Self", changed)

    def check_feed(self, feed: Feed, *, is_content: bool) -> None:
        if not is_content and self.format == "binaryFile":
            raise DeclarationError(
                "a row of a source of `binaryFile` is a file", where=feed.place, remedy='give its content: b"..."'
            )

    def fed_columns(self, session: Callable[[], SparkSession]) -> StructType | None:
        from pyspark.sql.types import StructType

        # Not the one that Spark puts rows into which it can't read.
        corrupt = self.options.get(_CORRUPT, "_corrupt_record")
        declared = session().createDataFrame([], self.schema or "value string").schema
        return StructType([field for field in declared if field.name != corrupt])

    def feed(self, rows: DataFrame | bytes, feed: Feed) -> str:
        folder = Path(local_path(self.path), feed.folder)
        folder.mkdir(parents=True, exist_ok=True)
        if isinstance(rows, bytes):
            file = folder / f"{feed.number:04d}.{self.format}"
            file.write_bytes(rows)
        else:
            file = self._write_with_spark(rows, folder, feed.number)
        stamp = feed.now.timestamp()
        os.utime(file, (stamp, stamp))
        return file.name

    def _write_with_spark(self, frame: DataFrame, folder: Path, number: int) -> Path:
        """Let Spark write one file by the options that it is read by."""
        aside = folder.parent / f".{folder.name}-{number}"
        options = {**self.options, **_WRITER.get(self.format, {})}
        frame.coalesce(1).write.format(self.format).options(**options).save(str(aside))
        parts = sorted(aside.glob("part-*"))
        file = folder / f"{number:04d}.{self.format}"
        if parts:
            # Its ending tells how it is compressed.
            file = folder / f"{number:04d}.{parts[0].name.partition('.')[2] or self.format}"
            parts[0].rename(file)
        else:
            file.touch()
        shutil.rmtree(aside)
        return file
