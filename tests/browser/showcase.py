"""A project with something of everything that the pages show, written with the library's own classes.

departures   many runs, many batches, a watermark, quality; run by DAG `flights`
hourly       a run that goes on right now; reads what `departures` writes; run by DAG `flights`
reports      two backfills, one of which goes on right now, and a live run that failed its suite and holds the stream;
             reads what `departures` writes; run by DAG `flights`
payroll      run by DAG `payroll`, which not everybody may read
elsewhere    no stream: the DAG of another project, whose stream is called `departures`, too
bonuses      never ran; a task of the same DAG, made by `@task.stream`, is to run it
fresh        never ran; no DAG knows it
torn         a checkpoint with a damaged file, a damaged record, a damaged home
broken.py    a file of declarations that does not import
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from sluice.gate.state import GateState, keep_gate, read_gate
from sluice.home import Generation, SourceLine, StreamHome
from sluice.interval import Interval
from sluice.locations import join
from sluice.plan_document import PlanDocument
from sluice.planning.backfill import BackfillPlan, Downstream
from sluice.project import find_project
from sluice.runs.lease import acquire
from sluice.runs.record import BackfillRecord, BatchRecord, RecordedError, RunRecord, RunRecords, new_run_id
from sluice.runs.stop import StopRequest, stop_request
from sluice.runs.summary import RecordedInterval
from sluice.sources.contract import Slice
from sluice.times import iso_millis, iso_time
from tests.builders import (
    QUERY_ID,
    commit_bytes,
    make_entry,
    make_source_log,
    manifest_line,
    offsets_bytes,
    put,
    put_files,
)

HOSTILE = "<script>alert(1)</script>"
"""What somebody with access to the home may write: it must come out as text."""
RUN_ID = "manual__2026-01-31T12:00:00+00:00"
"""The DAG run that all of it belongs to."""

_PROJECT = '[project]\nname = "showcase"\nstreams = ["streams"]\n'
_STREAM = """
{name} = Stream(
    name="{name}",
    sources={{"{source}": sources.files("{place}", format="json", schema="n bigint, at timestamp")}},
    transform="showcase_jobs:anything",
    sink=sinks.files("data/{name}/out", format="parquet"),
)
"""
_STREAMS = {
    "departures": "flights", "hourly": "departures", "reports": "departures", "payroll": "salaries",
    "bonuses": "salaries", "fresh": "visits",
    "torn": "events",
}  # fmt: skip
_DAG = """
from sluice_airflow.stream_dag import stream_dag
{dag_id} = stream_dag({streams}, dag_id="{dag_id}", schedule=None)
"""
_DECORATED = """
from airflow.sdk import task
with payroll:
    @task.stream(stream="bonuses")
    def pay() -> None: ...
    pay()
"""
_DAGS = {"flights": ("departures", "hourly", "reports"), "payroll": ("payroll",)}
_NO_WATERMARK = timedelta(0)
_EXPLAIN = f"== Physical Plan ==\nWriteToDataSourceV2 {HOSTILE}\n+- MicroBatchScan[flights]\n"


class _Record(RunRecord, frozen=True, kw_only=True):
    quality: dict[str, Any] | None = None


@dataclass(frozen=True)
class Showcase:
    """Where it all is."""

    root: Path

    @property
    def dags(self) -> Path:
        """The folder of DAGs."""
        return self.root / "dags"

    def home(self, stream: str) -> StreamHome:
        """A stream's home."""
        project = find_project(str(self.root))
        return StreamHome(join(project.home, stream), project.storage())

    def break_a_declaration(self) -> None:
        """Add a file of declarations that does not import; DAG files would not import any more, either."""
        put(self.root / "streams" / "broken.py", f"raise RuntimeError({HOSTILE!r})\n")

    def runs(self, stream: str) -> list[RunRecord]:
        """A stream's newest runs."""
        return list(RunRecords(self.home(stream)).newest(60))

    def stop(self, stream: str, run_id: str) -> StopRequest | None:
        """The request to stop a run, if there is one."""
        return stop_request(self.home(stream), run_id)

    def start(self, stream: str, *, run_key: str | None) -> str:
        """Add another run that goes on, and return its id."""
        now = datetime.now(UTC)
        plan = _plan(stream, _STREAMS[stream], 5, 2, now, 1)
        record = RunRecord(run_id=new_run_id(now, run_key), stream=stream, generation=1, run_key=run_key,
                           planned_at=now, plan=plan, status="running")  # fmt: skip
        RunRecords(self.home(stream)).save(record)
        return record.run_id

    def hold(self, stream: str) -> None:
        """Let the gate hold a stream for what its newest run has written."""
        failed = "`expect_column_values_to_be_between` of `dep_delay`: 19 unexpected in 30,838 rows"
        state = GateState(state="failed", run_id=self.newest(stream).run_id, generation=1, failed=failed,
                          since=iso_time(datetime.now(UTC)))  # fmt: skip
        keep_gate(self.home(stream), state)

    def is_held(self, stream: str) -> bool:
        """Whether the gate holds a stream."""
        return read_gate(self.home(stream)) is not None

    def forget(self, stream: str, run_id: str) -> None:
        """Take a run's record away again."""
        RunRecords(self.home(stream)).forget(run_id)

    def newest(self, stream: str) -> RunRecord:
        """A stream's newest run."""
        return next(RunRecords(self.home(stream)).newest(1))


def make_showcase(root: Path, now: datetime | None = None) -> Showcase:
    """Write the project, its DAGs, and what its runs left."""
    showcase, now = Showcase(root), now or datetime.now(UTC)
    put(root / "sluice.toml", _PROJECT)
    put(root / "showcase_jobs.py", "def anything(**frames):\n    ...\n")
    declarations = "".join(
        _STREAM.format(name=name, source=source, place=_place(name, source)) for name, source in _STREAMS.items()
    )
    put(root / "streams" / "streams.py", f"from sluice import Stream, sinks, sources\n{declarations}")
    for dag_id, streams in _DAGS.items():
        names = ", ".join(f'"{name}"' for name in streams)
        put(root / "dags" / f"{dag_id}.py", _DAG.format(dag_id=dag_id, streams=names))
    with (root / "dags" / "payroll.py").open("a") as file:
        file.write(_DECORATED)
    other = root / "dags" / "elsewhere"
    put(other / "sluice.toml", '[project]\nname = "other"\n')
    put(other / "elsewhere.py", _DAG.format(dag_id="elsewhere", streams='"departures"'))
    for name in _STREAMS:
        (root / "data" / name / "landing").mkdir(parents=True)
        (root / "data" / name / "out").mkdir()
    _departures(showcase, now)
    _hourly(showcase, now)
    _reports(showcase, now)
    _payroll(showcase, now)
    _torn(showcase, now)
    _publish(showcase, "departures")
    put_files(root / "data" / "fresh" / "landing", ["a.json"], first_ms=_ms(now - timedelta(minutes=3)))
    return showcase


def _publish(showcase: Showcase, stream: str) -> None:
    """Let a stream's newest batch have written the files that others read: a folder's manifest says what is in it."""
    out = showcase.root / "data" / stream / "out"
    newest = max((out / "_spark_metadata").iterdir(), key=lambda batch: int(batch.name))
    files = [(file.as_uri(), file.stat()) for file in sorted(out.glob("*.json"))]
    newest.write_text(
        "\n".join(["v1", *(manifest_line(uri, at.st_size, at.st_mtime_ns // 10**6) for uri, at in files)])
    )


def _place(name: str, source: str) -> str:
    """Where a stream reads: what another stream writes, or where files land."""
    return f"data/{source}/out" if source in _STREAMS else f"data/{name}/landing"


def _departures(showcase: Showcase, now: datetime) -> None:
    """36 runs with a batch or two each; one failed, one stopped; newest batch committed; three files wait."""
    batch_id = 0
    for number in range(36):
        began = now - timedelta(hours=36 - number, minutes=4)
        status = {9: "failed", 20: "stopped"}.get(number, "succeeded")
        batches = 0 if status == "failed" else 2 if number % 5 == 0 else 1
        done = [_batch(batch_id + offset, began, number) for offset in range(batches)]
        _save(
            showcase,
            "departures",
            began,
            dag_id="flights",
            attempt=number,
            status=status,
            batches=tuple(done),
            plan=_plan("departures", "flights", batch_id, max(1, batches), began, number),
            ended_at=iso_time(began + timedelta(seconds=9 + number % 7 * 3)),
            quality=_quality(number, verdict="warn" if number % 9 == 4 else "pass"),
            explain=_EXPLAIN,
            error=_failure() if status == "failed" else None,
        )
        batch_id += batches
    _checkpoint(showcase, "departures", "flights", planned=batch_id, behind=timedelta(hours=2))
    home = showcase.home("departures")
    with acquire(
        home.storage, home.lease_folder(1), run_id=showcase.newest("departures").run_id, sink_is_idempotent=True
    ):
        pass  # taken and released, as the newest run did
    waiting = showcase.root / "data" / "departures" / "landing"
    put_files(waiting, ["x.json", "y.json", "z.json"], first_ms=_ms(now - timedelta(minutes=11)))


def _hourly(showcase: Showcase, now: datetime) -> None:
    """A run of five batches, two of which are done, whose driver is this process."""
    began = now - timedelta(seconds=40)
    for number in range(5):
        earlier = now - timedelta(hours=6 - number)
        done = (_batch(number, earlier, number),)
        plan = _plan("hourly", "departures", number, 1, earlier, number)
        ended = iso_time(earlier + timedelta(seconds=14))
        _save(showcase, "hourly", earlier, dag_id="flights", attempt=number, status="succeeded", batches=done,
              plan=plan, ended_at=ended)  # fmt: skip
    run_id = _save(
        showcase,
        "hourly",
        began,
        dag_id="flights",
        attempt=0,
        status="running",
        batches=(_batch(5, began, 3), _batch(6, began, 4)),
        plan=_plan("hourly", "departures", 5, 5, began, 3),
        run_id=RUN_ID,
    )
    _checkpoint(showcase, "hourly", "departures", planned=8, committed=7)
    home = showcase.home("hourly")
    # Held, and never renewed while the test runs: it is taken for longer than the test lasts.
    acquire(
        home.storage,
        home.lease_folder(1),
        run_id=run_id,
        sink_is_idempotent=True,
        clock=lambda: now + timedelta(hours=1),
    )


def _reports(showcase: Showcase, now: datetime) -> None:
    """A backfill of January that has replaced its rows, and one of February that is at it, in this process."""
    began = now - timedelta(hours=3)
    _save(showcase, "reports", began, dag_id="flights", attempt=0, status="succeeded", batches=(_batch(0, began, 2),),
          plan=_plan("reports", "departures", 0, 1, began, 2), quality=_quality(2, verdict="fail"),
          ended_at=iso_time(began + timedelta(seconds=9)))  # fmt: skip
    showcase.hold("reports")
    _checkpoint(showcase, "reports", "departures", planned=1)
    january, february, march = (datetime(2026, month, 1, tzinfo=UTC) for month in (1, 2, 3))
    done = BackfillRecord(
        attempt=0, version=41, sink_version=44, rows_replaced=310_402, rows_written=310_977, late_rows=575
    )
    at = now - timedelta(hours=1)
    _save(showcase, "reports", at, dag_id="flights", attempt=1, status="succeeded", until=None, backfill=done,
          interval=RecordedInterval(january, february), plan=_backfill_plan(Interval(january, february)),
          ended_at=iso_time(at + timedelta(seconds=74)))  # fmt: skip
    run_id = _save(showcase, "reports", now - timedelta(seconds=50), dag_id="flights", attempt=2, status="running",
                   until=None, interval=RecordedInterval(february, march),
                   plan=_backfill_plan(Interval(february, march)))  # fmt: skip
    home = showcase.home("reports")
    # Taken for longer than the test lasts, as for `hourly`.
    acquire(
        home.storage,
        home.interval_lease_folder(february, march),
        run_id=run_id,
        sink_is_idempotent=True,
        clock=lambda: now + timedelta(hours=1),
    )


def _backfill_plan(interval: Interval) -> PlanDocument:
    """A plan that concerns a stream that everybody may see, and one that not everybody may."""
    return BackfillPlan(
        stream="reports",
        generation=1,
        interval=interval,
        verdict="run",
        reason="`departures`: 1,204 files, read up to batch 0, replace the interval in version 41",
        version=41,
        batch_id=0,
        slices={"departures": Slice('{"logOffset":0}', amount={"files": 1_204, "bytes": 88_000_000})},
        downstream=(Downstream("hourly", skips_changes=True), Downstream("payroll", skips_changes=False)),
    ).document


def _payroll(showcase: Showcase, now: datetime) -> None:
    began = now - timedelta(hours=2)
    _save(showcase, "payroll", began, dag_id="payroll", attempt=0, status="running",
          batches=(_batch(0, began, 1),), plan=_plan("payroll", "salaries", 0, 2, began, 1))  # fmt: skip
    _checkpoint(showcase, "payroll", "salaries", planned=1)


def _torn(showcase: Showcase, now: datetime) -> None:
    began = now - timedelta(days=1)
    _save(showcase, "torn", began, dag_id="gone_dag", attempt=0, status="succeeded", batches=(_batch(0, began, 1),),
          plan=_plan("torn", "events", 0, 1, began, 1), ended_at=iso_time(began + timedelta(seconds=8)))  # fmt: skip
    _checkpoint(showcase, "torn", "events", planned=3)
    home = Path(showcase.home("torn").location)
    put(home / "generations" / "0001" / "offsets" / "2", f"v1\n{HOSTILE}")
    put(home / "runs" / f"{new_run_id(now, None)}.json", "{half of a rec")
    put(home / "generations" / "0002.json", "{")


def _save(showcase: Showcase, stream: str, began: datetime, *, dag_id: str, attempt: int, **fields: Any) -> str:
    dag_run = fields.pop("run_id", f"scheduled__{began:%Y-%m-%dT%H:%M:%S}+00:00")
    run_key = f"{dag_id}/{dag_run}/{stream}/-1/0"
    run_id = new_run_id(began, run_key)
    known = {
        "run_id": run_id,
        "stream": stream,
        "generation": 1,
        "query_id": QUERY_ID,
        "token": attempt + 1,
        "run_key": run_key,
        "planned_at": began,
        "until": began,
        "started_at": iso_time(began + timedelta(seconds=1)),
    }
    RunRecords(showcase.home(stream)).save(_Record(**known | fields))
    return run_id


def _batch(batch_id: int, began: datetime, number: int) -> BatchRecord:
    add = 1800 + (number * 977) % 5200
    return BatchRecord(
        batch_id=batch_id,
        kind="data",
        input_rows=24_000 + (number * 7919) % 9000,
        output_rows=23_000 + (number * 7919) % 9000,
        watermark=iso_time(began - timedelta(hours=3, minutes=number * 7 % 60)),
        duration_ms={
            "latestOffset": 12 + number, "getBatch": 31, "queryPlanning": 210 + number * 9, "walCommit": 45,
            "addBatch": add, "commitOffsets": 38, "commitBatch": 22, "triggerExecution": add + 470 + number * 10,
        },
        malformed_rows={"flights": 3} if number % 11 == 2 else {},
        sink_version=batch_id,
    )  # fmt: skip


def _plan(  # noqa: PLR0917 - what differs between plans
    stream: str, source: str, first: int, batches: int, at: datetime, number: int
) -> PlanDocument:
    planned = [
        {
            "batch_id": batch_id,
            "kind": "data",
            "timestamp": iso_millis(_ms(at)),
            "sources": {
                source: {
                    "start": {"logOffset": batch_id - 1} if batch_id else None,
                    "end": {"logOffset": batch_id},
                    "files": 2 + number % 5,
                    "bytes": 1_400_000 + (number * 397_001) % 2_100_000,
                    "rows": None,
                }
            },
        }
        for batch_id in range(first, first + batches)
    ]
    reason = f"`{source}`: {2 + number % 5} new files"
    known = {"stream": stream, "generation": 1, "verdict": "run", "reason": reason,
             "strategy": "exact", "until": iso_time(at), "batches": planned}  # fmt:skip
    return msgspec.convert(known, PlanDocument)


def _quality(number: int, *, verdict: str, **fields: Any) -> dict[str, Any]:
    """What a suite of some kinds of checks said of a run; the rows that fail differ from run to run."""
    rows, late = 24_000 + (number * 7919) % 9000, 17 + number % 5 if verdict != "pass" else 0
    return {
        "verdict": verdict, "suite": "departures", "gate": "publish", "rows": rows, "dropped": 0, "quarantined": late,
        "checks": [
            _check("expect_column_values_to_not_be_null", "fail", {"column": "tail_number"}, rows, 0),
            _check("expect_column_values_to_be_between", "fail" if verdict == "fail" else "quarantine",
                   {"column": "dep_delay", "min_value": -60, "max_value": 1440}, rows, late),
            _check("expect_column_values_to_be_in_set", "warn",
                   {"column": HOSTILE, "value_set": [HOSTILE, "EWR", "JFK"], "mostly": 0.99}, rows, number % 3),
            {"id": "rows", "type": "sluice_row_count_against_history", "policy": "warn", "success": True,
             "kwargs": {"max_relative_change": 0.5, "last": 20}, "path": "exact",
             "result": {"observed_value": rows, "details": {"former_runs": 20, "mean": 27_311.5}}},
        ],
        **fields,
    }  # fmt: skip


def _check(kind: str, policy: str, kwargs: dict[str, Any], rows: int, unexpected: int) -> dict[str, Any]:
    success = unexpected / rows <= 1 - kwargs.get("mostly", 1)
    result = {"element_count": rows, "unexpected_count": unexpected, "unexpected_percent": 100 * unexpected / rows}
    return {"id": kind, "type": kind, "kwargs": kwargs, "policy": policy, "success": success, "result": result,
            "path": "exact"}  # fmt: skip


def _failure() -> RecordedError:
    message = f"Spark failed: {HOSTILE} [stream `departures`]; mend the cause, the next run repeats this batch"
    return RecordedError(type="BatchFailedError", message=message)


def _checkpoint(
    showcase: Showcase,
    stream: str,
    source: str,
    *,
    planned: int,
    committed: int | None = None,
    behind: timedelta = _NO_WATERMARK,
) -> None:
    """A checkpoint that took one file a batch, an hour apart, the last one an hour ago."""
    home, now = showcase.home(stream), datetime.now(UTC)
    root, landing = Path(home.checkpoint_location(1)), showcase.root / _place(stream, source)
    put(root / "metadata", f'{{"id":"{QUERY_ID}"}}')
    entries = []
    for batch_id in range(planned):
        at = now - timedelta(hours=planned - batch_id)
        watermark_ms = _ms(at - behind) if behind else 0
        file = put(landing / f"part-{batch_id}.json", mtime_ms=_ms(at))
        entries.append(make_entry(file, batch_id, timestamp_ms=_ms(at)))
        offset = f'{{"logOffset":{batch_id}}}'
        put(root / "offsets" / str(batch_id), offsets_bytes(offset, watermark_ms=watermark_ms, timestamp_ms=_ms(at)))
        if committed is None or batch_id < committed:
            put(root / "commits" / str(batch_id), commit_bytes(watermark_ms))
            put(showcase.root / "data" / stream / "out" / "_spark_metadata" / str(batch_id), "v1")
    make_source_log(root / "sources" / "0", entries)
    home.keep_generation(
        Generation(
            generation=1,
            query_id=QUERY_ID,
            created_at=iso_time(now - timedelta(days=2)),
            lines=(SourceLine(source, "0"),),
            declared=(source,),
        )
    )


def _ms(when: datetime) -> int:
    return int(when.timestamp() * 1000)
