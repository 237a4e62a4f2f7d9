"""What a backfill reads and replaces, decided without a JVM from real checkpoints and real tables."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from sluice import Stream, sinks, sources
from sluice.errors import DeclarationError, RefusedError, StorageError
from sluice.home import Generation, SourceLine, StreamHome
from sluice.interval import Interval
from sluice.planning.backfill import BackfillPlan, build_backfill_plan, survey_backfill
from sluice.sources.delta.table_slice import TableSlice
from sluice.storage import Folder, Storage
from tests.builders import (
    NOW_MS,
    QUERY_ID,
    commit_bytes,
    edit_commit,
    log_bytes,
    make_checkpoint,
    make_delta,
    make_entry,
    make_files_source,
    make_stream,
    offsets_bytes,
    put,
)
from tests.remedies import read_remedy

DAY = Interval(datetime(2026, 1, 2, tzinfo=UTC), datetime(2026, 1, 3, tzinfo=UTC))


def write_lake(root: Path, batches: Iterable[int] = range(3), *, partitioned: bool = True) -> Path:
    """A sink that holds batches of the live query, one version each."""
    for batch in batches:
        rows = pa.table({"day": pa.array([date(2026, 1, 2)]), "n": [batch]})
        write_deltalake(
            str(root / "lake"),
            rows,
            mode="append",
            partition_by=["day"] if partitioned else None,
            commit_properties=CommitProperties(app_transactions=[Transaction(QUERY_ID, batch)]),
        )
    return root / "lake"


def make_home(root: Path, **known: Any) -> StreamHome:
    """A home whose live generation has read three files; what is known of it, with changes."""
    home = StreamHome(str(root / "home"), Storage())
    make_checkpoint(root / "home" / "generations" / "0001")
    home.keep_generation(
        Generation(
            generation=1,
            query_id=QUERY_ID,
            created_at="2026-01-31T12:00:00.000Z",
            lines=(SourceLine("visits", "0"),),
            declared=("visits",),
            **known,
        )
    )
    return home


def landing(root: Path) -> Path:
    return root / "home" / "generations" / "landing"


def declared(root: Path, **changes: Any) -> Stream:
    return make_stream(
        **{
            "sources": {"visits": make_files_source(landing(root))},
            "sink": sinks.delta(str(root / "lake"), partition_by=["day"]),
            "interval_column": "day",
        }
        | changes
    )


def plan(
    root: Path, home: StreamHome, interval: Interval = DAY, *, late_rows: int | None = 0, **changes: Any
) -> BackfillPlan:
    seen = survey_backfill(
        declared(root, **changes), home, interval, {}, late_rows=lambda _generation, _batch: late_rows
    )
    return build_backfill_plan(seen)


def keep_back(root: Path, operator: str) -> None:
    """Give the live generation a stateful operator, and a watermark of January 3rd, noon."""
    checkpoint = root / "home" / "generations" / "0001"
    watermark_ms = int(datetime(2026, 1, 3, 12, tzinfo=UTC).timestamp() * 1000)
    put(checkpoint / "offsets" / "2", offsets_bytes('{"logOffset":2}', watermark_ms=watermark_ms))
    put(checkpoint / "commits" / "2", commit_bytes(watermark_ms))
    info = {"operatorInfo": {"operatorId": 0, "operatorName": operator}, "stateStoreInfo": []}
    info["stateStoreInfo"] = [{"storeName": "default", "numColsPrefixKey": 0, "numPartitions": 1}]  # type: ignore[assignment]
    put(checkpoint / "state" / "0" / "_metadata" / "metadata", f"v1\n{json.dumps(info)}")
    for version in range(1, 4):
        put(checkpoint / "state" / "0" / "0" / f"{version}.delta")


class _Meanwhile(Storage):
    """A storage in which something happens just before a folder is listed for the first time."""

    def __init__(self, folder: str, act: Callable[[], None]) -> None:
        super().__init__()
        self._folder, self._act = folder, act

    def list_folder(self, location: str) -> Folder | None:
        if location.endswith(self._folder):
            self._folder = "\0"
            self._act()
        return super().list_folder(location)


class TestSlice:
    """What is read, and what is replaced."""

    def test_everything_that_was_read(self, tmp_path: Path) -> None:
        """The newest version of the sink, the newest batch in it, and the files up to that batch, no other ones."""
        home, lake = make_home(tmp_path), write_lake(tmp_path)
        put(landing(tmp_path) / "new.json")

        made = plan(tmp_path, home)

        assert (made.verdict, made.publish, made.version, made.batch_id) == ("run", "metadata", 2, 2)
        assert [entry.path for entry in made.slices["visits"].added.entries] == [
            f"file://{landing(tmp_path)}/part-{number}.json" for number in range(3)
        ]
        assert lake.name == "lake"

    def test_what_the_sink_does_not_hold_yet(self, tmp_path: Path) -> None:
        """A batch that is planned and under way is left to the live stream."""
        home = make_home(tmp_path)
        write_lake(tmp_path, range(2))
        (tmp_path / "home" / "generations" / "0001" / "commits" / "2").unlink()
        (tmp_path / "home" / "generations" / "0001" / "commits" / ".2.crc").unlink()

        made = plan(tmp_path, home)

        assert (made.batch_id, made.version, made.slices["visits"].amount["files"]) == (1, 1, 2)

    def test_committed_batches_without_rows(self, tmp_path: Path) -> None:
        """The sink has no version of a batch that wrote nothing; once it is committed, its input counts as read."""
        home = make_home(tmp_path)
        write_lake(tmp_path, range(2))

        made = plan(tmp_path, home)

        assert (made.batch_id, made.version, made.slices["visits"].amount["files"]) == (2, 1, 3)

    def test_a_live_run_that_goes_on_meanwhile(self, tmp_path: Path) -> None:
        """A batch that comes between the two looks, at the checkpoint and at the sink, is read whole."""
        home = make_home(tmp_path)
        write_lake(tmp_path)
        checkpoint = tmp_path / "home" / "generations" / "0001"

        def go_on() -> None:
            file = put(landing(tmp_path) / "part-3.json")
            put(checkpoint / "sources" / "0" / "3", log_bytes([make_entry(file, 3)]))
            put(checkpoint / "offsets" / "3", offsets_bytes('{"logOffset":3}'))
            put(checkpoint / "commits" / "3", commit_bytes())
            write_lake(tmp_path, [3])

        made = plan(tmp_path, replace(home, storage=_Meanwhile("_delta_log", go_on)))

        assert (made.verdict, made.version, made.batch_id, made.slices["visits"].amount["files"]) == ("run", 3, 3, 4)

    def test_before_the_start(self, tmp_path: Path) -> None:
        """What was there before the generation's start is read too."""
        home = make_home(tmp_path, sources={"visits": {"from_ms": NOW_MS}})
        write_lake(tmp_path)
        put(landing(tmp_path) / "old.json", mtime_ms=NOW_MS - 1)
        put(landing(tmp_path) / "new.json", mtime_ms=NOW_MS + 60_000)

        names = {entry.path.rpartition("/")[2] for entry in plan(tmp_path, home).slices["visits"].added.entries}

        assert names == {"old.json", "part-0.json", "part-1.json", "part-2.json"}

    def test_nothing_written_yet(self, tmp_path: Path) -> None:
        """Without a run, or without a table, there is nothing to recompute."""
        assert plan(tmp_path, StreamHome(str(tmp_path / "none"), Storage())).verdict == "skip"
        assert plan(tmp_path, make_home(tmp_path)).verdict == "skip"

    def test_a_column_that_is_no_partition(self, tmp_path: Path) -> None:
        """Spark replaces the rows, and the plan says why."""
        home = make_home(tmp_path)
        write_lake(tmp_path, partitioned=False)

        made = plan(tmp_path, home, sink=sinks.delta(str(tmp_path / "lake")))

        assert made.publish == "replace_where"
        assert "not partitioned by `day`" in made.reason

    def test_delta(self, tmp_path: Path) -> None:
        """A Delta source is read as the version that the live stream stands at, without what it has yet to read."""
        upstream = make_delta(tmp_path / "upstream", [1, 2, 3], [4, 5])
        home, checkpoint = make_home(tmp_path), tmp_path / "home" / "generations" / "0001"
        write_lake(tmp_path)
        table_id = DeltaTable(upstream).metadata().id
        taken = []
        for version, index in ((2, -1), (1, 0)):
            end = json.dumps(
                {
                    "sourceVersion": 1,
                    "reservoirId": str(table_id),
                    "reservoirVersion": version,
                    "index": index,
                    "isStartingVersion": False,
                }
            )
            put(checkpoint / "offsets" / "2", offsets_bytes(end))
            made = plan(tmp_path, home, sources={"visits": sources.delta(str(upstream))})
            found = made.slices["visits"]
            assert isinstance(found, TableSlice)
            taken.append((made.verdict, found.version, found.amount["files"], len(found.left_out)))

        assert taken == [("run", 1, 5, 0), ("run", 1, 4, 1)]

    def test_downstream(self, tmp_path: Path) -> None:
        """Every stream that reads the sink is named, and whether it bears the commit."""
        home = make_home(tmp_path)
        write_lake(tmp_path)
        lake = str(tmp_path / "lake")
        others = {
            "bearing": make_stream(name="bearing", sources={"s": sources.delta(lake, skip_change_commits=True)}),
            "failing": make_stream(name="failing", sources={"s": sources.delta(lake + "/")}),
            "elsewhere": make_stream(name="elsewhere", sources={"s": sources.delta(str(tmp_path))}),
        }

        made = build_backfill_plan(survey_backfill(declared(tmp_path), home, DAY, others))

        assert msgspec.to_builtins(made.document)["downstream"] == (
            {"stream": "bearing", "skips_changes": True, "only_adds": False},
            {"stream": "failing", "skips_changes": False, "only_adds": False},
        )


class TestRefusals:
    """What would lose or double rows."""

    def test_a_file_that_is_gone(self, tmp_path: Path) -> None:
        """It is named."""
        home = make_home(tmp_path)
        write_lake(tmp_path)
        file = landing(tmp_path) / "part-1.json"
        away = file.rename(tmp_path / "away")
        made = plan(tmp_path, home)
        assert made.verdict == "refuse"
        problem = read_remedy(made.problem, "BACKFILL_INPUT_GONE", "bring the file back under the same name")
        assert problem.file.endswith("part-1.json")

        away.rename(file)
        assert plan(tmp_path, home).verdict == "run"

    def test_a_data_file_of_the_source_that_is_gone(self, tmp_path: Path) -> None:
        """A vacuumed version is refused by the name of what is missing."""
        upstream = make_delta(tmp_path / "upstream", [1], [2])
        home, checkpoint = make_home(tmp_path), tmp_path / "home" / "generations" / "0001"
        write_lake(tmp_path)
        table_id = DeltaTable(upstream).metadata().id
        end = f'{{"sourceVersion":1,"reservoirId":"{table_id}","reservoirVersion":2,"index":-1}}'
        put(checkpoint / "offsets" / "2", offsets_bytes(end))
        gone = next(upstream.rglob("*.parquet"))
        gone.unlink()
        made = plan(tmp_path, home, sources={"visits": sources.delta(str(upstream))})
        assert made.problem is not None
        assert made.problem.code == "BACKFILL_INPUT_GONE"
        assert str(gone) in made.problem.cause

    @pytest.mark.parametrize("is_there", [False, True])
    def test_a_version_of_the_source_that_can_not_be_read(self, tmp_path: Path, is_there: bool) -> None:  # noqa: FBT001
        """It is refused if the log has been cleaned up; what is there and can't be read may be mended: try again."""
        upstream = make_delta(tmp_path / "upstream", [1], [2])
        home, checkpoint = make_home(tmp_path), tmp_path / "home" / "generations" / "0001"
        write_lake(tmp_path)
        table = DeltaTable(upstream)
        table.delete()
        table.create_checkpoint()
        end = f'{{"sourceVersion":1,"reservoirId":"{table.metadata().id}","reservoirVersion":2,"index":-1}}'
        put(checkpoint / "offsets" / "2", offsets_bytes(end))
        first = upstream / "_delta_log" / f"{0:020d}.json"
        if is_there:
            first.write_text("damaged")
        else:
            first.unlink()
        source = sources.delta(str(upstream))

        if is_there:
            with pytest.raises(StorageError, match="can't be read"):
                plan(tmp_path, home, sources={"visits": source})
        else:
            made = plan(tmp_path, home, sources={"visits": source})
            assert made.problem is not None
            assert made.problem.code == "BACKFILL_INPUT_GONE"
            assert "up to version 1" in made.problem.cause

    @pytest.mark.parametrize(("operator", "verdict"), [("stateStoreSave", "refuse"), ("dedupeWithinWatermark", "run")])
    def test_beyond_the_watermark(self, tmp_path: Path, operator: str, verdict: str) -> None:
        """An interval that the watermark has not passed is refused where the live stream keeps rows back."""
        home = make_home(tmp_path)
        write_lake(tmp_path)
        keep_back(tmp_path, operator)

        beyond = plan(tmp_path, home, Interval(DAY.start, datetime(2026, 1, 4, tzinfo=UTC)))

        assert beyond.verdict == verdict
        assert plan(tmp_path, home).verdict == "run"
        assert (plan(tmp_path, home).watermark_ms is None) == (operator == "dedupeWithinWatermark")

    def test_timers(self, tmp_path: Path) -> None:
        """What depends on when the batches ran can't be recomputed."""
        write_lake(tmp_path)
        made = plan(tmp_path, make_home(tmp_path, has_timers=True))
        assert made.problem is not None
        assert made.problem.code == "BACKFILL_BATCH_BY_BATCH"

    @pytest.mark.parametrize(
        "operator",
        [
            "applyInPandasWithState",
            "flatMapGroupsWithState",
            "transformWithStateInPySparkExec",
            "globalLimit",
            "newOne",
        ],
    )
    def test_rows_that_depend_on_the_batches(self, tmp_path: Path, operator: str) -> None:
        """What an operator makes of each batch, one big batch would make something else of."""
        write_lake(tmp_path)
        home = make_home(tmp_path)
        keep_back(tmp_path, operator)

        made = plan(tmp_path, home)

        assert made.problem is not None
        assert made.problem.code == "BACKFILL_BATCH_BY_BATCH"
        assert operator in made.problem.cause

    @pytest.mark.parametrize(
        ("first", "last", "late_rows", "verdict"),
        [(2, 3, None, "run"), (3, 4, 0, "run"), (3, 4, 1, "refuse"), (2, 5, None, "refuse"), (4, 5, 7, "run")],
    )
    def test_late_rows_of_which_duplicates_may_come(
        self, tmp_path: Path, first: int, last: int, late_rows: int | None, verdict: str
    ) -> None:
        """Around the watermark, which is January 3rd, noon: unless it is known that no row was dropped as late."""
        home = make_home(tmp_path)
        write_lake(tmp_path)
        keep_back(tmp_path, "dedupeWithinWatermark")
        interval = Interval(datetime(2026, 1, first, tzinfo=UTC), datetime(2026, 1, last, tzinfo=UTC))

        made = plan(tmp_path, home, interval, late_rows=late_rows)

        assert made.verdict == verdict
        if made.problem is None:
            return
        read_remedy(made.problem, "BACKFILL_LATE_ROWS", "end the interval at or before the .*, or begin it after that")
        for before, after in ((2, 3), (4, 5)):
            done = Interval(datetime(2026, 1, before, tzinfo=UTC), datetime(2026, 1, after, tzinfo=UTC))
            assert plan(tmp_path, home, done, late_rows=late_rows).verdict == "run"

    @pytest.mark.parametrize("place", ["lake", "lake/", "lake_quarantine"])
    def test_a_table_of_two_streams(self, tmp_path: Path, place: str) -> None:
        """Neither is backfilled: nothing tells the rows of the one from those of the other."""
        home = make_home(tmp_path)
        write_lake(tmp_path)
        stream = declared(tmp_path, quality="suite.json")
        other = replace(declared(tmp_path, sink=sinks.delta(f"{tmp_path}/{place}")), name="other", interval_column=None)

        made = build_backfill_plan(survey_backfill(stream, home, DAY, {"visits": stream, "other": other}))

        problem = read_remedy(made.problem, "BACKFILL_TABLE_SHARED", "give each stream a table of its own")
        assert (made.verdict, problem.cause) == ("refuse", "stream `other` writes this table, too")
        moved = replace(other, sink=sinks.delta(f"{tmp_path}/elsewhere"))
        assert (
            build_backfill_plan(survey_backfill(stream, home, DAY, {"visits": stream, "other": moved})).verdict == "run"
        )

    def test_a_table_that_another_query_writes(self, tmp_path: Path) -> None:
        """Of whatever project: its log tells. One that was done before the stream began, it came after."""
        home = make_home(tmp_path)
        lake = write_lake(tmp_path)
        other = "8d3f8f3e-0000-4000-8000-000000000000"
        append = {"mode": "append", "partition_by": ["day"]}
        rows = pa.table({"day": pa.array([date(2026, 1, 2)]), "n": [9]})
        write_deltalake(
            str(lake), rows, **append, commit_properties=CommitProperties(app_transactions=[Transaction(other, 0)])
        )
        made = plan(tmp_path, home)
        assert made.problem is not None
        assert made.problem.code == "BACKFILL_TABLE_SHARED"
        assert other in made.problem.cause

        edit_commit(lake, 3, {"timestamp": 0})
        assert plan(tmp_path, home).verdict == "run"

    def test_offsets_that_go_meanwhile(self, tmp_path: Path) -> None:
        """The live stream has gone on, and Spark has removed what was the newest batch; it is there to go by then."""
        home = make_home(tmp_path)
        checkpoint = tmp_path / "home" / "generations" / "0001"
        write_lake(tmp_path)

        def go_on() -> None:
            for batch in (3, 4):
                put(checkpoint / "offsets" / str(batch), offsets_bytes('{"logOffset":2}'))
                put(checkpoint / "commits" / str(batch), commit_bytes())
            (checkpoint / "offsets" / "2").unlink()

        made = plan(tmp_path, replace(home, storage=_Meanwhile("_delta_log", go_on)))

        read_remedy(made.problem, "BACKFILL_OFFSETS_GONE", "run the live stream once, then backfill again")
        assert (plan(tmp_path, home).verdict, plan(tmp_path, home).batch_id) == ("run", 4)

    def test_another_table(self, tmp_path: Path) -> None:
        """A table that is not the one that the generation has written is left alone."""
        write_lake(tmp_path)
        made = plan(tmp_path, make_home(tmp_path, sink_identity="another"))
        assert made.problem is not None
        assert made.problem.code == "SINK_REPLACED"

    def test_a_sink_that_is_ahead(self, tmp_path: Path) -> None:
        """A checkpoint that was restored from a backup does not tell what is in the sink."""
        write_lake(tmp_path, range(5))
        made = plan(tmp_path, make_home(tmp_path))
        assert made.problem is not None
        assert made.problem.code == "SINK_AHEAD"

    def test_a_damaged_checkpoint(self, tmp_path: Path) -> None:
        """It is refused as in every plan."""
        home = make_home(tmp_path)
        write_lake(tmp_path)
        put(tmp_path / "home" / "generations" / "0001" / "offsets" / "2", "damaged")
        assert plan(tmp_path, home).verdict == "refuse"

    def test_a_table_that_is_gone(self, tmp_path: Path) -> None:
        """A table that was written and is not there any more is missed."""
        made = plan(tmp_path, make_home(tmp_path, sink_identity="a table"))
        assert made.problem is not None
        assert made.problem.code == "SINK_REPLACED"

    def test_no_midnight(self, tmp_path: Path) -> None:
        """A column of dates takes whole days."""
        home = make_home(tmp_path)
        write_lake(tmp_path)
        with pytest.raises(DeclarationError, match="no midnight"):
            plan(tmp_path, home, Interval(DAY.start, datetime(2026, 1, 3, 1, tzinfo=UTC)))

    def test_a_stream_that_declares_no_column(self, tmp_path: Path) -> None:
        """It is refused by its declaration alone."""
        stream = replace(declared(tmp_path), interval_column=None)
        with pytest.raises(DeclarationError, match="declares no `interval_column`"):
            survey_backfill(stream, make_home(tmp_path), DAY, {})

    def test_a_damaged_home(self, tmp_path: Path) -> None:
        """What is known of the generation can't be read."""
        home = make_home(tmp_path)
        put(tmp_path / "home" / "generations" / "0001.json", "{")
        with pytest.raises(RefusedError):
            plan(tmp_path, home)
