"""Reading files, and observing what Spark would let pass without a word."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from sluice.errors import DeclarationError
from sluice.sources.contract import SOURCE_METRICS
from sluice.sql_text import identifier

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamReader
    from pyspark.sql.types import StructField

_MARK = "__sluice_malformed"

_NOTHING = "__sluice_nothing"
"""A column that no file has."""

_PASSING_OVER = {name: f"spark.sql.files.{name}" for name in ("ignoreMissingFiles", "ignoreCorruptFiles")}
"""The options that let Spark pass over files, with the settings that say it where an option does not."""
_MARK_SETTING = "spark.sql.columnNameOfCorruptRecord"


def passing_over(conf: Mapping[str, str]) -> dict[str, str]:
    """What a stream's settings say of the files that Spark may pass over, as options of its reader.

    A reader is given both: what else a session has been told, by whomever, then lets no file pass.

    Raises:
        DeclarationError: A variable says it, which another process may not have: what is read would depend on that.
    """
    for setting in _PASSING_OVER.values():
        if "${" in conf.get(setting, ""):
            raise DeclarationError(
                f"`{setting}` is {conf[setting]!r}",
                remedy="write `true` or `false`: whoever plans has to know which files Spark may pass over",
            )
    says = {name: conf.get(setting, "").strip().lower() == "true" for name, setting in _PASSING_OVER.items()}
    return {name: "true" if is_set else "false" for name, is_set in says.items()}


@dataclass(frozen=True)
class ObservedReading:
    """How the files of a source are read."""

    format: str
    schema: str
    options: Mapping[str, str]
    folders: Mapping[str, str] = field(default_factory=dict)
    """Columns that are names of folders, with the types that they are to have."""

    @property
    def columns(self) -> str:
        """What the files have, and what their folders tell, as DDL."""
        beside = (f"{identifier(name)} {kind}" for name, kind in self.folders.items())
        return ", ".join([self.schema, *beside])

    def load(self, reader: DataStreamReader | DataFrameReader, spark: SparkSession, name: str, path: Any) -> DataFrame:
        """Read, and observe what Spark would let pass without a word: malformed rows, and files that it can't read.

        A row is malformed where a column that the query uses can't be parsed. Spark marks it in a column that the
        schema must name; the rows that come out are those of the declared mode.
        """
        from pyspark.sql import functions
        from pyspark.sql.types import StructType

        mode = self.options.get("mode", "PERMISSIVE").upper()
        marks = (
            self.format in {"csv", "json", "xml"} and mode != "FAILFAST" and "singleVariantColumn" not in self.options
        )
        metrics: list[Column] = []
        mark, ours = "", []
        if marks:
            mark = str(self.options.get("columnNameOfCorruptRecord") or spark.conf.get(_MARK_SETTING))
            columns = cast("StructType", StructType.fromDDL(self.schema)).fields
            if mark not in {column.name for column in columns}:
                mark = _MARK
                ours.append(mark)
            beside = _NOTHING
            if self.format != "csv":
                ours.append(beside)
            else:
                # A column that is not in the data would make every row of a CSV file malformed.
                beside = _never_malformed([column for column in columns if column.name != mark]) or mark
            # Dropped rows are dropped here, where they are counted first.
            reader = reader.option("mode", "PERMISSIVE").option("columnNameOfCorruptRecord", mark)
            reader = reader.schema(", ".join([self.columns, *(f"`{added}` string" for added in ours)]))
            metrics.append(functions.expr(f"count({identifier(mark)}) AS malformed_rows"))
            # Spark refuses to read the mark alone, as a transform would that uses none of the columns.
            metrics.append(functions.expr(f"count({identifier(beside)}) AS used_column"))
        if "true" in {self.options.get("ignoreCorruptFiles"), self.options.get("ignoreMissingFiles")}:
            metrics.append(functions.size(functions.collect_set("_metadata.file_path")).alias("read_files"))
        frame = reader.load(path)
        if metrics:
            frame = frame.observe(f"{SOURCE_METRICS}{name}", *metrics)
        if marks and mode == "DROPMALFORMED":
            frame = frame.where(functions.col(identifier(mark)).isNull())
        return frame.drop(*ours) if ours else frame


def _never_malformed(columns: Sequence[StructField]) -> str | None:
    """A column of text, which any row can fill, or else the first one; None where there are none."""
    texts = [column.name for column in columns if column.dataType.typeName() == "string"]
    return next(iter((*texts, *(column.name for column in columns))), None)
