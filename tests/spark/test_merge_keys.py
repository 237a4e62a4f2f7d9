"""Which keys above an aggregation tell its groups apart, and for good: others are refused as a query is analysed."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType

from sluice import Stream, sinks, sources
from sluice.errors import DeclarationError
from sluice.spark.classic_plan import ClassicPlans
from sluice.spark.merge_keys import check_merge_keys
from sluice.spark.python_zone import TIME_ZONE
from sluice.spark_setting import spark_setting
from tests.spark.lab import Lab, reader

pytestmark = pytest.mark.spark

SCHEMA = (
    "user string, n int, big bigint, at timestamp, clock timestamp_ntz, day date, money decimal(9, 2), ratio float,"
    " trip struct<start: timestamp, end: timestamp>, odd string COLLATE UTF8_LCASE, flag boolean"
)
BY = ("user", "n", "big", "at", "clock", "day", "money", "ratio", "odd", "flag")
NEXT, SAME = "is computed above .*another one by the next batch", "is computed above .*two groups may have the same"


def check(frame: DataFrame, *keys: str) -> None:
    read = sources.files("in", format="json", schema=SCHEMA)
    sink = sinks.delta("out", merge_on=keys)
    stream = Stream(name="s", sources={"r": read}, transform="a:b", sink=sink, output_mode="update")
    check_merge_keys(stream, frame, ClassicPlans())


def feed(lab: Lab) -> DataFrame:
    (lab.root / "in").mkdir(exist_ok=True)
    return reader(lab.spark, SCHEMA).json(str(lab.root / "in")).withWatermark("at", "1 hour")


TOLD: dict[str, Sequence[tuple[str, str]]] = {
    "wider": [
        ("n", "CAST(n AS bigint)"),
        ("n", "CAST(n AS double)"),
        ("money", "CAST(money AS decimal(12, 3))"),
        ("day", "CAST(day AS timestamp_ntz)"),
    ],
    "texts": [(name, f"CAST({name} AS string)") for name in ("n", "money", "day", "ratio")],
    "of a zone": [("at", "CAST(at AS string)"), ("at", "CAST(at AS timestamp_ntz)"), ("day", "CAST(day AS timestamp)")],
    "bytes": [("user", "CAST(user AS binary)"), ("user", "sha2(CAST(user AS binary), 256)")],
    "with a literal": [("user", "concat('rand() foo(#1, ', user)"), ("user", "concat(user, ')')")],
    "a flag": [("flag", "CAST(flag AS int)"), ("flag", "CAST(flag AS double)")],
    "moved": [("n", "n + 1"), ("big", "7 - big"), ("n", "CAST(n AS bigint) - 86400")],
    "twice cast": [("n", "CAST(CAST(n AS bigint) AS string)")],
    "packed": [("user", "array(user)"), ("n", "struct('x' AS x, CAST(n AS string))")],
}
"""By each of these, a group that has another value of the column has another key."""
NOT_TOLD: dict[str, tuple[str, str]] = {
    "lower": ("lower(user)", SAME),
    "narrower": ("CAST(at AS date)", SAME),
    "rounded": ("CAST(money AS decimal(9, 1))", SAME),
    "inexact": ("CAST(big AS float)", SAME),
    "of a text": ("CAST(user AS int)", SAME),
    "whatever case": ("CAST(odd AS string COLLATE UTF8_BINARY)", SAME),
    "moved a bit": ("CAST(big AS double) + 1e9", SAME),
    "by nothing": ("concat(user, CAST(NULL AS string))", SAME),
    "moved by another": ("n + big", SAME),
    "two in one": ("concat(user, CAST(n AS string))", SAME),
    "a null": ("coalesce(user, 'none')", SAME),
    "count": ("concat(user, CAST(total AS string))", NEXT),
    "clock": ("concat(user, current_date())", NEXT),
    "chance": ("concat(user, rand())", NEXT),
    "uuid": ("uuid()", NEXT),
    "subquery": ("concat(user, (SELECT max(id) FROM range(3)))", NEXT),
}


@pytest.mark.parametrize("case", TOLD)
def test_keys_that_tell_a_group(lab: Lab, case: str) -> None:
    """Computed of what the aggregation groups by, such that nothing is lost."""
    counted = feed(lab).groupBy(*BY).agg(F.count("*").alias("total"))
    for column, expression in TOLD[case]:
        others = [f"{name} AS `{name} too`" for name in BY if name != column]
        # What looks like a column in a text is none.
        shown = counted.selectExpr(f"{expression} AS key", *others).where("CAST(key AS string) <> 'count(#1) AS n#2'")
        check(shown, *shown.columns)


@pytest.mark.parametrize("case", NOT_TOLD)
def test_keys_that_tell_none(lab: Lab, case: str) -> None:
    """Two groups may have the same, or one of them another one later; beside what tells them, the first is harmless."""
    expression, said = NOT_TOLD[case]
    counted = feed(lab).groupBy("user", "n", "big", "at", "money", "odd").agg(F.count("*").alias("total"))
    groups = [name for name in counted.columns if name != "total"]
    shown = counted.selectExpr(f"{expression} AS key", *groups)
    needless = [name for name in groups if name not in expression] or ["user"]
    with pytest.raises(DeclarationError, match=rf"`key` {said}"):
        check(shown, "key", *needless)
    if said == SAME:
        check(shown, "key", *groups)
    else:
        with pytest.raises(DeclarationError, match=rf"`key` {said}"):
            check(shown, "key", *groups)


def test_keys_by_functions_in_python(lab: Lab) -> None:
    """One that is told to be by chance moves a key; any other one tells nothing, and harms nothing."""
    upper = F.udf(str.upper, StringType())
    counted = feed(lab).groupBy("user").count()
    shown = counted.select("user", upper("user").alias("key"), upper.asNondeterministic()("user").alias("any"))
    check(shown, "user", "key")
    with pytest.raises(DeclarationError, match=rf"`key` {SAME}"):
        check(shown, "key")
    with pytest.raises(DeclarationError, match=rf"`any` {NEXT}"):
        check(shown, "user", "any")


def test_windows(lab: Lab) -> None:
    """Their start, their end, and the day of either where no two begin on one; not of a struct that is no window."""
    rows, days = feed(lab), "CAST(window.start AS date) AS day"
    for window in (F.window("at", "1 day"), F.window("at", "2 days", "1 day"), F.window("clock", "3 days")):
        shown = rows.groupBy(window.alias("window"), "user").count()
        for key in ("window", "window.start AS start", "window.end AS end", days, "to_date(window.end) AS day"):
            found = shown.selectExpr(key, "user")
            check(found, *found.columns)
        shown = rows.groupBy(window.alias("window"), "user").count().select(F.window_time("window").alias("at"), "user")
        check(shown, "at", "user")
    hourly = rows.groupBy(F.window("at", "1 hour"), "user").count().selectExpr(days, "user")
    with pytest.raises(DeclarationError, match=rf"`day` {SAME}"):
        check(hourly, "day", "user")
    session = rows.groupBy(F.session_window("at", "1 day").alias("window"), "user").count()
    check(session.selectExpr("window.start AS start", "user"), "start", "user")
    with pytest.raises(DeclarationError, match=rf"`day` {SAME}"):
        check(session.selectExpr(days, "user"), "day", "user")
    trips = rows.groupBy("trip").count().selectExpr("trip.start AS start")
    with pytest.raises(DeclarationError, match=rf"`start` {SAME}"):
        check(trips, "start")
    with spark_setting(lab.spark, TIME_ZONE, "Europe/Berlin"):
        daily = rows.groupBy(F.window("at", "1 day"), "user").count().selectExpr(days, "user", "window.start AS start")
        check(daily, "start", "user")
        with pytest.raises(DeclarationError, match=rf"`day` {SAME}"):
            check(daily, "day", "user")


def test_keys_in_sql(lab: Lab) -> None:
    """What a query in SQL computes beside the aggregates is computed of the groups all the same."""
    feed(lab).createOrReplaceTempView("feed")
    told = lab.spark.sql("SELECT CAST(n AS string) k, lower(user) l, user, count(*) c FROM feed GROUP BY user, n")
    check(told, "k", "user", "l")
    with pytest.raises(DeclarationError, match=rf"`l` {SAME}"):
        check(told, "k", "l")
    with pytest.raises(DeclarationError, match="`c` is what the aggregation computes"):
        check(told, "k", "c")
    having = lab.spark.sql("SELECT user FROM feed GROUP BY user HAVING user <> 'count(x#1)'")
    check(having, "user")
    with pytest.raises(DeclarationError, match="a condition above the aggregation reads what it computes"):
        check(lab.spark.sql("SELECT user FROM feed GROUP BY user HAVING count(*) > 1"), "user")
    groups = "SELECT user FROM (SELECT user, count(*) FROM feed GROUP BY user)"
    for moving in ("user > current_date()", "rand() < 0.5", "user IN (SELECT user FROM VALUES ('a') AS t(user))"):
        with pytest.raises(DeclarationError, match=r"a condition above the aggregation, `.*`, changes by itself"):
            check(lab.spark.sql(f"{groups} WHERE {moving}"), "user")
    check(lab.spark.sql(f"{groups} WHERE user > 'a'"), "user")
