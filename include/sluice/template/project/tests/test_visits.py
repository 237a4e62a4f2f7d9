"""What can be said of the visits without Spark: `pytest` runs it in a moment."""

from pathlib import Path

from sluice import Request, find_project, plan_stream

PROJECT = find_project(str(Path(__file__).parents[1]))


def test_it_can_be_planned() -> None:
    """The declaration loads, its transform takes its sources, and nothing is in the way of a run."""
    plan = plan_stream(PROJECT, Request(PROJECT.stream("visits")))
    assert plan.verdict in {"run", "skip"}
    assert plan.warnings == ()
