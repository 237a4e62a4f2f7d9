"""Files as a source: what is new, and how it is cut into batches."""

from __future__ import annotations

import json
import os
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice import sources
from sluice.checkpoint.source_log import LogAddition, LogEntry, SourceLog
from sluice.errors import DeclarationError, RefusedError, StorageError
from sluice.sources.contract import Available, Bound, OwnLog, Position, Step
from sluice.sources.files.listing import file_uri
from sluice.storage import Storage
from sluice.surroundings import Surroundings
from tests.builders import (
    NOW,
    NOW_MS,
    SCHEMA,
    file_position,
    log_bytes,
    make_checkpoint,
    make_entry,
    make_files_source,
    make_source_log,
    put,
    put_files,
)
from tests.fuzzing import outcome

NEW = Position(None)
DAY_MS = 86_400_000


def plan(folder: Path | str, position: Position = NEW, *, until: datetime | None = None, **options: Any) -> Available:
    source = make_files_source(folder, **options)
    return source.available(position, Bound(until), storage=Storage(), now=NOW)


def names(found: Available) -> list[list[str]]:
    """The names that each batch takes, in its order."""
    return [[entry.path.rpartition("/")[2] for entry in step.added.entries] for step in found.steps]


def of_one_time(files: list[Path]) -> Position:
    """Where files of two bytes and of one time were taken together."""
    entries = [LogEntry(file_uri(str(file)), NOW_MS, 0) for file in files]
    return Position('{"logOffset":0}', OwnLog(SourceLog(0, entries), sizes=lambda _: (2,) * len(files)))


def at(milliseconds: int) -> datetime:
    return NOW + timedelta(milliseconds=milliseconds)


class TestDeclaration:
    """`sources.files(...)`."""

    def test_options_reach_spark_under_its_names(self) -> None:
        """Options of the format and of the file source are Spark's, in its spelling."""
        source = sources.files("in", format="csv", schema=SCHEMA, header=True, ignore_corrupt_files=True)

        assert source.options == {"header": "true", "ignoreCorruptFiles": "true"}

    @pytest.mark.parametrize("name", ["ignoreMissingFiles", "ignoreCorruptFiles"])
    def test_a_setting_that_a_variable_tells(self, name: str) -> None:
        """Whoever plans may have another one than the driver, and would count other files."""
        source, setting = make_files_source("in"), f"spark.sql.files.{name}"
        with pytest.raises(DeclarationError, match=re.escape(f"`{setting}` is '${{LENIENT}}'")) as refused:
            source.under({setting: "${LENIENT}"})
        assert "`true` or `false`" in str(refused.value.remedy)
        assert source.under({setting: "True"}).settings[name] == "true"

    def test_resolved(self, tmp_path: Path) -> None:
        """A relative path is one of the project's; what leaves it is refused by name."""
        assert make_files_source("data/in").resolved(Surroundings(str(tmp_path))).location == f"{tmp_path}/data/in"
        with pytest.raises(DeclarationError, match=r"sources\.files\('\.\./in'\)"):
            make_files_source("../in").resolved(Surroundings(str(tmp_path)))

    def test_path_is_normal(self) -> None:
        """A path is spelled as Spark's log will spell it, whatever slashes and dots it was declared with."""
        assert (
            make_files_source("/data//landing/./in/").resolved(Surroundings("/project")).location == "/data/landing/in"
        )
        assert make_files_source("s3://bucket/a//b").resolved(Surroundings("/project")).location == "s3://bucket/a//b"

    @pytest.mark.parametrize(
        ("options", "remedy"),
        [
            ({"max_files_per_trigger": 5}, "write it as `max_files_per_batch`"),
            ({"heder": True, "format": "csv"}, "did you mean `header`?"),
            ({"latestfirst": True}, "did you mean `latest_first`?"),
            (
                {"format": "iceberg"},
                (
                    "let its records land as files or in a Delta table, and read those: `sources.files`,"
                    ' `sources.delta`; or read them by a data source of yours: `sources.python("module:Class")`'
                ),
            ),
            ({"format": "exel"}, "use one of: avro, binaryFile, csv, json, orc, parquet, text, xml"),
            ({"schema": None}, 'give the columns as DDL: schema="id bigint, at timestamp"'),
            ({"max_files_per_batch": 0}, "give a whole number above 0, or leave it out"),
            ({"max_bytes_per_batch": -1}, "give a whole number above 0, or leave it out"),
            ({"max_files_per_batch": 1, "max_bytes_per_batch": 1}, "Spark takes one of them"),
            ({"starting": "now"}, 'use "earliest", "latest" or an ISO 8601 time'),
            ({"max_file_age": "7 weeks"}, 'give a number and a unit, such as "7d", "12h" or "30min"'),
        ],
    )
    def test_refused(self, options: dict[str, Any], remedy: str) -> None:
        """A wrong option is refused where it is declared, with what to do."""
        with pytest.raises(DeclarationError) as caught:
            make_files_source("in", **options)

        assert caught.value.where == "sources.files('in')"
        assert caught.value.remedy == remedy

    def test_text_needs_no_schema(self) -> None:
        """Text has one column."""
        assert sources.files("in", format="text").schema is None

    @pytest.mark.parametrize(
        ("age", "milliseconds"),
        [("7d", 7 * DAY_MS), ("12h", 43_200_000), ("30 min", 1_800_000), ("1ms", 1), ("2s", 2000), ("1m", 60_000)],
    )
    def test_max_file_age(self, age: str, milliseconds: int) -> None:
        """An age is a number and one of Spark's units."""
        assert make_files_source("in", max_file_age=age).max_file_age_ms == milliseconds


class TestBatches:
    """How new files become batches."""

    def test_first_run(self, tmp_path: Path) -> None:
        """Without limits everything is one batch, and its log entries are Spark's."""
        put(tmp_path / "a.json", "123", mtime_ms=NOW_MS + 5)
        put(tmp_path / "b.json", "4567", mtime_ms=NOW_MS + 6)
        found = plan(tmp_path)

        entries = (
            LogEntry(f"file://{tmp_path}/a.json", NOW_MS + 5, 0),
            LogEntry(f"file://{tmp_path}/b.json", NOW_MS + 6, 0),
        )
        assert found.steps == [
            Step(end='{"logOffset":0}', amount={"files": 2, "bytes": 7}, added=LogAddition(entries, (3, 4)))
        ]
        assert found.oldest_ms == NOW_MS + 5
        assert (found.problems, found.unplannable, found.undrainable) == ((), None, None)

    def test_nothing_new(self, tmp_path: Path) -> None:
        """A checkpoint that has taken everything waits for nothing."""
        checkpoint = make_checkpoint(tmp_path / "ckpt")
        found = plan(tmp_path / "landing", file_position(checkpoint))

        assert (found.steps, found.oldest_ms) == ([], None)

    def test_next_run(self, tmp_path: Path) -> None:
        """New files go on with the next id of the source's log."""
        checkpoint = make_checkpoint(tmp_path / "ckpt", planned=3)
        put_files(tmp_path / "landing", ["x.json", "y.json"], first_ms=NOW_MS + 9000)
        found = plan(tmp_path / "landing", file_position(checkpoint), max_files_per_batch=1)

        assert names(found) == [["x.json"], ["y.json"]]
        assert [step.end for step in found.steps] == ['{"logOffset":3}', '{"logOffset":4}']
        assert [entry.batch_id for step in found.steps for entry in step.added.entries] == [3, 4]

    def test_oldest_first(self, tmp_path: Path) -> None:
        """Files are taken by time, and by path where times are equal."""
        for name, mtime_ms in (("c.json", 1000), ("a.json", 3000), ("d.json", 2000), ("b.json", 2000)):
            put(tmp_path / name, mtime_ms=mtime_ms)

        assert names(plan(tmp_path)) == [["c.json", "b.json", "d.json", "a.json"]]

    def test_latest_first(self, tmp_path: Path) -> None:
        """With `latest_first` the newest files come first."""
        put_files(tmp_path, ["a.json", "b.json", "c.json"])

        assert names(plan(tmp_path, latest_first=True, max_files_per_batch=2)) == [["c.json", "b.json"], ["a.json"]]

    def test_limit_of_files(self, tmp_path: Path) -> None:
        """Every batch takes as many files as the limit allows."""
        put_files(tmp_path, [f"{number}.json" for number in range(5)])
        found = plan(tmp_path, max_files_per_batch=2)

        assert [step.amount["files"] for step in found.steps] == [2, 2, 1]

    def test_limit_of_bytes(self, tmp_path: Path) -> None:
        """A batch ends before the file that would exceed the limit; one larger file is a batch of its own."""
        for number, size in enumerate([40, 60, 60, 40, 500, 30]):
            put(tmp_path / f"{number}.json", "x" * size, mtime_ms=NOW_MS + number)
        found = plan(tmp_path, max_bytes_per_batch=100)

        assert [step.amount["bytes"] for step in found.steps] == [100, 100, 500, 30]

    def test_names_with_glob_characters_are_alone(self, tmp_path: Path) -> None:
        """Spark would read such a file, and what its name matches, twice if they shared a batch."""
        put_files(tmp_path, ["a.json", "s*.json", "c.json", "d[1].json", "e{1}.json", "q?.json", "b\\.json", "z.json"])
        found = plan(tmp_path)

        assert names(found) == [
            ["a.json"], ["s*.json"], ["c.json"], ["d%5B1%5D.json"], ["e%7B1%7D.json"], ["q%3F.json"], ["b%5C.json"],
            ["z.json"],
        ]  # fmt: skip
        assert [step.end for step in found.steps] == [f'{{"logOffset":{log_id}}}' for log_id in range(8)]

    def test_names_with_other_characters_are_not_alone(self, tmp_path: Path) -> None:
        """A comma, `#`, `%`, `~` or a space is an ordinary character."""
        put_files(tmp_path, ["a,b.json", "a#.json", "50%.json", "a~.json", "a b.json", "ü.json"])

        assert [step.amount["files"] for step in plan(tmp_path).steps] == [6]

    @pytest.mark.parametrize("options", [{}, {"recursive_file_lookup": True}])
    def test_patterns_in_partitions(self, tmp_path: Path, options: dict[str, Any]) -> None:
        """Where Spark takes partitions, or every folder below, it does not read names as patterns."""
        put_files(tmp_path / "d=1", ["a.json", "s*.json", "d[1].json"])

        assert [step.amount["files"] for step in plan(tmp_path, **options).steps] == [3]

    def test_limits_hold_around_a_lone_file(self, tmp_path: Path) -> None:
        """Counting begins anew after a file that was alone."""
        put_files(tmp_path, ["a.json", "b*.json", "c.json", "d.json", "e.json"])

        assert names(plan(tmp_path, max_files_per_batch=2)) == [
            ["a.json"],
            ["b*.json"],
            ["c.json", "d.json"],
            ["e.json"],
        ]

    def test_globs_filters_and_folders(self, tmp_path: Path) -> None:
        """The path may be a glob, names may be filtered, folders may be searched."""
        put(tmp_path / "eu" / "a.json")
        put(tmp_path / "us" / "b.json")
        put(tmp_path / "us" / "c.txt")
        put(tmp_path / "us" / "deep" / "d.json")

        assert names(plan(f"{tmp_path}/*", path_glob_filter="*.json")) == [["a.json", "b.json"]]
        assert names(plan(tmp_path, recursive_file_lookup=True)) == [["a.json", "b.json", "c.txt", "d.json"]]

    def test_links_out_of_the_project(self, tmp_path: Path) -> None:
        """A relative glob matches no folder outside of the project; an absolute one says where it leads."""
        put(tmp_path / "outside" / "a.json")
        put(tmp_path / "project" / "data" / "day1" / "b.json")
        (tmp_path / "project" / "data" / "day2").symlink_to(tmp_path / "project" / "data" / "day1")
        project = str(tmp_path / "project")

        def count(path: str) -> int:
            source = make_files_source(path).resolved(Surroundings(project))
            found = source.available(NEW, Bound(), storage=Storage(), now=NOW)
            return len(found.steps[0].added.entries)

        assert count("data/day*") == 2

        (tmp_path / "project" / "data" / "day3").symlink_to(tmp_path / "outside")
        with pytest.raises(DeclarationError, match=r"a link puts outside of the project.*; write the absolute path"):
            count("data/day*")
        assert count(f"{project}/data/day*") == 3

    def test_base_path(self, tmp_path: Path) -> None:
        """With a `base_path`, what a glob names may be a partition; a path that is no glob has its own."""
        put(tmp_path / "d=1" / "deep" / "a.json")

        assert names(plan(f"{tmp_path}/d=*", base_path=str(tmp_path))) == [["a.json"]]
        assert names(plan(f"{tmp_path}/d=*")) == []
        assert names(plan(tmp_path / "d=1", base_path=str(tmp_path))) == []

    def test_unreadable_names_are_reported(self, tmp_path: Path) -> None:
        """What Spark could not read is no part of a batch, and is told."""
        put_files(tmp_path, ["a.json", "10:30.json"])
        found = plan(tmp_path)

        assert names(found) == [["a.json"]]
        assert [problem.code for problem in found.problems] == ["NAME_UNREADABLE"]

    def test_file_sink_as_source(self, tmp_path: Path) -> None:
        """Of a folder that a file sink wrote, only the files in its manifest count: others are orphans."""
        put(tmp_path / "part-0.json", "published")
        put(tmp_path / "part-1.json", "left by a crash")
        status = {"path": f"file://{tmp_path}/part-0.json", "size": 9, "isDir": False, "modificationTime": NOW_MS}
        line = json.dumps(status | {"blockReplication": 1, "blockSize": 1, "action": "add"})
        put(tmp_path / "_spark_metadata" / "0", f"v1\n{line}")
        found = plan(tmp_path)

        assert names(found) == [["part-0.json"]]
        assert found.steps[0].amount["bytes"] == 9
        taken = Position('{"logOffset":0}', OwnLog(SourceLog(0, found.steps[0].added.entries)))
        assert plan(tmp_path, taken).steps == []


class TestBounds:
    """Where a run begins and ends in time."""

    def test_until_is_exclusive(self, tmp_path: Path) -> None:
        """A file of exactly the bound's time is the next run's."""
        for name, mtime_ms in (("a.json", NOW_MS - 1), ("b.json", NOW_MS), ("c.json", NOW_MS + 1)):
            put(tmp_path / name, mtime_ms=mtime_ms)

        assert names(plan(tmp_path, until=at(0))) == [["a.json"]]
        assert names(plan(tmp_path, until=at(1))) == [["a.json", "b.json"]]

    def test_until_is_exclusive_at_every_millisecond(self, tmp_path: Path) -> None:
        """Also where a float of seconds times 1000 misses the millisecond."""
        moment = next(
            moment
            for count in range(100_000)
            if (moment := datetime(2039, 7, 2, tzinfo=UTC) + timedelta(milliseconds=count)).timestamp() * 1000
            > round(moment.timestamp() * 1000)
        )
        put(tmp_path / "a.json", mtime_ms=round(moment.timestamp() * 1000))

        assert plan(tmp_path, until=moment).steps == []

    def test_bounds_tile(self, tmp_path: Path) -> None:
        """Runs to successive bounds take every file once."""
        put_files(tmp_path / "in", [f"{number}.json" for number in range(6)])
        taken: list[LogEntry] = []
        for seconds in (2, 2, 5, 9):
            position = Position(None, OwnLog(SourceLog(len(taken) - 1, taken)))
            steps = plan(tmp_path / "in", position, until=at(1000 * seconds), max_files_per_batch=1).steps
            taken += [entry for step in steps for entry in step.added.entries if not step.added.is_there]

        assert [entry.path.rpartition("/")[2] for entry in taken] == [f"{number}.json" for number in range(6)]

    def test_starting_at_a_time(self, tmp_path: Path) -> None:
        """A first run may begin at a time, inclusive; what it resolved to is kept."""
        put_files(tmp_path, ["a.json", "b.json", "c.json"])
        found = plan(tmp_path, starting="2026-01-31T12:00:01Z")

        assert names(found) == [["b.json", "c.json"]]
        assert found.started_at["from_ms"] == NOW_MS + 1000
        assert found.undrainable is not None

    def test_starting_latest(self, tmp_path: Path) -> None:
        """`latest` leaves out what is there when the first run is planned."""
        put(tmp_path / "old.json", mtime_ms=NOW_MS - 1)
        put(tmp_path / "new.json", mtime_ms=NOW_MS)
        found = plan(tmp_path, starting="latest")

        assert names(found) == [["new.json"]]
        assert found.started_at["from_ms"] == NOW_MS

    @pytest.mark.parametrize("starting", ["latest", "2026-02-01", "earliest"])
    def test_start_is_frozen(self, tmp_path: Path, starting: str) -> None:
        """Later runs keep what the first one resolved, whatever the declaration says by then."""
        put(tmp_path / "a.json", mtime_ms=NOW_MS - 5000)
        put(tmp_path / "b.json", mtime_ms=NOW_MS - 3000)
        kept = {"from_ms": NOW_MS - 4000}
        found = plan(tmp_path, Position(None, started_at=kept), starting=starting)

        assert names(found) == [["b.json"]]
        assert found.started_at == kept

    def test_max_file_age_is_off(self, tmp_path: Path) -> None:
        """Unless it is declared, a file is taken however late it comes."""
        checkpoint = make_checkpoint(tmp_path / "ckpt")
        put(tmp_path / "landing" / "late.json", mtime_ms=NOW_MS - 400 * DAY_MS)

        assert names(plan(tmp_path / "landing", file_position(checkpoint))) == [["late.json"]]

    def test_max_file_age_hides_and_counts(self, tmp_path: Path) -> None:
        """What is older than the age before the newest file taken is hidden; that is told, with the number."""
        checkpoint = make_checkpoint(tmp_path / "ckpt", planned=1)
        horizon = NOW_MS - 7 * DAY_MS
        for name, mtime_ms in (("a.json", horizon - 1), ("b.json", horizon - 2), ("c.json", horizon)):
            put(tmp_path / "landing" / name, mtime_ms=mtime_ms)
        found = plan(tmp_path / "landing", file_position(checkpoint), max_file_age="7d")

        assert names(found) == [["c.json"]]
        problem = found.problems[0]
        assert (problem.code, problem.file, problem.is_blocking) == ("FILES_TOO_OLD", f"{tmp_path}/landing", False)
        assert "2 new files" in problem.cause

    @pytest.mark.parametrize(
        ("path", "options", "remedy"),
        [
            ("land", {}, None),
            ("land/d=1", {}, "declare the folder above it as the path"),
            ("land/D=1", {}, "declare the folder above it as the path"),
            ("land/other=1", {}, None),
            ("land/*", {}, "declare `base_path`, the folder above it"),
            ("land/*", {"base_path": "{}/land"}, None),
            ("land/*", {"base_path": "file:{}/other/../land/"}, None),
            ("land/d=1", {"schema": "n bigint COMMENT 'a, d string', s struct<a:int, d int>"}, None),
            ("land", {"recursive_file_lookup": True}, "take `recursive_file_lookup` out"),
        ],
    )
    def test_a_folder_that_is_no_column(
        self, tmp_path: Path, path: str, options: dict[str, Any], remedy: str | None
    ) -> None:
        """Spark takes none from it: the column would be null without a word, unless the files have it."""
        put(tmp_path / (f"{path}/1.json" if "=" in path else "land/d=1/1.json"))
        options = {name: value.format(tmp_path) if isinstance(value, str) else value for name, value in options.items()}
        found = plan(tmp_path / path, **{"schema": "n bigint, `d` string"} | options)

        assert names(found) == [["1.json"]]
        told = [(problem.code, problem.remedy, problem.is_blocking) for problem in found.problems]
        assert told == ([] if remedy is None else [("FOLDER_IS_NO_COLUMN", f"{remedy}, if they don't", False)])

    def test_max_file_age_on_a_first_run(self, tmp_path: Path) -> None:
        """Age counts from the newest file that was taken: a first run takes everything."""
        put(tmp_path / "a.json", mtime_ms=NOW_MS - 400 * DAY_MS)
        put(tmp_path / "b.json", mtime_ms=NOW_MS)

        assert names(plan(tmp_path, max_file_age="7d")) == [["a.json", "b.json"]]

    def test_max_file_age_with_latest_first(self, tmp_path: Path) -> None:
        """As in Spark, age does not count when the newest files come first under a limit."""
        checkpoint = make_checkpoint(tmp_path / "ckpt")
        put(tmp_path / "landing" / "late.json", mtime_ms=NOW_MS - 8 * DAY_MS)
        options: dict[str, Any] = {"max_file_age": "7d", "latest_first": True}
        position = file_position(checkpoint)

        assert names(plan(tmp_path / "landing", position, **options, max_files_per_batch=1)) == [["late.json"]]
        assert names(plan(tmp_path / "landing", position, **options)) == []


class TestDraining:
    """What AvailableNow would do to the files that wait."""

    @pytest.mark.parametrize(
        ("name", "options", "why"),
        [
            ("a.json", {}, None),
            ("a*.json", {}, r"would read other files twice; rename it"),
            ("a*.json", {"max_files_per_batch": 1}, None),
            ("a*.json", {"recursive_file_lookup": True}, None),
            ("d=1/a*.json", {}, None),
            ("a.json", {"starting": "2020-01-01"}, "whatever `starting` says"),
        ],
    )
    def test_obstacles(self, tmp_path: Path, name: str, options: dict[str, Any], why: str | None) -> None:
        """A name that Spark takes for a pattern can't be left to it, unless each file has a batch of its own."""
        put(tmp_path / name, mtime_ms=NOW_MS)
        found = plan(tmp_path, **options).undrainable
        assert found is None if why is None else why in str(found)

    def test_before_1970(self, tmp_path: Path) -> None:
        """A planned batch reads a file with such a time; Spark by itself never would."""
        put(tmp_path / "a.json", mtime_ms=-1)
        put(tmp_path / "b.json", mtime_ms=NOW_MS)
        found = plan(tmp_path)

        assert names(found) == [["a.json", "b.json"]]
        assert found.problems == ()
        assert "before 1970" in str(found.undrainable)
        assert names(plan(tmp_path, starting="1969-12-31T23:59:59.999Z")) == [["a.json", "b.json"]]


class TestLog:
    """The source's own log in the checkpoint."""

    def test_orphans_are_adopted(self, tmp_path: Path) -> None:
        """Entries that a crash left without an offset are the next batch as they are, and new files follow."""
        checkpoint = make_checkpoint(tmp_path / "ckpt", planned=4)
        put(tmp_path / "landing" / "x.json", mtime_ms=NOW_MS + 9000)
        found = plan(tmp_path / "landing", file_position(checkpoint, log_offset=1))

        assert names(found) == [["part-2.json", "part-3.json"], ["x.json"]]
        assert [step.end for step in found.steps] == ['{"logOffset":3}', '{"logOffset":4}']
        assert [step.added.is_there for step in found.steps] == [True, False]
        assert [entry.batch_id for entry in found.steps[0].added.entries] == [2, 3]

    def test_orphans_that_are_gone(self, tmp_path: Path) -> None:
        """Spark would read them as empty, and nobody can plan without them."""
        checkpoint = make_checkpoint(tmp_path / "ckpt", planned=2)
        (tmp_path / "landing" / "part-1.json").unlink()

        with pytest.raises(RefusedError) as caught:
            plan(tmp_path / "landing", file_position(checkpoint, log_offset=0))

        assert caught.value.finding.code == "INPUT_GONE"
        assert caught.value.finding.file.endswith("part-1.json")

    def test_orphans_of_a_first_run(self, tmp_path: Path) -> None:
        """A crash may come before the first offset, too."""
        checkpoint = make_checkpoint(tmp_path / "ckpt", planned=1)
        found = plan(tmp_path / "landing", file_position(checkpoint, log_offset=-1))

        assert names(found) == [["part-0.json"]]
        assert found.steps[0].added.is_there

    def test_adoption_ignores_the_bound(self, tmp_path: Path) -> None:
        """Spark counts orphans as taken, so they are planned whatever the bound is."""
        checkpoint = make_checkpoint(tmp_path / "ckpt", planned=2)
        found = plan(tmp_path / "landing", file_position(checkpoint, log_offset=0), until=at(-DAY_MS))

        assert names(found) == [["part-1.json"]]

    def test_compacted_log(self, tmp_path: Path) -> None:
        """What a compacted file holds was taken, and the next id goes on after it."""
        checkpoint = make_checkpoint(tmp_path / "ckpt", planned=12)
        put(tmp_path / "landing" / "x.json", mtime_ms=NOW_MS + 99_000)
        found = plan(tmp_path / "landing", file_position(checkpoint))

        assert names(found) == [["x.json"]]
        assert found.steps[0].end == '{"logOffset":12}'

    def test_file_name_only(self, tmp_path: Path) -> None:
        """With `file_name_only` a file is known by its name, whatever folder it is in by now."""
        checkpoint = make_checkpoint(tmp_path / "ckpt", planned=2)
        landing = tmp_path / "landing"
        (landing / "d=1").mkdir()
        (landing / "part-0.json").rename(landing / "d=1" / "part-0.json")
        (landing / "part-1.json").rename(landing / "d=1" / "other.json")

        assert names(plan(landing, file_position(checkpoint), file_name_only=True)) == [["other.json"]]
        assert names(plan(landing, file_position(checkpoint))) == [["part-0.json", "other.json"]]

    def test_file_name_only_among_new_files(self, tmp_path: Path) -> None:
        """A name that an earlier batch of the plan takes is not taken again; within a batch, as in Spark, it is."""
        for number, name in enumerate(["d=1/a.json", "d=2/a.json", "d=2/b.json", "d=3/a.json"]):
            put(tmp_path / name, mtime_ms=NOW_MS + number)

        assert names(plan(tmp_path, file_name_only=True, max_files_per_batch=1)) == [["a.json"], ["b.json"]]
        assert names(plan(tmp_path, file_name_only=True, max_files_per_batch=3)) == [["a.json", "a.json", "b.json"]]
        assert names(plan(tmp_path, max_files_per_batch=3)) == [["a.json", "a.json", "b.json"], ["a.json"]]

    def test_renamed_file(self, tmp_path: Path) -> None:
        """Where nobody knows the sizes, the time of one that was taken and is gone is a warning."""
        checkpoint = make_checkpoint(tmp_path / "ckpt")
        (tmp_path / "landing" / "part-1.json").rename(tmp_path / "landing" / "renamed.json")
        found = plan(tmp_path / "landing", file_position(checkpoint))

        assert [problem.code for problem in found.problems] == ["FILE_RENAMED"]
        assert found.problems[0].file == f"file://{tmp_path}/landing/renamed.json"
        assert f"file://{tmp_path}/landing/part-1.json" in found.problems[0].cause
        assert not found.problems[0].is_blocking

    def test_renamed_file_of_known_size(self, tmp_path: Path) -> None:
        """One with the time and the size of a file that was taken and is gone is set aside; a touched one is not."""
        landing = tmp_path / "landing"
        checkpoint = make_checkpoint(tmp_path / "ckpt")
        (landing / "part-1.json").rename(landing / "renamed.json")
        position = file_position(checkpoint, sizes=lambda _: (2,))

        found = plan(landing, position)

        assert found.steps == []
        assert [(problem.code, problem.is_blocking) for problem in found.problems] == [("FILE_RENAMED", False)]
        assert "`FILE_RENAMED`" in str(found.undrainable)
        assert names(plan(landing, file_position(checkpoint, sizes=lambda _: (3,)))) == [["renamed.json"]]
        assert plan(landing, file_position(checkpoint, sizes=lambda _: (3,))).problems == ()
        os.utime(landing / "renamed.json", (1, 1))
        assert names(plan(landing, position)) == [["renamed.json"]]

    def test_renamed_file_among_files_of_one_time(self, tmp_path: Path) -> None:
        """Whichever of the files of one time is gone."""
        landing = tmp_path / "landing"
        entries = [make_entry(put(landing / f"{number}.json", mtime_ms=NOW_MS), 0) for number in range(3)]
        for number in range(3):
            log = SourceLog(0, entries)
            (landing / f"{number}.json").rename(landing / "renamed.json")
            found = plan(landing, Position('{"logOffset":0}', OwnLog(log, sizes=lambda _: (2, 2, 2))))
            assert (found.steps, [problem.code for problem in found.problems]) == ([], ["FILE_RENAMED"])
            assert f"/{number}.json," in found.problems[0].cause
            (landing / "renamed.json").rename(landing / f"{number}.json")

    @pytest.mark.parametrize("names_of", ["{:04d}.json", "a b {:04d}.json"])
    def test_renamed_file_among_more_than_are_looked_up(self, tmp_path: Path, names_of: str) -> None:
        """Also the last of 1,001 files of one time and size; where none is gone, it is another file."""
        landing = tmp_path / "landing"
        files = [put(landing / names_of.format(number), mtime_ms=NOW_MS) for number in range(1001)]
        position = of_one_time(files)
        files[1000].rename(files[0].with_name("renamed.json"))

        found = plan(landing, position)

        assert (found.steps, [problem.code for problem in found.problems]) == ([], ["FILE_RENAMED"])
        put(files[1000], mtime_ms=NOW_MS)
        assert names(plan(landing, position)) == [["renamed.json"]]

    def test_a_file_that_may_be_a_renamed_one(self, tmp_path: Path) -> None:
        """Where the old ones are in more folders than are listed, nobody knows whether one is gone: it is set aside."""
        landing = tmp_path / "landing"
        files = [put(landing / f"d={number:04d}/a.json", mtime_ms=NOW_MS) for number in range(1001)]
        position = of_one_time(files)
        put(files[0].with_name("new.json"), mtime_ms=NOW_MS)

        found = plan(landing, position)

        (problem,) = found.problems
        assert (found.steps, problem.code) == ([], "FILE_RENAMED")
        assert "1,001 files" in problem.cause

    def test_a_rotated_file_among_more_than_are_looked_up(self, tmp_path: Path) -> None:
        """One is away, too, whose name another file has."""
        landing = tmp_path / "landing"
        files = [put(landing / f"{number:04d}.log", mtime_ms=NOW_MS) for number in range(1001)]
        position = of_one_time(files)
        files[1000].rename(files[1000].with_name("1000.log.1"))
        put(files[1000], "{ }", mtime_ms=NOW_MS + 5)

        assert plan(landing, position).steps == []

    def test_same_time_is_no_renaming(self, tmp_path: Path) -> None:
        """A file with the time of one that is still there is just another file."""
        checkpoint = make_checkpoint(tmp_path / "ckpt")
        put(tmp_path / "landing" / "twin.json", mtime_ms=NOW_MS)

        assert plan(tmp_path / "landing", file_position(checkpoint)).problems == ()

    def test_path_changed(self, tmp_path: Path) -> None:
        """A log of another folder is refused: everything would be read again."""
        checkpoint = make_checkpoint(tmp_path / "ckpt")
        put(tmp_path / "landing2" / "a.json")

        with pytest.raises(RefusedError) as caught:
            plan(tmp_path / "landing2", file_position(checkpoint))

        assert caught.value.finding.code == "SOURCE_PATH_CHANGED"
        assert caught.value.finding.file == f"{tmp_path}/landing2"
        assert f"file://{tmp_path}/landing/part-2.json" in caught.value.finding.cause

    def test_a_glob_in_a_project_that_was_moved(self, tmp_path: Path) -> None:
        """A glob's files are known by their paths, too: below another folder, none of them would be."""
        project = tmp_path / "project"
        position = file_position(make_checkpoint(project / "ckpt", planned=2))
        assert plan(f"{project}/land*", position).steps == []
        assert plan(f"{project}/{{landing,other}}/*.json", position).steps == []
        moved = project.rename(tmp_path / "moved")

        with pytest.raises(RefusedError) as caught:
            plan(f"{moved}/land*", position)

        assert caught.value.finding.code == "SOURCE_PATH_CHANGED"

    def test_path_unchanged(self, tmp_path: Path) -> None:
        """Folders below the path and a path with odd characters are still the same path."""
        landing = tmp_path / "a b%"
        put(landing / "d=1" / "a.json", mtime_ms=NOW_MS)
        taken = plan(landing).steps[0].added.entries

        assert plan(landing, Position('{"logOffset":0}', OwnLog(SourceLog(0, taken)))).steps == []

    def test_offset_of_another_kind(self, tmp_path: Path) -> None:
        """The offset of a Kafka source is no file source's: the declaration is not the checkpoint's."""
        (tmp_path / "in").mkdir()

        with pytest.raises(RefusedError) as caught:
            plan(tmp_path / "in", Position('{"topic":{"0":5}}'))

        assert caught.value.finding.code == "OFFSET_OF_ANOTHER_KIND"


class TestCheckInputs:
    """Whether what a pending batch reads is still there."""

    def test_all_there(self, tmp_path: Path) -> None:
        """Nothing to tell when every file of the batch is there."""
        position = file_position(make_checkpoint(tmp_path / "ckpt"), log_offset=0)

        assert (
            make_files_source(tmp_path / "landing").check_inputs(position, '{"logOffset":2}', storage=Storage()) == ()
        )

    def test_vanished(self, tmp_path: Path) -> None:
        """A vanished file of the batch blocks: Spark would commit the batch without its rows."""
        position = file_position(make_checkpoint(tmp_path / "ckpt"), log_offset=0)
        for number in range(3):
            (tmp_path / "landing" / f"part-{number}.json").unlink()
        source = make_files_source(tmp_path / "landing")
        problems = source.check_inputs(position, '{"logOffset":1}', storage=Storage())

        assert [(problem.code, problem.file) for problem in problems] == [
            ("INPUT_GONE", f"file://{tmp_path}/landing/part-1.json")
        ]
        assert problems[0].is_blocking

    @pytest.mark.parametrize("name", ["a b.json", "50%.json", "#1?.json", "ü,é.json", "[1].json"])
    def test_odd_names_are_found(self, tmp_path: Path, name: str) -> None:
        """A logged URI leads back to its file, whatever the name is."""
        put(tmp_path / name, mtime_ms=NOW_MS)
        entries = plan(tmp_path).steps[0].added.entries
        position = Position(None, OwnLog(SourceLog(0, entries)))
        source = make_files_source(tmp_path)
        assert source.check_inputs(position, '{"logOffset":0}', storage=Storage()) == ()

        (tmp_path / name).unlink()
        assert len(source.check_inputs(position, '{"logOffset":0}', storage=Storage())) == 1

    def test_compacted_entries(self, tmp_path: Path) -> None:
        """The files of a batch are told from all others also where a compacted file holds them."""
        checkpoint = make_checkpoint(tmp_path / "ckpt", planned=10)
        (tmp_path / "landing" / "part-9.json").unlink()
        (tmp_path / "landing" / "part-3.json").unlink()
        source = make_files_source(tmp_path / "landing")
        problems = source.check_inputs(file_position(checkpoint, log_offset=8), '{"logOffset":9}', storage=Storage())

        assert [problem.file for problem in problems] == [f"file://{tmp_path}/landing/part-9.json"]


@given(
    offset=st.one_of(
        st.none(),
        st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=5), st.lists, max_leaves=5).map(
            json.dumps
        ),
        st.dictionaries(st.just("logOffset"), st.integers() | st.text(max_size=3) | st.none()).map(json.dumps),
    ),
    path=st.text(max_size=20) | st.sampled_from(["file:///a%00b", "http://[x", "x", "file:", "file://", "s3a:"]),
)
def test_any_offset_and_path(tmp_path_factory: pytest.TempPathFactory, offset: str | None, path: str) -> None:
    """Whatever a checkpoint says, planning gives steps, a refusal, or a path that no storage has."""
    folder = tmp_path_factory.getbasetemp() / "any_offset"
    put(folder / "a.json", mtime_ms=NOW_MS)
    log = SourceLog(0, [LogEntry(path, NOW_MS, 0), LogEntry(f"file://{folder}/b.json", 5, 0)])

    assert isinstance(
        outcome(lambda: plan(folder, Position(offset, OwnLog(log)))), Available | RefusedError | StorageError
    )


def test_entries_are_what_spark_writes(tmp_path: Path) -> None:
    """The log that a plan's entries make is read back as taken."""
    put_files(tmp_path / "in", ["a.json", "b.json"])
    (step,) = plan(tmp_path / "in").steps
    folder = make_source_log(tmp_path / "ckpt" / "sources" / "0", step.added.entries)

    assert (folder / "0").read_bytes() == log_bytes(
        make_entry(tmp_path / "in" / f"{name}.json", 0, timestamp_ms=NOW_MS + 1000 * number)
        for number, name in enumerate("ab")
    )
    assert plan(tmp_path / "in", file_position(tmp_path / "ckpt")).steps == []
