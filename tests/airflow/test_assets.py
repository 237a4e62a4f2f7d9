"""Assets, their events, and the schedules made of them."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from airflow.serialization.encoders import coerce_to_core_timetable
from airflow_project import StreamProject
from made_records import emitted, kept, live_run, plan_of

from sluice import sinks
from sluice.errors import UnknownStreamError
from sluice.home import StreamHome
from sluice.plan_document import PlanDocument
from sluice.runs.record import BackfillRecord, BatchRecord, RunRecord
from sluice.runs.summary import RecordedInterval
from sluice.runs.told import keep_told
from sluice.storage import Storage
from sluice_airflow import assets, timetables
from sluice_airflow.unannounced_runs import begin_telling, untold_runs
from tests.builders import NOW, QUERY_ID, commit_file, edit_commit, make_delta, make_stream
from tests.golden_homes.unpacking import ARCHIVES, NAMES, unpack

pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("ignore")]


def record(*versions: int | None) -> RunRecord:
    batches = tuple(
        BatchRecord(batch_id=number, kind="data", input_rows=2, output_rows=1, watermark=None, sink_version=version)
        for number, version in enumerate(versions)
    )
    return RunRecord(
        run_id="r", stream="visits", generation=2, planned_at=datetime.now(UTC), plan=PlanDocument(),
        status="succeeded", batches=batches,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("location", "uri"),
    [
        ("/data/lake/visits", "file:///data/lake/visits"),
        ("/data/a b#c?d%e", "file:///data/a%20b%23c%3Fd%25e"),
        ("s3://bucket/lake/visits", "s3://bucket/lake/visits"),
        ("s3://bucket/a#b", "s3://bucket/a%23b"),
    ],
)
def test_an_asset_is_where_the_sink_is(location: str, uri: str) -> None:
    """What means something else in a URI is escaped: Airflow would cut it off, and two tables would be one."""
    stream = make_stream(sink=sinks.delta(location, partition_by=["part"]))

    assert assets.stream_asset(stream).uri == uri
    assert assets.partition_asset(stream).uri != uri
    assert [asset.name for asset in assets.outlets(stream)] == ["visits", "visits/partitions"]


def test_a_sink_without_a_place_is_an_asset() -> None:
    """It changes all the same; without partitions there is one outlet."""
    assert [asset.uri for asset in assets.outlets(make_stream(sink=sinks.noop()))] == ["sluice://noop/visits"]


def test_an_event_says_what_the_run_did(tmp_path: Path) -> None:
    """Over all of its batches, also those that made no version."""
    stream = make_stream(sink=sinks.delta(str(make_delta(tmp_path / "t", [1], [2, 3])), partition_by=["part"]))
    events = emitted(stream, record(0, None, 1), tmp_path / "home")

    extra = events[assets.stream_asset(stream)].extra
    assert extra["batches"] == [0, 1, 2]
    assert (extra["input_rows"], extra["output_rows"], extra["sink_version"]) == (6, 3, 1)
    assert (extra["partition_count"], extra["partitions"]) == (3, ["1", "2", "3"])
    assert events[assets.partition_asset(stream)].partition_keys == {"1", "2", "3"}


def test_an_event_tells_of_what_failed_runs_have_written(tmp_path: Path) -> None:
    """Whoever follows each touched day must get those of the batches before the failure, for no event told of them."""
    table = make_delta(tmp_path / "t", [0], [1], [2], [3], [4], [5])
    stream = make_stream(sink=sinks.delta(str(table), partition_by=["part"]))
    before = live_run(1, "failed", {9: 0})
    told = live_run(2, "succeeded", {0: 1})
    failed, stopped = live_run(3, "failed", {1: 2}), live_run(5, "stopped", {2: 3})
    backfill = live_run(4, "succeeded", {}, interval=RecordedInterval(NOW, NOW))
    rewound = live_run(6, "succeeded", {7: 0}, generation=2)
    run = kept(tmp_path / "home", before, told, failed, backfill, stopped, rewound, live_run(7, "succeeded", {3: 5}))
    events = emitted(stream, run, tmp_path / "home")

    assert events[assets.partition_asset(stream)].partition_keys == {"2", "3", "5"}
    extra = events[assets.stream_asset(stream)].extra
    assert extra["since_runs"] == [failed.run_id, stopped.run_id]
    assert (extra["partitions"], extra["batches"], extra["output_rows"]) == (["2", "3", "5"], [3], 1)

    later = kept(tmp_path / "home", live_run(8, "succeeded", {4: 4}))
    assert emitted(stream, later, tmp_path / "home")[assets.partition_asset(stream)].partition_keys == {"4"}


def test_an_event_tells_of_runs_that_succeeded_and_that_no_event_told_of(tmp_path: Path) -> None:
    """Their tasks were ended, or lost. So it is with backfills, and with a run that has written more since then."""
    table = make_delta(tmp_path / "t", [0], [1], [2], [3], [4], [5])
    stream = make_stream(sink=sinks.delta(str(table), partition_by=["part"]))
    home = StreamHome(str(tmp_path / "home"), Storage())
    begin_telling(home)
    told, retried = live_run(1, "succeeded", {0: 0}), live_run(2, "failed", {1: 1})
    run = kept(tmp_path / "home", told, retried)
    told_of = untold_runs(home, run)
    assert [earlier.run_id for earlier in told_of.runs] == [told.run_id]
    keep_told(home, told_of.marks, told_of.begin)
    lost = live_run(3, "succeeded", {2: 2})
    backfill = BackfillRecord(attempt=0, version=2, sink_version=3)
    backfilled = live_run(4, "succeeded", {}, interval=RecordedInterval(NOW, NOW), backfill=backfill)
    at_work = live_run(5, "running", {}, interval=RecordedInterval(NOW, NOW), backfill=backfill)
    retried = live_run(2, "failed", {1: 1, 3: 4})
    planned = live_run(6, "planned", {}, tries=0)
    run = kept(tmp_path / "home", lost, backfilled, at_work, retried, planned, live_run(7, "succeeded", {4: 5}))

    events = emitted(stream, run, tmp_path / "home")

    extra = events[assets.stream_asset(stream)].extra
    assert extra["since_runs"] == [retried.run_id, lost.run_id, backfilled.run_id]
    assert extra["partitions"] == ["1", "2", "3", "4", "5"]


def test_what_was_not_kept_counts_as_told_up_to_the_newest_success(tmp_path: Path) -> None:
    """Homes from before it was kept: what succeeded is not told again, what failed since then is told."""
    stream = make_stream(sink=sinks.delta(str(make_delta(tmp_path / "t", [0], [1], [2])), partition_by=["part"]))
    before, told = live_run(1, "failed", {0: 0}), live_run(2, "succeeded", {1: 1})
    backfilled = live_run(3, "succeeded", {}, interval=RecordedInterval(NOW, NOW))
    failed = live_run(4, "failed", {2: 2})
    kept(tmp_path / "home", before, told, backfilled, failed)
    begin_telling(StreamHome(str(tmp_path / "home"), Storage()))
    run = kept(tmp_path / "home", live_run(5, "succeeded", {}))

    extra = emitted(stream, run, tmp_path / "home")[assets.stream_asset(stream)].extra

    assert (extra["since_runs"], extra["partitions"]) == ([failed.run_id], ["2"])


@pytest.mark.parametrize("archive", ARCHIVES, ids=NAMES)
def test_homes_that_are_there_are_not_told_all_over_again(archive: Path, tmp_path: Path) -> None:
    """Of a home as an earlier version left it, the first event tells of no run that succeeded."""
    golden = unpack(archive, tmp_path)
    home = StreamHome(str(golden.root / "var" / "sluice" / "numbers"), Storage())
    begin_telling(home)
    run = live_run(1, "succeeded", {}, run_id="29990131T120000000Z-0f1e2d3c", generation=home.current_generation())

    assert [earlier.run_id for earlier in untold_runs(home, run).runs if earlier.status == "succeeded"] == []


def test_what_was_told_of_and_can_not_be_read_fails_no_run(tmp_path: Path) -> None:
    """The event goes out without details then, which the next one that can be made has."""
    stream, home = make_stream(sink=sinks.noop()), StreamHome(str(tmp_path / "home"), Storage())
    run = kept(tmp_path / "home", live_run(1, "succeeded", {0: 0}))
    Path(home.told_file()).write_text("{")

    begin_telling(home)

    assert not emitted(stream, run, tmp_path / "home")[assets.stream_asset(stream)].extra


@pytest.mark.parametrize("how", [{"status": "failed"}, {"status": "succeeded", "passed_later": True}])
def test_an_event_tells_of_a_run_that_was_held(tmp_path: Path, how: dict[str, Any]) -> None:
    """Its task failed; the stream goes on because somebody released its rows, or they pass a suite that was mended."""
    stream = make_stream(sink=sinks.delta(str(make_delta(tmp_path / "t", [0], [1])), partition_by=["part"]))
    held = live_run(1, batches={0: 0}, **how)
    run = kept(tmp_path / "home", held, live_run(2, "succeeded", {1: 1}))

    assert emitted(stream, run, tmp_path / "home")[assets.partition_asset(stream)].partition_keys == {"0", "1"}


def test_an_event_tells_of_a_batch_that_nobody_recorded(tmp_path: Path) -> None:
    """A driver was killed between the commit and its record: the table's log knows the version."""
    table = make_delta(tmp_path / "t", [0], [1], [2], app_id=QUERY_ID)
    stream = make_stream(sink=sinks.delta(str(table), partition_by=["part"]))
    killed = live_run(1, "failed", {0: 0}, plan=plan_of([0, 1]))
    run = kept(tmp_path / "home", killed, live_run(2, "succeeded", {2: 2}))

    assert emitted(stream, run, tmp_path / "home")[assets.partition_asset(stream)].partition_keys == {"0", "1", "2"}


def test_a_damaged_record_costs_an_event_that_record_alone(tmp_path: Path) -> None:
    """What can be told of the others is told."""
    stream = make_stream(sink=sinks.delta(str(make_delta(tmp_path / "t", [0], [1], [2])), partition_by=["part"]))
    runs = [live_run(1, "failed", {0: 0}), live_run(2, "failed", {1: 1}), live_run(3, "succeeded", {2: 2})]
    run = kept(tmp_path / "home", *runs)
    Path(tmp_path, "home", "runs", f"{runs[1].run_id}.json").write_text("{")

    assert emitted(stream, run, tmp_path / "home")[assets.partition_asset(stream)].partition_keys == {"0", "2"}


def test_a_log_that_can_not_be_read_fails_no_run(tmp_path: Path) -> None:
    """The rows are committed by then: the event goes out without details."""
    table = make_delta(tmp_path / "t", [1])
    commit_file(table, 0).write_bytes(b"{")
    stream = make_stream(sink=sinks.delta(str(table), partition_by=["part"]))

    assert not emitted(stream, record(0), tmp_path / "home")[assets.stream_asset(stream)].extra


def test_keys_of_partitions() -> None:
    """Several columns are joined as Airflow's own mappers do it; null is Hive's name for it."""
    assert assets.partition_key(("2026-01-31", "JFK")) == "2026-01-31|JFK"
    assert assets.partition_key((None,)) == "__HIVE_DEFAULT_PARTITION__"


@pytest.mark.parametrize("value", ["x" * 251, " "])
def test_a_key_that_airflow_refuses_fails_no_run(tmp_path: Path, value: str) -> None:
    """That partition has no event of its own; the others have."""
    table = make_delta(tmp_path / "t", [1], [2])
    edit_commit(table, 0, {"partitionValues": {"part": value}}, action="add")
    stream = make_stream(sink=sinks.delta(str(table), partition_by=["part"]))

    events = emitted(stream, record(0, 1), tmp_path / "home")

    assert events[assets.partition_asset(stream)].partition_keys == {"2"}


def test_schedules_are_known_to_airflow(stream_project: StreamProject) -> None:
    """Each can be written into the database; an unknown stream is refused while the DAG is parsed."""
    project = str(stream_project.root)

    assert coerce_to_core_timetable(timetables.data_intervals("0 * * * *")).serialize()["expression"] == "0 * * * *"
    assert timetables.on_commit("events", project=project).watchers[0].trigger.stream == "events"
    both = timetables.on_arrival("events", "hourly", project=project)
    names = [asset.name for asset in both.objects]
    # It is not Airflow's own project, where names are those of the streams alone.
    assert names == [f"{stream_project.root.name}/{name}/arrivals" for name in ("events", "hourly")]
    coerce_to_core_timetable(timetables.per_partition("events", project=project)).serialize()
    with pytest.raises(UnknownStreamError):
        timetables.after_run("event", project=project)


def test_a_project_has_one_name(stream_project: StreamProject, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two DAG files that name it differently share one watcher: two would tell everything twice."""
    monkeypatch.setenv("SLUICE_PROJECT", str(stream_project.root))
    watches = [
        timetables.on_commit("events", project=project).watchers[0].trigger.serialize()
        for project in (None, str(stream_project.root), str(stream_project.root / "streams"))
    ]

    assert watches[0] == watches[1] == watches[2]
