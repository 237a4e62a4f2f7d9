"""The pages at 1,000 streams with 60 records each, one of them with 10,000, at a real api-server."""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from benchmarks.measure import ROUNDS, Figure, timed
from sluice.documents import encode_document
from sluice.plan_document import BatchDocument, PlanDocument, RangeDocument
from sluice.project import find_project
from sluice.runs.record import BatchRecord, RunRecord, RunRecords, new_run_id
from sluice.runs.summary import keep_summary
from tests.airflow_tables import tables_for_all
from tests.browser.api_server import ApiServer

STREAMS, RECORDS, LONG_LIFE, DAGS = 1000, 60, 10_000, 20
BAR_SECONDS = 0.3
_DECLARATION = """
from sluice import Stream, sinks, sources
for number in range({streams}):
    name = f"s{{number:04}}"
    globals()[name] = Stream(
        name=name,
        sources={{"events": sources.files(f"in/{{name}}", format="json", schema="n bigint")}},
        transform="none:none",
        sink=sinks.delta(f"lake/{{name}}"),
    )
"""
_DAG = """
from sluice_airflow.stream_dag import stream_dag
dag = stream_dag(*{streams}, dag_id="{dag_id}", schedule=None)
"""


@dataclass(frozen=True)
class _Project:
    root: Path

    @property
    def dags(self) -> Path:
        return self.root / "dags"

    def break_a_declaration(self) -> None:
        """Every declaration is right."""


def measure() -> list[Figure]:
    """Seconds for each page of a server that has answered once, and what the first answer and the memory are."""
    with tempfile.TemporaryDirectory() as folder:
        newest = _make_project(Path(folder))
        tables = tables_for_all(Path(folder), None)
        with ApiServer(Path(folder, "airflow"), _Project(Path(folder)), tables) as server:
            server.token("anna")
            before = server.resident_bytes()
            first = timed(lambda: _get(server, "/"))
            tab = f"/runs?dag_id=dag0&run_id={_dag_run(LONG_LIFE - 1)}&task_id=s0000"
            pages = {
                "list, first page": "/",
                "list, last page": f"/?page={max(1, STREAMS // 50)}",
                "list, a search": f"/?search=s{STREAMS - 1:04}",
                "tab of a DAG": "/dag?dag_id=dag0",
                "tab of a task": tab,
                "tab of a task that was skipped": "/runs?dag_id=dag0&run_id=none&task_id=s0000",
                f"stream with {LONG_LIFE:,} records": "/streams/s0000",
                "one of its runs": f"/streams/s0000/runs/{newest}",
            }
            server.trigger("dag0", "none")
            figures = [_figure(name, partial(_get, server, path)) for name, path in pages.items()]
            size = len(server.get("/sluice/", "anna").body)
            grown = server.resident_bytes() - before
    told = f"page of {size / 1e3:.0f} kB; the pages made the server {grown / 1e6:.0f} MB larger"
    return [Figure("list, first answer of a new server", first, None, (first, first), f"seconds; {told}"), *figures]


def _figure(name: str, ask: Callable[[], None]) -> Figure:
    ask()
    seconds = [timed(ask) for _ in range(ROUNDS)]
    detail = f"seconds, {ROUNDS} rounds, {STREAMS:,} streams; load {os.getloadavg()[0]:.1f}"
    return Figure(name, statistics.median(seconds), BAR_SECONDS, (min(seconds), max(seconds)), detail)


def _get(server: ApiServer, path: str) -> None:
    answer = server.get(f"/sluice{path}", "anna")
    if answer.status not in {200, 303}:
        raise RuntimeError(f"{path} answered {answer.status}")


def _make_project(root: Path) -> str:
    """A project with what its runs left; returns the newest run of the first stream."""
    (root / "sluice.toml").write_text("[project]\n")
    for name in ("streams", "dags"):
        (root / name).mkdir()
    (root / "streams" / "all.py").write_text(_DECLARATION.format(streams=STREAMS))
    names = [f"s{number:04}" for number in range(STREAMS)]
    for number in range(DAGS):
        part = names[number * STREAMS // DAGS : (number + 1) * STREAMS // DAGS]
        (root / "dags" / f"dag{number}.py").write_text(_DAG.format(streams=part, dag_id=f"dag{number}"))
    project, now, newest = find_project(str(root)), datetime.now(UTC), ""
    homes = project.stream_homes(project.streams().values())
    for number, name in enumerate(names):
        (root / "in" / name).mkdir(parents=True)
        (root / "in" / name / "a.json").write_text("{}")
        records = RunRecords(homes[name])
        Path(homes[name].runs_folder()).mkdir(parents=True)
        count = RECORDS if number else LONG_LIFE
        for hour in range(count):
            record = _record(name, f"dag{number * DAGS // STREAMS}", now - timedelta(hours=count - hour), hour)
            Path(records.file(record.run_id)).write_bytes(encode_document(record))
            newest = newest if number else record.run_id
        keep_summary(homes[name])
    return newest


def _dag_run(hour: int) -> str:
    return f"scheduled__{hour}"


def _record(name: str, dag_id: str, at: datetime, hour: int) -> RunRecord:
    key = f"{dag_id}/{_dag_run(hour)}/{name}/-1/0"
    taken = BatchDocument(
        batch_id=hour, sources={"events": RangeDocument(end={"logOffset": hour}, files=3, size_bytes=300)}
    )
    batch = BatchRecord(
        batch_id=hour, kind="data", input_rows=1000, output_rows=900, watermark=None, duration_ms={"addBatch": 1200}
    )
    return RunRecord(
        run_id=new_run_id(at, key),
        stream=name,
        generation=1,
        run_key=key,
        planned_at=at,
        plan=PlanDocument(verdict="run", reason="3 new files", batches=(taken,)),
        status="succeeded",
        started_at=at.isoformat(),
        ended_at=(at + timedelta(seconds=9)).isoformat(),
        batches=(batch,),
        explain="== Physical Plan ==\n" + "+- a line of a plan of usual length, of which there are some\n" * 60,
    )
