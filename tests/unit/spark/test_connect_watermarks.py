"""What a Connect server's text of a plan tells of its watermarks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sluice.spark.connect_plan import delay_ms, watermark_nodes
from sluice.spark.plan_reader import WatermarkNode
from sluice.spark.plan_tree import parse_plan

PLAN = """~Join LeftOuter, ((ak#4L = k#5L) AND (bt#7-T65000ms >= at#2-T10000ms))
:- ~Project [k#0L AS ak#4L, at#2-T10000ms]
:  +- ~CollectMetrics sluice.watermark.0, [unix_millis(max(at#2-T10000ms)) AS event_ms#9L], 5
:     +- ~EventTimeWatermark e2abed5f-acea-486b-8859-6a56e5bc1238, at#2: timestamp, 10 seconds
:        +- ~Union false, false
:           :- ~SubqueryAlias __sluice_source_shown
:           :  +- StreamingRelation FileSource[/a], [k#0L, at#2], name=<Unassigned>
:           +- ~SubqueryAlias __sluice_source_others
:              +- StreamingRelation FileSource[/c], [k#10L, at#12], name=<Unassigned>
+- ~CollectMetrics sluice.source.clicks, [count(1) AS rows#11L], 3
   +- ~EventTimeWatermark 80ade366-6b24-4a44-84f0-2551c506dfda, click time#7: timestamp, 1 minutes 5 seconds
      +- ~SubqueryAlias __sluice_source_clicks
         +- StreamingRelation FileSource[/b], [k#5L, click time#7], name=<Unassigned>"""


def test_nodes() -> None:
    """Each has the sources below it, its column, its delay, and the metric right above it, if that is ours."""
    found = list(watermark_nodes(parse_plan(PLAN)))
    assert len({node.feed for node in found}) == 2
    assert [replace(node, feed="") for node in found] == [
        WatermarkNode("shown+others.at", 10_000, "sluice.watermark.0"),
        WatermarkNode("clicks.click time", 65_000, None),
    ]


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("0 seconds", 0),
        ("2.5 seconds", 2_500),
        ("1 minutes 5 seconds", 65_000),
        ("1 hours 30 minutes", 5_400_000),
        ("1 months 2 days", 2_851_200_000),
    ],
)
def test_delays(text: str, milliseconds: int) -> None:
    """A delay is as many milliseconds as Spark itself makes of it."""
    assert delay_ms(text) == milliseconds
