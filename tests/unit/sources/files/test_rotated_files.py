"""Files that get another name after they were read, while other files take the names that they had."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from sluice.checkpoint.source_log import LogEntry, SourceLog
from sluice.errors import RefusedError
from sluice.monitoring.inspection import inspect_stream, stream_lag
from sluice.sources.contract import Available, Bound, OwnLog, Position
from sluice.sources.files.listing import file_uri
from sluice.storage import Storage
from tests.builders import NOW, NOW_MS, make_files_source, put
from tests.unit.engine_lab import Lab, make_lab

OTHER_TIME = "have another time now"


def landing(lab: Lab) -> Path:
    return Path(lab.stream.sources["landing"].location)


def told(lab: Lab) -> list[tuple[str, str]]:
    """The codes of a plan's warnings, and the files that they name."""
    return [(found.code, found.file.rpartition("/landing/")[2]) for found in lab.plan().warnings]


def begun(root: Path, *files: str, **its: Any) -> Lab:
    """A stream that has read files, of one row each and of times one second apart."""
    lab = make_lab(root, **its)
    for second, name in enumerate(files):
        lab.arrive(second, name)
    lab.run()
    return lab


@pytest.mark.parametrize(("rows", "seconds"), [(1, 5), (2, 5), (2, 0), (1, -5)])
@pytest.mark.parametrize("new_name", ["0.json.1", "a.json", "z.json"])
@pytest.mark.parametrize("its", [{}, {"latest_first": True}, {"max_file_age": "1h"}, {"max_files_per_batch": 1}])
def test_another_file_takes_the_name(
    tmp_path: Path, rows: int, seconds: float, new_name: str, its: dict[str, Any]
) -> None:
    """Whatever of size and time it has in common with what was read, which is set aside, and the new one told of."""
    lab = begun(tmp_path, "0.json", **its)
    (landing(lab) / "0.json").rename(landing(lab) / new_name)
    lab.arrive(seconds, "0.json", rows=rows)

    assert told(lab) == [("FILE_RENAMED", new_name), ("FILE_CHANGED", "0.json")]
    assert lab.plan().reason == "nothing new; set aside: 1 file that looks like a renamed one"
    lab.arrive(9, "another.json")
    lab.run()
    assert lab.sink.ids() == Counter([0, rows + 1])


def test_what_says_so(tmp_path: Path) -> None:
    """The plan, what waits, what is inspected, and the record of a run."""
    lab = begun(tmp_path, "0.json")
    (landing(lab) / "0.json").rename(landing(lab) / "0.json.1")
    lab.arrive(5, "0.json")

    renamed, changed = lab.plan().warnings
    assert "which was read, and another file has its name now" in renamed.cause
    assert (OTHER_TIME in changed.cause, changed.is_blocking) == (True, False)
    home = lab.project.stream_home(lab.stream)
    (lag,) = stream_lag(lab.stream, home, NOW).values()
    assert (lag.amount["files"], lag.set_aside) == (0, {"files": 1})
    codes = [problem["code"] for problem in inspect_stream(lab.stream, home, NOW)["problems"]]
    assert codes == ["FILE_RENAMED", "FILE_CHANGED"]
    lab.arrive(9, "another.json")
    assert [found.code for found in lab.run().plan.warnings] == codes


def test_equal_in_size_and_time(tmp_path: Path) -> None:
    """Nothing that a listing shows tells which is which: the new name is read, as a copy would be."""
    lab = begun(tmp_path, "0.json")
    (landing(lab) / "0.json").rename(landing(lab) / "1.json")
    lab.arrive(0, "0.json")

    assert (told(lab), lab.plan().verdict) == ([], "run")


def test_logs_that_are_rotated_on_and_on(tmp_path: Path) -> None:
    """Each has a name that was taken by another one; those that came since are never read, and counted."""
    names = ["log", "log.1", "log.2", "log.3", "log.4", "log.5"]
    lab = begun(tmp_path, *reversed(names[:3]))
    for step in range(1, 4):
        for new, old in pairwise(reversed(names)):
            if (landing(lab) / old).exists():
                (landing(lab) / old).rename(landing(lab) / new)
        lab.arrive(20 + step, "log")

        *held, changed = lab.plan().warnings
        assert [Path(found.file).name for found in held] == names[3 : 3 + step]
        assert (changed.code, changed.cause[:2]) == ("FILE_CHANGED", f"{step} ")
        assert lab.plan().verdict == "skip"


def test_names_that_are_swapped(tmp_path: Path) -> None:
    """Both were read: nothing is missing, and nothing is said. One that was not is told of, and the other held back."""
    lab = begun(tmp_path, "0.json", "1.json")

    def swap(one: str, other: str) -> None:
        (landing(lab) / one).rename(landing(lab) / "_aside")
        (landing(lab) / other).rename(landing(lab) / one)
        (landing(lab) / "_aside").rename(landing(lab) / other)

    swap("0.json", "1.json")
    assert (told(lab), lab.plan().verdict) == ([], "skip")
    swap("0.json", "1.json")

    lab.arrive(7, "new.json")
    swap("0.json", "new.json")
    assert told(lab) == [("FILE_RENAMED", "new.json"), ("FILE_CHANGED", "0.json")]
    assert lab.plan().verdict == "skip"


def test_two_in_the_places_of_one(tmp_path: Path) -> None:
    """Of two files that look like the one that was read, one is another file."""
    lab = begun(tmp_path, "0.json", "1.json", "2.json")
    (landing(lab) / "0.json").unlink()
    lab.arrive(0, "1.json")
    assert told(lab) == []

    lab.arrive(0, "2.json")
    assert told(lab) == [("FILE_CHANGED", "2.json")]


@pytest.mark.parametrize("new_name", ["0.json.gz", "0.json.1.gz", "0.json.2.gz", "0.json-20260101.gz"])
@pytest.mark.parametrize("is_taken", [False, True])
def test_rotated_and_packed(tmp_path: Path, new_name: str, *, is_taken: bool) -> None:
    """It is known by its time and by its name, but for a number and the packing; the old name may be taken again."""
    lab = begun(tmp_path, "0.json")
    subprocess.run(["gzip", landing(lab) / "0.json"], check=True)
    (landing(lab) / "0.json.gz").rename(landing(lab) / new_name)
    if is_taken:
        lab.arrive(5, "0.json")

    assert told(lab) == [("FILE_RENAMED", new_name), *([("FILE_CHANGED", "0.json")] if is_taken else [])]
    assert lab.plan().verdict == "skip"


@pytest.mark.parametrize("new_name", ["day=2/0.json", "day=2/other.json", "day=1/0.json.1"])
def test_across_partitions(tmp_path: Path, new_name: str) -> None:
    """It is known in another folder, too; the file that has its place is told of."""
    lab = begun(tmp_path, "day=1/0.json", "day=2/more.json")
    (landing(lab) / "day=1/0.json").rename(landing(lab) / new_name)
    lab.arrive(5, "day=1/0.json")

    assert told(lab) == [("FILE_RENAMED", new_name), ("FILE_CHANGED", "day=1/0.json")]
    assert lab.plan().verdict == "skip"


def test_a_renamed_file_that_is_too_old(tmp_path: Path) -> None:
    """It is set aside as a renamed one: touched, as is said of files that are too old, it would be read again."""
    lab = begun(tmp_path, "0.json", max_file_age="1s")
    lab.arrive(100, "1.json")
    lab.run()
    (landing(lab) / "0.json").rename(landing(lab) / "0.json.1")
    lab.arrive(105, "0.json")

    assert told(lab) == [("FILE_RENAMED", "0.json.1"), ("FILE_CHANGED", "0.json")]


def test_behind_more_than_are_regarded(tmp_path: Path) -> None:
    """The place of a file that was renamed is looked at, however long ago it was read."""
    lab = begun(tmp_path, "log", "log.1")
    for number in range(101):
        lab.arrive(10, f"{number}.json")
    lab.run()
    (landing(lab) / "log.1").rename(landing(lab) / "log.2")
    (landing(lab) / "log").rename(landing(lab) / "log.1")
    lab.arrive(500, "log")

    assert told(lab) == [("FILE_RENAMED", "log.2"), ("FILE_CHANGED", "log")]


def available(folder: Path, position: Position) -> Available:
    return make_files_source(folder).available(position, Bound(), storage=Storage(), now=NOW)


def test_sizes_that_nobody_knows(tmp_path: Path) -> None:
    """The time alone is a warning, also where another file has the old name."""
    old = put(tmp_path / "0.json", mtime_ms=NOW_MS)
    position = Position(
        '{"logOffset":0}', OwnLog(SourceLog(0, [LogEntry(file_uri(str(old)), NOW_MS, 0)]), sizes=lambda _: ())
    )
    old.rename(tmp_path / "0.json.1")
    put(old, mtime_ms=NOW_MS + 1)

    found = available(tmp_path, position)

    renamed, changed = found.problems
    assert (renamed.code, renamed.consequence) == ("FILE_RENAMED", "its rows are read again")
    assert (changed.code, OTHER_TIME in changed.cause) == ("FILE_CHANGED", True)
    assert len(found.steps) == 1


def test_among_more_than_are_looked_up(tmp_path: Path) -> None:
    """One of 1,001 files of one time, whose name another file of the same size has."""
    files = [put(tmp_path / f"{number:04d}.log", mtime_ms=NOW_MS) for number in range(1001)]
    entries = [LogEntry(file_uri(str(file)), NOW_MS, 0) for file in files]
    position = Position('{"logOffset":0}', OwnLog(SourceLog(0, entries), sizes=lambda _: (2,) * 1001))
    files[700].rename(tmp_path / "0700.log.1")
    put(files[700], mtime_ms=NOW_MS + 5)

    found = available(tmp_path, position)

    assert [(problem.code, Path(problem.file).name) for problem in found.problems] == [
        ("FILE_RENAMED", "0700.log.1"),
        ("FILE_CHANGED", "0700.log"),
    ]
    assert found.steps == []


def test_a_size_that_is_known_counts_before_one_that_is_not(tmp_path: Path) -> None:
    """Of two files of one time that are gone, the one whose size is known holds the renamed one back."""
    position = Position(
        '{"logOffset":1}',
        OwnLog(
            SourceLog(1, [LogEntry(file_uri(str(tmp_path / name)), NOW_MS, at) for at, name in enumerate("ab")]),
            sizes=lambda log_id: (2,) * log_id,
        ),
    )
    put(tmp_path / "c", mtime_ms=NOW_MS)

    assert available(tmp_path, position).steps == []


def test_a_touched_file_is_left(tmp_path: Path) -> None:
    """An empty file has nothing that could be missed; one that got its time back is as it was."""
    lab = begun(tmp_path, "0.json")
    file = landing(lab) / "0.json"
    before = file.stat()
    os.utime(file, (9, 9))
    assert told(lab) == [("FILE_CHANGED", "0.json")]
    os.utime(file, ns=(before.st_mtime_ns, before.st_mtime_ns))
    assert told(lab) == []
    file.write_bytes(b"")
    assert told(lab) == []


def test_one_of_which_spark_has_read_nothing(tmp_path: Path) -> None:
    """It is told of under its old name; under any other it is a new file, with the time that it had."""
    old = put(tmp_path / "0.json", mtime_ms=NOW_MS)
    position = Position(
        '{"logOffset":0}',
        OwnLog(
            SourceLog(0, [LogEntry(file_uri(str(old)), NOW_MS, 0)]),
            sizes=lambda _: (2,),
            unread=lambda: [file_uri(str(old))],
        ),
    )
    assert [problem.code for problem in available(tmp_path, position).problems] == ["FILE_NOT_READ"]
    old.rename(tmp_path / "0.json.1")

    found = available(tmp_path, position)

    assert (found.problems, len(found.steps)) == ((), 1)


SIZES = {"0.json": 2, "1.json": 3, "2.json": 4}


def slice_of(folder: Path, **its: Any) -> str | int | None:
    """Why a backfill of three files can't be, or how many it reads."""
    entries = [LogEntry(file_uri(str(folder / name)), NOW_MS + at, at) for at, name in enumerate(SIZES)]
    position = Position(
        '{"logOffset":2}', OwnLog(SourceLog(2, entries), sizes=lambda log_id: (list(SIZES.values())[log_id],), **its)
    )
    try:
        return make_files_source(folder).slice(position, None, storage=Storage()).amount.get("files")
    except RefusedError as refused:
        return (
            f"{refused.finding.code} {Path(refused.finding.file).name}: {refused.finding.cause.partition(', and ')[2]}"
        )


class TestBackfill:
    """What a backfill reads by its name is what was read, or it is refused."""

    @pytest.fixture(autouse=True)
    def three_files(self, tmp_path: Path) -> None:
        for at, (name, size) in enumerate(SIZES.items()):
            put(tmp_path / name, "0" * size, mtime_ms=NOW_MS + at)

    def test_all_as_they_were(self, tmp_path: Path) -> None:
        """Also where one was touched, or has grown since."""
        assert slice_of(tmp_path) == 3
        os.utime(tmp_path / "0.json", (9, 9))
        put(tmp_path / "1.json", "00000")
        assert slice_of(tmp_path) == 3

    def test_another_file_has_the_name(self, tmp_path: Path) -> None:
        """The other one would be read in its place."""
        (tmp_path / "1.json").rename(tmp_path / "1.json.1")
        put(tmp_path / "1.json", "111")
        assert f"another one is in its place; it is probably file://{tmp_path}/1.json.1" in str(slice_of(tmp_path))

    def test_logs_that_were_rotated(self, tmp_path: Path) -> None:
        """Of a chain of taken names, the one that fell out is named."""
        (tmp_path / "2.json").unlink()
        (tmp_path / "1.json").rename(tmp_path / "2.json")
        (tmp_path / "0.json").rename(tmp_path / "1.json")
        put(tmp_path / "0.json", "11")
        assert slice_of(tmp_path) == "BACKFILL_INPUT_GONE 2.json: another one, which was read too, is in its place"

    def test_names_that_are_swapped(self, tmp_path: Path) -> None:
        """Every content is there once, under whatever name."""
        (tmp_path / "0.json").rename(tmp_path / "_aside")
        (tmp_path / "2.json").rename(tmp_path / "0.json")
        (tmp_path / "_aside").rename(tmp_path / "2.json")
        assert slice_of(tmp_path) == 3

    @pytest.mark.parametrize("content", ["", "1"])
    def test_a_shorter_one(self, tmp_path: Path, content: str) -> None:
        """What was read is not there any more."""
        put(tmp_path / "1.json", content)
        assert slice_of(tmp_path) == "BACKFILL_INPUT_GONE 1.json: it is shorter now"

    def test_one_of_which_nothing_was_read(self, tmp_path: Path) -> None:
        """It is left out, whether it is there or not: its rows came under another name."""
        unread = [file_uri(str(tmp_path / "1.json"))]
        assert slice_of(tmp_path, unread=lambda: unread) == 2
        (tmp_path / "1.json").unlink()
        assert slice_of(tmp_path, unread=lambda: unread) == 2


class TestPending:
    """What a batch that is planned, and not committed, reads."""

    def problems(
        self, folder: Path, *, is_noted: bool, at: int = 1, is_read: bool = True
    ) -> list[tuple[str, str, bool]]:
        """What is wrong with the second of two batches of one file, which is `at` milliseconds younger."""
        entries = [LogEntry(file_uri(str(folder / f"{batch}.json")), NOW_MS + batch * at, batch) for batch in range(2)]
        position = Position(
            '{"logOffset":0}',
            OwnLog(SourceLog(1, entries), sizes=lambda log_id: (2,) if is_noted or not log_id else ()),
        )
        source = make_files_source(folder)
        found = source.check_inputs(position, '{"logOffset":1}', storage=Storage(), is_read=is_read)
        return [(problem.code, Path(problem.file).name, problem.is_blocking) for problem in found]

    def test_another_file_has_the_name(self, tmp_path: Path) -> None:
        """Spark would read it in the place of the one that was planned."""
        put(tmp_path / "0.json", mtime_ms=NOW_MS)
        put(tmp_path / "1.json.1", mtime_ms=NOW_MS + 1)
        put(tmp_path / "1.json", mtime_ms=NOW_MS + 7)
        assert self.problems(tmp_path, is_noted=True) == [("INPUT_GONE", "1.json", True)]

    def test_names_that_are_swapped(self, tmp_path: Path) -> None:
        """With one that was read: that one would be read again, and the planned one never."""
        put(tmp_path / "1.json", mtime_ms=NOW_MS)
        put(tmp_path / "0.json", mtime_ms=NOW_MS + 1)
        assert self.problems(tmp_path, is_noted=True) == [("INPUT_GONE", "1.json", True)]

    def test_a_touched_one(self, tmp_path: Path) -> None:
        """One that was brought back has another time; where nothing looks like the old one, it is taken for that."""
        put(tmp_path / "0.json", mtime_ms=NOW_MS)
        put(tmp_path / "1.json", mtime_ms=NOW_MS + 7)
        assert self.problems(tmp_path, is_noted=True) == []

    def test_one_that_spark_took_though_it_was_read(self, tmp_path: Path) -> None:
        """It was read under another name; in a batch of our own planning, that was looked at before."""
        put(tmp_path / "1.json", mtime_ms=NOW_MS)
        again: dict[str, Any] = {"at": 0, "is_noted": False}
        assert self.problems(tmp_path, **again) == [("INPUT_RENAMED", "1.json", True)]
        assert self.problems(tmp_path, **again, is_read=False) == [("INPUT_RENAMED", "1.json", False)]
        assert self.problems(tmp_path, at=0, is_noted=True) == []
        os.utime(tmp_path / "1.json", (9, 9))
        assert self.problems(tmp_path, **again) == []
