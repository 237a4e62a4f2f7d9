"""What planning looks at, in which order, and what it costs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from sluice import sources
from sluice.checkpoint.source_log import SourceLog
from sluice.errors import DeclarationError, RefusedError
from sluice.home import SourceLine
from sluice.local_disk import FileStat
from sluice.planning.survey import Survey, positions, survey
from sluice.sinks.contract import SinkState
from sluice.sources.contract import Bound
from sluice.sources.files import changed_files
from sluice.storage import Folder, Storage
from tests.unit.engine_lab import Lab, leave_pending, make_lab, make_stream, write_v2_offsets


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    """A stream of one source; nothing has arrived."""
    return make_lab(tmp_path)


def look(lab: Lab, bound: Bound = Bound()) -> Survey:  # noqa: B008 - frozen
    return survey(lab.stream, lab.project.stream_home(lab.stream), bound, lab.now)


class TestOrderOfSources:
    def test_of_a_new_checkpoint_it_is_the_declarations(self, tmp_path: Path) -> None:
        """Before anything was planned any order will do."""
        lines = look(make_lab(tmp_path, names=("b", "a"))).lines
        assert lines == (SourceLine("b", "0"), SourceLine("a", "1"))

    def test_after_a_run_it_is_the_querys(self, tmp_path: Path) -> None:
        """What the query told at its first start is kept."""
        lab = make_lab(tmp_path, names=("a", "b"), lines=("b", "a", "b"))
        lab.arrive(source="a")
        lab.run()
        assert look(lab).lines == (SourceLine("b", "0"), SourceLine("a", "1"), SourceLine("b", "0"))

    def test_of_one_source_it_is_certain(self, lab: Lab) -> None:
        """A checkpoint of Spark's own with one source has one possible order."""
        lab.arrive()
        lab.engine().once()
        assert look(lab).lines == (SourceLine("landing", "0"),)

    def test_of_several_only_the_query_can_tell(self, tmp_path: Path) -> None:
        """A checkpoint of Spark's own with several sources does not say which is which; nothing else is looked at."""
        lab = make_lab(tmp_path, names=("a", "b"))
        lab.arrive(source="a")
        lab.engine().once()
        seen = look(lab)
        assert (seen.lines, seen.available, seen.sink) == (None, {}, SinkState(exists=False))

    def test_the_second_format_has_names(self, tmp_path: Path) -> None:
        """Offset log v2 names its sources, and their logs."""
        lab = make_lab(tmp_path, names=("a", "b"))
        lab.arrive(source="a")
        lab.engine().once()
        write_v2_offsets(lab.checkpoint / "offsets" / "0", {"b": '{"logOffset":0}', "a": "-"})
        for number, name in enumerate("ba"):
            if (lab.checkpoint / "sources" / str(number)).exists():
                (lab.checkpoint / "sources" / str(number)).rename(lab.checkpoint / "sources" / name)
        assert look(lab).lines == (SourceLine("b", "b"), SourceLine("a", "a"))


class TestPositions:
    def test_each_source_stands_where_its_line_says(self, tmp_path: Path) -> None:
        """Positions go by name, whatever order the query has."""
        lab = make_lab(tmp_path, names=("a", "b", "unused"), lines=("b", "a"))
        lab.arrive(source="a")
        lab.run()
        seen = look(lab)
        found = positions(seen, seen.checkpoint.planned)
        assert {name: position.offset for name, position in found.items()} == {
            "a": '{"logOffset":0}',
            "b": None,
            "unused": None,
        }
        assert found["a"].log.taken.latest_id == 0
        assert found["b"].log.taken == SourceLog()

    def test_before_the_first_batch_nothing_was_read(self, lab: Lab) -> None:
        """Without a planned batch every source stands at none."""
        assert positions(look(lab), None)["landing"].offset is None

    def test_where_a_source_started_is_remembered(self, tmp_path: Path) -> None:
        """What `latest` meant in the first run holds for every later one."""
        lab = make_lab(tmp_path, starting="latest")
        lab.arrive(7200)
        lab.run()
        first = dict(positions(look(lab), None)["landing"].started_at)
        lab.now = lab.now.replace(hour=20)
        lab.arrive(7201)
        lab.run()
        assert first.keys() == {"from_ms", "declared"}
        assert positions(look(lab), None)["landing"].started_at == first
        assert lab.sink.ids() == {0: 1, 1: 1}


class TestWhatStopsIt:
    def test_a_damaged_checkpoint_is_not_looked_beyond(self, lab: Lab) -> None:
        """Where the checkpoint blocks, neither sources nor sink are asked."""
        lab.arrive()
        lab.engine().once()
        (lab.checkpoint / "offsets" / "0").write_text("")
        seen = look(lab)
        assert seen.checkpoint.blocking is not None
        assert (seen.available, seen.sink.exists) == ({}, False)

    def test_a_source_that_contradicts_the_checkpoint(self, lab: Lab) -> None:
        """A contradiction is kept as the refusal, not raised."""
        lab.arrive()
        lab.run()
        offsets = lab.checkpoint / "offsets" / "0"
        offsets.write_text(offsets.read_text().replace('{"logOffset":0}', '{"some":"offset"}'))
        seen = look(lab)
        assert seen.refusal is not None
        assert seen.refusal.code == "OFFSET_OF_ANOTHER_KIND"

    def test_a_missing_source_is_a_wrong_declaration(self, lab: Lab) -> None:
        """A folder that is not there is not unreadable, it is wrong."""
        (lab.root / "landing").rmdir()
        with pytest.raises(DeclarationError, match="does not exist"):
            look(lab)

    def test_a_damaged_home_is_refused(self, lab: Lab) -> None:
        """Without `current.json` nobody knows which generation is live."""
        lab.arrive()
        lab.run()
        (lab.home / "current.json").write_text("{")
        with pytest.raises(RefusedError, match="does not parse"):
            look(lab)

    def test_one_unreadable_source_hides_no_other(self, tmp_path: Path) -> None:
        """The sources that can be read are surveyed."""
        lab = make_lab(tmp_path, names=("a",))
        lab.arrive()
        too_long = sources.files(str(tmp_path / ("x" * 300)), format="json", schema="id bigint")
        lab.stream = make_stream(tmp_path, {"b": too_long, "a": lab.stream.sources["a"]})
        seen = look(lab)
        assert list(seen.unreadable) == ["b"]
        assert len(seen.available["a"].steps) == 1


class TestInputsOfAPendingBatch:
    def test_only_sources_that_move_are_checked(self, tmp_path: Path) -> None:
        """A source that takes nothing in the pending batch may have lost all of its files."""
        lab = make_lab(tmp_path, names=("a", "b"))
        lab.arrive(source="b")
        lab.run()
        leave_pending(lab, by_sluice=True)
        next((tmp_path / "b").iterdir()).unlink()
        assert look(lab).pending_problems == ()
        next((tmp_path / "a").iterdir()).unlink()
        assert [problem.code for problem in look(lab).pending_problems] == ["INPUT_GONE"]


class TestGeneration:
    def test_the_live_one_is_looked_at(self, lab: Lab) -> None:
        """`current.json` says which checkpoint is live."""
        lab.arrive()
        lab.run()
        (lab.home / "current.json").write_text('{"format":1,"generation":2}')
        seen = look(lab)
        assert (seen.generation, seen.known, seen.checkpoint.is_new) == (2, None, True)
        assert seen.checkpoint.location.endswith("generations/0002")


class CountingFolder:
    """A listed folder that counts the names whose stat is asked for."""

    def __init__(self, inner: Folder, counts: Counter[str]) -> None:
        self.inner, self.counts = inner, counts
        self.files, self.folders = inner.files, inner.folders

    def stat(self, name: str) -> FileStat | None:
        self.counts["stat of a listed name"] += 1
        return self.inner.stat(name)


class CountingStorage(Storage):
    """Counts what is asked of the disk."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def list_folder(self, location: str) -> Folder | None:
        self.counts["list"] += 1
        folder = super().list_folder(location)
        return None if folder is None else CountingFolder(folder, self.counts)

    def read(self, location: str, **limits: int) -> bytes | None:
        self.counts["read"] += 1
        return super().read(location, **limits)

    def stat(self, location: str) -> FileStat | None:
        self.counts["stat"] += 1
        return super().stat(location)


class TestCost:
    def count(self, lab: Lab, seen_files: int, new_files: int) -> Counter[str]:
        """What planning asks of the disk after one batch of `seen_files`."""
        for second in range(seen_files):
            lab.arrive(second)
        lab.run()
        for second in range(new_files):
            lab.arrive(seen_files + second)
        counting = CountingStorage()
        home = lab.project.stream_home(lab.stream)
        survey(lab.stream, type(home)(home.location, counting), Bound(), lab.now)
        return counting.counts

    def test_a_file_that_was_taken_costs_nothing(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Twenty times the files that were read before, and not one call more: only the newest are looked at again."""
        monkeypatch.setattr(changed_files, "_MOST_REGARDED", 2)
        few, many = (self.count(make_lab(tmp_path / str(size)), size, 3) for size in (2, 40))
        assert few == many
        assert few["stat of a listed name"] == 3
        assert few["stat"] == 2

    def test_a_new_file_costs_one_stat(self, tmp_path: Path) -> None:
        """Ten times the new files cost ten times the stats of listed names, and nothing else."""
        few, many = (self.count(make_lab(tmp_path / str(size)), 2, size) for size in (3, 30))
        assert many - few == {"stat of a listed name": 27}

    def test_committed_batches_cost_nothing(self, tmp_path: Path) -> None:
        """Logs are listed, not read: only the newest batch and the one before it, and the source's log since its
        last compaction, are opened."""
        reads = []
        for batches in (11, 19):
            lab = make_lab(tmp_path / str(batches), max_files_per_batch=1)
            reads.append(self.count(lab, batches, 0))
        assert reads[1]["read"] - reads[0]["read"] == 8
        assert reads[0]["list"] == reads[1]["list"]
