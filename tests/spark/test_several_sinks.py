"""Several sinks of one read: each row is where the transform sent it, once, whatever was killed and edited."""

from __future__ import annotations

import json
import re
import shutil
from typing import Any, get_args

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sluice import Stream, sinks, sources
from sluice.errors import DeclarationError, RefusedError, StorageError
from sluice.planning.planner import Limits
from sluice.sinks.delta import published_batch
from sluice.spark.left_behind import forget_tables
from sluice.testing import Bench, Moment, bench
from tests.campaign import rarely
from tests.remedies import read_remedy
from tests.spark import power_cuts
from tests.spark.lab import Lab, rows, write_files
from tests.spark.power_cuts import Cut

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

__all__ = ["bench"]

Rows = list[tuple[Any, ...]]


def by_parity(n: DataFrame) -> dict[str, DataFrame]:
    return {"even": n.where("id % 2 = 0"), "odd": n.where("id % 2 = 1").selectExpr("id", "v", "id * 10 AS tens")}


def exchanged(n: DataFrame) -> dict[str, DataFrame]:
    """As if somebody had edited it."""
    return {"even": n.where("id % 2 = 1"), "odd": n.where("id % 2 = 0").selectExpr("id", "v", "id * 10 AS tens")}


def by_time(n: DataFrame) -> dict[str, DataFrame]:
    """Which rows go where depends on the very time at which they are computed."""
    is_even = F.expr("unix_micros(current_timestamp()) % 2 = 0")
    odd = n.where(~is_even).selectExpr("id", "v", "id * 10 AS tens")
    return {"even": n.where(is_even), "odd": odd}


def by_view(n: DataFrame) -> dict[str, DataFrame]:
    """As who writes SQL does it."""
    n.createOrReplaceTempView("numbers")
    active = SparkSession.active()
    return {
        "even": active.sql("SELECT * FROM numbers WHERE id % 2 = 0"),
        "odd": active.sql("SELECT *, id * 10 AS tens FROM numbers WHERE id % 2 = 1"),
    }


def with_date(n: DataFrame) -> dict[str, DataFrame]:
    return {
        "even": n.where("id % 2 = 0"),
        "odd": n.where("id % 2 = 1").selectExpr("id", "v", "date '2026-01-01' AS tens"),
    }


def by_registered(n: DataFrame) -> dict[str, DataFrame]:
    """Functions and tables that are known by name in the session alone."""
    kept = n.join(SparkSession.builder.getOrCreate().table("kept_ids"), "id")
    return {
        "even": kept.where("is_even_id(id)"),
        "odd": kept.where("NOT is_even_id(id)").selectExpr("*", "id * 10 AS tens"),
    }


def untyped(n: DataFrame) -> dict[str, DataFrame]:
    return {"even": n, "odd": n.withColumn("tens", F.lit(None))}


def as_text(n: DataFrame) -> dict[str, DataFrame]:
    return by_parity(n) | {"even": n.where("id % 2 = 0").selectExpr("concat('k', id) AS id", "v")}


def text_by_and_by(n: DataFrame) -> dict[str, DataFrame]:
    """Gives other columns in a later batch than those that were looked at."""
    is_later = not n.isStreaming and n.where("id >= 20").count() > 0
    return as_text(n) if is_later else by_parity(n)


def with_more(n: DataFrame) -> dict[str, DataFrame]:
    return {name: found.withColumn("more", F.lit(1)) for name, found in by_parity(n).items()}


def without_tens(n: DataFrame) -> dict[str, DataFrame]:
    return {"even": n.where("id % 2 = 0"), "odd": n.where("id % 2 = 1")}


def far_away(n: DataFrame) -> dict[str, DataFrame]:
    return {
        "even": n.where("id % 2 = 0").withColumn("day", F.expr("date_from_unix_date(100000000)")),
        "odd": n.where("id = 1"),
    }


def near(n: DataFrame) -> dict[str, DataFrame]:
    return {"even": n.where("id % 2 = 0").withColumn("day", F.expr("date '2026-01-01'")), "odd": n.where("id = 1")}


def by_file(n: DataFrame) -> dict[str, DataFrame]:
    return {"even": n, "odd": n.select("id", F.input_file_name().alias("file"))}


def one_result(n: DataFrame) -> DataFrame:
    return n


def another_name(n: DataFrame) -> dict[str, DataFrame]:
    return {"even": n, "rest": n}


def counted(n: DataFrame) -> dict[str, DataFrame]:
    return {"even": n, "odd": n.groupBy("v").count()}


def limited(n: DataFrame) -> dict[str, DataFrame]:
    return {"even": n, "odd": n.limit(3)}


def hidden(n: DataFrame) -> dict[str, DataFrame]:
    return {"even": n, "odd": n.selectExpr("id", "_metadata.file_name AS file")}


def collected(n: DataFrame) -> dict[str, DataFrame]:
    return {"even": n, "odd": n.sparkSession.range(3)}


def with_table(n: DataFrame) -> dict[str, DataFrame]:
    """Joins a table, of which another process may make another one between a kill and its resume."""
    names = n.sparkSession.read.format("delta").load(DIMENSION[0])
    joined = n.join(names, "id", "left")
    return {"even": joined.where("name IS NOT NULL").drop("name"), "odd": joined.where("name IS NULL")}


DIMENSION: list[str] = []


def declared(transform: str = "by_parity", **its: Any) -> Stream:
    source = sources.files("in", format="json", schema="id bigint, v string", max_files_per_batch=1)
    known: dict[str, Any] = {
        "name": "s",
        "sources": {"n": source},
        "sinks": {"even": sinks.delta("even"), "odd": sinks.delta("odd", partition_by="v")},
    }
    return Stream(**known | {"transform": f"{__name__}:{transform}"} | its)


def arrive(lab: Lab, number: int, *ids: int) -> None:
    lines = "\n".join(json.dumps({"id": one, "v": "x"}) for one in ids)
    write_files(lab.root / "in", {f"{number:04d}.json": lines}, first=number)


def ids(lab: Lab, table: str) -> list[int]:
    return sorted(row[0] for row in rows(lab.spark_table(table).select("id")))


def killed(lab: Lab, stream: Stream, cut: Cut) -> None:
    """Let the power go at a write, and whoever had the lease be gone."""
    power_cuts.killed(lab, stream, cut)
    for leases in (lab.root / "home").rglob("leases"):
        leases.rename(leases.with_name(f"earlier {len(list(leases.parent.iterdir()))}"))


@pytest.mark.parametrize("strategy", ["exact", "drain"])
def test_each_gets_its_rows(lab: Lab, strategy: Any) -> None:
    """Read once, and told of each by its own count; a batch of which one gets nothing makes it no commit."""
    arrive(lab, 0, 1, 2, 3)
    arrive(lab, 1, 4, 6)
    record = lab.run(declared(), Limits(strategy=strategy))
    assert (ids(lab, "even"), ids(lab, "odd")) == ([2, 4, 6], [1, 3])
    assert rows(lab.spark_table("odd")) == [(1, "x", 10), (3, "x", 30)]
    assert [batch.rows_by_sink for batch in record.batches] == [{"even": 1, "odd": 2}, {"even": 2, "odd": 0}]
    assert [batch.input_rows for batch in record.batches] == [3, 2]
    assert [batch.output_rows for batch in record.batches] == [3, 2]
    assert DeltaTable(str(lab.root / "odd")).version() == 0
    assert lab.plan(declared()).verdict == "skip"
    assert not list((lab.root / "home" / "s" / "staged").rglob("*.parquet"))


WRITES = {
    "staged": Cut("parquet home/s/staged", 1, "after"),
    "half of what is staged": Cut("parquet home/s/staged", 1, "middle"),
    "not decided": Cut("put_if_absent home/s/staged", 1, "before"),
    "decided": Cut("put_if_absent home/s/staged", 1, "after"),
    "before the other sink": Cut("commit odd", 1, "before"),
    "behind the other sink": Cut("commit odd", 1, "after"),
    "before the first sink": Cut("commit even", 1, "before"),
    "behind the first sink": Cut("commit even", 1, "after"),
    "not forgotten": Cut("delete home/s/staged", 1, "before"),
}
UNDECIDED = {"staged", "half of what is staged", "not decided"}


OFTEN = ["half of what is staged", "decided", "behind the other sink", "behind the first sink", "not forgotten"]


@pytest.mark.parametrize("at", [*OFTEN, *rarely(*(at for at in WRITES if at not in OFTEN))])
def test_killed_and_edited(lab: Lab, at: str) -> None:
    """What was decided before the kill counts, and what was not is decided by the edited transform."""
    arrive(lab, 0, 1, 2, 3)
    lab.run(declared())
    arrive(lab, 1, 4, 5, 7)
    killed(lab, declared(), WRITES[at])
    record = lab.run(declared("exchanged"))
    even, odd = ([5, 7], [4]) if at in UNDECIDED else ([4], [5, 7])
    assert (ids(lab, "even"), ids(lab, "odd")) == (sorted([2, *even]), sorted([1, 3, *odd]))
    assert [batch.decided_by is not None for batch in record.batches] == [at not in UNDECIDED] * (at != "not forgotten")
    arrive(lab, 2, 8, 9)
    lab.run(declared())
    assert (ids(lab, "even"), ids(lab, "odd")) == (sorted([2, 8, *even]), sorted([1, 3, 9, *odd]))


@pytest.mark.parametrize("kind", ["table", "files"])
@pytest.mark.parametrize("at", ["behind the other sink", *rarely("decided", "behind the first sink")])
def test_inputs_that_are_gone_once_it_is_decided(lab: Lab, at: str, kind: str) -> None:
    """What is staged is all that the others lack: a source that was tidied up meanwhile keeps no sink from its rows."""
    table = str(lab.root / "numbers")

    def add(number: int, *ids: int) -> None:
        if kind == "files":
            arrive(lab, number, *ids)
        else:
            write_deltalake(table, pa.table({"id": pa.array(ids, pa.int64()), "v": ["x"] * len(ids)}), mode="append")

    stream = declared(**({} if kind == "files" else {"sources": {"n": sources.delta("numbers")}}))
    add(0, 1, 2, 3)
    lab.run(stream)
    add(1, 4, 5, 7)
    killed(lab, stream, WRITES[at])
    if kind == "files":
        for file in (lab.root / "in").iterdir():
            file.unlink()
    else:
        found = DeltaTable(table)
        found.optimize.compact()
        found.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)

    plan = lab.plan(stream)
    assert (plan.verdict, [warning.code for warning in plan.warnings]) == ("resume", ["INPUT_GONE"])
    (batch,) = lab.run(stream).batches
    assert (batch.input_rows, batch.rows_by_sink) == (None, {"even": 1, "odd": 2})
    assert "decided and staged" in batch.warnings[0]
    add(2, 8, 9)
    lab.run(stream)
    assert (ids(lab, "even"), ids(lab, "odd")) == ([2, 4, 8], [1, 3, 5, 7, 9])


def test_staged_rows_that_are_gone_with_the_inputs(lab: Lab) -> None:
    """Nothing but what is staged has them any more: without it, the batch is not finished."""
    arrive(lab, 0, 1, 2, 3)
    killed(lab, declared(), WRITES["behind the other sink"])
    (lab.root / "in" / "0000.json").unlink()
    staged = next((lab.root / "home" / "s" / "staged").rglob("*.parquet"))
    kept = staged.rename(lab.root / "kept")
    with pytest.raises(RefusedError) as refused:
        lab.run(declared())
    assert refused.value.finding.code == "STAGED_ROWS_GONE"
    assert not (lab.root / "even").exists()
    kept.rename(staged)
    lab.run(declared())
    assert (ids(lab, "even"), ids(lab, "odd")) == ([2], [1, 3])


@pytest.mark.parametrize("at", ["behind the other sink", *rarely("decided", "before the first sink")])
def test_a_table_that_changes(lab: Lab, at: str) -> None:
    """A table that the transform joins is another one by the time of the resume: no row is in both, none in neither."""
    DIMENSION[:] = [str(lab.root / "names")]
    lab.spark.sql("SELECT 1L AS id, 'one' AS name").write.format("delta").save(DIMENSION[0])
    arrive(lab, 0, 1, 2, 3)
    stream = declared("with_table", sinks={"even": sinks.delta("even"), "odd": sinks.delta("odd")})
    killed(lab, stream, WRITES[at])
    lab.spark.sql("SELECT 2L AS id, 'two' AS name").write.format("delta").mode("overwrite").save(DIMENSION[0])
    lab.run(stream)
    assert (ids(lab, "even"), ids(lab, "odd")) == ([1], [2, 3])


def test_a_decision_that_is_lost(lab: Lab) -> None:
    """With one sink ahead of another, nobody knows any more what the other lacks; with none, it is decided anew."""
    arrive(lab, 0, 1, 2)
    killed(lab, declared(), WRITES["decided"])
    shutil.rmtree(lab.root / "home" / "s" / "staged")
    killed(lab, declared(), WRITES["behind the other sink"])
    staged = lab.root / "home" / "s" / "staged" / "0001"
    kept = staged.rename(staged.with_name("kept"))
    with pytest.raises(RefusedError, match="sink `odd` holds its part of batch 0, sink `even` does not") as refused:
        lab.run(declared())
    assert refused.value.finding.code == "DECISION_LOST"
    shutil.rmtree(staged, ignore_errors=True)
    kept.rename(staged)
    for file in (file for file in staged.rglob("*.parquet")):
        file.unlink()
    with pytest.raises(RefusedError) as refused:
        lab.run(declared())
    assert refused.value.finding.code == "STAGED_ROWS_GONE"


def test_in_a_bench(bench: Bench) -> None:
    """Killed at each of its moments, by way of one after the other."""
    bench.open(declared())
    for number, moment in enumerate(get_args(Moment)):
        bench.add("n", [{"id": number, "v": "x"}])
        bench.crash(at=moment)
        bench.restart()
    bench.check_rows([(0, "x"), (2, "x"), (4, "x")], sink="even")
    bench.check_rows([{"id": 1, "tens": 10}, {"id": 3, "tens": 30}], sink="odd")
    bench.add("n", [{"id": 5, "v": "x"}])
    bench.run()
    bench.check_new_rows([], sink="even")
    bench.check_new_rows([{"id": 5}], sink="odd")
    with pytest.raises(DeclarationError, match="several sinks"):
        bench.check_rows([])


def test_one_time_for_all(lab: Lab) -> None:
    """The time of a batch is one, whichever sink a row goes to."""
    for number in range(8):
        arrive(lab, number, number)
    lab.run(declared("by_time"))
    assert sorted([*ids(lab, "even"), *ids(lab, "odd")]) == [*range(8)]


@pytest.mark.parametrize(
    ("transform", "told"),
    [
        ("one_result", "the transform returns DataFrame, and the sinks are 'even', 'odd'"),
        ("another_name", "the transform returns a mapping with 'even', 'rest', and the sinks are 'even', 'odd'"),
        ("counted", "the result for sink `odd` as a stream"),
        ("limited", "the result for sink `odd` needs state, and with several sinks each batch is computed by itself"),
        ("hidden", "with several sinks it gets each batch by itself, with the columns of the source alone"),
        ("untyped", "the result for sink `odd` has a column without a type"),
        ("by_file", "asks for `input_file_name()`, and with several sinks a batch is read before"),
        ("collected", "for sink `odd` the transform returns a DataFrame that is no stream"),
    ],
)
def test_refused(lab: Lab, transform: str, told: str) -> None:
    """Before anything is written."""
    arrive(lab, 0, 1, 2)
    with pytest.raises(DeclarationError, match=re.escape(told)):
        lab.run(declared(transform))
    assert not (lab.root / "even").exists()
    assert not list((lab.root / "home").rglob("offsets/*"))


def test_views(lab: Lab) -> None:
    """What a transform registers for a batch is what its SQL finds then."""
    arrive(lab, 0, 1, 2, 3)
    arrive(lab, 1, 4, 5)
    lab.run(declared("by_view"))
    assert (ids(lab, "even"), ids(lab, "odd")) == ([2, 4], [1, 3, 5])


def test_what_a_session_knows(lab: Lab) -> None:
    """Functions and views that were registered before are there for each batch, and the session is given back."""
    lab.spark.udf.register("is_even_id", lambda found: found % 2 == 0, "boolean")
    lab.spark.range(1, 5).createOrReplaceTempView("kept_ids")
    arrive(lab, 0, 0, 1, 2, 3)
    lab.run(declared("by_registered", sinks={"even": sinks.delta("even"), "odd": sinks.delta("odd")}))
    assert (ids(lab, "even"), ids(lab, "odd")) == ([2], [1, 3])
    assert SparkSession.active() is lab.spark
    lab.spark.catalog.dropTempView("kept_ids")


def test_a_commit_whose_answer_is_lost(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other sink has its part, though its write failed: what was decided stays, and is finished."""
    arrive(lab, 0, 1, 2)
    publish = published_batch.publish_batch

    def lost(location: str, *args: Any, **how: Any) -> None:
        publish(location, *args, **how)
        if location.endswith("odd"):
            raise StorageError("no answer", where=location)

    plain = {"even": sinks.delta("even"), "odd": sinks.delta("odd")}
    with monkeypatch.context() as patch:
        patch.setattr(published_batch, "publish_batch", lost)
        with pytest.raises(StorageError, match="no answer"):
            lab.run(declared(sinks=plain))
    lab.run(declared("exchanged", sinks=plain))
    assert (ids(lab, "even"), ids(lab, "odd")) == ([2], [1])


def test_a_far_date_in_one_of_them(lab: Lab) -> None:
    """Found before any sink has a row: the transform can be corrected."""
    arrive(lab, 0, 1, 2)
    both = {"even": sinks.delta("even", partition_by="day"), "odd": sinks.delta("odd")}
    with pytest.raises(DeclarationError, match="column `day` that is beyond the year 262,142"):
        lab.run(declared("far_away", sinks=both))
    assert not (lab.root / "odd").exists()
    lab.run(declared("near", sinks=both))
    assert (ids(lab, "even"), ids(lab, "odd")) == ([2], [1])


def test_an_older_copy_of_one_of_them(lab: Lab) -> None:
    """Any of them lacks rows that it had: refused, as of one sink."""
    arrive(lab, 0, 1, 2)
    lab.run(declared())
    shutil.copytree(lab.root / "odd", lab.root / "copy")
    arrive(lab, 1, 3, 4)
    lab.run(declared())
    shutil.rmtree(lab.root / "odd")
    (lab.root / "copy").rename(lab.root / "odd")
    forget_tables(lab.spark)
    problem = lab.plan(declared()).problem
    assert problem is not None
    assert (problem.code, problem.file) == ("SINK_REPLACED", str(lab.root / "odd"))


def test_columns_that_one_had_before(lab: Lab) -> None:
    """A result lacks what it gave before, and not what only its table, or another sink's result, ever had."""
    plain = {"even": sinks.delta("even"), "odd": sinks.delta("odd")}
    lab.spark.sql("SELECT 1L AS id, 'x' AS v, 1L AS of_others").write.format("delta").save(str(lab.root / "even"))
    for number in range(2):
        arrive(lab, number, number)
        lab.run(declared(sinks=plain))
    arrive(lab, 2, 2)
    with pytest.raises(DeclarationError, match="tens: bigint in the table, no longer in the result"):
        lab.run(declared("without_tens", sinks=plain))


def test_a_table_that_is_changed_behind_a_decision(lab: Lab) -> None:
    """No sink has any row of the batch: what was decided does not stand in the way of a transform that fits."""
    arrive(lab, 0, 1, 2)
    plain = {"even": sinks.delta("even"), "odd": sinks.delta("odd")}
    killed(lab, declared(sinks=plain), WRITES["decided"])
    lab.spark.sql("SELECT 9L AS id, 'x' AS v, date '2026-01-01' AS tens").write.format("delta").save(
        str(lab.root / "odd")
    )
    for transform in ("by_parity", "with_date"):
        with pytest.raises(DeclarationError, match="tens"):
            lab.run(declared(transform, sinks=plain))
    lab.run(declared("with_date", sinks=plain))
    assert (ids(lab, "even"), ids(lab, "odd")) == ([2], [1, 9])


@pytest.mark.parametrize("at", ["behind the other sink", *rarely("decided")])
def test_columns_of_a_table_that_this_run_has_made(lab: Lab, at: str) -> None:
    """They are compared before a batch is decided: no sink has any row of one that another can't take."""
    arrive(lab, 0, 11, 12, 13)
    killed(lab, declared(), WRITES[at])
    arrive(lab, 1, 21, 22)
    with pytest.raises(DeclarationError, match="id: bigint in the table, string in the result"):
        lab.run(declared("as_text"))
    assert (ids(lab, "even"), ids(lab, "odd")) == ([12], [11, 13])
    lab.run(declared())
    assert (ids(lab, "even"), ids(lab, "odd")) == ([12, 22], [11, 13, 21])


def test_columns_that_change_from_batch_to_batch(lab: Lab) -> None:
    """Likewise."""
    arrive(lab, 0, 11, 12)
    lab.run(declared("text_by_and_by"))
    arrive(lab, 1, 21, 22)
    with pytest.raises(DeclarationError, match="id: bigint in the table, string in the result"):
        lab.run(declared("text_by_and_by"))
    assert (ids(lab, "even"), ids(lab, "odd")) == ([12], [11])
    lab.run(declared())
    assert (ids(lab, "even"), ids(lab, "odd")) == ([12, 22], [11, 21])


@pytest.mark.parametrize("at", ["decided", *rarely("behind the other sink")])
def test_a_table_that_this_run_has_made_follows(lab: Lab, at: str) -> None:
    """As one does that was there before."""
    both = {name: sinks.delta(name, schema_evolution="add") for name in ("even", "odd")}
    arrive(lab, 0, 11, 12, 13)
    killed(lab, declared(sinks=both), WRITES[at])
    arrive(lab, 1, 21, 22)
    lab.run(declared("with_more", sinks=both))
    assert rows(lab.spark_table("even")) == [(12, "x", None), (22, "x", 1)]
    assert (ids(lab, "even"), ids(lab, "odd")) == ([12, 22], [11, 13, 21])


def test_columns_are_checked_for_each(lab: Lab) -> None:
    """As those of one sink are: before the batch is planned."""
    lab.spark.sql("SELECT 1L AS id, 'x' AS v, date '2026-01-01' AS tens").write.format("delta").save(
        str(lab.root / "odd")
    )
    arrive(lab, 0, 1, 2)
    with pytest.raises(DeclarationError, match="tens"):
        lab.run(declared(sinks={"even": sinks.delta("even"), "odd": sinks.delta("odd")}))
    assert not (lab.root / "even").exists()
    with pytest.raises(DeclarationError, match="`partition_by` names `vv`"):
        lab.run(declared(sinks={"even": sinks.delta("even"), "odd": sinks.delta("rest", partition_by="vv")}))


def test_sinks_that_change(lab: Lab) -> None:
    """A batch that is begun is finished where it was begun; another table, or none, in place of one is refused."""
    arrive(lab, 0, 1, 2)
    moved = declared(sinks={"even": sinks.delta("even"), "odd": sinks.delta("elsewhere")})
    killed(lab, declared(), WRITES["behind the other sink"])
    with pytest.raises(RefusedError, match=r"was divided by run .* with sink `odd`") as refused:
        lab.run(moved)
    says = "declare the sinks as they were, and run the stream once"
    read_remedy(refused.value, "SINKS_CHANGED", says)
    lab.run(declared())
    arrive(lab, 1, 3)
    with pytest.raises(RefusedError, match="kind") as refused:
        lab.run(declared("one_result", sinks=None, sink=sinks.delta("even")))
    assert refused.value.finding.code == "SINK_REPLACED"
    with pytest.raises(RefusedError, match="there is none"):
        lab.run(moved)
    exchanged_names = {"odd": sinks.delta("odd"), "even": sinks.delta("even")}
    with pytest.raises(RefusedError, match="its sinks in another order"):
        lab.run(declared(sinks=exchanged_names))
    (lab.root / "odd").rename(lab.root / "gone")
    with pytest.raises(RefusedError, match="there is none"):
        lab.run(declared())
    (lab.root / "gone").rename(lab.root / "odd")
    lab.run(declared())
    assert (ids(lab, "even"), ids(lab, "odd")) == ([2], [1, 3])


def test_a_lost_home(lab: Lab) -> None:
    """Any of the tables tells that there was one."""
    arrive(lab, 0, 1)
    lab.run(declared())
    (lab.root / "home").rename(lab.root / "lost")
    (lab.root / "even").rename(lab.root / "away")
    problem = lab.plan(declared()).problem
    assert problem is not None
    assert problem.code == "HOME_MISSING"


def test_a_table_that_refuses(lab: Lab) -> None:
    """A table's rule that a row breaks ends the batch before any sink has it; corrected, it is decided anew."""
    arrive(lab, 0, 1, 2)
    lab.run(declared())
    lab.spark.sql(f"ALTER TABLE delta.`{lab.root / 'odd'}` ADD CONSTRAINT small CHECK (tens < 45)")
    arrive(lab, 1, 4, 5)
    with pytest.raises(Exception, match="no sink has any row of the batch"):
        lab.run(declared())
    assert ids(lab, "even") == [2]
    lab.run(declared("exchanged"))
    assert (ids(lab, "even"), ids(lab, "odd")) == ([2, 5], [1, 4])
