"""Batches that are merged into a Delta table by keys: what they leave, after kills, nulls, duplicates and edits."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sluice import Stream, sinks, sources
from sluice.auditing.return_rows import return_rows
from sluice.auditing.table_audit import TableAuditRequest, audit_table
from sluice.errors import BatchFailedError, DeclarationError, QualityFailedError, RefusedError
from sluice.interval import Interval
from sluice.planning.planner import Limits
from sluice.planning.verdict import Request, plan_stream
from sluice.running.backfill import backfill_stream
from sluice.running.backfill_preparation import BackfillRequest
from sluice.sinks.delta import merge
from sluice.spark.left_behind import forget_tables
from tests.campaign import CAMPAIGN, in_campaigns, rarely
from tests.remedies import read_remedy
from tests.spark.lab import Lab, rows, write_files
from tests.spark.merge_lives import live_through
from tests.spark.power_cuts import Cut
from tests.spark.test_mended_files import cut_run
from tests.unit.quality.suites import document, row

pytestmark = pytest.mark.spark

Sale = Mapping[str, Any]


def per_user(sales: DataFrame) -> DataFrame:
    return sales.groupBy("user").agg(F.count("*").alias("n"), F.sum("amount").alias("total"))


def of_users(sales: DataFrame) -> DataFrame:
    """Without the row of those who have no name."""
    return per_user(sales).where("user IS NOT NULL")


def modest(sales: DataFrame) -> DataFrame:
    """A user with a hundred or more leaves the result."""
    return per_user(sales).where("total < 100")


def per_day(sales: DataFrame) -> DataFrame:
    days = (
        sales.withWatermark("at", "0 seconds")
        .groupBy(F.window("at", "1 day"), "user")
        .agg(F.sum("amount").alias("total"))
    )
    return days.select(F.col("window.start").alias("day"), "user", "total")


def as_delivered(sales: DataFrame) -> DataFrame:
    return sales.select("user", "amount")


def newest_alone(sales: DataFrame) -> DataFrame:
    """One row for each user, as somebody makes it who is told that there are two."""
    return sales.groupBy("user").agg(F.max("amount").alias("amount"))


def declared(
    transform: str = "of_users", merge_on: Any = "user", options: Mapping[str, Any] | None = None, **its: Any
) -> Stream:
    schema = "user string, amount bigint, at timestamp"
    fixed: dict[str, Any] = {
        "name": "s",
        "sources": {"sales": sources.files("in", format="json", schema=schema, max_files_per_batch=1)},
        "transform": f"{__name__}:{transform}",
        "sink": sinks.delta("out", merge_on=merge_on, **(options or {})),
        "output_mode": "update",
    }
    return Stream(**fixed | its)


def sale(user: str | None, amount: int, day: int = 1) -> Sale:
    return {"user": user, "amount": amount, "at": f"2026-01-{day:02d}T12:00:00Z"}


def arrive(lab: Lab, first: int, *batches: Iterable[Sale]) -> None:
    """One file for each batch."""
    contents = {f"{n:04d}.json": "\n".join(map(json.dumps, batch)) for n, batch in enumerate(batches, first)}
    write_files(lab.root / "in", contents, first=first)


def totals(*batches: Iterable[Sale]) -> list[tuple[str, int, int]]:
    """What one batch over all of them gives."""
    amounts = defaultdict[str, list[int]](list)
    for found in (found for batch in batches for found in batch):
        if found["user"] is not None:
            amounts[found["user"]].append(found["amount"])
    return sorted((user, len(found), sum(found)) for user, found in amounts.items())


def held(lab: Lab) -> list[tuple[Any, ...]]:
    return rows(lab.table("out"))


def version(lab: Lab) -> int:
    return int(DeltaTable(str(lab.root / "out")).version())


FIRST, SECOND = [sale("a", 1), sale("b", 2), sale(None, 7)], [sale("a", 10), sale("c", 3)]
SECOND_DAY = Interval(datetime(2026, 1, 2, tzinfo=UTC), datetime(2026, 1, 3, tzinfo=UTC))
CUTS = [
    ("Delta's merge", "middle", 0),
    ("Delta's merge", "after", 1),
    *rarely(("Delta's merge", "before", 0), ("Spark's commit", "before", 1)),
]
"""At which write of the second batch the power goes, when, and how many merges the table has then."""


@pytest.mark.parametrize(("match", "moment", "merges"), CUTS)
def test_killed_at_a_merge(lab: Lab, match: str, moment: Any, merges: int) -> None:
    """Before its commit, the batch is merged by the next run; behind it, it is passed over, and the state goes on."""
    stream, third = declared(), [sale("a", 100), sale("c", 1)]
    arrive(lab, 0, FIRST)
    lab.run(stream)
    arrive(lab, 1, SECOND)
    assert "merge it into the table on `user`" in [stage.text for stage in lab.plan(stream).stages]
    assert cut_run(lab, stream, Cut(match, 1, moment)) is not None
    assert version(lab) == merges
    arrive(lab, 2, third)

    record = lab.run(stream)

    assert [batch.was_in_sink for batch in record.batches] == [bool(merges), False]
    assert held(lab) == totals(FIRST, SECOND, third)
    assert version(lab) == 2


def test_killed_as_the_table_is_made(lab: Lab) -> None:
    """The first batch makes it in one commit, over what a kill has left."""
    arrive(lab, 0, FIRST, SECOND)
    assert cut_run(lab, declared(), Cut("Spark's save out", 1, "middle")) is not None
    assert list((lab.root / "out").glob("part-*"))
    assert cut_run(lab, declared(), Cut("Spark's save out", 1, "after")) is not None
    assert version(lab) == 0
    assert lab.run(declared()).batches[0].was_in_sink
    assert held(lab) == totals(FIRST, SECOND)


def test_closed_windows(lab: Lab) -> None:
    """In mode `append`: each window once, at its end; a user's day is found by both of its keys."""
    stream = declared("per_day", ["day", "user"], {"partition_by": ["day"]}, output_mode="append")
    arrive(lab, 0, [sale("a", 1), sale("b", 2)], [sale("a", 3), sale("a", 5, day=2)], [sale("a", 7, day=3)])
    lab.run(stream)
    assert held(lab) == [
        (datetime.fromisoformat("2026-01-01"), "a", 4),
        (datetime.fromisoformat("2026-01-01"), "b", 2),
        (datetime.fromisoformat("2026-01-02"), "a", 5),
    ]
    before = version(lab)
    arrive(lab, 3, [sale("b", 1, day=3)])
    lab.run(stream)
    # No window has closed: a batch without rows is no commit, and wakes nobody who reads the table.
    assert version(lab) == before


def test_whole_results(lab: Lab) -> None:
    """In mode `complete`, the table is the result: a row that is not in it any more is deleted, also at a resume."""
    stream = declared("modest", output_mode="complete")
    arrive(lab, 0, [sale("a", 1), sale("b", 2)])
    lab.run(stream)
    arrive(lab, 1, [sale("a", 200), sale("c", 3)])
    assert cut_run(lab, stream, Cut("Delta's merge", 1, "after")) is not None
    assert held(lab) == [("b", 1, 2), ("c", 1, 3)]
    arrive(lab, 2, [sale("b", 98), sale("c", 97)])
    lab.run(stream)
    assert held(lab) == []


def test_the_same_table_as_an_append_makes(lab: Lab) -> None:
    """Columns, types and partitions; the second batch replaces the row of its key, in whatever partition that is."""
    arrive(lab, 0, [sale("a", 1)])
    options = {"partition_by": ["amount"]}
    lab.run(declared("as_delivered", options=options, output_mode="append"))
    lab.run(declared("as_delivered", None, name="t", sink=sinks.delta("plain", **options), output_mode="append"))
    merged, plain = (DeltaTable(str(lab.root / name)) for name in ("out", "plain"))
    assert merged.schema().to_json() == plain.schema().to_json()
    assert merged.metadata().partition_columns == plain.metadata().partition_columns
    arrive(lab, 1, [sale("a", 2)])
    record = lab.run(declared("as_delivered", options=options, output_mode="append"))
    assert (held(lab), record.batches[0].output_rows) == ([("a", 2)], 1)


UNFIT = {
    "nulls": ([sale(None, 1), sale("b", 2)], r"1 of 2 rows of batch 1 have a null in `user`.*nothing of the batch was"),
    "twice": ([sale("a", 2), sale("a", 3), sale("b", 1)], r"2 of 3 rows of batch 1 share `user` .*\(1 keys\)"),
    "twice and new": ([sale("z", 2), sale("z", 3)], r"2 of 2 rows of batch 1 share `user`"),
}


@pytest.mark.parametrize("rows_of", UNFIT)
def test_rows_without_a_key_of_their_own(lab: Lab, rows_of: str) -> None:
    """They are refused before anything is written; with the transform corrected, the same batch goes in."""
    batch, said = UNFIT[rows_of]
    stream = declared("as_delivered", output_mode="append")
    arrive(lab, 0, [sale("a", 1)])
    lab.run(stream)
    arrive(lab, 1, batch)
    with pytest.raises(DeclarationError, match=said):
        lab.run(stream)
    assert held(lab) == [("a", 1)]
    corrected = {"nulls": "named_alone"}.get(rows_of, "once")
    lab.run(replace(stream, transform=f"{__name__}:{corrected}"))
    expected = {"a": 1} | {
        found["user"]: found["amount"] for found in sorted(batch, key=lambda each: each["amount"]) if found["user"]
    }
    assert held(lab) == sorted(expected.items())


def named_alone(sales: DataFrame) -> DataFrame:
    return as_delivered(sales).where("user IS NOT NULL")


def once(sales: DataFrame) -> DataFrame:
    """The largest of each second, which of these files is the only one."""
    largest = sales.where("NOT (user = 'a' AND amount = 2) AND NOT (user = 'z' AND amount = 2)")
    return as_delivered(largest)


REFUSED = {
    "absent": ("of_users", "usr", r"by `usr`, which is no column of the result.*did you mean `user`\?"),
    "case": ("of_users", "USER", r"by `USER`, which is no column of the result.*did you mean `user`\?"),
    "nested": ("with_window", ["window.start", "user"], r'by `window.start`.*col\("window.start"\).alias\("start"\)'),
    "map": ("with_map", "tags", r"by `tags`, of type map<string,string>, which Spark does not compare"),
    "computed": ("of_users", ["user", "total"], r"`total` is what the aggregation computes.*what it groups by: `user`"),
    "too few": ("with_window", "user", r"groups by `window`, too: two rows of a batch would have the same keys"),
    "one row": ("of_all", "n", "`n` is what the aggregation computes.*it has one row in all: give it a column"),
    "renamed": ("renamed", "who", r"groups by `day`, too"),
    "computed above": (
        "lowered",
        "user",
        r"`user` is computed above the aggregation, as `lower\(user\)`: two groups may .*as it is: `user`",
    ),
    "counted": ("numbered", "k", r"`k` is computed above the aggregation, as `concat\(k.*another one by the next"),
    "of an aggregate": ("largest", "k", r"`k` is computed above .*another one by the next"),
    "a clock": ("with_a_clock", "one", r"`one` is computed above .*nothing, so that it has one row"),
    "leaves": (
        "modest",
        "user",
        r"reads what it computes.*would stay in the table as it was.*`output_mode=\"complete\"`",
    ),
    "joined": ("joined", "user", "`Join` stands above the aggregation"),
}


def joined(sales: DataFrame) -> DataFrame:
    """With what is no stream: whether a row of it is there may change."""
    others = sales.sparkSession.createDataFrame([("a", 1)], "user string, rank int")
    return per_user(sales).join(others, "user")


def lowered(sales: DataFrame) -> DataFrame:
    return per_user(sales).select(F.lower("user").alias("user"), "n")


def numbered(sales: DataFrame) -> DataFrame:
    return per_user(sales).select("user", F.concat(F.lit("k"), "n").alias("k"))


def largest(sales: DataFrame) -> DataFrame:
    return per_user(sales).select((F.col("total") + 0).alias("sum"), "n").select(F.col("sum").alias("k"), "n")


def with_a_clock(sales: DataFrame) -> DataFrame:
    return of_all(sales).select(F.current_timestamp().alias("one"), "n")


def with_window(sales: DataFrame) -> DataFrame:
    return sales.groupBy(F.window("at", "1 day"), "user").count()


def with_map(sales: DataFrame) -> DataFrame:
    return sales.select("user", F.create_map("user", "user").alias("tags"))


def of_all(sales: DataFrame) -> DataFrame:
    return sales.agg(F.count("*").alias("n"))


def with_a_constant(sales: DataFrame) -> DataFrame:
    return of_all(sales).select(F.lit(1).alias("one"), "n")


def renamed(sales: DataFrame) -> DataFrame:
    days = sales.groupBy(F.col("user").alias("who"), F.date_trunc("day", "at").alias("day")).count()
    return days.select("who", "day", F.col("count").alias("n"))


@pytest.mark.parametrize("case", REFUSED)
def test_keys_that_are_none(lab: Lab, case: str) -> None:
    """Refused as the query is analysed, before a batch is planned."""
    transform, keys, said = REFUSED[case]
    arrive(lab, 0, [sale("a", 1)])
    with pytest.raises(DeclarationError, match=said):
        lab.run(declared(transform, keys))
    assert not list((lab.root / "home").glob("s/generations/0001/offsets/*"))


GROUPED = [
    ("with_window", ["window", "user"], [1, 1, 2]),
    ("renamed", ["day", "who"], [1, 1, 2]),
    ("with_a_constant", "one", [4]),
]


@pytest.mark.parametrize(("transform", "keys", "counts"), GROUPED)
def test_keys_that_are_grouped_by(lab: Lab, transform: str, keys: Any, counts: Sequence[int]) -> None:
    """Under whatever name; a window is compared as a whole; one row of all has a constant for a key."""
    arrive(lab, 0, [sale("a", 1), sale("a", 2, day=2)], [sale("a", 3), sale("b", 4)])
    lab.run(declared(transform, keys))
    assert sorted(found[-1] for found in held(lab)) == counts


def test_other_keys_than_before(lab: Lab) -> None:
    """A table that was merged on some keys is not merged on others, nor appended to; nor the other way round."""
    arrive(lab, 0, SECOND)
    lab.run(declared("renamed", ["who", "day"]))
    arrive(lab, 1, SECOND)
    with pytest.raises(RefusedError, match=r"another kind \(delta, merged on day, who at out\)") as refused:
        lab.run(declared("renamed", ["who", "day", "n"]))
    read_remedy(refused.value, "SINK_REPLACED", "declare the sink as it was; or a new stream")


def test_a_table_that_was_appended_to(lab: Lab) -> None:
    """A stream that has appended may have rows of one key: it is not merged from there on."""
    stream = declared("as_delivered", None, output_mode="append")
    arrive(lab, 0, [sale("a", 1), sale("a", 2)])
    lab.run(stream)
    arrive(lab, 1, SECOND)
    with pytest.raises(RefusedError, match=r"another kind \(delta at out\); declared is delta, merged on user"):
        lab.run(replace(stream, sink=sinks.delta("out", merge_on="user")))


def test_columns_of_a_table(lab: Lab) -> None:
    """What the result lacks stays as it is; what the table lacks is refused, or added where that is declared."""
    stream = declared("as_delivered", output_mode="append")
    arrive(lab, 0, [sale("a", 1), sale("b", 1)])
    lab.run(stream)
    lab.spark.sql(f"ALTER TABLE delta.`{lab.root}/out` ADD COLUMNS (note string)")
    lab.spark.sql(f"UPDATE delta.`{lab.root}/out` SET note = 'kept'")
    arrive(lab, 1, [sale("a", 2), sale("c", 2)])
    lab.run(stream)
    assert held(lab) == [("a", 2, "kept"), ("b", 1, "kept"), ("c", 2, None)]
    arrive(lab, 2, [sale("a", 3)])
    wider = replace(stream, transform=f"{__name__}:wider")
    with pytest.raises(DeclarationError, match="day: not in the table, int in the result"):
        lab.run(wider)
    lab.run(replace(wider, sink=sinks.delta("out", merge_on="user", schema_evolution="add")))
    assert held(lab)[0] == ("a", 3, "kept", 1)


def wider(sales: DataFrame) -> DataFrame:
    return sales.select("user", "amount", F.dayofmonth("at").alias("day"))


TABLES = {
    "append only": ("TBLPROPERTIES (delta.appendOnly = true)", "user STRING, amount BIGINT", "a merge replaces rows"),
    "other keys": ("", "who STRING, amount BIGINT", r"by `user`, which is no column of the table"),
    "other type": ("", "user INT, amount BIGINT", r"`user`, which is string in the result and int in the table"),
}


@pytest.mark.parametrize("table", TABLES)
def test_tables_that_take_no_merge(lab: Lab, table: str) -> None:
    """Refused before a batch is planned; the first two without Spark."""
    properties, columns, said = TABLES[table]
    lab.spark.sql(f"CREATE TABLE delta.`{lab.root}/out` ({columns}) USING delta {properties}")
    stream = declared("as_delivered", output_mode="append")
    arrive(lab, 0, [sale("a", 1)])
    with pytest.raises(DeclarationError, match=said):
        lab.run(stream) if table == "other type" else lab.plan(stream)
    assert not list((lab.root / "home").glob("s/generations/0001/offsets/*"))


def check(lab: Lab, kind: str, policy: str, **kwargs: Any) -> None:
    (lab.root / "suite.json").write_bytes(document(row(kind, policy=policy, **kwargs)))


def test_dropped_rows(lab: Lab) -> None:
    """A null is dropped by the suite before it is a key, and counted; the balance is whole."""
    check(lab, "expect_column_values_to_not_be_null", "drop", column="user")
    arrive(lab, 0, FIRST, [sale("a", 10), sale(None, 3)])
    record = lab.run(declared("per_user", quality="suite.json"))
    assert held(lab) == totals(FIRST, [sale("a", 10)])
    counts = [(batch.result_rows, batch.output_rows, batch.dropped_rows, batch.warnings) for batch in record.batches]
    assert counts == [(3, 2, 1, ()), (2, 1, 1, ())]


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_batch_that_fails(lab: Lab, moment: Any) -> None:
    """Nothing of it is merged; once it passes, it is, and once only, whatever the power does."""
    check(lab, "expect_column_values_to_be_between", "fail", column="total", max_value=10)
    arrive(lab, 0, FIRST, SECOND)
    with pytest.raises(QualityFailedError):
        lab.run(declared(quality="suite.json"))
    assert held(lab) == totals(FIRST)
    check(lab, "expect_column_values_to_be_between", "fail", column="total", max_value=100)
    assert cut_run(lab, declared(quality="suite.json"), Cut("Delta's merge", 1, moment)) is not None
    record = lab.run(declared(quality="suite.json"))
    assert (held(lab), version(lab)) == (totals(FIRST, SECOND), 1)
    assert (record.batches[0].was_in_sink, record.quality.verdict) == (moment == "after", "pass")


def test_what_a_suite_can_not_ask(lab: Lab) -> None:
    """Rows put aside, and rows that are read again: both refused with the reason, before anything is planned."""
    arrive(lab, 0, FIRST)
    check(lab, "expect_column_values_to_be_between", "quarantine", column="n", max_value=1)
    with pytest.raises(DeclarationError, match=r"a row that is released later would replace a newer one.*`drop` or"):
        lab.plan(declared(quality="suite.json", output_mode="append"))
    check(lab, "expect_column_values_to_be_unique", "warn", column="user")
    with pytest.raises(DeclarationError, match=r"which a delta sink with `merge_on` can't tell"):
        lab.run(declared(quality="suite.json"))


def test_what_else_is_done_with_a_table(lab: Lab) -> None:
    """The whole table is audited; what would need a batch's own rows is refused with the reason, and so is Connect."""
    check(lab, "expect_column_values_to_be_between", "warn", column="n", max_value=1)
    stream = lab.project.resolve(declared(quality="suite.json"))
    arrive(lab, 0, FIRST, SECOND)
    lab.run(stream)
    audit = audit_table(lab.project, TableAuditRequest(stream), session=lab.spark)
    assert (audit.quality.rows, audit.quality.checks[0].result["unexpected_count"]) == (3, 1)
    with pytest.raises(DeclarationError, match="a merge writes rows of other batches again"):
        audit_table(lab.project, TableAuditRequest(stream, from_version=1), session=lab.spark)
    with pytest.raises(DeclarationError, match=r"can't be backfilled: .*rows of others may have their keys by now"):
        backfill_stream(lab.project, BackfillRequest(stream, SECOND_DAY), session=lab.spark)
    with pytest.raises(DeclarationError, match="a delta sink with `merge_on` has no quarantine"):
        return_rows(lab.project, stream, None, "ada", session=lab.spark)
    remote = replace(lab.project, spark_master="sc://server")
    with pytest.raises(DeclarationError, match="can't be written over Spark Connect"):
        plan_stream(remote, Request(stream))


def test_drained(lab: Lab) -> None:
    """Spark decides the batches; one that died between its two commits is passed over."""
    stream, limits = declared(), Limits(strategy="drain")
    arrive(lab, 0, FIRST, SECOND)
    lab.run(stream, limits)
    arrive(lab, 2, [sale("a", 5)], [sale("b", 6)])
    assert cut_run(lab, stream, Cut("Delta's merge", 1, "after"), limits) is not None
    record = lab.run(stream, limits)
    assert [batch.was_in_sink for batch in record.batches] == [True, False]
    assert held(lab) == totals(FIRST, SECOND, [sale("a", 5)], [sale("b", 6)])
    assert version(lab) == 3


def test_a_constraint_of_the_table(lab: Lab) -> None:
    """A batch that breaks one fails, and says so."""
    stream = declared("as_delivered", output_mode="append")
    arrive(lab, 0, [sale("a", 1)])
    lab.run(stream)
    lab.spark.sql(f"ALTER TABLE delta.`{lab.root}/out` ADD CONSTRAINT few CHECK (amount < 10)")
    arrive(lab, 1, [sale("a", 20)])
    with pytest.raises(BatchFailedError, match="CHECK constraint few"):
        lab.run(stream)
    assert held(lab) == [("a", 1)]


def test_somebody_compacts_meanwhile(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Delta refuses the merge, or does it behind them; the next run merges the batch if it is not there, once."""
    arrive(lab, 0, FIRST, SECOND)
    lab.run(declared())
    arrive(lab, 2, [sale("a", 5)])
    text = merge.merge

    def beside(*args: Any, **how: Any) -> None:
        DeltaTable(str(lab.root / "out")).optimize.compact()
        forget_tables(lab.spark)
        text(*args, **how)

    monkeypatch.setattr(merge, "merge", beside)
    try:
        lab.run(declared())
    except BatchFailedError:
        lab.run(declared())
    assert held(lab) == totals(FIRST, SECOND, [sale("a", 5)])


def test_whoever_reads_the_table(lab: Lab) -> None:
    """A stream of it is refused, or passes over what replaces rows where that is declared; a merge of new ones, too."""
    arrive(lab, 0, [sale("a", 1)])
    stream = declared("as_delivered", output_mode="append")
    lab.run(stream)
    reading = Stream(
        name="copy", sources={"sales": sources.delta("out")}, transform=f"{__name__}:same", sink=sinks.delta("copy")
    )
    lab.run(reading)
    arrive(lab, 1, [sale("a", 2)])
    lab.run(stream)
    with pytest.raises(RefusedError, match="out"):
        lab.run(reading)
    lab.run(replace(reading, sources={"sales": sources.delta("out", skip_change_commits=True)}))
    assert rows(lab.table("copy")) == [("a", 1)]


def same(sales: DataFrame) -> DataFrame:
    return sales


def check_history(lab: Lab, seed: int) -> None:
    """Random batches, cuts at random writes, and runs of either strategy: the table is the batch over what was read."""
    chance = random.Random(seed)
    stream = declared(chance.choice(["of_users", "per_user_without_nulls"]))

    def check(batches: list[list[Sale]]) -> None:
        assert not batches or held(lab) == totals(*batches), (seed, batches)

    def draw() -> Sale:
        return sale(chance.choice("abcde"), chance.randint(1, 9))

    live_through(lab, stream, chance, draw, arrive, check=check, most_writes=2)


def per_user_without_nulls(sales: DataFrame) -> DataFrame:
    return per_user(sales.where("user IS NOT NULL")).select("total", "user", "n").select("user", "n", "total")


@pytest.mark.parametrize("seed", [1])
def test_a_random_history(lab: Lab, seed: int) -> None:
    check_history(lab, seed)


@in_campaigns
@pytest.mark.parametrize("seed", range(2, 2 + max(30, CAMPAIGN)))
def test_random_histories(lab: Lab, seed: int) -> None:
    check_history(lab, seed)
