"""A Delta table as a source: which versions and files each batch takes, on tables that delta-rs wrote."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st

from sluice import sources
from sluice.errors import DeclarationError, NotThereError, RefusedError
from sluice.sources.contract import Available, Bound, Position, Step
from sluice.sources.delta.source import DeltaSource
from sluice.storage import Storage
from sluice.surroundings import Surroundings
from tests.builders import NOW, commit_file, edit_commit, make_delta, set_commit_times
from tests.fuzzing import outcome
from tests.remedies import read_remedy

NEW = Position(None)


def at(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def plan(
    table: Path,
    position: Position = NEW,
    *,
    until: datetime | None = None,
    to_version: int | None = None,
    now: datetime = NOW,
    **options: Any,
) -> Available:
    return sources.delta(str(table), **options).available(
        position, Bound(until, to_version), storage=Storage(), now=now
    )


def offset(table: Path, version: int, index: int = -1, *, is_snapshot: bool = False) -> str:
    """An offset as Spark writes it."""
    table_id = DeltaTable(table).metadata().id
    return (
        f'{{"sourceVersion":1,"reservoirId":"{table_id}","reservoirVersion":{version},"index":{index},'
        f'"isStartingVersion":{str(is_snapshot).lower()}}}'
    )


def ends(found: Available) -> list[tuple[int, int, bool]]:
    """Version, index and whether it is in the first snapshot, of every batch's end."""
    decoded = [json.loads(step.end) for step in found.steps]
    return [(end["reservoirVersion"], end["index"], end["isStartingVersion"]) for end in decoded]


def counts(found: Available) -> list[tuple[int | None, int | None]]:
    """Files and rows of every batch."""
    return [(step.amount["files"], step.amount.get("rows")) for step in found.steps]


class TestDeclaration:
    """`sources.delta(...)`."""

    def test_options(self, tmp_path: Path) -> None:
        """Further options of Delta's reader are Spark's, in its spelling; the path is one of the project's."""
        source = sources.delta("lake/visits", with_event_time_order=True).resolved(Surroundings(str(tmp_path)))

        assert source.options == {"withEventTimeOrder": "true"}
        assert source.location == f"{tmp_path}/lake/visits"

    @pytest.mark.parametrize("name", ["ignoreMissingFiles", "ignoreCorruptFiles"])
    def test_a_setting_that_lets_spark_pass_over_files(self, name: str) -> None:
        """Delta has no option against it, and nobody would count them."""
        source = sources.delta("lake/visits")
        with pytest.raises(DeclarationError, match=f"`spark.sql.files.{name}` is set") as refused:
            source.check_settings({f"spark.sql.files.{name}": "TRUE"}, place="stream `s`, source `n`")
        assert refused.value.where == "stream `s`, source `n`"
        source.check_settings({f"spark.sql.files.{name}": "false"}, place="")

    @pytest.mark.parametrize(
        ("options", "remedy"),
        [
            ({"skip_change_comits": True}, "did you mean `skip_change_commits`?"),
            ({"read_change_fed": True}, "did you mean `read_change_feed`?"),
            (
                {"fail_on_data_loss": False},
                "leave it out: a plan refuses versions that are gone (`INPUT_GONE`), and passes over none",
            ),
            ({"max_offsets_per_batch": 0}, "give a whole number above 0, or leave it out"),
            ({"max_files_per_batch": -1}, "give a whole number above 0, or leave it out"),
            ({"max_bytes_per_batch": "1g"}, "give a whole number above 0, or leave it out"),
            ({"starting_version": -1}, "give a version number, 0 or above"),
            ({"starting_version": True}, "give a version number, 0 or above"),
            ({"starting_version": 1, "starting": "latest"}, "keep one"),
            ({"starting": "now"}, 'use "earliest", "latest" or an ISO 8601 time'),
            ({"exclude_regex": "\\p{Lu}"}, "write it in the syntax that Java's and Python's regular expressions share"),
            ({"exclude_regex": "[a&&b]"}, "write it in the syntax that Java's and Python's regular expressions share"),
        ],
    )
    def test_refused(self, options: dict[str, Any], remedy: str) -> None:
        """A wrong option is refused where it is declared, with what to do."""
        with pytest.raises(DeclarationError) as caught:
            sources.delta("lake", **options)

        assert caught.value.where == "sources.delta('lake')"
        assert caught.value.remedy == remedy

    def test_what_spark_alone_can_plan(self, tmp_path: Path) -> None:
        """In the order of their event time, the offsets are Spark's secret; without it they are not."""
        make_delta(tmp_path, [1])

        assert plan(tmp_path, with_event_time_order=True).unplannable is not None
        assert plan(tmp_path, with_event_time_order=False).unplannable is None
        assert plan(tmp_path).unplannable is None

    def test_excluded_files_do_not_count(self, tmp_path: Path) -> None:
        """What `exclude_regex` finds in a file's path, Spark passes over: the plan promises no row of it."""
        make_delta(tmp_path, [1, 2, 3], [4])
        found = plan(tmp_path, exclude_regex="^part=2/", starting_version=0, max_files_per_batch=1)

        assert counts(found) == [(1, 1)] * 3
        assert ends(found)[-1] == (2, -1, False)
        taken = sources.delta(str(tmp_path), exclude_regex="^part=2/").slice(
            Position(offset(tmp_path, 2)), None, storage=Storage()
        )
        assert (taken.amount["files"], len(taken.left_out)) == (3, 1)


class TestFirstRun:
    """Where a first run begins."""

    def test_snapshot(self, tmp_path: Path) -> None:
        """`earliest` takes the table as it is, and ends before the first file of the next version."""
        make_delta(tmp_path, [1, 2], [3])
        found = plan(tmp_path)
        size = sum(file.stat().st_size for file in tmp_path.glob("part=*/*"))

        assert found.steps == [Step(end=offset(tmp_path, 2), amount={"files": 3, "bytes": size, "rows": 3})]
        assert found.started_at == {}

    def test_snapshot_has_no_deleted_rows(self, tmp_path: Path) -> None:
        """What was deleted before the first run is not read, and does not refuse."""
        make_delta(tmp_path, [1, 2], [3])
        DeltaTable(tmp_path).delete("part = 1")

        assert counts(plan(tmp_path)) == [(2, 2)]

    def test_snapshot_in_batches(self, tmp_path: Path) -> None:
        """A limit cuts the snapshot at indexes of its files; the last batch ends behind it."""
        make_delta(tmp_path, [1, 2], [3, 4, 5])
        found = plan(tmp_path, max_files_per_batch=2)

        assert ends(found) == [(1, 1, True), (1, 3, True), (2, -1, False)]
        assert counts(found) == [(2, 2), (2, 2), (1, 1)]

    def test_starting_version(self, tmp_path: Path) -> None:
        """A starting version reads changes from there on, and is kept."""
        make_delta(tmp_path, [1], [2, 3], [4])
        found = plan(tmp_path, starting_version=1)

        assert (ends(found), counts(found)) == ([(3, -1, False)], [(3, 3)])
        assert found.started_at["version"] == 1

    def test_a_starting_version_that_is_yet_to_come(self, tmp_path: Path) -> None:
        """The next one is waited for; one behind that is a mistake, which Spark refuses, too."""
        make_delta(tmp_path, [1], [2, 3])
        assert ends(plan(tmp_path, starting_version=2)) == []
        with pytest.raises(DeclarationError, match="`starting_version` is 3, and the newest version is 1") as refused:
            plan(tmp_path, starting_version=3)
        assert refused.value.remedy == "name one that is there, or 2 for what comes next"
        assert ends(plan(tmp_path, Position(None, started_at={"version": 3}, has_begun=True), starting_version=3)) == []

    def test_starting_latest(self, tmp_path: Path) -> None:
        """`latest` takes what is committed from now on."""
        make_delta(tmp_path, [1], [2])
        found = plan(tmp_path, starting="latest")
        assert (found.steps, found.started_at["version"]) == ([], 2)

        make_delta(tmp_path, [3])
        kept = Position(None, started_at=found.started_at)
        assert counts(plan(tmp_path, kept, starting="latest")) == [(1, 1)]

    @pytest.mark.parametrize(("starting", "version"), [(999, 0), (1000, 0), (1001, 1), (3000, 2), (3001, 3)])
    def test_starting_at_a_time(self, tmp_path: Path, starting: int, version: int) -> None:
        """A time takes the versions committed at or after it."""
        make_delta(tmp_path, [1], [2], [3])
        set_commit_times(tmp_path, 1000, 2000, 3000)

        assert plan(tmp_path, starting=at(starting)).started_at["version"] == version

    def test_starting_at_a_time_with_clocks_that_jump(self, tmp_path: Path) -> None:
        """The running maximum decides: a version that claims to be older than the one before it is not."""
        make_delta(tmp_path, [1], [2], [3])
        set_commit_times(tmp_path, 1000, 5000, 2000)

        assert plan(tmp_path, starting=at(4000)).started_at["version"] == 1

    def test_starting_at_a_time_that_the_log_does_not_reach(self, tmp_path: Path) -> None:
        """What is left is read as Spark reads it, and that rows may be missing is said; without a start, none are."""
        make_delta(tmp_path, [1], [2], [3])
        set_commit_times(tmp_path, 1000, 2000, 3000)
        DeltaTable(tmp_path).create_checkpoint()
        commit_file(tmp_path, 0).unlink()

        found = plan(tmp_path, starting=at(500))
        assert (found.started_at["version"], counts(found)) == (1, [(2, 2)])
        read_remedy(found.problems[0], "START_GONE", "leave out `starting`")
        whole = plan(tmp_path)
        assert (whole.problems, counts(whole)) == ((), [(3, 3)])

        assert plan(tmp_path, starting=at(2001)).problems == ()
        assert plan(tmp_path, Position(None, started_at=found.started_at), starting=at(500)).problems == ()

    def test_start_is_frozen(self, tmp_path: Path) -> None:
        """What the first plan resolved holds, whatever the declaration says by then."""
        make_delta(tmp_path, [1], [2], [3])
        found = plan(tmp_path, Position(None, started_at={"version": 2}), starting_version=0)

        assert (counts(found), found.started_at["version"]) == ([(1, 1)], 2)

    def test_no_table(self, tmp_path: Path) -> None:
        """A table that is not there yet is a mistake or a matter of order; it is named."""
        with pytest.raises(NotThereError, match="no Delta table") as caught:
            plan(tmp_path / "absent")

        assert caught.value.where == f"{tmp_path}/absent"


class TestChanges:
    """Later runs."""

    def test_new_versions(self, tmp_path: Path) -> None:
        """From an offset on, every version's files are one batch when there is no limit."""
        make_delta(tmp_path, [1], [2, 3], [4])
        found = plan(tmp_path, Position(offset(tmp_path, 1)))

        assert (ends(found), counts(found)) == ([(3, -1, False)], [(3, 3)])

    def test_nothing_new(self, tmp_path: Path) -> None:
        """An offset behind the newest version waits for nothing."""
        make_delta(tmp_path, [1])

        assert plan(tmp_path, Position(offset(tmp_path, 1))).steps == []

    def test_limit_of_files(self, tmp_path: Path) -> None:
        """A limit of files cuts inside and across versions."""
        make_delta(tmp_path, [1], [2, 3, 4], [5, 6])
        found = plan(tmp_path, Position(offset(tmp_path, 1)), max_files_per_batch=2)

        assert ends(found) == [(1, 1, False), (2, 0, False), (3, -1, False)]
        assert [files for files, _ in counts(found)] == [2, 2, 1]

    def test_limit_of_bytes(self, tmp_path: Path) -> None:
        """A batch ends with the file that reaches the limit, as Delta's own limit does."""
        make_delta(tmp_path, [1], [2], [3], [4], [5])
        for version, size in enumerate([60, 40, 99, 500, 5]):
            edit_commit(tmp_path, version, {"size": size}, action="add")
        found = plan(tmp_path, Position(offset(tmp_path, 0)), max_bytes_per_batch=100)

        assert [step.amount["bytes"] for step in found.steps] == [100, 599, 5]
        assert ends(found) == [(2, -1, False), (4, -1, False), (5, -1, False)]

    def test_limit_of_versions(self, tmp_path: Path) -> None:
        """A batch takes at most so many versions."""
        make_delta(tmp_path, [1], [2, 3], [4], [5], [6])
        found = plan(tmp_path, Position(offset(tmp_path, 0)), max_offsets_per_batch=2)

        assert ends(found) == [(2, -1, False), (4, -1, False), (5, -1, False)]
        assert [files for files, _ in counts(found)] == [3, 2, 1]

    def test_inside_a_version(self, tmp_path: Path) -> None:
        """An index of the offset counts the files that are read already."""
        make_delta(tmp_path, [1, 2, 3], [4])
        found = plan(tmp_path, Position(offset(tmp_path, 0, 0)), max_files_per_batch=1)

        assert ends(found) == [(0, 1, False), (1, -1, False), (2, -1, False)]
        assert counts(found) == [(1, 1)] * 3

    def test_inside_the_snapshot(self, tmp_path: Path) -> None:
        """The rest of the snapshot comes first, then all files of the versions after it."""
        make_delta(tmp_path, [1, 2, 3])
        position = Position(offset(tmp_path, 0, 1, is_snapshot=True))
        make_delta(tmp_path, [4, 5], [6])
        found = plan(tmp_path, position)

        assert (ends(found), counts(found)) == ([(3, -1, False)], [(4, 4)])

        found = plan(tmp_path, position, max_files_per_batch=2)
        assert (ends(found), counts(found)) == ([(1, 0, False), (3, -1, False)], [(2, 2), (2, 2)])
        earlier = Position(offset(tmp_path, 0, 0, is_snapshot=True))
        assert ends(plan(tmp_path, earlier, max_files_per_batch=1))[:3] == [(0, 1, True), (1, -1, False), (1, 0, False)]

    @pytest.mark.parametrize("index", [-1, -100])
    def test_before_the_snapshot(self, tmp_path: Path, index: int) -> None:
        """Spark's base index, in either spelling, is before the first file."""
        make_delta(tmp_path, [1, 2, 3])

        assert counts(plan(tmp_path, Position(offset(tmp_path, 0, index, is_snapshot=True)))) == [(3, 3)]
        assert counts(plan(tmp_path, Position(offset(tmp_path, 0, index)))) == [(3, 3)]

    def test_rows_that_the_log_does_not_tell(self, tmp_path: Path) -> None:
        """One file without statistics makes the rows of its batch unknown, of no other."""
        make_delta(tmp_path, [1], [2])
        edit_commit(tmp_path, 1, {"stats": None}, action="add")
        found = plan(tmp_path, Position(offset(tmp_path, 0)), max_files_per_batch=1)

        assert counts(found) == [(1, 1), (1, None)]

    def test_oldest(self, tmp_path: Path) -> None:
        """What waits is as old as the first version that waits."""
        make_delta(tmp_path, [1], [2], [3])
        set_commit_times(tmp_path, 1000, 2000, 3000)

        assert plan(tmp_path, Position(offset(tmp_path, 1))).oldest_ms == 2000
        assert plan(tmp_path, Position(offset(tmp_path, 3))).oldest_ms is None

    @settings(max_examples=25)
    @given(
        sizes=st.lists(st.integers(1, 4), min_size=1, max_size=4),
        limit=st.integers(1, 5),
        kind=st.sampled_from(["max_files_per_batch", "max_offsets_per_batch", "max_bytes_per_batch"]),
        start=st.sampled_from(["earliest", "version"]),
    )
    def test_batches_tile(
        self, tmp_path_factory: pytest.TempPathFactory, sizes: list[int], limit: int, kind: str, start: str
    ) -> None:
        """Whatever the limits, batches take every file once, and planning goes on from the end of any of them."""
        table = make_delta(tmp_path_factory.mktemp("tiles"), *(range(size) for size in sizes))
        options: dict[str, Any] = {kind: limit * 700 if kind == "max_bytes_per_batch" else limit}
        started = {"version": 0} if start == "version" else {}
        found = plan(table, Position(None, started_at=started), **options)

        assert sum(files or 0 for files, _ in counts(found)) == sum(sizes)
        for number, step in enumerate(found.steps):
            rest = plan(table, Position(step.end, started_at=started), **options)
            assert sum(files or 0 for files, _ in counts(rest)) == sum(f or 0 for f, _ in counts(found)[number + 1 :])
            assert ends(rest)[-1:] == ends(found)[number + 1 :][-1:]


class TestBounds:
    """Where a run stops."""

    @pytest.mark.parametrize(("until", "version"), [(1000, None), (1001, 1), (2000, 1), (2001, 2), (9000, 3)])
    def test_until(self, tmp_path: Path, until: int, version: int | None) -> None:
        """Versions committed before the bound count; one of exactly its time does not."""
        make_delta(tmp_path, [1], [2], [3])
        set_commit_times(tmp_path, 1000, 2000, 3000)
        expected = [] if version is None else [(version, -1, False)]

        assert ends(plan(tmp_path, until=at(until))) == expected
        assert ends(plan(tmp_path, until=at(until), starting_version=0)) == expected

    def test_until_with_clocks_that_jump(self, tmp_path: Path) -> None:
        """The longest prefix whose running maximum lies before the bound: a later version can't slip in front."""
        make_delta(tmp_path, [1], [2], [3], [4])
        set_commit_times(tmp_path, 1000, 5000, 2000, 6000)

        assert ends(plan(tmp_path, until=at(3000), starting_version=0)) == [(1, -1, False)]
        assert ends(plan(tmp_path, until=at(5001), starting_version=0)) == [(3, -1, False)]

    def test_until_before_the_position(self, tmp_path: Path) -> None:
        """A bound behind what was read already takes nothing, and gives nothing back."""
        make_delta(tmp_path, [1], [2], [3])
        set_commit_times(tmp_path, 1000, 2000, 3000)

        assert plan(tmp_path, Position(offset(tmp_path, 2)), until=at(1500)).steps == []

    def test_until_before_the_snapshot(self, tmp_path: Path) -> None:
        """A bound before the snapshot's own version takes nothing of what is left of it."""
        make_delta(tmp_path, [1, 2], [3])
        set_commit_times(tmp_path, 1000, 2000)
        position = Position(offset(tmp_path, 1, 0, is_snapshot=True))

        assert plan(tmp_path, position, until=at(2000)).steps == []
        assert counts(plan(tmp_path, position, until=at(2001))) == [(2, 2)]

    def test_version_without_a_time(self, tmp_path: Path) -> None:
        """A version whose writer did not say its time counts with the one before it."""
        make_delta(tmp_path, [1], [2], [3])
        set_commit_times(tmp_path, 1000, 0, 3000)
        edit_commit(tmp_path, 1, {"timestamp": None})

        assert ends(plan(tmp_path, until=at(1500), starting_version=0)) == [(2, -1, False)]

    @pytest.mark.parametrize("version", [0, 1, 2])
    def test_to_version(self, tmp_path: Path, version: int) -> None:
        """A version bounds a run, itself included."""
        make_delta(tmp_path, [1], [2], [3])

        assert ends(plan(tmp_path, to_version=version)) == [(version + 1, -1, False)]
        assert counts(plan(tmp_path, to_version=version)) == [(version + 1, version + 1)]

    def test_to_version_that_is_not_there(self, tmp_path: Path) -> None:
        """A version that does not exist yet is a mistake of the caller."""
        make_delta(tmp_path, [1])

        with pytest.raises(DeclarationError, match="version 7 does not exist; the newest is 0"):
            plan(tmp_path, to_version=7)

    def test_both_bounds(self, tmp_path: Path) -> None:
        """The nearer bound counts."""
        make_delta(tmp_path, [1], [2], [3])
        set_commit_times(tmp_path, 1000, 2000, 3000)

        assert ends(plan(tmp_path, until=at(2500), to_version=2)) == [(2, -1, False)]
        assert ends(plan(tmp_path, until=at(9000), to_version=0)) == [(1, -1, False)]


def delete(table: Path) -> None:
    DeltaTable(table).delete("part = 1")


def update(table: Path) -> None:
    DeltaTable(table).update(updates={"id": "9"}, predicate="part = 1")


class TestRefusals:
    """Where the table and the checkpoint contradict each other."""

    @pytest.mark.parametrize("change", [delete, update])
    def test_change(self, tmp_path: Path, change: Callable[[Path], None]) -> None:
        """A version that deletes or rewrites rows that were read refuses, and its commit is named."""
        make_delta(tmp_path, [1, 2])
        change(tmp_path)

        with pytest.raises(RefusedError) as caught:
            plan(tmp_path, Position(offset(tmp_path, 1)))

        assert caught.value.finding.code == "SOURCE_NOT_APPEND_ONLY"
        assert caught.value.finding.file == str(commit_file(tmp_path, 1))
        assert "skip_change_commits" in caught.value.finding.remedy

    def test_change_beyond_the_bound(self, tmp_path: Path) -> None:
        """A change that the run does not reach refuses nothing."""
        make_delta(tmp_path, [1, 2])
        delete(tmp_path)

        assert ends(plan(tmp_path, starting_version=0, to_version=0)) == [(1, -1, False)]

    @pytest.mark.parametrize("change", [delete, update])
    def test_skip_change_commits(self, tmp_path: Path, change: Callable[[Path], None]) -> None:
        """With `skip_change_commits` such versions are passed over, rows that they add included."""
        make_delta(tmp_path, [1, 2])
        change(tmp_path)
        make_delta(tmp_path, [3])
        found = plan(tmp_path, Position(offset(tmp_path, 1)), skip_change_commits=True)

        assert (ends(found), counts(found)) == ([(3, -1, False)], [(1, 1)])

    def test_ignore_deletes(self, tmp_path: Path) -> None:
        """With `ignore_deletes` a version may delete, and may not rewrite."""
        make_delta(tmp_path, [1, 2])
        delete(tmp_path)
        position = Position(offset(tmp_path, 1))
        assert ends(plan(tmp_path, position, ignore_deletes=True)) == [(2, -1, False)]

        DeltaTable(tmp_path).update(updates={"id": "9"}, predicate="part = 2")
        with pytest.raises(RefusedError, match="version 2"):
            plan(tmp_path, position, ignore_deletes=True)

    def test_compaction_is_no_change(self, tmp_path: Path) -> None:
        """OPTIMIZE changes no data: the stream goes on."""
        for _ in range(3):
            make_delta(tmp_path, [1])
        DeltaTable(tmp_path).optimize.compact()
        make_delta(tmp_path, [2])

        assert counts(plan(tmp_path, Position(offset(tmp_path, 3)))) == [(1, 1)]

    def test_versions_without_rows_begin_no_run(self, tmp_path: Path) -> None:
        """A compaction, a batch without rows: the next rows take them along, or a day does."""
        for _ in range(2):
            make_delta(tmp_path, [1])
        DeltaTable(tmp_path).optimize.compact()
        position = Position(offset(tmp_path, 2))
        assert ends(plan(tmp_path, position)) == []
        assert plan(tmp_path, position).oldest_ms is None
        later = datetime.now(UTC) + timedelta(hours=25)
        assert ends(plan(tmp_path, position, now=later)) == [(3, -1, False)]
        make_delta(tmp_path, [2])
        assert (ends(plan(tmp_path, position)), counts(plan(tmp_path, position))) == ([(4, -1, False)], [(1, 1)])
        # Whoever takes the option out again must not read them.
        assert ends(plan(tmp_path, position, exclude_regex="part=2")) == [(4, -1, False)]

    def test_what_changes_the_table_begins_a_run(self, tmp_path: Path) -> None:
        """Columns that come and go, one by one, Spark follows; where it has stood still, it refuses them."""
        make_delta(tmp_path, [1])
        position = Position(offset(tmp_path, 1))
        DeltaTable(tmp_path).alter.set_table_properties({"delta.appendOnly": "true"})
        assert ends(plan(tmp_path, position)) == [(2, -1, False)]

    @pytest.mark.parametrize("versions", [100, 101])
    def test_versions_without_rows_that_are_many(self, tmp_path: Path, versions: int) -> None:
        make_delta(tmp_path, [1])
        first = tmp_path / "_delta_log" / f"{0:020d}.json"
        info = next(line for line in first.read_text("utf-8").splitlines() if "commitInfo" in line)
        for number in range(1, versions + 1):
            (tmp_path / "_delta_log" / f"{number:020d}.json").write_text(f"{info}\n", "utf-8")
        found = ends(plan(tmp_path, Position(offset(tmp_path, 1))))
        assert found == ([] if versions == 100 else [(102, -1, False)])

    def test_versions_without_rows_of_a_short_log(self, tmp_path: Path) -> None:
        """The table may let go of them at any time."""
        for _ in range(2):
            make_delta(tmp_path, [1])
        DeltaTable(tmp_path).alter.set_table_properties({"delta.logRetentionDuration": "interval 1 hour"})
        position = Position(offset(tmp_path, 3))
        DeltaTable(tmp_path).optimize.compact()
        assert ends(plan(tmp_path, position)) == [(4, -1, False)]

    def test_table_replaced(self, tmp_path: Path) -> None:
        """Another table at the same place refuses, before anything is read."""
        position = Position(offset(make_delta(tmp_path / "t", [1]), 1))
        shutil.rmtree(tmp_path / "t")
        make_delta(tmp_path / "t", [1], [2])

        with pytest.raises(RefusedError) as caught:
            plan(tmp_path / "t", position)

        assert (caught.value.finding.code, caught.value.finding.file) == ("SOURCE_TABLE_REPLACED", f"{tmp_path}/t")

    @pytest.mark.parametrize("starting_version", [0, 1])
    def test_table_replaced_among_the_versions(self, tmp_path: Path, starting_version: int) -> None:
        """Spark reads no version of an earlier table at the place, also below a bound; behind it, it does."""
        make_delta(tmp_path, [1], [2], [3], [4])
        (created,) = (line for line in commit_file(tmp_path, 0).read_text().splitlines() if '"metaData"' in line)
        replacing = json.loads(created)
        replacing["metaData"]["id"] = "another"
        commit_file(tmp_path, 2).write_text(
            f"{commit_file(tmp_path, 2).read_text().strip()}\n{json.dumps(replacing)}\n"
        )

        for to_version in (1, None):
            with pytest.raises(RefusedError, match=f"version {starting_version}, which is to be read, is of") as caught:
                plan(tmp_path, starting_version=starting_version, to_version=to_version)
            found = caught.value.finding
            assert (found.code, found.file) == ("SOURCE_TABLE_REPLACED", str(commit_file(tmp_path, 2)))
        for options in ({}, {"starting_version": 2}, {"starting_version": 3}):
            assert plan(tmp_path, **options).steps

    def test_table_rolled_back(self, tmp_path: Path) -> None:
        """A table whose newest versions are gone would count them anew."""
        make_delta(tmp_path, [1], [2], [3])
        position = Position(offset(tmp_path, 3))
        commit_file(tmp_path, 2).unlink()

        with pytest.raises(RefusedError) as caught:
            plan(tmp_path, position)

        assert caught.value.finding.code == "SOURCE_TABLE_ROLLED_BACK"

    def test_table_written_on_from_an_older_copy(self, tmp_path: Path) -> None:
        """Of the noted versions, the newest that was read tells; those that are yet to be read may be others."""
        make_delta(tmp_path, [1], [2], [3])
        mark = sources.delta(str(tmp_path)).mark(*(offset(tmp_path, end) for end in (3, 1, 2)), storage=Storage())
        assert mark is not None
        assert [noted.split(" ")[0] for noted in mark.split(", ")] == ["0", "1", "2"]
        for version in (1, 2):
            edit_commit(tmp_path, version, {"timestamp": 1})

        assert ends(plan(tmp_path, Position(offset(tmp_path, 1), mark=mark))) == [(3, -1, False)]
        for read_to in (2, 3):
            with pytest.raises(RefusedError, match=f"version {read_to - 1}, which the checkpoint has read") as caught:
                plan(tmp_path, Position(offset(tmp_path, read_to), mark=mark))
            assert caught.value.finding.code == "SOURCE_TABLE_ROLLED_BACK"

    def test_table_rolled_back_below_the_snapshot(self, tmp_path: Path) -> None:
        """The version of a snapshot that is still being read must be there, too."""
        make_delta(tmp_path, [1])

        with pytest.raises(RefusedError) as caught:
            plan(tmp_path, Position(offset(tmp_path, 1, 0, is_snapshot=True)))

        assert caught.value.finding.code == "SOURCE_TABLE_ROLLED_BACK"

    def test_log_cleaned(self, tmp_path: Path) -> None:
        """A version that is yet to be read and whose commit is gone refuses; it is named."""
        make_delta(tmp_path, [1], [2], [3])
        position = Position(offset(tmp_path, 1))
        DeltaTable(tmp_path).create_checkpoint()
        for version in (0, 1):
            commit_file(tmp_path, version).unlink()

        with pytest.raises(RefusedError) as caught:
            plan(tmp_path, position)

        assert (caught.value.finding.code, caught.value.finding.file) == ("INPUT_GONE", str(commit_file(tmp_path, 1)))

    def test_log_cleaned_below_a_snapshot_that_is_read_in_part(self, tmp_path: Path) -> None:
        """Which of its files are left to read, nothing tells any more."""
        make_delta(tmp_path, [1], [2], [3])
        position = Position(offset(tmp_path, 1, 0, is_snapshot=True))
        assert counts(plan(tmp_path, position)) == [(2, 2)]
        DeltaTable(tmp_path).create_checkpoint()
        for version in (0, 1):
            commit_file(tmp_path, version).unlink()

        with pytest.raises(RefusedError, match="has begun to read version 1 of the table as a whole") as caught:
            plan(tmp_path, position)

        assert caught.value.finding.code == "INPUT_GONE"

    def test_log_cleaned_behind_the_position(self, tmp_path: Path) -> None:
        """What was read may be cleaned up; a first run reads the snapshot all the same."""
        make_delta(tmp_path, [1], [2], [3])
        DeltaTable(tmp_path).create_checkpoint()
        for version in (0, 1):
            commit_file(tmp_path, version).unlink()

        assert counts(plan(tmp_path, Position(offset(tmp_path, 2)))) == [(1, 1)]
        assert counts(plan(tmp_path)) == [(3, 3)]

    @pytest.mark.parametrize("given_offset", ['{"logOffset":3}', "5", "null", "[]", '{"reservoirId":"x"}', "[" * 5000])
    def test_offset_of_another_kind(self, tmp_path: Path, given_offset: str) -> None:
        """The offset of another kind of source refuses."""
        make_delta(tmp_path, [1])

        with pytest.raises(RefusedError) as caught:
            plan(tmp_path, Position(given_offset))

        assert (caught.value.finding.code, caught.value.finding.file) == ("OFFSET_OF_ANOTHER_KIND", str(tmp_path))

    @settings(max_examples=40)
    @given(
        changes=st.fixed_dictionaries(
            {
                "sourceVersion": st.integers(0, 5),
                "reservoirVersion": st.integers(-1, 4) | st.integers(),
                "index": st.integers(-101, 4) | st.integers(),
                "isStartingVersion": st.booleans(),
            }
        )
    )
    def test_any_numbers(self, tmp_path_factory: pytest.TempPathFactory, changes: dict[str, Any]) -> None:
        """Whatever numbers an offset has, planning gives steps or a refusal."""
        table = tmp_path_factory.getbasetemp() / "any_numbers"
        if not table.exists():
            make_delta(table, [1, 2], [3])
        given_offset = json.dumps(json.loads(offset(table, 0)) | changes)

        assert isinstance(outcome(lambda: plan(table, Position(given_offset))), Available | RefusedError)


class TestCheckInputs:
    """Whether what a pending batch reads is still there."""

    def source(self, table: Path) -> DeltaSource:
        return sources.delta(str(table))

    def test_all_there(self, tmp_path: Path) -> None:
        """Nothing to tell when every version of the batch is there."""
        make_delta(tmp_path, [1], [2], [3])
        position = Position(offset(tmp_path, 1))

        assert self.source(tmp_path).check_inputs(position, offset(tmp_path, 3), storage=Storage()) == ()
        assert self.source(tmp_path).check_inputs(NEW, offset(tmp_path, 3), storage=Storage()) == ()

    @pytest.mark.parametrize(("end", "gone"), [((1, -1), [0]), ((2, -1), [0, 1]), ((1, 0), [0, 1])])
    def test_versions_gone(self, tmp_path: Path, end: tuple[int, int], gone: list[int]) -> None:
        """Every version of the batch whose commit is gone blocks, the last one when the batch reads files of it."""
        make_delta(tmp_path, [1], [2], [3])
        DeltaTable(tmp_path).create_checkpoint()
        for version in (0, 1):
            commit_file(tmp_path, version).unlink()
        position = Position(offset(tmp_path, 0))
        problems = self.source(tmp_path).check_inputs(position, offset(tmp_path, *end), storage=Storage())

        assert [problem.file for problem in problems] == [str(commit_file(tmp_path, version)) for version in gone]
        assert {(problem.code, problem.is_blocking) for problem in problems} == {("INPUT_GONE", True)}

    @pytest.mark.parametrize(
        ("start", "end", "ids"),
        [
            (None, (2, 1, True), [1, 2]),
            ((2, 0, True), (2, 1, True), [2]),
            ((2, 1, True), (4, -1, False), [3, 4, 5]),
            (None, (3, -1, False), [1, 2, 3]),
            ((3, -1, False), (3, 0, False), [4]),
            ((3, 0, False), (4, -1, False), [5]),
        ],
    )
    def test_files_gone(
        self, tmp_path: Path, start: tuple[int, int, bool] | None, end: tuple[int, int, bool], ids: list[int]
    ) -> None:
        """A data file that the batch reads blocks when it is gone, whichever it is; of other files nothing is told."""
        make_delta(tmp_path, [1], [2], [3], [4, 5])
        actions = map(json.loads, commit_file(tmp_path, 3).read_text().splitlines())
        # The two of one version are written in either order.
        last_two = [int(action["add"]["partitionValues"]["part"]) for action in actions if "add" in action]
        position = NEW if start is None else Position(offset(tmp_path, start[0], start[1], is_snapshot=start[2]))
        given_end = offset(tmp_path, end[0], end[1], is_snapshot=end[2])

        found = []
        for number in range(1, 6):
            (file,) = tmp_path.glob(f"part={number}/*.parquet")
            aside = file.rename(tmp_path / "aside")
            problems = self.source(tmp_path).check_inputs(position, given_end, storage=Storage())
            found += [number for problem in problems if (problem.code, problem.file) == ("INPUT_GONE", str(file))]
            aside.rename(file)
        assert found == sorted([1, 2, 3, *last_two][number - 1] for number in ids)

    def test_files_that_are_not_read(self, tmp_path: Path) -> None:
        """Those of versions that are passed over, and those that the declaration leaves out, may go."""
        make_delta(tmp_path, [1])
        write_deltalake(tmp_path, pa.table({"id": [7], "part": [7]}), mode="overwrite")
        make_delta(tmp_path, [2])
        start, end = Position(offset(tmp_path, 1)), offset(tmp_path, 3)
        (passed_over,) = tmp_path.glob("part=7/*.parquet")
        passed_over.unlink()
        source = sources.delta(str(tmp_path), skip_change_commits=True)
        assert source.check_inputs(start, end, storage=Storage()) == ()

        (left_out,) = tmp_path.glob("part=2/*.parquet")
        left_out.unlink()
        assert len(source.check_inputs(start, end, storage=Storage())) == 1
        source = sources.delta(str(tmp_path), skip_change_commits=True, exclude_regex="part=2/")
        assert source.check_inputs(start, end, storage=Storage()) == ()

    def test_table_gone(self, tmp_path: Path) -> None:
        """A table that is gone blocks."""
        end = offset(make_delta(tmp_path / "t", [1]), 1)
        shutil.rmtree(tmp_path / "t")
        problems = self.source(tmp_path / "t").check_inputs(NEW, end, storage=Storage())

        assert [(problem.code, problem.file) for problem in problems] == [("INPUT_GONE", f"{tmp_path}/t")]

    def test_table_replaced(self, tmp_path: Path) -> None:
        """Another table at the same place refuses."""
        end = offset(make_delta(tmp_path / "t", [1]), 1)
        shutil.rmtree(tmp_path / "t")
        make_delta(tmp_path / "t", [1])

        with pytest.raises(RefusedError) as caught:
            self.source(tmp_path / "t").check_inputs(NEW, end, storage=Storage())

        assert caught.value.finding.code == "SOURCE_TABLE_REPLACED"
