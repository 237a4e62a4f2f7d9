"""What `sluice inspect` and `sluice lag` tell."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from sluice import sources
from sluice.errors import DeclarationError
from sluice.monitoring.inspection import inspect_checkpoint, inspect_stream, stream_lag
from sluice.plan_document import PlanDocument
from sluice.runs.lease import acquire
from sluice.runs.record import RunRecord, RunRecords, new_run_id
from sluice.storage import Storage
from sluice.trigger import LiveTrigger
from tests.engine_model import HeldRows
from tests.unit.engine_lab import Lab, leave_pending, make_lab, make_stream, write_v2_offsets

KEYS = [
    "stream", "generation", "checkpoint", "query_id", "planned", "committed", "watermark", "sources", "operators",
    "state", "watermarks",
    "lag", "problems",
]  # fmt: skip
LIVE = LiveTrigger(kind="processing-time", interval_ms=1000, run_for_ms=60_000)
BYTES_OF_A_ROW = len('{"id": 0, "at": 0}\n')


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    """A stream of two sources that the query reads in the other order."""
    return make_lab(tmp_path, names=("a", "b"), lines=("b", "a"))


def inspect(lab: Lab) -> dict[str, object]:
    return inspect_stream(lab.stream, lab.project.stream_home(lab.stream), lab.now)


def lag(lab: Lab) -> dict[str, dict[str, object]]:
    found = stream_lag(lab.stream, lab.project.stream_home(lab.stream), lab.now)
    return {name: source.as_json(lab.now) for name, source in found.items()}


class TestInspectStream:
    def test_before_the_first_run(self, lab: Lab) -> None:
        """Nothing is planned or committed; the keys are all there."""
        document = inspect(lab)
        assert list(document) == KEYS
        assert (document["stream"], document["generation"], document["checkpoint"]) == (
            "numbers",
            1,
            str(lab.checkpoint),
        )
        assert (document["query_id"], document["planned"], document["committed"], document["watermark"]) == (None,) * 4
        assert (document["sources"], document["operators"], document["problems"]) == ({}, [], [])

    def test_sources_go_by_name(self, lab: Lab) -> None:
        """The offsets stand under the declared names, whatever order the query has."""
        lab.arrive(source="a")
        lab.run()
        document = inspect(lab)
        assert document["sources"] == {"b": None, "a": {"logOffset": 0}}
        assert (document["planned"], document["committed"]) == (0, 0)
        assert document["query_id"] == lab.state().query_id

    def test_a_pending_batch(self, lab: Lab) -> None:
        """What is planned is ahead of what is committed."""
        lab.arrive(source="a")
        lab.run()
        leave_pending(lab, by_sluice=True)
        document = inspect(lab)
        assert (document["planned"], document["committed"], document["problems"]) == (1, 0, [])

    def test_operators_and_watermark(self, tmp_path: Path) -> None:
        """A stateful stream shows its operators and the newest committed watermark."""
        lab = make_lab(tmp_path, operator=HeldRows(delay_ms=1000))
        lab.arrive(at_ms=61_000)
        lab.run()
        document = inspect(lab)
        assert document["watermark"] == "1970-01-01T00:01:00.000Z"
        assert document["operators"] == [
            {"operator_id": 0, "name": "heldRows", "partitions": 1, "stores": ["default"], "latest_version": 2}
        ]

    def test_every_problem_is_shown(self, lab: Lab) -> None:
        """Not only the first: what is wrong with the checkpoint, five strings each."""
        lab.arrive(source="a")
        lab.run()
        (lab.checkpoint / "metadata").unlink()
        (lab.checkpoint / "commits" / "0").write_text("v1\n{")
        problems = inspect(lab)["problems"]
        assert [problem["code"] for problem in problems] == ["METADATA_MISSING", "FILE_DAMAGED"]
        assert [Path(problem["file"]).name for problem in problems] == ["metadata", "0"]
        assert all(list(problem) == ["code", "file", "cause", "consequence", "remedy"] for problem in problems)

    def test_what_the_sources_have_is_shown(self, lab: Lab) -> None:
        """Files that are left out are a problem of the stream, not of its checkpoint."""
        lab.arrive(source="a", name="a:b.json")
        assert [problem["code"] for problem in inspect(lab)["problems"]] == ["NAME_UNREADABLE"]

    def test_why_a_run_would_refuse_is_shown(self, lab: Lab) -> None:
        """A sink that was replaced is a problem, though every file of the checkpoint is well."""
        lab.arrive(source="a")
        lab.run()
        Path(lab.sink.path, "identity").write_text("another")
        assert [problem["code"] for problem in inspect(lab)["problems"]] == ["SINK_REPLACED"]

    def test_a_blocking_problem_is_shown_once(self, lab: Lab) -> None:
        """The reason to refuse is one of the checkpoint's problems already."""
        lab.arrive(source="a")
        lab.run()
        (lab.checkpoint / "metadata").write_text("")
        assert [problem["code"] for problem in inspect(lab)["problems"]] == ["METADATA_DAMAGED"]

    def test_a_source_that_is_not_there_hides_nothing(self, lab: Lab) -> None:
        """The checkpoint is shown, and why the sources are not."""
        lab.arrive(source="a")
        lab.run()
        (lab.root / "b").rmdir()
        document = inspect(lab)
        assert "does not exist" in str(document["source_error"])
        assert (document["planned"], document["committed"]) == (0, 0)


class TestInspectCheckpoint:
    def test_of_spark_s_own(self, lab: Lab) -> None:
        """A checkpoint that Sluice did not make is shown by Spark's own numbers of the sources."""
        lab.arrive(source="a")
        lab.engine().once()
        document = inspect_checkpoint(str(lab.checkpoint), Storage())
        assert list(document) == KEYS
        assert (document["stream"], document["generation"], document["lag"]) == (None, None, {})
        assert document["sources"] == {"0": None, "1": {"logOffset": 0}}

    def test_of_the_second_format(self, lab: Lab) -> None:
        """Offset log v2 has names."""
        lab.arrive(source="a")
        lab.engine().once()
        write_v2_offsets(lab.checkpoint / "offsets" / "0", {"one": '{"logOffset":0}', "two": "-"})
        document = inspect_checkpoint(str(lab.checkpoint), Storage())
        assert document["sources"] == {"one": {"logOffset": 0}, "two": None}

    def test_of_nothing(self, tmp_path: Path) -> None:
        """A folder that is not there is a checkpoint without a batch."""
        document = inspect_checkpoint(str(tmp_path / "none"), Storage())
        assert (document["planned"], document["problems"]) == (None, [])


class TestLag:
    def test_of_files(self, lab: Lab) -> None:
        """Files, bytes and the age of the oldest, by source; rows are not known."""
        lab.arrive(60, source="a")
        lab.arrive(30, source="a")
        found = lag(lab)
        assert found["a"] == {
            "files": 2,
            "bytes": 2 * BYTES_OF_A_ROW,
            "rows": None,
            "oldest": "2026-01-01T00:00:30.000Z",
            "age_seconds": 3570.0,
            "batches": 1,
            "partitions": {},
            "held_back": 0,
            "pending_batch": None,
            "unreadable": None,
        }
        assert (found["b"]["files"], found["b"]["bytes"], found["b"]["oldest"], found["b"]["age_seconds"]) == (
            0,
            0,
            None,
            None,
        )

    def test_what_was_taken_does_not_wait(self, lab: Lab) -> None:
        """After a run nothing waits."""
        lab.arrive(60, source="a")
        lab.run()
        assert [(source["files"], source["bytes"], source["rows"]) for source in lag(lab).values()] == [
            (0, 0, 0),
            (0, 0, 0),
        ]

    @pytest.mark.parametrize(("trigger", "is_told"), [(None, True), (LIVE, False)])
    def test_of_a_batch_under_way(self, lab: Lab, trigger: LiveTrigger | None, *, is_told: bool) -> None:
        """Its input is not counted; a run that stays at work has such a batch nearly always."""
        leave_pending(lab, by_sluice=True)
        home = lab.project.stream_home(lab.stream)
        assert lag(lab)["a"]["pending_batch"] == 0

        run_id = new_run_id(lab.now, None)
        run = RunRecord(run_id=run_id, stream="s", generation=1, planned_at=lab.now, plan=PlanDocument(),
                        status="running", trigger=trigger)  # fmt: skip
        RunRecords(home).save(run)
        folder = home.lease_folder(1)
        with acquire(home.storage, folder, run_id=run_id, sink_is_idempotent=True, clock=lambda: lab.now):
            assert lag(lab)["a"]["pending_batch"] == (0 if is_told else None)
        assert lag(lab)["a"]["pending_batch"] == 0

    def test_a_file_from_the_future_has_no_age(self, lab: Lab) -> None:
        """A clock that is ahead makes no negative age."""
        lab.arrive(86_400, source="a")
        assert lag(lab)["a"]["age_seconds"] == 0.0

    def test_of_a_table(self, tmp_path: Path) -> None:
        """A Delta table knows its rows."""
        write_deltalake(tmp_path / "table", pa.table({"id": list(range(5))}))
        lab = Lab(tmp_path, make_stream(tmp_path, {"table": sources.delta(str(tmp_path / "table"))}))
        found = lag(lab)["table"]
        assert (found["files"], found["rows"]) == (1, 5)
        assert found["bytes"] == sum(os.path.getsize(file) for file in (tmp_path / "table").glob("*.parquet"))

    def test_of_a_source_that_can_t_be_read(self, tmp_path: Path) -> None:
        """One source that can't be read says so, and the others are told."""
        lab = make_lab(tmp_path, names=("a",))
        lab.arrive(1)
        too_long = sources.files(str(tmp_path / ("x" * 300)), format="json", schema="id bigint")
        lab.stream = make_stream(tmp_path, {"b": too_long, "a": lab.stream.sources["a"]})
        found = lag(lab)
        assert found["a"]["files"] == 1
        assert "File name too long" in str(found["b"]["unreadable"])

    def test_of_a_wrong_declaration(self, lab: Lab) -> None:
        """A folder that is not there is an error, not a lag of zero."""
        (lab.root / "a").rmdir()
        with pytest.raises(DeclarationError, match="does not exist"):
            lag(lab)
