"""A lineage server on loopback that checks each event by OpenLineage's specification, as far as its client has it."""

from __future__ import annotations

import json
import os
import threading
import types
import typing
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlparse
from uuid import UUID

import attr
import pytest
from openlineage.client import facet_v2
from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState

from sluice.lineage import sending
from sluice.lineage.jobs import SluiceRunFacet
from sluice.times import parse_time

FACETS = {
    ("run", "facets"): {
        "errorMessage": facet_v2.error_message_run.ErrorMessageRunFacet,
        "nominalTime": facet_v2.nominal_time_run.NominalTimeRunFacet,
        "parent": facet_v2.parent_run.ParentRunFacet,
        "processing_engine": facet_v2.processing_engine_run.ProcessingEngineRunFacet,
        "sluice": SluiceRunFacet,
        "tags": facet_v2.tags_run.TagsRunFacet,
        "test": facet_v2.test_run.TestRunFacet,
    },
    ("job", "facets"): {
        "jobType": facet_v2.job_type_job.JobTypeJobFacet,
        "sourceCodeLocation": facet_v2.source_code_location_job.SourceCodeLocationJobFacet,
        "sql": facet_v2.sql_job.SQLJobFacet,
    },
    ("dataset", "facets"): {
        "columnLineage": facet_v2.column_lineage_dataset.ColumnLineageDatasetFacet,
        "dataQualityAssertions": facet_v2.data_quality_assertions_dataset.DataQualityAssertionsDatasetFacet,
        "dataQualityMetrics": facet_v2.data_quality_metrics_dataset.DataQualityMetricsDatasetFacet,
        "schema": facet_v2.schema_dataset.SchemaDatasetFacet,
        "version": facet_v2.dataset_version_dataset.DatasetVersionDatasetFacet,
    },
    ("dataset", "inputFacets"): {
        "dataQualityAssertions": facet_v2.data_quality_assertions_dataset.DataQualityAssertionsDatasetFacet,
        "dataQualityMetrics": facet_v2.data_quality_metrics_input_dataset.DataQualityMetricsInputDatasetFacet,
        "inputStatistics": facet_v2.input_statistics_input_dataset.InputStatisticsInputDatasetFacet,
    },
    ("dataset", "outputFacets"): {
        "outputStatistics": facet_v2.output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet
    },
}
"""What each facet may be, by where it stands; the client's classes are made from the schemas of the specification."""


_SPELLED_BY_THE_CLIENT = [
    f"{where}{what}" for where in ("", "TRANSPORTS__DEFAULT_HTTP__") for what in ("TYPE", "URL", "AUTH", "ENDPOINT")
]
"""As what else the client spells `OPENLINEAGE_URL` and its like, in this process's environment."""


def check_event(event: dict[str, Any]) -> None:
    """Make sure that an event is one of the specification's, and that all facets in it are.

    Raises:
        AssertionError: It is not.
    """
    _check(RunEvent, event, "event", without={"run", "job", "inputs", "outputs"})
    assert parse_time(event["eventTime"]) is not None
    assert event["eventType"] in {state.value for state in RunState}
    assert all(urlparse(event[name]).scheme for name in ("producer", "schemaURL"))
    UUID(event["run"]["runId"])
    _check(Run, event["run"], "run", without={"facets"})
    _check(Job, event["job"], "job", without={"facets"})
    _check_facets("run", event["run"])
    _check_facets("job", event["job"])
    for kind, name in ((InputDataset, "inputs"), (OutputDataset, "outputs")):
        names = [(dataset["namespace"], dataset["name"]) for dataset in event[name]]
        assert len(names) == len(set(names)), f"{name} come twice: {names}"
        for dataset in event[name]:
            assert dataset["namespace"], dataset
            assert dataset["name"], dataset
            _check(kind, dataset, name, without={"facets", "inputFacets", "outputFacets"})
            _check_facets("dataset", dataset)


def _check_facets(owner: str, value: dict[str, Any]) -> None:
    for (whose, where), known in FACETS.items():
        for name, facet in value.get(where, {}).items() if whose == owner else ():
            assert name in known, f"{owner}.{where} has `{name}`"
            assert all(urlparse(facet[each]).scheme for each in ("_producer", "_schemaURL")), facet
            assert facet["_schemaURL"] == known[name]._get_schema()
            _check(known[name], facet, name)


def _check(kind: Any, value: Any, where: str, *, without: typing.Collection[str] = ()) -> None:
    """Make sure that a value has the fields of a class, all that it must have, and of their types."""
    if not attr.has(kind):
        _check_type(kind, value, where)
        return
    assert isinstance(value, dict), f"{where} is {value!r}"
    hints, fields = typing.get_type_hints(kind), {found.name: found for found in attr.fields(kind)}
    assert value.keys() <= fields.keys(), f"{where} has {value.keys() - fields.keys()}"
    for name, found in fields.items():
        if name in without:
            continue
        if name not in value:
            assert found.default is not attr.NOTHING, f"{where} lacks `{name}`"
        elif name != "eventType":
            _check_type(hints.get(name, Any), value[name], f"{where}.{name}")


def _check_type(kind: Any, value: Any, where: str) -> None:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return
    if attr.has(kind):
        _check(kind, value, where)
    elif origin in {types.UnionType, typing.Union}:
        kinds = [each for each in arguments if each is not type(None)]
        if value is not None or type(None) not in arguments:
            _check(kinds[0], value, where)
    elif origin is list:
        assert isinstance(value, list), f"{where} is {value!r}"
        for each in value:
            _check(arguments[0], each, where)
    elif origin is dict:
        assert isinstance(value, dict), f"{where} is {value!r}"
        for each in value.values():
            _check(arguments[1], each, where)
    else:
        kinds = (int, float) if kind is float else (kind,)
        assert isinstance(value, kinds), f"{where} is {value!r}"
        assert kind is bool or not isinstance(value, bool), f"{where} is {value!r}"


@dataclass
class Told:
    """The events that came, in order."""

    events: list[dict[str, Any]] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    """What is wrong with some of them."""

    def of(self, job: str) -> list[dict[str, Any]]:
        """The events of a job, all of which are right."""
        assert self.wrong == []
        return [event for event in self.events if event["job"]["name"] == job]

    def take(self, event: dict[str, Any]) -> None:
        """Note an event, and what is wrong with it."""
        self.events.append(event)
        try:
            check_event(event)
        except (AssertionError, KeyError, ValueError) as exc:
            self.wrong.append(f"{type(exc).__name__}: {exc}")


def read_events(file: Path) -> Told:
    """The events that OpenLineage's file transport has written."""
    told = Told()
    for line in file.read_text("utf-8").splitlines() if file.exists() else ():
        if line.strip():
            told.take(json.loads(line))
    return told


def states(events: list[dict[str, Any]]) -> list[str]:
    """What became of the runs, in order."""
    return [event["eventType"] for event in events]


@dataclass
class LineageServer:
    """The server, and how it answers."""

    url: str
    told: Told = field(default_factory=Told)
    may_answer: threading.Event = field(default_factory=threading.Event)
    """As long as it is not set, nobody gets an answer."""


@contextmanager
def lineage_server() -> Iterator[LineageServer]:
    """A server that takes events at `/api/v1/lineage` as long as this lasts."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers["Content-Length"]))
            server.may_answer.wait(30)
            assert self.path == "/api/v1/lineage"
            server.told.take(json.loads(content))
            self.send_response(201)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server = LineageServer(f"http://127.0.0.1:{listening.server_port}")
    server.may_answer.set()
    thread = threading.Thread(target=listening.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.may_answer.set()
        listening.shutdown()
        listening.server_close()
        thread.join()


def forget_lineage(monkeypatch: pytest.MonkeyPatch, home: Path | None = None) -> None:
    """Let nothing outside say where events go, and nothing be known of what was sent before.

    Args:
        monkeypatch: Brings back what there was.
        home: A folder in which no file says so; drivers, which need their user's own, have none to look for it.
    """
    spelled = (f"OPENLINEAGE__TRANSPORT__{name}" for name in _SPELLED_BY_THE_CLIENT)
    for name in {*spelled, *(name for name in os.environ if name.startswith("OPENLINEAGE"))}:
        # So that it is gone again afterwards, if it comes meanwhile.
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    if home is not None:
        monkeypatch.setenv("HOME", str(home))
        monkeypatch.chdir(home)
    monkeypatch.setattr(sending, "_sender", sending._Sender())
