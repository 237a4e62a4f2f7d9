"""Runs the Python files of a pipeline without a Spark, and tells what they define: in a Python of its own.

`python -m sluice.pipelines.definitions ANSWER FILE...` reads settings, and writes a `Defined` into a file. The files
are somebody's code: they may end the process, or print. They get a session of Spark Connect that no server answers; a
DataFrame is described with it, and its description says what is read.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from sluice.errors import DeclarationError
from sluice.extras import check_extra
from sluice.foreign_code import described, error_line, is_failure
from sluice.pipelines import elements
from sluice.pipelines.elements import Elements, FlowElement, OutputElement, OutputKind, Read
from sluice.pipelines.inputs import Inputs, Witness
from sluice.typed_json import decode_as

if TYPE_CHECKING:
    from google.protobuf.message import Message  # type: ignore[import-untyped]

_MOST_SECONDS = 120
_NOBODY = "sc://127.0.0.1:1"
_ASKED = "its function asks Spark: by `spark.sql`, or for rows, columns or a schema"
_KNOWN = {"spark.sql.execution.pythonUDF.arrow.enabled": "false"}
"""What pyspark itself asks for, and what tells nothing of what is read."""


class Defined(msgspec.Struct, frozen=True):
    """What the Python files of a pipeline define, and what they read to define it."""

    elements: dict[str, Elements]
    """By file."""
    inputs: Inputs


def define(root: str, files: Sequence[str], conf: Mapping[str, str]) -> Defined:
    """What the Python files of a pipeline define.

    Args:
        root: The folder that the files run in: that of the spec.
        files: Where they are.
        conf: The settings that they may ask their session for.

    Raises:
        DeclarationError: Spark's packages are not installed, or the files ended their Python, or took too long.
    """
    check_extra("spark", "to read the Python files of a pipeline")
    with tempfile.TemporaryDirectory(prefix="sluice-pipeline-") as folder:
        answer = Path(folder, "elements.json")
        command = [sys.executable, "-m", "sluice.pipelines.definitions", str(answer), *files]
        # Its functions of columns are those of Spark Connect, which need no Spark.
        package = str(Path(__file__).parents[2])
        path = os.pathsep.join([package, *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = {**os.environ, "SPARK_CONNECT_MODE_ENABLED": "1", "PYTHONPATH": path}
        try:
            done = subprocess.run(
                command,
                cwd=root,
                env=environment,
                # Others see the words of a command.
                input=msgspec.json.encode(dict(conf)),
                capture_output=True,
                timeout=_MOST_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as exc:
            raise DeclarationError(
                f"the pipeline's Python files have not been read after {_MOST_SECONDS} s",
                where=root,
                remedy="let them define tables and flows, and wait for nothing",
            ) from exc
        if done.returncode or not answer.is_file():
            said = done.stderr.decode("utf-8", "replace").strip().splitlines()
            raise DeclarationError(
                f"the pipeline's Python files ended their Python: {said[-1][:300] if said else done.returncode}",
                where=root,
                remedy="let them define tables and flows, and end nothing",
            )
        return decode_as(answer.read_bytes(), Defined)


class Recorder:
    """A registry of pyspark's that keeps what it is told; its methods are those of `GraphElementRegistry`."""

    def __init__(self) -> None:
        self.outputs: list[Any] = []
        self.flows: list[Any] = []

    def register_output(self, output: Any) -> None:
        self.outputs.append(output)

    def register_flow(self, flow: Any) -> None:
        self.flows.append(flow)

    def register_auto_cdc_flow(self, flow: Any) -> None:
        self.flows.append(flow)


def run_file(file: str, recorder: Recorder, session: Any) -> None:
    """Run a file of definitions as `spark-pipelines` does: by its stem, and with `spark` in it.

    Raises:
        Exception: Whatever the file raises.
    """
    import importlib.util

    from pyspark.pipelines.graph_element_registry import graph_element_registration_context

    spec = importlib.util.spec_from_file_location(Path(file).stem, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} is no Python file")
    module = importlib.util.module_from_spec(spec)
    module.__dict__["spark"] = session
    registry: Any = recorder
    with graph_element_registration_context(registry):
        spec.loader.exec_module(module)


def _elements(file: str, session: Any) -> Elements:
    recorder = Recorder()
    try:
        run_file(file, recorder, session)
    except BaseException as exc:
        if not is_failure(exc) and not isinstance(exc, SystemExit):
            raise
        line = error_line(exc, file)
        number = None if line is None else line.rpartition(":")[2]
        return Elements(
            error=" ".join(described(exc).split())[:500],
            line=int(number) if number is not None and number.isdecimal() else None,
        )
    return Elements(
        tuple(_output(found, file) for found in recorder.outputs),
        tuple(_flow(found, file, session) for found in recorder.flows),
    )


_KINDS: dict[str, OutputKind] = {
    "StreamingTable": "streaming table",
    "MaterializedView": "materialized view",
    "TemporaryView": "temporary view",
    "Sink": "sink",
}


def _output(found: Any, file: str) -> OutputElement:
    return OutputElement(
        kind=_KINDS[type(found).__name__],
        name=found.name,
        file=file,
        line=found.source_code_location.line_number,
        format=getattr(found, "format", None),
        options={str(key): str(value) for key, value in (getattr(found, "options", None) or {}).items()},
        partition_by=tuple(getattr(found, "partition_cols", None) or ()),
    )


def _flow(found: Any, file: str, session: Any) -> FlowElement:
    is_auto_cdc = type(found).__name__ == "AutoCdcFlow"
    reads, tables, error = tuple[Read, ...](), tuple[str, ...](), None
    if not is_auto_cdc:
        try:
            plan = found.func()._plan.plan(session.client)
            reads, tables = tuple(reads_of(plan)), tuple(dict.fromkeys(_tables_of(plan)))
        except BaseException as exc:
            if not is_failure(exc) and not isinstance(exc, SystemExit):
                raise
            is_asked = type(exc).__name__ == "SparkConnectGrpcException"
            error = _ASKED if is_asked else " ".join(described(exc).split())[:500]
    return FlowElement(
        name=found.name or found.target,
        target=found.target,
        file=file,
        line=found.source_code_location.line_number,
        function=None if is_auto_cdc else found.func.__name__,
        is_auto_cdc=is_auto_cdc,
        reads=reads,
        tables=tables,
        conf={str(key): str(value) for key, value in (getattr(found, "spark_conf", None) or {}).items()},
        error=error,
    )


def reads_of(message: Message) -> Iterator[Read]:
    """What a plan reads as a stream."""
    for found in _all_reads(message):
        if found.is_streaming and found.HasField("named_table"):
            yield Read(table=found.named_table.unparsed_identifier, options=dict(found.named_table.options))
        elif found.is_streaming:
            source = found.data_source
            yield Read(
                format=source.format or None,
                schema=_ddl(source.schema) or None,
                paths=tuple(source.paths),
                options=dict(source.options),
            )


def _tables_of(message: Message) -> Iterator[str]:
    """The tables that a plan reads whole."""
    for found in _all_reads(message):
        if not found.is_streaming and found.HasField("named_table"):
            yield found.named_table.unparsed_identifier


def _all_reads(message: Message) -> Iterator[Any]:
    if message.DESCRIPTOR.full_name == "spark.connect.Read":
        yield message
    for field, value in message.ListFields():
        if field.message_type is None or field.message_type.GetOptions().map_entry:
            continue
        for inner in value if field.is_repeated else [value]:
            yield from _all_reads(inner)


def _ddl(schema: str) -> str:
    """A schema as DDL: a `StructType` is told as JSON."""
    if not schema.startswith("{"):
        return schema
    from pyspark.sql.types import StructType

    columns = StructType.fromJson(msgspec.json.decode(schema))
    return ", ".join(f"`{column.name}` {column.dataType.simpleString()}" for column in columns)


def _settings(conf: Mapping[str, str], operation: Any) -> Any:
    """What a session's server would answer that is asked for settings."""
    from pyspark.sql.connect.client.core import ConfigResult

    asked = operation.WhichOneof("op_type")
    pairs: list[tuple[str, str | None]] = []
    if asked == "get":
        for key in operation.get.keys:
            if key not in conf:
                raise LookupError(f"the pipeline's `configuration` does not set `{key}`")
        pairs = [(key, conf[key]) for key in operation.get.keys]
    elif asked == "get_option":
        pairs = [(key, conf.get(key)) for key in operation.get_option.keys]
    elif asked == "get_with_default":
        given = operation.get_with_default.pairs
        pairs = [(pair.key, conf.get(pair.key, pair.value if pair.HasField("value") else None)) for pair in given]
    else:
        raise LookupError(f"files of definitions have no session to ask for `{asked}`")
    return ConfigResult(pairs, [])


def main(answer: str, files: Sequence[str], conf: Mapping[str, str]) -> None:
    """Write what the files define into a file."""
    witness = Witness()
    for file in (__file__, elements.__file__):
        witness.note_file(file)
    from pyspark.errors.utils import is_debugging_enabled
    from pyspark.sql.connect.session import SparkSession

    # Once there is a session, pyspark would ask its server, and for good.
    is_debugging_enabled()
    session: Any = SparkSession(_NOBODY)
    session.client.set_retry_policies([])
    session.client.config = partial(_settings, {**_KNOWN, **conf})
    SparkSession._set_default_and_active_session(session)
    found = {file: _elements(file, session) for file in files}
    Path(answer).write_bytes(msgspec.json.encode(Defined(found, witness.inputs())))
    # At its end the session would wait for the server.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:], decode_as(sys.stdin.buffer.read(), dict[str, str]))
