"""Edits of stateful transforms: those by which state would be taken for something else, and those that leave it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.streaming.state import GroupStateTimeout

from sluice.sinks.contract import OutputMode

Make = Callable[..., DataFrame]
"""A transform of one source or two, with the columns `n`, `v` and `u` of numbers, and `k` and `j` of texts."""


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


def adding(name: str, made: str) -> Make:
    return lambda x: x.withColumn(name, F.expr(made))


def times(x: DataFrame) -> DataFrame:
    seconds = "timestamp_seconds(n)"
    return x.selectExpr("*", f"date_trunc('day', {seconds}) AS day", f"date_trunc('hour', {seconds}) AS hour")


def sessions(gap: str) -> Make:
    return lambda x: at(x).groupBy(F.expr(f"session_window(at, {gap})")).count()


def words(column: str) -> Make:
    return lambda x: x.selectExpr(f"explode(split({column}, ',')) AS w").groupBy("w").count()


def called(column: str = "k", how: Callable[[str], str] = str.lower) -> Make:
    """By what a function in Python makes of a column."""
    return lambda x: x.groupBy(F.udf(how)(column).alias("c")).count()


def _twins(first: str, second: str) -> Make:
    """A join of which both sides have computed a column of one name."""

    def make(x: DataFrame, y: DataFrame) -> DataFrame:
        left = renamed(x, "k", "x").withColumn("amount", F.expr("x_v * 2"))
        right = renamed(y, "k", "y").withColumn("amount", F.expr("y_v * 2"))
        sides = {"x": left.amount, "y": right.amount}
        both = left.join(right, F.expr("x_key = y_key AND x_at = y_at"))
        added = F.sum(sides[first]).alias("a"), F.sum(sides[second]).alias("b")
        return both.groupBy(F.window("x_at", "5 seconds").alias("w")).agg(*added).select("a", "b")

    return make


def _long(add: int) -> Make:
    """A lambda in an aggregate."""
    return lambda x: x.groupBy("k").agg(F.sum(F.size(F.filter(F.array("v", "u"), lambda e: e > add))).alias("total"))


REFUSED: dict[str, tuple[Make, Make, OutputMode]] = {
    "key": (totals("k"), totals("j"), "complete"),
    "key under one name": (totals("k AS c"), totals("j AS c"), "complete"),
    "key of a projection": (totals("c", make=adding("c", "k")), totals("c", make=adding("c", "j")), "complete"),
    "key, computed": (totals("c", make=adding("c", "lower(k)")), totals("c", make=adding("c", "lower(j)")), "complete"),
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
        totals("k", make=adding("a", "v"), add="sum(a)"),
        totals("k", make=adding("a", "u"), add="sum(a)"),
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
        totals("k", make=adding("s", "struct(v AS a, u AS b)"), add="sum(s.a)"),
        totals("k", make=adding("s", "struct(v AS a, u AS b)"), add="sum(s.b)"),
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
        deduped("w", "at", make=adding("w", "window(at, '10 seconds')")),
        deduped("w", "at", make=adding("w", "window(at, '20 seconds')")),
        "append",
    ),
    "beginning of a window": (
        deduped("s", "at", make=lambda x: adding("s", "w.start")(adding("w", "window(at, '10 seconds')")(x))),
        deduped("s", "at", make=lambda x: adding("s", "w.start")(adding("w", "window(at, '20 seconds')")(x))),
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
    "column of a function": (called("k"), called("j"), "complete"),
    "function": (called(), called(how=str.upper), "complete"),
    "function's code": (called(how=lambda s: s + "a"), called(how=lambda s: s + "b"), "complete"),
    "column of a function, computed": (
        totals("c", make=lambda x: x.withColumn("c", F.udf(str.lower)("k"))),
        totals("c", make=lambda x: x.withColumn("c", F.udf(str.lower)("j"))),
        "complete",
    ),
    "aggregate of a function": (
        lambda x: x.groupBy("k").agg(F.max(F.udf(str.lower)("k"))),
        lambda x: x.groupBy("k").agg(F.max(F.udf(str.lower)("j"))),
        "complete",
    ),
    "columns of one name of both sides": (_twins("x", "y"), _twins("y", "x"), "append"),
    "rollup to a cube": (lambda x: x.rollup("k", "j").count(), lambda x: x.cube("k", "j").count(), "complete"),
    "grouping sets": (
        *(
            in_sql(f"SELECT k, j, sum(v) FROM x_of_state GROUP BY k, j GROUPING SETS ((k, j), ({found}))")
            for found in "kj"
        ),
        "complete",
    ),
    "subquery of an aggregate": (
        *(
            in_sql(f"SELECT k, sum(v * (SELECT {found}(id) FROM range(9))) FROM x_of_state GROUP BY k")
            for found in ("max", "min")
        ),
        "complete",
    ),
    "text for a column": (
        totals("k", "j", add="count_if(k = 'j')"),
        totals("k", "j", add="count_if(k = j)"),
        "complete",
    ),
    "text of a number": (
        *(
            totals("k", add=f"sum(if(c = '{found}', v, 0))", make=adding("c", "concat(j, k)"))
            for found in ("#11", "#22")
        ),
        "complete",
    ),
    "text of a number behind a space": (
        *(totals("k", add=f"sum(if(c = 'a #{found}', v, 0))", make=adding("c", "concat(j, k)")) for found in "12"),
        "complete",
    ),
    "lambda": (_long(3), _long(4), "complete"),
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
    "column before": (deduped("k"), deduped("k", make=adding("z", "1")), "append"),
    "column computed otherwise": (
        totals("k", make=adding("v", "v * 2")),
        totals("k", make=adding("v", "coalesce(v, u) * 3")),
        "complete",
    ),
    "column computed now": (totals("k"), totals("k", make=adding("v", "coalesce(v, 0)")), "complete"),
    "key mended": (totals("k"), totals("k", make=adding("k", "trim(k)")), "complete"),
    "time parsed otherwise": (within("k"), lambda x: within("k")(x.withColumn("n", F.expr("n + 1"))), "append"),
    "column behind": (windows(), lambda x: windows()(x).withColumn("z", F.lit("z")), "append"),
    "filter behind": (windows(), lambda x: windows()(x).where("v > 3"), "append"),
    "aggregate rounded": (
        totals("k"),
        totals("k", add="round(sum(v) / 2) AS total; sum(v) + 1 AS more; 'x' AS x"),
        "complete",
    ),
    "results renamed": (totals("k"), totals("k AS c", add="sum(v) AS s"), "complete"),
    "key renamed before": (totals("k"), totals("c", make=adding("c", "k")), "complete"),
    "delay": (windows(delay="2 seconds"), windows(delay="5 seconds"), "append"),
    "delay within": (within("k", delay="2 seconds"), within("k", delay="5 seconds"), "append"),
    "what differs at every start": (*[deduped("k", "i", "r", "d", "c", "z", make=differing)] * 2, "append"),
    "time in an aggregate": (until_now, until_now, "complete"),
    "salted key": (*[totals("c", make=adding("c", "concat(k, string(rand()))"))] * 2, "complete"),
    "function of Python": (
        *[lambda x: x.withColumn("z", F.udf(str.lower, "string")("k")).dropDuplicates(["z"])] * 2,
        "append",
    ),
    "function of Python in a key": (*[called(how=lambda s: s * 2)] * 2, "complete"),
    "function of Python that is mended": (
        totals("c", make=lambda x: x.withColumn("c", F.udf(str.lower)("k"))),
        totals("c", make=lambda x: x.withColumn("c", F.udf(str.strip)("k"))),
        "complete",
    ),
    "another function of the same name": (
        lambda x: called(how=lambda s: s * 2)(x.withColumn("z", F.udf(lambda s: s + "a")("j")).where("z > ''")),
        lambda x: called(how=lambda s: s * 2)(x.withColumn("z", F.udf(lambda s: s + "b")("j")).where("z > ''")),
        "complete",
    ),
    "lambda behind another one": (
        _long(3),
        lambda x: _long(3)(x.where(F.size(F.filter(F.array("v"), lambda e: e > 0)) >= 0)),
        "complete",
    ),
    "name in capitals": (
        totals("lower_k", make=adding("lower_k", "lower(k)")),
        totals("LOWER_K", make=adding("lower_k", "lower(k)")),
        "complete",
    ),
    "subquery of the same": (
        *[in_sql("SELECT k, sum(v * (SELECT max(id) FROM range(9))) FROM x_of_state GROUP BY k")] * 2,
        "complete",
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


def _union(one: Make) -> Callable[[str, str], Make]:
    """Twice the same, one under the other, told apart by what is before it alone."""

    def of(left: str, right: str) -> Make:
        return lambda x: one(x, left).union(one(x, right))

    return of


def _joined_with_itself(left: str, right: str) -> Make:
    def make(x: DataFrame) -> DataFrame:
        sides = (renamed(x.where(condition), "k", side) for condition, side in ((left, "x"), (right, "y")))
        return next(sides).join(next(sides), F.expr("x_key = y_key AND x_at = y_at")).select("x_n", "y_n")

    return make


class _Marks(_Nothing):
    def __init__(self, mark: str) -> None:
        self.mark = mark


_BY_FILTER = ("k = '0'", "k = '1'", "k = '2'")
EXCHANGED: dict[str, tuple[Callable[[str, str], Make], str, str, str]] = {
    "windows by filters": (_union(lambda x, which: windows()(x.where(which))), *_BY_FILTER),
    "duplicates by filters": (_union(lambda x, which: deduped("k")(x.where(which)).select("k")), *_BY_FILTER),
    "sums by projections": (
        _union(lambda x, made: windows()(x.withColumn("v", F.expr(made)))),
        *("v * 2", "v * 3", "v * 4"),
    ),
    "sides of a join": (_joined_with_itself, "j = '0'", "j = '1'", "j = '2'"),
    "processors": (
        _union(lambda x, mark: x.groupBy("k").transformWithState(_Marks(mark), "k string", "append", "None")),
        *("a", "b", "c"),
    ),
}
"""Operators that are alike: how two of them are made, and of what; the last is an edit of one of them."""
