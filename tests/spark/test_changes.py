"""Feeds of changes applied to a Delta table: the newest rows, or all of them, in whatever order changes arrive."""

from __future__ import annotations

import json
import random
import shutil
from collections import defaultdict
from collections.abc import Iterable
from typing import Any, Literal

import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sluice import Stream, sinks, sources
from sluice.errors import DeclarationError, RefusedError
from sluice.spark.left_behind import forget_tables
from tests.campaign import CAMPAIGN, in_campaigns, rarely
from tests.remedies import read_remedy
from tests.spark.lab import Lab, rows, write_files
from tests.spark.merge_lives import live_through
from tests.spark.power_cuts import Cut
from tests.spark.test_mended_files import cut_run
from tests.unit.quality.suites import document, row

pytestmark = pytest.mark.spark

Change = tuple[str, int, str | None, bool]
"""A key, a sequence, a value, and whether it is a delete."""
Kept = Literal[1, 2]


def same(feed: DataFrame) -> DataFrame:
    return feed


def declared(kept: Kept, **its: Any) -> Stream:
    fixed = {"keys": ["id"], "sequence_by": "ts", "apply_as_deletes": "op = 'D'", "except_columns": ["op"]}
    changes = sinks.changes(**fixed | {"stored_as_scd_type": kept} | its.pop("changes", {}))
    schema = "id string, ts bigint, v string, op string"
    return Stream(
        **{
            "name": "s",
            "sources": {"feed": sources.files("in", format="json", schema=schema, max_files_per_batch=1)},
            "transform": f"{__name__}:same",
            "sink": sinks.delta("out", changes=changes),
        }
        | its
    )


def arrive(lab: Lab, first: int, *batches: Iterable[Change]) -> None:
    """One file for each batch."""
    contents = {}
    for number, batch in enumerate(batches, first):
        lines = [
            json.dumps({"id": key, "ts": ts, "v": v, "op": "D" if is_delete else "U"})
            for key, ts, v, is_delete in batch
        ]
        contents[f"{number:04d}.json"] = "\n".join(lines)
    write_files(lab.root / "in", contents, first=first)


def expected(kept: Kept, changes: Iterable[Change]) -> list[tuple[Any, ...]]:
    """What one batch over all of them leaves, computed by a plain loop."""
    by_key = defaultdict[str, dict[int, Change]](dict)
    for change in changes:
        there = by_key[change[0]].get(change[1])
        by_key[change[0]][change[1]] = change if there is None else max(there, change, key=_rank)
    found: list[tuple[Any, ...]] = []
    for key, known in by_key.items():
        order = sorted(known)
        for sequence, after in zip(order, [*order[1:], None], strict=True):
            _, _, value, is_delete = known[sequence]
            if is_delete or (kept == 1 and after is not None):
                continue
            found.append((key, sequence, value) if kept == 1 else (key, sequence, value, sequence, after))
    return sorted(found, key=repr)


def _rank(change: Change) -> tuple[bool, bool, str]:
    """A delete counts before others; of these, the greater: a null is less than any."""
    return change[3], change[2] is not None, change[2] or ""


def held(lab: Lab) -> list[tuple[Any, ...]]:
    return rows(lab.table("out"))


@pytest.mark.parametrize("kept", [2, *rarely(1)])
def test_late_changes(lab: Lab, kept: Kept) -> None:
    """Over batches and runs: updates and deletes that are older than what is there, ties, and a key that comes back."""
    feed: list[list[Change]] = [
        [("a", 5, "five", False), ("a", 3, "three", False), ("b", 4, "b", False)],
        [("a", 4, "four", False), ("b", 6, None, True), ("c", 9, None, True)],
        [
            *[("b", 5, "late", False), ("c", 8, "late", False), ("a", 5, "fifth", False), ("a", 5, None, False)],
            *[("b", 7, "back", False), ("a", 4, None, True), ("c", 9, "as old as its delete", False)],
        ],
    ]
    arrive(lab, 0, *feed[:2])
    lab.run(declared(kept))
    assert held(lab) == expected(kept, [change for batch in feed[:2] for change in batch])
    arrive(lab, 2, *feed[2:])
    record = lab.run(declared(kept))
    assert held(lab) == expected(kept, [change for batch in feed for change in batch])
    assert not [warning for batch in record.batches for warning in batch.warnings]


def deletes_nothing(feed: DataFrame) -> DataFrame:
    """A correction: nothing is deleted, though the feed says so."""
    return feed.withColumn("op", F.lit("U"))


def nothing(feed: DataFrame) -> DataFrame:
    """Another one: the feed has nothing to say."""
    return feed.where("ts < 0")


EDITS: list[tuple[Kept, str]] = [(2, "deletes_nothing"), (1, "nothing")]


@pytest.mark.parametrize(("kept", "edit"), [*EDITS, *rarely(*((2 // kept, edit) for kept, edit in EDITS))])
def test_an_edit_behind_noted_deletes(lab: Lab, kept: Kept, edit: str) -> None:
    """Killed behind the deletes and before the table: what is noted of the batch is what it has when it is done."""
    feed: list[list[Change]] = [
        [("a", 1, "one", False), ("b", 5, None, True)],
        [("a", 3, "three", True), ("b", 5, None, True), ("b", 7, "seven", True)],
        [("a", 2, "two", False), ("b", 6, "six", False), ("b", 4, "four", False)],
    ]
    arrive(lab, 0, feed[0])
    lab.run(declared(kept))
    arrive(lab, 1, feed[1])
    assert cut_run(lab, declared(kept), Cut("Delta's merge out_tombstones", 1, "after")) is not None
    assert cut_run(lab, declared(kept), Cut("Delta's merge out_tombstones", 1, "before")) is not None
    corrected = declared(kept, transform=f"{__name__}:{edit}")
    lab.run(corrected)
    arrive(lab, 2, feed[2])
    lab.run(declared(kept))
    undone = [(key, ts, v, False) for key, ts, v, _ in feed[1] if edit != "nothing"]
    assert held(lab) == expected(kept, [*feed[0], *undone, *feed[2]])


@pytest.mark.parametrize(("kept", "moment"), [(2, "after"), *rarely((1, "before"), (1, "after"), (2, "before"))])
def test_killed_between_its_two_tables(lab: Lab, kept: Kept, moment: Any) -> None:
    """Before the commit that counts, the batch is done again; behind it, it is passed over."""
    feed: list[list[Change]] = [[("a", 1, "one", False)], [("a", 3, None, True), ("b", 2, "two", False)]]
    late: list[Change] = [("a", 2, "late", False), ("b", 1, None, True)]
    arrive(lab, 0, feed[0])
    lab.run(declared(kept))
    arrive(lab, 1, feed[1])
    assert cut_run(lab, declared(kept), Cut("Delta's merge out", 2, moment)) is not None
    arrive(lab, 2, late)
    record = lab.run(declared(kept))
    assert [batch.was_in_sink for batch in record.batches] == [moment == "after", False]
    assert held(lab) == expected(kept, [*feed[0], *feed[1], *late])


def test_deletes_that_are_gone(lab: Lab) -> None:
    """Without them a late change can't be told from a new one: refused until they are back, as they were."""
    stream, kept, older = declared(1), lab.root / "kept", lab.root / "older"
    arrive(lab, 0, [("a", 5, None, True)])
    lab.run(stream)
    shutil.copytree(lab.root / "out_tombstones", older)
    arrive(lab, 1, [("b", 1, "b", False)])
    lab.run(stream)
    (lab.root / "out_tombstones").rename(kept)
    arrive(lab, 2, [("a", 4, "late", False)])
    with pytest.raises(RefusedError) as refused:
        lab.run(stream)
    read_remedy(refused.value, "TOMBSTONES_GONE", "restore the folder as it was")
    older.rename(lab.root / "out_tombstones")
    with pytest.raises(RefusedError, match="are known up to batch 0 only: it is an older copy"):
        lab.run(stream)
    (lab.root / "out_tombstones").rename(older)
    kept.rename(lab.root / "out_tombstones")
    forget_tables(lab.spark)
    lab.run(stream)
    assert held(lab) == [("b", 1, "b")]


def take_deletes_back(lab: Lab, stream: Stream) -> int:
    """Two batches with a delete each, the table of deletes taken back before the second; the version that had it."""
    arrive(lab, 0, [("z", 1, "z", False), ("z", 2, None, True)])
    lab.run(stream)
    arrive(lab, 1, [("a", 9, None, True), ("b", 1, "b", False)])
    lab.run(stream)
    deletes = DeltaTable(str(lab.root / "out_tombstones"))
    newest = int(deletes.version())
    deletes.restore(newest - 2)
    return newest


def test_deletes_that_were_taken_back(lab: Lab) -> None:
    """By a `RESTORE` of their table: a late change of a deleted key would bring it back."""
    stream = declared(1)
    newest = take_deletes_back(lab, stream)
    forget_tables(lab.spark)
    arrive(lab, 2, [("a", 3, "late, older than its delete", False)])
    with pytest.raises(RefusedError, match="were taken back") as refused:
        lab.run(stream)
    assert refused.value.finding.code == "TOMBSTONES_GONE"
    deletes = DeltaTable(str(lab.root / "out_tombstones"))
    deletes.restore(newest)
    forget_tables(lab.spark)
    lab.run(stream)
    assert held(lab) == [("b", 1, "b")]


def test_deletes_that_may_have_been_taken_back(lab: Lab) -> None:
    """The commits that would tell are gone from the log, and a restore stands in it."""
    stream = declared(1)
    newest = take_deletes_back(lab, stream)
    DeltaTable(str(lab.root / "out_tombstones")).create_checkpoint()
    for commit in sorted((lab.root / "out_tombstones" / "_delta_log").glob("0*.json"))[: newest + 1]:
        commit.unlink()
    forget_tables(lab.spark)
    arrive(lab, 2, [("a", 3, "late, older than its delete", False)])
    with pytest.raises(RefusedError, match="may have been taken back") as refused:
        lab.run(stream)
    assert refused.value.finding.code == "TOMBSTONES_GONE"


def named(feed: DataFrame) -> DataFrame:
    return feed.withColumn("v", F.col("op"))


@in_campaigns
def test_a_table_made_again(lab: Lab) -> None:
    """What is noted of a table that was there before is nothing to the one that a new stream makes."""
    arrive(lab, 0, [("a", 5, None, True)])
    lab.run(declared(1))
    shutil.rmtree(lab.root / "out")
    forget_tables(lab.spark)
    lab.run(
        declared(
            1, name="again", changes={"keys": ["id", "v"], "apply_as_deletes": None}, transform=f"{__name__}:named"
        )
    )
    assert held(lab) == [("a", 5, "D")]


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "sequence": ({"sequence_by": "tss"}, "`sequence_by` names `tss`, which is no column of the result"),
    "except": ({"except_columns": ["Op"]}, "`except_columns` names `Op`, which is no column of the result"),
    "condition": ({"apply_as_deletes": "op ="}, r"Spark does not take the condition: .*PARSE"),
    "no condition": ({"apply_as_deletes": "op"}, "the condition is of type string"),
    "key": ({"keys": ["ID"]}, r"by `ID`, which is no column of the result.*did you mean `id`\?"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_the_result_does_not_have(lab: Lab, case: str) -> None:
    """Refused as the query is analysed, before a batch is planned."""
    changes, said = REFUSED[case]
    arrive(lab, 0, [("a", 1, "a", False)])
    with pytest.raises(DeclarationError, match=said):
        lab.run(declared(1, changes=changes))
    assert not list((lab.root / "home").glob("s/generations/0001/offsets/*"))


def test_columns_that_are_taken(lab: Lab) -> None:
    arrive(lab, 0, [("a", 1, "a", False)])
    with pytest.raises(DeclarationError, match="a column `__start_at`, which such a table has for itself"):
        lab.run(declared(2, transform=f"{__name__}:with_a_start"))
    lab.run(declared(2))
    lab.spark.sql(f"ALTER TABLE delta.`{lab.root / 'out'}` ADD COLUMNS (`__Deleted` string)")
    arrive(lab, 1, [("a", 2, "a", False)])
    with pytest.raises(DeclarationError, match="the table has a column `__Deleted`, which changes of a batch have"):
        lab.run(declared(2))


def with_a_start(feed: DataFrame) -> DataFrame:
    return feed.withColumn("__start_at", F.col("ts"))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("b", None, "b", False), "1 of 2 rows of batch 1 have no `ts`"),
        *rarely(((None, 2, "b", False), r"1 of 2 rows .* null in `id`")),
    ],
)
def test_changes_of_nothing(lab: Lab, change: Any, said: str) -> None:
    """Without a key or a sequence, nothing of the batch is applied; the suite drops such rows, and counts them."""
    arrive(lab, 0, [("a", 1, "a", False)])
    lab.run(declared(1))
    arrive(lab, 1, [("a", 2, "two", False), change])
    with pytest.raises(DeclarationError, match=said):
        lab.run(declared(1))
    assert held(lab) == [("a", 1, "a")]
    checks = [row("expect_column_values_to_not_be_null", policy="drop", column=name) for name in ("id", "ts")]
    (lab.root / "suite.json").write_bytes(document(*checks))
    record = lab.run(declared(1, quality="suite.json"))
    assert (held(lab), record.batches[0].dropped_rows) == ([("a", 2, "two")], 1)
    assert record.batches[0].warnings == ()


def test_another_history(lab: Lab) -> None:
    """Keys, order and type stay what they are for the life of a table; the condition may change."""
    arrive(lab, 0, [("a", 1, "a", False)])
    lab.run(declared(1))
    arrive(lab, 1, [("a", 2, "b", False)])
    for changes in ({"stored_as_scd_type": 2}, {"keys": ["id", "v"]}):
        with pytest.raises(RefusedError, match=r"delta, changes as type 1, by id in the order of ts"):
            lab.run(declared(1, changes=changes))
    lab.run(declared(1, changes={"apply_as_deletes": "v = 'b'"}))
    assert held(lab) == []


def test_partitions_and_several_keys(lab: Lab) -> None:
    """A row that changes its partition is in the new one alone; the sequence need not be kept in a history."""
    feed: list[list[Change]] = [
        [("a", 1, "x", False), ("a", 2, "y", False)],
        [("a", 3, "x", False), ("b", 1, "y", False)],
    ]
    arrive(lab, 0, *feed)
    changes = sinks.changes(keys="id", sequence_by="ts", stored_as_scd_type="2", except_columns=["op", "ts"])
    lab.run(declared(2, sink=sinks.delta("out", partition_by="v", changes=changes)))
    assert DeltaTable(str(lab.root / "out")).metadata().partition_columns == ["v"]
    every = [change for batch in feed for change in batch]
    assert held(lab) == sorted(((key, v, start, end) for key, _, v, start, end in expected(2, every)), key=repr)


def check_history(lab: Lab, seed: int) -> None:
    """Random changes, batches, cuts and runs of either strategy: the table is the batch over what was read."""
    chance = random.Random(seed)
    kept: Kept = 2 if seed % 2 else 1

    def draw() -> Change:
        return chance.choice("abc"), chance.randint(1, 8), chance.choice(["x", "y", None]), chance.random() < 0.3

    def check(feed: list[list[Change]]) -> None:
        assert not feed or held(lab) == expected(kept, [change for batch in feed for change in batch]), (seed, feed)

    live_through(lab, declared(kept), chance, draw, arrive, check=check, most_writes=3)


@pytest.mark.parametrize("seed", [2, *rarely(1)])
def test_a_random_history(lab: Lab, seed: int) -> None:
    check_history(lab, seed)


@in_campaigns
@pytest.mark.parametrize("seed", range(3, 3 + max(30, CAMPAIGN)))
def test_random_histories(lab: Lab, seed: int) -> None:
    check_history(lab, seed)
