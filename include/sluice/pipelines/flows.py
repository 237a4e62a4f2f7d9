"""The flows of a pipeline as streams: what they read and write, on the checkpoint where Spark keeps it."""

from __future__ import annotations

import inspect
import keyword
import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sluice import sinks, sources
from sluice.declaration_checks import snake_case
from sluice.errors import DeclarationError
from sluice.locations import join
from sluice.pipelines.elements import Elements, FlowElement, OutputElement, Read
from sluice.pipelines.kept_definitions import defined_by
from sluice.pipelines.spec import PipelineSpec
from sluice.pipelines.sql_files import plain_tables, read_sql_file, with_names
from sluice.sinks.contract import Sink
from sluice.sources.contract import Source
from sluice.storage import Storage
from sluice.stream import Stream
from sluice.table_names import DEFAULT_DATABASE, SPARK_CATALOG, WAREHOUSE, TableName, warehouse_folder

_DEFAULT_FORMAT = "spark.sql.sources.default"
_FILES = ("json", "csv", "parquet", "orc", "text", "xml", "avro", "binaryfile")
_RENAMED = {"max_files_per_trigger": "max_files_per_batch", "max_bytes_per_trigger": "max_bytes_per_batch"}
_BOOLEANS = {"true": True, "false": False}
_VERSION = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True)
class Flow:
    """A flow that can be run as a stream."""

    stream: Stream
    element: FlowElement
    reads: Mapping[str, Read]
    """By the name of the source."""
    database: str
    """Where names of tables without one are looked for."""
    tables: Mapping[tuple[str, ...], tuple[str, str]]
    """By catalog, database and name, where a table is that it reads whole, and its format."""


@dataclass(frozen=True)
class Flows:
    """What the files of a pipeline define."""

    flows: dict[str, Flow] = field(default_factory=dict)
    """By the stream's name."""
    refused: dict[str, tuple[DeclarationError, str]] = field(default_factory=dict)
    """By the stream's name, why it can't be run as one, and the file that defines it."""
    unreadable: dict[str, DeclarationError] = field(default_factory=dict)
    """By file, why it does not load."""
    views: tuple[OutputElement, ...] = ()
    """The materialized views, which are no streams: `spark-pipelines run` computes them anew."""

    def view(self, name: str) -> OutputElement | None:
        """The materialized view of a name, spelled as those of streams."""
        return next((view for view in self.views if stream_name(view.name) == name), None)


def read_flows(
    spec: PipelineSpec, conf: Mapping[str, str], tables: Mapping[TableName, str], kept_at: str, storage: Storage
) -> Flows:
    """Read the files of a pipeline, and where its checkpoints and tables are.

    Args:
        spec: The pipeline.
        conf: Spark's settings: where the warehouse is, and which format is the default.
        tables: Where the tables are that the project tells by their names.
        kept_at: Where it is kept what the Python files define.
        storage: Reads the folders of checkpoints and tables.

    Raises:
        DeclarationError: The Python files can't be run.
    """
    elements, unreadable = _elements(spec, conf, kept_at, storage)
    outputs = [output for found in elements for output in found.outputs]
    graph = _Graph(spec, conf, tables, storage, {_full_name(output.name, spec): output for output in outputs})
    flows = [flow for found in elements for flow in found.flows]
    streaming = [flow for flow in flows if graph.kind(flow.target) not in {"materialized view", "temporary view"}]
    made, refused = dict[str, Flow](), dict[str, tuple[DeclarationError, str]]()
    for flow in streaming:
        name = stream_name(flow.name)
        try:
            if name in made or name in refused:
                raise DeclarationError(
                    f"two flows are called `{name}`", remedy="give one another name: `spark-pipelines` refuses both"
                )
            made[name] = graph.flow(name, flow)
        except DeclarationError as exc:
            made.pop(name, None)
            refused[name] = exc.at(f"{flow.file}:{flow.line}: flow `{flow.name}`"), flow.file
    views = tuple(output for output in outputs if output.kind == "materialized view")
    return Flows(made, refused, unreadable, views)


def stream_name(flow: str) -> str:
    """What a flow's stream is called: as the flow, with `-` between the parts of its name."""
    return flow.replace("`", "").replace(".", "-")


def _elements(
    spec: PipelineSpec, conf: Mapping[str, str], kept_at: str, storage: Storage
) -> tuple[list[Elements], dict[str, DeclarationError]]:
    files, unreadable, elements = spec.files(), dict[str, DeclarationError](), list[Elements]()
    defined = defined_by(spec, [file for file in files if file.endswith(".py")], conf, kept_at, storage)
    for file in files:
        try:
            if file not in defined and not file.endswith(".sql"):
                raise DeclarationError(
                    "the pipeline's `libraries` take in a file that is neither .py nor .sql",
                    where=file,
                    remedy="move it: `spark-pipelines` refuses it, too",
                )
            found = defined[file] if file in defined else read_sql_file(file)
            if found.error is not None:
                place = file if found.line is None else f"{file}:{found.line}"
                raise DeclarationError(f"the file does not import: {found.error}", where=place, remedy="correct it")
            elements.append(found)
        except DeclarationError as exc:
            unreadable[file] = exc
    return elements, unreadable


@dataclass(frozen=True)
class _Graph:
    """A pipeline, and where its parts are."""

    spec: PipelineSpec
    conf: Mapping[str, str]
    tables: Mapping[TableName, str]
    storage: Storage
    outputs: Mapping[tuple[str, ...], OutputElement]

    def kind(self, name: str) -> str | None:
        found = self.outputs.get(_full_name(name, self.spec))
        return None if found is None else found.kind

    def flow(self, name: str, flow: FlowElement) -> Flow:
        """A flow as a stream.

        Raises:
            DeclarationError: It can't be run as one.
        """
        target = self.outputs.get(_full_name(flow.target, self.spec))
        if target is None:
            raise DeclarationError(
                f"no file defines `{flow.target}`, which it writes to", remedy="define it, or correct the target"
            )
        if flow.is_auto_cdc:
            raise DeclarationError(
                "it is an auto CDC flow, which Sluice does not run on Spark's checkpoint",
                remedy="run it by `spark-pipelines run`; a stream with `sinks.delta(PATH, changes=...)` does the same",
            )
        if flow.error is not None:
            raise DeclarationError(
                f"what it reads is not known without Spark: {flow.error}",
                remedy="let its function describe a DataFrame, and neither compute nor analyse one",
            )
        if not flow.reads:
            raise DeclarationError(
                "it reads nothing as a stream", remedy="read by `spark.readStream`, or `STREAM(...)` in SQL"
            )
        checkpoint = self._checkpoint(target, flow)
        reads = _named(flow.reads, () if flow.sql is None else plain_tables(flow.sql))
        read = {source: self._source(found) for source, found in reads.items()}
        stream = Stream(
            name=name,
            sources=read,
            sink=self._sink(target),
            checkpoint=checkpoint,
            conf=dict(flow.conf) or None,
            declared_at=f"{flow.file}:{flow.line}",
            sql=None if flow.sql is None else with_names(flow.sql, list(reads)),
            transform=self._reference(flow) if flow.sql is None else None,
        )
        tables = {
            _full_name(table, self.spec): found
            for table in flow.tables
            if (found := self._read_whole(table)) is not None
        }
        return Flow(stream, flow, reads, self.spec.database or "default", tables)

    def _read_whole(self, name: str) -> tuple[str, str] | None:
        """Where a table is that a flow reads beside its streams, and its format; None for one that Spark must find."""
        if self.kind(name) == "temporary view":
            raise DeclarationError(
                f"it reads the temporary view `{name}`",
                remedy="run it by `spark-pipelines run`, or write the view's query into the flow",
            )
        if "/" in _full_name(name, self.spec)[-1]:
            # A format and a path: no catalog has it.
            return None
        if self.kind(name) is None and self.storage.list_folder(self._folder(name)) is None:
            return None
        folder = self._table(name)
        return folder, "delta" if "_delta_log" in self._folders(folder) else self._format(name)

    def _format(self, name: str) -> str:
        found = self.outputs.get(_full_name(name, self.spec))
        return (found and found.format) or self.conf.get(_DEFAULT_FORMAT, "parquet")

    def _checkpoint(self, target: OutputElement, flow: FlowElement) -> str:
        parts = (target.name,) if target.kind == "sink" else _full_name(target.name, self.spec)
        folder = join(self.spec.storage, "_checkpoints", *parts, flow.name.rpartition(".")[2])
        versions = [int(name) for name in self._folders(folder) if _VERSION.fullmatch(name)]
        if not versions:
            raise DeclarationError(
                "it has no checkpoint yet, which its first run makes, with its table",
                where=folder,
                remedy="run the pipeline once: `spark-pipelines run`",
            )
        return join(folder, str(max(versions)))

    def _folders(self, location: str) -> list[str]:
        found = self.storage.list_folder(location)
        return [] if found is None else found.folders

    def _table(self, name: str) -> str:
        """Where a table is.

        Raises:
            DeclarationError: It is not where Spark puts tables.
        """
        catalog, database, table = _full_name(name, self.spec)
        if "/" in table:
            raise DeclarationError(f"it streams from a path, {table}", remedy="name a table; or `spark-pipelines run`")
        folder = self._folder(name)
        is_known = catalog == SPARK_CATALOG or TableName.of(catalog, database, table) in self.tables
        if not is_known or self.storage.list_folder(folder) is None:
            raise DeclarationError(
                f"the table `{catalog}.{database}.{table}` is not in the folder {folder}",
                remedy=f"say where it is: under [tables], or by `{WAREHOUSE}` under [spark.conf], of a sluice.toml that"
                f' has `pipeline = "{Path(self.spec.file).name}"` under [project]',
            )
        return folder

    def _folder(self, name: str) -> str:
        """Where a table is: where the project says, else where the warehouse has it."""
        catalog, database, table = _full_name(name, self.spec)
        if (told := self.tables.get(TableName.of(catalog, database, table))) is not None:
            return told
        warehouse = self.conf.get(WAREHOUSE) or os.path.join(self.spec.root, "spark-warehouse")
        return warehouse_folder(warehouse, database, table)

    def _sink(self, target: OutputElement) -> Sink:
        if target.kind == "sink":
            path = target.options.get("path")
            if target.format == "delta" and path is not None:
                options = {snake_case(key): value for key, value in target.options.items() if key != "path"}
                if options.pop("merge_schema", "false").lower() == "true":
                    options["schema_evolution"] = "add"
                return sinks.delta(path, **options)  # type: ignore[arg-type]
            raise DeclarationError(
                f"it writes to the sink `{target.name}` of format `{target.format}`",
                remedy="run it by `spark-pipelines run`: of sinks, Sluice runs those of format `delta` with a `path`",
            )
        folder = self._table(target.name)
        kind = self._format(target.name)
        if kind == "delta" and "_delta_log" in self._folders(folder):
            return sinks.delta(folder, partition_by=target.partition_by)
        if kind == "parquet":
            # Spark's pipelines partition it in the catalog alone: its flows write no folders of partitions.
            return sinks.files(folder, format=kind)
        raise DeclarationError(
            f"it writes to a table of format `{kind}`, which is not at {folder}",
            remedy="run it by `spark-pipelines run`: Sluice runs flows into tables of Delta and of Parquet",
        )

    def _source(self, read: Read) -> Source:
        if read.table is not None:
            if self.kind(read.table) == "temporary view":
                raise DeclarationError(
                    f"it reads the temporary view `{read.table}` as a stream",
                    remedy="run it by `spark-pipelines run`, or write the view's query into the flow",
                )
            folder = self._table(read.table)
            if "_delta_log" not in self._folders(folder):
                raise DeclarationError(
                    f"it reads the table `{read.table}` as a stream, which is no Delta table",
                    where=folder,
                    remedy="run it by `spark-pipelines run`, or define the table with the format `delta`",
                )
            return sources.delta(folder, **_python_options(read.options, sources.delta))
        options = {key: value for key, value in read.options.items() if key.lower() != "path"}
        paths = [value for key, value in read.options.items() if key.lower() == "path"] or read.paths
        path = paths[0] if len(paths) == 1 else None
        kind = (read.format or self.conf.get(_DEFAULT_FORMAT, "parquet")).lower()
        if path is not None and kind == "delta":
            return sources.delta(path, **_python_options(options, sources.delta))
        if path is not None and kind in _FILES:
            whole = "binaryFile" if kind == "binaryfile" else kind
            return sources.files(path, format=whole, schema=read.schema, **_python_options(options, sources.files))
        if kind == "rate-micro-batch":
            return sources.rate_micro_batch(**_rate_options(_python_options(options, sources.rate_micro_batch)))
        raise DeclarationError(
            f"it reads a source of format `{kind}`",
            remedy="run it by `spark-pipelines run`: Sluice runs flows that read files, Delta or rate-micro-batch",
        )

    def _reference(self, flow: FlowElement) -> str:
        module = os.path.relpath(flow.file, self.spec.root).removesuffix(".py").replace(os.sep, ".")
        if not all(part.isidentifier() for part in module.split(".")) or not (flow.function or "").isidentifier():
            raise DeclarationError(
                f"its function `{flow.function}` in `{module}` has no name that Python can import",
                remedy="let folder, file and function have names of letters, digits and `_`",
            )
        return f"{module}:{flow.function}"


def _python_options(options: Mapping[str, str], declare: Callable[..., Any]) -> dict[str, Any]:
    """Spark's options by the names, and of the types, that a function takes that declares a source or a sink."""
    types = {name: found.annotation for name, found in inspect.signature(declare).parameters.items()}
    found: dict[str, Any] = {}
    for key, value in options.items():
        name = _RENAMED.get(snake_case(key), snake_case(key))
        if types.get(name) == "bool":
            found[name] = _BOOLEANS.get(value.lower(), value)
        else:
            is_number = types.get(name) in {"int", "int | None"} and value.isdecimal()
            found[name] = int(value) if is_number else value
    return found


def _rate_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of `rate-micro-batch` as a source's; into how many partitions the rows are cut changes none."""
    found = {name: value for name, value in options.items() if name != "num_partitions"}
    if (start := found.get("start_timestamp", "")).isdecimal():
        found["start_timestamp"] = datetime.fromtimestamp(int(start) / 1000, UTC)
    return found


def _named(reads: Sequence[Read], taken: Collection[str]) -> dict[str, Read]:
    """Reads by names that sources can have: of the table, or of the last folder.

    Args:
        reads: What a flow reads as a stream.
        taken: Names, in small letters, that mean something else in its query.
    """
    named: dict[str, Read] = {}
    for read in reads:
        where = read.table or (read.paths[0].rstrip("/") if read.paths else read.format or "source")
        last = re.split(r"[./]", where)[-1] if read.table else where.rpartition("/")[2]
        plain = re.sub(r"\W", "_", last.replace("`", ""))
        base = plain if plain and not plain[0].isdigit() else f"_{plain}"
        base = f"{base}_" if keyword.iskeyword(base) else base
        name, number = base, 2
        while name.lower() in {*taken, *(other.lower() for other in named)}:
            name, number = f"{base}_{number}", number + 1
        named[name] = read
    return named


def _full_name(name: str, spec: PipelineSpec) -> tuple[str, ...]:
    """Catalog, database and name.

    Raises:
        DeclarationError: The name has more parts than these.
    """
    # A path has dots of its own.
    parts = name.replace("`", "").split(".", 1 if "/" in name else -1)
    if len(parts) > 3:
        raise DeclarationError(f"`{name}` is no name of a table", remedy="write it as catalog.database.name")
    return tuple([spec.catalog or SPARK_CATALOG, spec.database or DEFAULT_DATABASE][: max(0, 3 - len(parts))] + parts)
