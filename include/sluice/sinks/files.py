"""Files as a sink: Spark's own, with its manifest `_spark_metadata`.

The manifest is what makes it idempotent: Spark skips every batch id up to the manifest's newest one. It also means
that a checkpoint and its folder belong together; readers that ignore the manifest see files that do not count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

from sluice.checkpoint.manifest import latest_batch
from sluice.project import resolve_path
from sluice.spark_options import FORMATS, check_format, spark_options
from sluice.storage import Storage, spark_location
from sluice.stream import FunctionLoader, OutputMode, Sink, SinkState

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter


@dataclass(frozen=True)
class FilesSink(Sink):
    """Declared by `sinks.files`."""

    kind: ClassVar[str] = "files"
    output_modes: ClassVar[tuple[OutputMode, ...]] = ("append",)
    is_idempotent: ClassVar[bool] = True

    path: str
    format: str
    partition_by: tuple[str, ...]
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def location(self) -> str:
        return self.path

    def resolved(self, project_root: str) -> FilesSink:
        return replace(self, path=resolve_path(self.path, project_root, place=f"sinks.files({self.path!r})"))

    def state(self, query_id: str | None, *, storage: Storage) -> SinkState:
        exists = storage.list_folder(self.path) is not None
        return SinkState(exists=exists, last_batch=latest_batch(self.path, storage=storage))

    def writer(self, frame: DataFrame, *, load_function: FunctionLoader) -> DataStreamWriter:
        writer = frame.writeStream.format(self.format).options(**self.options)
        if self.partition_by:
            writer = writer.partitionBy(*self.partition_by)
        return writer.option("path", spark_location(self.path))


def files(path: str, *, format: str, partition_by: Sequence[str] = (), **options: Any) -> FilesSink:  # noqa: A002 - Spark's own name
    """Declare a folder of files as the sink.

    Args:
        path: The folder; relative to the project, absolute, or a URL.
        format: `json`, `csv`, `parquet`, `orc` or `text`.
        partition_by: Columns whose values become folders.
        options: Further options of Spark's writer for the format, in snake_case.

    Raises:
        DeclarationError: An option is unknown or its value is not what it must be.
    """
    place = f"sinks.files({path!r})"
    check_format(format, place)
    known = spark_options(options, FORMATS[format], place=place, ours=("format", "partition_by"))
    return FilesSink(path, format, tuple(partition_by), known)
