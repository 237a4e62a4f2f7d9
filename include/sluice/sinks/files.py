"""Files as a sink: Spark's own, with its manifest `_spark_metadata`.

The manifest is what makes it idempotent: Spark skips every batch id up to the manifest's newest one. It also means
that a checkpoint and its folder belong together; readers that ignore the manifest see files that do not count.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import unquote

from sluice.checkpoint.manifest import files_of_batch, latest_batch, newest_file
from sluice.declaration_checks import check_path, column_names, declares
from sluice.errors import DeclarationError
from sluice.locations import is_local, join, local_path, same_for_every_name, spark_location
from sluice.other_names import KIND_WORDS, SINK_WORDS
from sluice.sinks.bench import ReadBackSink
from sluice.sinks.contract import BatchOutcome, FunctionLoader, OutputMode, SinkState, SinkUse
from sluice.spark_options import FORMATS, check_format, check_settings, check_together, options_elsewhere, spark_options
from sluice.storage import Storage
from sluice.surroundings import Surroundings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter
    from pyspark.sql.types import StructType

_TYPELESS = ("csv", "json", "text", "xml")
"""The formats that do not tell the types of their columns."""
_MOST_FOOTERS = 1000
_STATE_FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"
"""Of how many files of a batch the rows are counted."""


@dataclass(frozen=True)
class FilesSink(ReadBackSink):
    """Declared by `sinks.files`."""

    kind: ClassVar[str] = "files"
    output_modes: ClassVar[tuple[OutputMode, ...]] = ("append",)
    is_idempotent: ClassVar[bool] = True
    is_of_one_query: ClassVar[bool] = True
    commits_folder: ClassVar[str] = "_spark_metadata"

    path: str
    format: str
    partition_by: tuple[str, ...]
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def needs_jars(self) -> bool:
        return self.format == "avro"

    @property
    def location(self) -> str:
        return self.path

    def resolved(self, around: Surroundings) -> FilesSink:
        return replace(self, path=around.path(self.path, place=f"sinks.files({self.path!r})"))

    def placed(self, place_of: Callable[[str], str], stream: str) -> FilesSink:
        return replace(self, path=place_of(self.path))

    def kept_rows(
        self, spark: SparkSession, result: Callable[[], StructType], *, only_newest: bool
    ) -> tuple[StructType | None, Iterable[Mapping[str, Any]]]:
        if not os.path.isdir(os.path.join(local_path(self.path), self.commits_folder)):
            return None, []
        reader = spark.read.format(self.format).options(**self.options)
        frame = (reader.schema(result()) if self.format in _TYPELESS else reader).load(spark_location(self.path))
        return frame.schema, frame.toArrow().to_pylist()

    def check_settings(self, conf: Mapping[str, str], *, place: str) -> None:
        check_settings(self.format, self.options, conf, place=place)
        if conf.get(_STATE_FORMAT, "1") != "1":
            raise DeclarationError(
                f"`{_STATE_FORMAT}` is {conf[_STATE_FORMAT]}, and the sink writes files",
                where=place,
                remedy="leave it out for this stream, or write into a Delta table: behind a driver that died after the"
                " sink's commit, Spark passes over the batch, and then does not know what its state is called",
            )

    def check_table(self, use: SinkUse) -> None:
        if use.storage.list_folder(join(self.path, "_delta_log")) is not None:
            raise DeclarationError(
                "the sink's path is a Delta table, which would not know of the files",
                where=f"{use.place}, {self.path}",
                remedy="declare it as `sinks.delta(PATH)`, or name a folder of its own",
            )
        published = newest_file(self.path, storage=use.storage)
        if published is not None:
            self._check_layout(published, use.place)

    def _check_layout(self, published: str, place: str) -> None:
        """Make sure that whoever reads the folder finds what was published and what is to be, in one layout.

        Raises:
            DeclarationError: Spark's manifest names files elsewhere, or in folders of other columns.
        """
        folder, columns = published.rpartition("/")[0], list[str]()
        ours = same_for_every_name(spark_location(self.path))
        # The manifest has URIs, in which a blank is `%20`, also of an object store.
        while ours not in (same_for_every_name(folder), same_for_every_name(unquote(folder))):
            folder, _, name = folder.rpartition("/")
            # The names of folders have escapes of their own.
            column, is_value, _ = unquote(name).partition("=")
            if not is_value:
                raise DeclarationError(
                    f"the sink's manifest names files elsewhere, as {published}",
                    where=f"{place}, {self.path}",
                    remedy="move the folder back to where it was written, or declare a new stream with a sink of its"
                    " own: whoever reads this folder would not see what was there",
                )
            columns.insert(0, unquote(column))
        # Spark takes a column in any case, and names the folder by its own.
        if [column.lower() for column in columns] != [column.lower() for column in self.partition_by]:
            raise DeclarationError(
                f"the sink's files are partitioned by {_told(columns)},"
                f" and `partition_by` says {_told(self.partition_by)}",
                where=f"{place}, {self.path}",
                remedy=f"declare `partition_by={columns}`, or a new stream with a sink of its own: whoever reads this"
                " folder would not see one or the other",
            )

    @property
    def partition_columns(self) -> tuple[str, ...]:
        return self.partition_by

    @property
    def form(self) -> str:
        return f"{self.kind}, {self.format}"

    def state(self, query_id: str | None, *, storage: Storage) -> SinkState:
        exists = storage.list_folder(self.path) is not None
        return SinkState(exists=exists, last_batch=latest_batch(self.path, storage=storage), notes_every_batch=True)

    def outcome(self, query_id: str, batch_id: int, *, storage: Storage) -> BatchOutcome | None:
        """The rows of files that tell them, and that are on this machine; the manifest tells of no more than names."""
        if self.format != "parquet" or not is_local(self.path):
            return None
        files = files_of_batch(self.path, batch_id, storage=storage)
        rows = _rows(files) if files is not None and len(files) <= _MOST_FOOTERS else None
        return None if rows is None else BatchOutcome(output_rows=rows)

    def writer(self, frame: DataFrame, *, load_function: FunctionLoader) -> DataStreamWriter:
        writer = frame.writeStream.format(self.format).options(**self.options)
        if self.partition_by:
            writer = writer.partitionBy(*self.partition_by)
        return writer.option("path", spark_location(self.path))


def _rows(files: Sequence[str]) -> int | None:
    """How many rows some files of Parquet have; None where one can't be read."""
    from pyarrow import ArrowException, parquet

    try:
        return sum(int(parquet.read_metadata(local_path(file)).num_rows) for file in files)
    except (OSError, ArrowException):
        return None


def _told(columns: Sequence[str]) -> str:
    return ", ".join(f"`{column}`" for column in columns) or "nothing"


@declares("sinks.files()", SINK_WORDS)
def files(
    path: str,
    *,
    format: str,  # noqa: A002 - Spark's own name
    partition_by: str | Sequence[str] = (),
    **options: Any,
) -> FilesSink:
    """Declare a folder of files as the sink.

    Args:
        path: The folder; relative to the project, absolute, or a URL.
        format: `json`, `csv`, `parquet`, `orc`, `text`, `avro` or `xml`.
        partition_by: Columns whose values become folders, or the one that there is.
        options: Further options of Spark's writer for the format, in snake_case.

    Raises:
        DeclarationError: An option is unknown or its value is not what it must be.
    """
    place = f"sinks.files({path!r})"
    check_path(path, place)
    check_format(format, place, {**KIND_WORDS["sluice.sinks"], "delta": "write it as `sinks.delta(PATH)`"})
    if format == "binaryFile":
        raise DeclarationError(
            "Spark writes no files of the format `binaryFile`",
            where=place,
            remedy="write them in a function: `sinks.foreach_batch(...)`",
        )
    words = {**options_elsewhere(format), **SINK_WORDS}
    # Spark's writers know no `mode` but that of the batch, which the stream's output mode is.
    known = {option: check for option, check in FORMATS[format].items() if option != "mode"}
    given = spark_options(options, known, place=place, ours=("format", "partition_by"), words=words)
    check_together(format, given, place)
    return FilesSink(path, format, column_names(partition_by, "partition_by", place), given)
