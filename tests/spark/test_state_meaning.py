"""State that an edited transform would take for something else, though all types fit; and edits that leave it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import msgspec
import pandas as pd
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.streaming.state import GroupStateTimeout

from sluice import Stream, sinks, sources
from sluice.errors import BatchFailedError, RefusedError
from sluice.plan_notes import KeptState, StatefulOperator
from sluice.runs.record import RunRecord
from sluice.sinks.contract import OutputMode
from sluice.spark.kept_state import read_kept_state
from sluice.spark.query import build_query
from sluice.spark_setting import spark_setting
from tests.campaign import rarely
from tests.remedies import read_remedy
from tests.spark.lab import Lab, write_files
from tests.spark.power_cuts import Cut
from tests.spark.test_expired_transactions import cut_run

pytestmark = pytest.mark.spark

Make = Callable[..., DataFrame]
_MADE: dict[str, Make] = {}
"""What the transforms make now: an edit puts something else here."""
_SCHEMA = "n bigint, v bigint, u bigint, k string, j string"


def of_one(x: DataFrame) -> DataFrame:
    return _MADE["now"](x)


def of_two(x: DataFrame, y: DataFrame) -> DataFrame:
    return _MADE["now"](x, y)


def at(frame: DataFrame, column: str = "n", delay: str = "2 seconds", name: str = "at") -> DataFrame:
    return frame.withColumn(name, F.timestamp_seconds(column)).withWatermark(name, delay)


def windows(window: str = "window(at, '10 seconds')", add: str = "sum(v)", **how: str) -> Make:
    """Windows of ten seconds with their totals."""
    grouped = lambda x: at(x, **how).groupBy(F.expr(f"{window} AS w")).agg(F.expr(f"{add} AS v"))  # noqa: E731
    return lambda x: grouped(x).selectExpr("unix_seconds(w.start) AS n", "v")


def totals(*keys: str, add: str = "sum(v) AS total", make: Make = lambda x: x) -> Make:
    return lambda x: make(x).groupBy(*map(F.expr, keys)).agg(*map(F.expr, add.split("; ")))


def renamed(frame: DataFrame, key: Any, side: str, time: str = "n") -> DataFrame:
    columns = [F.col(name).alias(f"{side}_{name}") for name in ("n", "v")]
    frame = frame.select(*columns, F.expr(key).alias(f"{side}_key"), F.timestamp_seconds(time).alias(f"{side}_at"))
    return frame.withWatermark(f"{side}_at", "1 second")


def joined(key: str = "k", on: str = "x_key = y_key AND x_at = y_at", how: str = "inner", time: str = "n") -> Make:
    def make(x: DataFrame, y: DataFrame) -> DataFrame:
        left, right = renamed(x, key, "x", time), renamed(y, "k", "y")
        return left.join(right, F.expr(on), how).select("x_n", "y_n")

    return make


def _rows(key: Any, parts: Iterator[Any], state: Any) -> Iterator[Any]:
    yield pd.DataFrame({"k": [key[0]]})


def by_code(key: str, time: str = "n") -> Make:
    return lambda x: (
        at(x, time)
        .groupBy(key)
        .applyInPandasWithState(_rows, "k string", "c long", "append", GroupStateTimeout.EventTimeTimeout)
    )


class _Nothing(StatefulProcessor):
    def init(self, handle: StatefulProcessorHandle) -> None:
        pass

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:  # noqa: N803 - Spark's name
        yield from ()

    def close(self) -> None:
        pass


def processed(key: str) -> Make:
    return lambda x: x.groupBy(key).transformWithState(_Nothing(), "k string", "append", "None")


def deduped(*keys: str, make: Make = lambda x: x, **how: str) -> Make:
    return lambda x: make(at(x, **how)).dropDuplicates(list(keys))


def within(*keys: str, **how: str) -> Make:
    return lambda x: at(x, **how).dropDuplicatesWithinWatermark(list(keys))


def union_of(left: str, right: str) -> Make:
    """Two deduplications, one on each side."""
    return lambda x, y: at(x).dropDuplicates([left, "at"]).union(at(y).dropDuplicates([right, "at"]))


def over_union(left: str, right: str) -> Make:
    return lambda x, y: x.select(F.col(left).alias("c")).union(y.select(F.col(right).alias("c"))).dropDuplicates(["c"])


def twice(first: str, second: str) -> Make:
    return lambda x: at(x).dropDuplicates([first, "at"]).dropDuplicates([second, "at"])


def taking(column: str, add: str = "sum(v) AS a; sum(u) AS b") -> Make:
    """Spark adds up what is taken, and nothing else."""
    return lambda x: totals("k", add=add)(x).select("k", F.col(column).alias("total"))


def where(condition: str, how: str = "cross") -> Make:
    """A join by what a filter says."""

    def make(x: DataFrame, y: DataFrame) -> DataFrame:
        both = ((frame.withColumn("k", F.concat("k", "j")), side) for frame, side in ((x, "x"), (y, "y")))
        left, right = (renamed(frame, "k", side) for frame, side in both)
        if how == "cross":
            return left.crossJoin(right).where(condition).select("x_n", "y_n")
        return left.join(right, F.expr("x_key = y_key AND x_at = y_at"), how).where(condition).select("x_n", "y_n")

    return make


def side_of(columns: str, taken: str) -> Make:
    """A join that keeps such columns of one of its sides, as far as they are taken of it."""

    def make(x: DataFrame, y: DataFrame) -> DataFrame:
        left, right = at(x).selectExpr(*columns.split(", ")), at(y).selectExpr("n AS y_n", "at AS y_at")
        on = "x_n = y_n AND at = y_at" if "x_n" in left.columns else "n = y_n AND at = y_at"
        return left.join(right, F.expr(on)).selectExpr(*taken.split(", "), "y_n")

    return make


def in_sql(text: str) -> Make:
    def make(x: DataFrame) -> DataFrame:
        x.createOrReplaceTempView("x_of_state")
        return x.sparkSession.sql(text)

    return make


def _with(name: str, made: str) -> Make:
    return lambda x: x.withColumn(name, F.expr(made))


def times(x: DataFrame) -> DataFrame:
    seconds = "timestamp_seconds(n)"
    return x.selectExpr("*", f"date_trunc('day', {seconds}) AS day", f"date_trunc('hour', {seconds}) AS hour")


def sessions(gap: str) -> Make:
    return lambda x: at(x).groupBy(F.expr(f"session_window(at, {gap})")).count()


def words(column: str) -> Make:
    return lambda x: x.selectExpr(f"explode(split({column}, ',')) AS w").groupBy("w").count()


REFUSED: dict[str, tuple[Make, Make, OutputMode]] = {
    "key": (totals("k"), totals("j"), "complete"),
    "key under one name": (totals("k AS c"), totals("j AS c"), "complete"),
    "key of a projection": (totals("c", make=_with("c", "k")), totals("c", make=_with("c", "j")), "complete"),
    "key, computed": (totals("c", make=_with("c", "lower(k)")), totals("c", make=_with("c", "lower(j)")), "complete"),
    "key of two that are computed": (totals("day", make=times), totals("hour", make=times), "complete"),
    "key's function": (totals("lower(k)"), totals("upper(k)"), "complete"),
    "key's literal": (totals("n % 2 AS r"), totals("n % 3 AS r"), "complete"),
    "keys exchanged": (totals("k", "j"), totals("j", "k"), "complete"),
    "distinct": (in_sql("SELECT DISTINCT k FROM x_of_state"), in_sql("SELECT DISTINCT j FROM x_of_state"), "complete"),
    "key of a generator": (words("k"), words("j"), "complete"),
    "rollup": (lambda x: x.rollup("k").count(), lambda x: x.rollup("j").count(), "complete"),
    "aggregate": (windows(), windows(add="max(v)"), "append"),
    "aggregated column": (windows(), windows(add="sum(u)"), "append"),
    "aggregated under one name": (
        totals("k", make=_with("a", "v"), add="sum(a)"),
        totals("k", make=_with("a", "u"), add="sum(a)"),
        "complete",
    ),
    "aggregate's condition": (
        totals("k", add="sum(if(j = 'a', 1, 0))"),
        totals("k", add="sum(if(j = 'b', 1, 0))"),
        "complete",
    ),
    "aggregate's count by a condition": (
        totals("k", add="count_if(j = 'a')"),
        totals("k", add="count_if(j = 'b')"),
        "complete",
    ),
    "aggregate's field": (
        totals("k", make=_with("s", "struct(v AS a, u AS b)"), add="sum(s.a)"),
        totals("k", make=_with("s", "struct(v AS a, u AS b)"), add="sum(s.b)"),
        "complete",
    ),
    "aggregate's condition with a bracket": (
        totals("k", add="sum(if(j = '(]', v, 0))"),
        totals("k", add="sum(if(j = '(]', u, 0))"),
        "complete",
    ),
    "aggregate's filter": (
        totals("k", add="sum(v) FILTER (WHERE u > 1)"),
        totals("k", add="sum(v) FILTER (WHERE u > 2)"),
        "complete",
    ),
    "aggregates exchanged": (
        totals("k", add="sum(v) AS a; max(v) AS b"),
        totals("k", add="max(v) AS b; sum(v) AS a"),
        "complete",
    ),
    "aggregate that is taken": (taking("a"), taking("b"), "complete"),
    "aggregate that is taken and sorted": (
        lambda x: taking("a")(x).orderBy("k"),
        lambda x: taking("b")(x).orderBy("k"),
        "complete",
    ),
    "aggregate that is taken, in parts": (
        lambda x: taking("a")(x).repartition(2, "k").where("total > 0"),
        lambda x: taking("b")(x).repartition(2, "k").where("total > 0"),
        "complete",
    ),
    "aggregate that is taken beside a bracket": (
        lambda x: (
            totals("k", add="sum(v) AS a; sum(u) AS b")(x).selectExpr("concat('[', a) AS c", "b AS d").select("c")
        ),
        lambda x: (
            totals("k", add="sum(v) AS a; sum(u) AS b")(x).selectExpr("concat('[', b) AS c", "a AS d").select("c")
        ),
        "complete",
    ),
    "aggregates that are taken in another order": (
        lambda x: totals("k", add="sum(v) AS a; sum(u) AS b")(x).select("k", "a", "b"),
        lambda x: totals("k", add="sum(v) AS a; sum(u) AS b")(x).select("k", "b", "a"),
        "complete",
    ),
    "aggregate that is taken of a struct": (
        lambda x: taking("a")(x.withColumn("z", F.lit(1))).selectExpr("k", "total"),
        lambda x: totals("k", add="struct(sum(v) AS a, sum(u) AS b) AS s")(x).selectExpr("k", "s.b AS total"),
        "complete",
    ),
    "aggregate that is taken by a condition": (
        lambda x: totals("k", add="sum(v) AS a; sum(u) AS b")(x).selectExpr("k", "if(1 = 1, a, b) AS total"),
        lambda x: totals("k", add="sum(v) AS a; sum(u) AS b")(x).selectExpr("k", "if(1 = 2, a, b) AS total"),
        "complete",
    ),
    "aggregates that change names": (taking("a"), taking("a", "sum(u) AS a; sum(v) AS b"), "complete"),
    "window's length": (windows(), windows("window(at, '20 seconds')"), "append"),
    "window's slide": (
        windows("window(at, '20 seconds', '10 seconds')"),
        windows("window(at, '20 seconds', '5 seconds')"),
        "append",
    ),
    "window's start": (
        windows("window(at, '20 seconds', '20 seconds', '1 second')"),
        windows("window(at, '20 seconds', '20 seconds', '2 seconds')"),
        "append",
    ),
    "window's gap": (sessions("'5 seconds'"), sessions("'9 seconds'"), "append"),
    "window's gap by a condition": (
        sessions("if(k = 'a', '5 seconds', '9 seconds')"),
        sessions("if(k = 'b', '5 seconds', '9 seconds')"),
        "append",
    ),
    "window's time": (windows(), windows(column="v"), "append"),
    "window among columns": (
        deduped("w", "at", make=_with("w", "window(at, '10 seconds')")),
        deduped("w", "at", make=_with("w", "window(at, '20 seconds')")),
        "append",
    ),
    "beginning of a window": (
        deduped("s", "at", make=lambda x: _with("s", "w.start")(_with("w", "window(at, '10 seconds')")(x))),
        deduped("s", "at", make=lambda x: _with("s", "w.start")(_with("w", "window(at, '20 seconds')")(x))),
        "append",
    ),
    "duplicates": (deduped("k"), deduped("j"), "append"),
    "duplicates with a time": (deduped("k", "at"), deduped("k", "at", column="v"), "append"),
    "duplicates within": (within("k"), within("j"), "append"),
    "watermark": (within("k"), within("k", column="v"), "append"),
    "join's key": (joined(), joined("j"), "append"),
    "join's key, computed": (joined("lower(k)"), joined("lower(j)"), "append"),
    "join's time": (joined(), joined(time="v"), "append"),
    "join's condition": (
        joined(on="x_key = y_key AND y_at BETWEEN x_at AND x_at + INTERVAL 2 SECONDS"),
        joined(on="x_key = y_key AND y_at BETWEEN x_at AND x_at + INTERVAL 5 SECONDS"),
        "append",
    ),
    "join's key in a filter": (
        where("x_key = y_key AND y_at = x_at"),
        where("lower(x_key) = y_key AND y_at = x_at"),
        "append",
    ),
    "join's time in a filter": (
        where("x_key = y_key AND y_at BETWEEN x_at AND x_at + INTERVAL 2 SECONDS"),
        where("x_key = y_key AND y_at BETWEEN x_at AND x_at + INTERVAL 5 SECONDS"),
        "append",
    ),
    "join's keys exchanged": (
        joined(on="x_key = y_key AND string(x_n) = string(y_n)"),
        joined(on="string(x_n) = string(y_n) AND x_key = y_key"),
        "append",
    ),
    "join's null-safe keys exchanged": (
        joined(on="x_key <=> y_key AND string(x_n) <=> string(y_n)"),
        joined(on="string(x_n) <=> string(y_n) AND x_key <=> y_key"),
        "append",
    ),
    "join's keys in a filter behind an outer join": (
        where("x_v = y_v AND x_n = y_n", "left_outer"),
        where("x_n = y_n AND x_v = y_v", "left_outer"),
        "append",
    ),
    "join's keys that are not unequal": (
        joined(on="NOT (x_key <> y_key) AND NOT (string(x_n) <> string(y_n))"),
        joined(on="NOT (string(x_n) <> string(y_n)) AND NOT (x_key <> y_key)"),
        "append",
    ),
    "key of a subquery": (
        *(
            in_sql(f"SELECT s, sum(v) FROM (SELECT v, ({found} WHERE id = n) AS s FROM x_of_state) GROUP BY s")
            for found in ("SELECT max(id) FROM range(9)", "SELECT min(id) FROM range(9)")
        ),
        "complete",
    ),
    "aggregate behind a literal of two lines": (
        totals("k", add=r"sum(size(split(k, '\n'))) AS a; sum(v) AS b"),
        totals("k", add=r"sum(size(split(k, '\n'))) AS a; sum(u) AS b"),
        "complete",
    ),
    "number of many digits": (
        totals("k", add="sum(v * 0.3333333333333333D)"),
        totals("k", add="sum(v * 0.1428571428571428D)"),
        "complete",
    ),
    "text with a number behind an @": (
        totals("k", add="sum(if(j = 'lib@1', v, 0))"),
        totals("k", add="sum(if(j = 'lib@2', v, 0))"),
        "complete",
    ),
    "equality that is safe for nulls": (
        joined(on="x_key = y_key AND x_at = y_at AND concat(x_key, y_n) = concat(y_key, x_n)", how="left_outer"),
        joined(on="x_key = y_key AND x_at = y_at AND concat(x_key, y_n) <=> concat(y_key, x_n)", how="left_outer"),
        "append",
    ),
    "columns of a join's side in another order": (
        side_of("n AS x_n, at, v, u", "x_n, v, u"),
        side_of("n AS x_n, at, u, v", "x_n, v, u"),
        "append",
    ),
    "columns of a join's side with a generator": (
        side_of("n AS x_n, at, v, u, explode(array(v,n)) AS w", "x_n, v, u, w"),
        side_of("n AS x_n, at, u, v, explode(array(v,n)) AS w", "x_n, v, u, w"),
        "append",
    ),
    "column that is taken of a join with a generator": (
        side_of("*, explode(array(v,n)) AS w", "n, v AS z, w"),
        side_of("*, explode(array(v,n)) AS w", "n, u AS z, w"),
        "append",
    ),
    "column that is taken of a join": (side_of("*", "n AS x_n, v AS z"), side_of("*", "n AS x_n, u AS z"), "append"),
    "join's kind": (joined(), joined(how="left_outer"), "append"),
    "sides of a union": (union_of("k", "j"), union_of("j", "k"), "append"),
    "second side of a union": (over_union("k", "k"), over_union("k", "j"), "append"),
    "order": (twice("k", "j"), twice("j", "k"), "append"),
    "key of an applied function": (by_code("k"), by_code("j"), "append"),
    "time of an applied function": (by_code("k"), by_code("k", "v"), "append"),
}


def differing(x: DataFrame) -> DataFrame:
    """Columns that no two starts have alike."""
    x = x.withColumn("z", F.lit(datetime.now(UTC).replace(tzinfo=None)))
    return x.selectExpr("*", "uuid() AS i", "rand() AS r", "current_date() AS d", "current_timestamp() AS c")


def until_now(x: DataFrame) -> DataFrame:
    now = datetime.now(UTC)
    return totals("k", add=f"sum(if(timestamp_seconds(n) < timestamp'{now}', 1, 0)) AS past")(x)


TAKEN: dict[str, tuple[Make, Make, OutputMode]] = {
    "nothing": (windows(), windows(), "append"),
    "nothing of slides": (*[windows("window(at, '20 seconds', '10 seconds')")] * 2, "append"),
    "nothing of sessions": (*[sessions("'5 seconds'")] * 2, "append"),
    "nothing of joins": (joined(), joined(), "append"),
    "nothing of applied functions": (by_code("k"), by_code("k"), "append"),
    "filter before": (windows(), lambda x: windows()(x.where("v > 3")), "append"),
    "column before": (deduped("k"), deduped("k", make=_with("z", "1")), "append"),
    "column computed otherwise": (
        totals("k", make=_with("v", "v * 2")),
        totals("k", make=_with("v", "coalesce(v, u) * 3")),
        "complete",
    ),
    "column computed now": (totals("k"), totals("k", make=_with("v", "coalesce(v, 0)")), "complete"),
    "key mended": (totals("k"), totals("k", make=_with("k", "trim(k)")), "complete"),
    "time parsed otherwise": (within("k"), lambda x: within("k")(x.withColumn("n", F.expr("n + 1"))), "append"),
    "column behind": (windows(), lambda x: windows()(x).withColumn("z", F.lit("z")), "append"),
    "filter behind": (windows(), lambda x: windows()(x).where("v > 3"), "append"),
    "aggregate rounded": (
        totals("k"),
        totals("k", add="round(sum(v) / 2) AS total; sum(v) + 1 AS more; 'x' AS x"),
        "complete",
    ),
    "results renamed": (totals("k"), totals("k AS c", add="sum(v) AS s"), "complete"),
    "key renamed before": (totals("k"), totals("c", make=_with("c", "k")), "complete"),
    "delay": (windows(delay="2 seconds"), windows(delay="5 seconds"), "append"),
    "delay within": (within("k", delay="2 seconds"), within("k", delay="5 seconds"), "append"),
    "what differs at every start": (*[deduped("k", "i", "r", "d", "c", "z", make=differing)] * 2, "append"),
    "time in an aggregate": (until_now, until_now, "complete"),
    "salted key": (*[totals("c", make=_with("c", "concat(k, string(rand()))"))] * 2, "complete"),
    "function of Python": (
        *[lambda x: x.withColumn("z", F.udf(str.lower, "string")("k")).dropDuplicates(["z"])] * 2,
        "append",
    ),
    "aggregate that nobody takes": (taking("a"), taking("a", "sum(v) AS a; max(u) AS b; count(1) AS c"), "complete"),
    "aggregate by another name": (
        totals("k", add="avg(v); bool_or(v > 3); stddev_samp(v); std(u); var_samp(v)"),
        totals("k", add="mean(v); any(v > 3); stddev(v); stddev_samp(u); variance(v)"),
        "complete",
    ),
    "aggregates taken in the old order": (
        lambda x: totals("k", add="sum(v) AS a; sum(u) AS b")(x).select("k", "a", "b"),
        lambda x: totals("k", add="sum(u) AS b; sum(v) AS a")(x).select("k", "a", "b"),
        "complete",
    ),
    "inner join by a filter": (
        joined(on="x_key = y_key AND x_at = y_at"),
        lambda x, y: joined(on="x_key = y_key AND x_at = y_at", how="left_outer")(x, y).where("y_n IS NOT NULL"),
        "append",
    ),
    "columns of a join's side that nobody takes": (
        side_of("n AS x_n, at, v, u", "x_n, v"),
        side_of("u, n AS x_n, at, u + v AS w, v", "x_n, v"),
        "append",
    ),
    "conditions in another order": (
        joined(on="x_key = y_key AND y_at >= x_at AND x_v > 3"),
        joined(on="x_v > 3 AND y_at >= x_at AND y_key = x_key"),
        "append",
    ),
    "condition in a filter": (
        joined(on="x_key = y_key AND y_at >= x_at"),
        lambda x, y: (
            renamed(x, "k", "x")
            .crossJoin(renamed(y, "k", "y"))
            .where("x_key = y_key AND y_at >= x_at")
            .select("x_n", "y_n")
        ),
        "append",
    ),
    "filter behind an outer join": (
        where("coalesce(x_v > y_v, true)", "left_outer"),
        where("coalesce(x_v < y_v, true)", "left_outer"),
        "append",
    ),
    "filter behind a join of one side": (
        where("x_key = y_key AND x_v > 3"),
        where("x_key = y_key AND x_v > 4"),
        "append",
    ),
    "static side": (
        lambda x: x.join(x.sparkSession.range(5).selectExpr("string(id) AS k", "id"), "k").groupBy("id").count(),
        lambda x: x.join(x.sparkSession.range(7).selectExpr("id", "string(id) AS k"), "k").groupBy("id").count(),
        "complete",
    ),
}


def declared(make: Make, mode: OutputMode = "append", *, name: str = "s") -> Stream:
    """A stream of as many sources as it takes; each call is an edit of what was declared before."""
    _MADE["now"] = make
    is_of_two = make.__code__.co_varnames[: make.__code__.co_argcount] == ("x", "y")
    return Stream(
        name=name,
        sources={
            side: sources.files(f"land_{side}", format="json", schema=_SCHEMA) for side in ("xy" if is_of_two else "x")
        },
        transform=f"{__name__}:{'of_two' if is_of_two else 'of_one'}",
        sink=sinks.noop() if mode == "update" else sinks.delta("out"),
        output_mode=mode,
    )


def kept(lab: Lab, make: Make, mode: OutputMode) -> KeptState:
    for side in "xy":
        (lab.root / f"land_{side}").mkdir(exist_ok=True)
    stream = lab.project.resolve(declared(make, mode))
    return read_kept_state(build_query(lab.project, stream, lab.spark, {}))


def _shown(found: KeptState) -> list[str]:
    return [operator.shown for operator in found.operators]


@pytest.mark.parametrize("name", REFUSED)
def test_other_state(lab: Lab, name: str) -> None:
    """State that means something else is told from what it was."""
    before, after, mode = REFUSED[name]
    was, again, now = (kept(lab, make, mode) for make in (before, before, after))
    assert len(was.operators) >= 1
    assert was == again
    assert was.operators != now.operators


@pytest.mark.parametrize("name", TAKEN)
def test_the_same_state(lab: Lab, name: str) -> None:
    """State that means the same is known again: nothing of it differs."""
    before, after, mode = TAKEN[name]
    was = kept(lab, before, mode)
    assert len(was.operators) >= 1
    assert was == kept(lab, after, mode)


def test_sides_of_a_join(lab: Lab) -> None:
    """Of one source with itself, the sides are told apart."""

    def one_way(x: DataFrame) -> DataFrame:
        return renamed(x, "k", "x").join(renamed(x, "j", "y"), F.expr("x_key = y_key AND x_at = y_at"))

    def other_way(x: DataFrame) -> DataFrame:
        return renamed(x, "j", "y").join(renamed(x, "k", "x"), F.expr("x_key = y_key AND x_at = y_at"))

    assert kept(lab, one_way, "append").operators != kept(lab, other_way, "append").operators


def test_keys_of_a_processor(lab: Lab) -> None:
    """What a processor keeps is its code's; by what it is kept is the plan's."""
    provider = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    with spark_setting(lab.spark, "spark.sql.streaming.stateStore.providerClass", provider):
        was, again, other = (kept(lab, processed(key), "append") for key in ("k", "k", "j"))
    assert was == again
    assert _shown(was)[0].endswith(" by k")
    assert was.operators != other.operators


def arrive(lab: Lab, *times: int) -> None:
    """A file for each source with a row at each of those seconds."""
    for side in "xy":
        lines = [json.dumps({"n": n, "v": n * 7 % 100, "u": 1000 + n, "k": f"{n % 3}", "j": f"{n % 4}"}) for n in times]
        first = len(list((lab.root / f"land_{side}").glob("*")))
        write_files(lab.root / f"land_{side}", {f"{first:03d}.json": "\n".join(lines)}, first=first)


def run(lab: Lab, make: Make, mode: OutputMode = "append", **changes: Any) -> RunRecord:
    return lab.run(replace(declared(make, mode), **changes))


def table(lab: Lab, path: str = "out") -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in lab.table(path).collect())


def refused(lab: Lab, make: Make, mode: OutputMode, says: str) -> None:
    """An edit is refused with its reason, and nothing is planned by it."""
    offsets = lab.checkpoint(declared(make)) / "offsets"
    planned = sorted(file.name for file in offsets.iterdir())
    with pytest.raises(RefusedError, match=says) as told:
        run(lab, make, mode)
    read_remedy(told.value, "STATE_CHANGED", "restore the keys.*; or declare a new stream with a sink of its own")
    assert sorted(file.name for file in offsets.iterdir()) == planned


FIRST, SECOND = range(35), range(25, 60)
BY_ANOTHER_KEY = r"from `Aggregate by k: sum\(v\)` to `Aggregate by j: sum\(v\)`"
EDITS = {
    "key under one name": BY_ANOTHER_KEY,
    **dict(
        rarely(
            ("window's length", "10 seconds.* to .*20 seconds"),
            ("aggregated column", r"sum\(v\).* to .*sum\(u\)"),
            ("duplicates within", "by k.* to .*by j"),
            ("join's key", r"x\.k.* to .*x\.j"),
            ("key's literal", "in the literals or functions of"),
        )
    ),
}


@dataclass
class Twins:
    """A stream that somebody edits, and one that nobody does; both run the same batches."""

    lab: Lab
    make: Make
    mode: OutputMode

    def run(self) -> RunRecord:
        record = run(self.lab, self.make, self.mode)
        run(self.lab, self.make, self.mode, name="never_edited", sink=sinks.delta("never_edited"))
        assert table(self.lab) == table(self.lab, "never_edited")
        return record


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_and_its_remedies(lab: Lab, name: str) -> None:
    """Put back, the stream goes on as if nothing had been; a new stream computes everything by the edit."""
    before, after, mode = REFUSED[name]
    twins = Twins(lab, before, mode)
    arrive(lab, *FIRST)
    twins.run()
    arrive(lab, *SECOND)

    refused(lab, after, mode, EDITS[name])

    assert twins.run().status == "succeeded"
    assert lab.plan(declared(before, mode)).verdict == "skip"
    assert run(lab, after, mode, name="anew", sink=sinks.delta("anew")).status == "succeeded"


@pytest.mark.parametrize("name", ["nothing of slides", *rarely("what differs at every start", "column computed now")])
def test_an_edit_that_is_taken(lab: Lab, name: str) -> None:
    """It goes on with the same state."""
    before, after, mode = TAKEN[name]
    arrive(lab, *FIRST)
    run(lab, before, mode)
    arrive(lab, *SECOND)
    assert run(lab, after, mode).status == "succeeded"


@pytest.mark.parametrize("is_there", [True, False])
def test_an_edit_after_a_kill(lab: Lab, *, is_there: bool) -> None:
    """A batch that is planned, in the sink or not, is not gone on with by other keys; the old ones finish it."""
    before, after, mode = REFUSED["duplicates within"]
    twins = Twins(lab, before, mode)
    arrive(lab, *FIRST)
    twins.run()
    arrive(lab, *SECOND)
    cut_run(lab, declared(before, mode), Cut("Spark's commit" if is_there else "commit out"))

    refused(lab, after, mode, "by k.* to .*by j")

    assert twins.run().batches[0].was_in_sink == is_there


def test_a_first_batch_that_failed(lab: Lab) -> None:
    """It has left no state that counts: keys may still be mended."""
    arrive(lab, *FIRST)
    failing = totals("k", add="sum(if(n > 30, raise_error('no'), v)) AS total")
    with pytest.raises(BatchFailedError):
        run(lab, failing, "complete")
    assert (lab.checkpoint(declared(failing)) / "state" / "0").is_dir()

    run(lab, totals("j"), "complete")

    assert [row[0] for row in table(lab)] == ["0", "1", "2", "3"]


@pytest.mark.parametrize("types", ["other", *rarely("none")])
def test_what_a_first_batch_that_failed_has_left(lab: Lab, types: str) -> None:
    """State of other types is gone with it, and so is that of a query that has none any more."""
    arrive(lab, *range(1, 36))
    with pytest.raises(BatchFailedError):
        run(lab, lambda x: deduped("k")(x.where("n < 30 OR raise_error('no')")))

    mended = deduped("n", "at") if types == "other" else at
    for number in range(3):
        assert run(lab, mended).status == "succeeded"
        arrive(lab, 60 + number)

    assert len(table(lab)) == 37


def test_a_query_that_spark_cannot_optimise(lab: Lab) -> None:
    """It is told before a batch is planned."""
    arrive(lab, *FIRST)
    wrong = deduped("k", make=_with("z", "cast('no number' AS int)"))
    with pytest.raises(BatchFailedError, match=r"CAST_INVALID_INPUT.*; nothing is planned") as told:
        run(lab, wrong)
    assert "no number" not in str(told.value)
    assert not (lab.checkpoint(declared(wrong)) / "offsets").exists()


def test_another_time_zone(lab: Lab) -> None:
    """A day is another one there: what it has counted up to now would go on with other hours."""

    def days(x: DataFrame) -> DataFrame:
        return (
            x.select(F.timestamp_seconds(F.col("n") * 3600).alias("at")).groupBy(F.to_date("at").alias("day")).count()
        )

    arrive(lab, *FIRST)
    run(lab, days, "complete")
    arrive(lab, *SECOND)
    with (
        spark_setting(lab.spark, "spark.sql.session.timeZone", "America/New_York"),
        pytest.raises(RefusedError, match="time zone was UTC and is America/New_York") as told,
    ):
        run(lab, days, "complete")
    says = "set it back: `spark.sql.session.timeZone = UTC`; or declare a new stream with a sink of its own"
    read_remedy(told.value, "STATE_CHANGED", says)
    run(lab, days, "complete")
    assert sum(count for _, count in table(lab)) == len(FIRST) + len(SECOND)


def test_a_first_batch_in_the_sink(lab: Lab) -> None:
    """Its rows are there by the old keys, and nothing is committed."""
    before, after, mode = REFUSED["duplicates within"]
    arrive(lab, *FIRST)
    cut_run(lab, declared(before, mode), Cut("Spark's commit"))

    refused(lab, after, mode, "by k.* to .*by j")

    assert run(lab, before, mode).batches[0].was_in_sink


def _unknown(lab: Lab, **changes: Any) -> None:
    """Let the home know no more than an older Sluice has noted, or one with another Spark."""
    home = lab.project.stream_home(lab.project.resolve(declared(totals("k"), "complete")))
    generation = home.generation(1)
    assert generation is not None
    home.keep_generation(msgspec.structs.replace(generation, **changes))


def test_homes_that_have_not_noted_it(lab: Lab) -> None:
    """The first run notes it, and the next knows."""
    arrive(lab, *FIRST)
    run(lab, totals("k"), "complete")
    _unknown(lab, state=None)
    arrive(lab, *SECOND)

    assert run(lab, totals("k"), "complete").status == "succeeded"

    arrive(lab, 60)
    refused(lab, totals("j"), "complete", BY_ANOTHER_KEY)


def test_another_spark(lab: Lab) -> None:
    """It may show the same plan in other words: what it says is noted anew, and not compared."""
    arrive(lab, *FIRST)
    run(lab, totals("k"), "complete")
    other = StatefulOperator("Aggregate: k", "0")
    _unknown(lab, state=KeptState("1, Spark 3.5.0", (other,)))
    arrive(lab, *SECOND)

    assert run(lab, totals("k"), "complete").status == "succeeded"

    arrive(lab, 60)
    refused(lab, totals("j"), "complete", BY_ANOTHER_KEY)


def test_no_literal_is_told(lab: Lab) -> None:
    """A salt in a key is in no file of the home but Spark's own, and in no message."""
    salted, other = (totals(f"sha2(concat(k, '{salt}'), 256) AS c") for salt in ("SECRET-1", "SECRET-2"))
    arrive(lab, *FIRST)
    run(lab, salted, "complete")
    arrive(lab, *SECOND)
    with pytest.raises(RefusedError, match="in the literals or functions of `Aggregate by sha2") as told:
        run(lab, other, "complete")
    assert "SECRET" not in str(told.value)
    assert not [file for file in (lab.root / "home" / "s").rglob("*.json") if b"SECRET" in file.read_bytes()]
