"""Backfills whose result has the table's columns in other words: what a live run takes, a backfill takes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import DataFrame

from sluice import Stream, sinks
from sluice.errors import DeclarationError
from tests.spark.lab import Lab, rows
from tests.spark.test_backfill_refusals import arrive, backfill, stream

pytestmark = pytest.mark.spark


def told(days: DataFrame) -> DataFrame:
    return days.selectExpr("n", "day", "named_struct('a', n, 'b', array(named_struct('c', 'x', 'd', n))) AS s")


def told_otherwise(days: DataFrame) -> DataFrame:
    """Other fields first, and whole numbers of fewer bytes."""
    s = "named_struct('b', array(named_struct('d', n, 'c', 'y')), 'a', n + 10)"
    return days.selectExpr(f"{s} AS s", "CAST(n AS int) AS n", "day")


def without_a_field(days: DataFrame) -> DataFrame:
    return days.selectExpr("n", "day", "named_struct('a', n) AS s")


def edited(lab: Lab, transform: str, **sink: Any) -> Stream:
    """A stream that has written a row, and then got another transform."""
    arrive(lab, 0, (7, "01:00:00"))
    lab.run(declared("told", **sink))
    return declared(transform, **sink)


def declared(transform: str, **sink: Any) -> Stream:
    return replace(stream("dated"), transform=f"{__name__}:{transform}", sink=sinks.delta("out", **sink))


@pytest.mark.parametrize("sink", [{"partition_by": ["day"]}, {}], ids=["by metadata", "by Spark"])
def test_fields_in_another_order(lab: Lab, sink: dict[str, Any]) -> None:
    """They are found by their names, as a live run finds them."""
    changed = edited(lab, "told_otherwise", **sink)
    backfill(lab, changed)
    found = lab.table("out").selectExpr("n", "s.a", "s.b[0].c", "s.b[0].d")
    assert rows(found) == [(7, 17, "y", 7)]
    arrive(lab, 1, (8, "02:00:00"))
    lab.run(changed)
    assert rows(lab.table("out").selectExpr("n", "s.a", "s.b[0].c")) == [(7, 17, "y"), (8, 18, "y")]


def test_a_field_that_is_gone(lab: Lab) -> None:
    """It is named by its column, with what to do about a type; nothing is replaced."""
    changed = edited(lab, "without_a_field", partition_by=["day"])
    with pytest.raises(DeclarationError, match=r"`s` \(struct<a:bigint,b:array.* / struct<a:bigint>\).*cast in the"):
        backfill(lab, changed)
    assert rows(lab.table("out").selectExpr("n", "s.b[0].c")) == [(7, "x")]
