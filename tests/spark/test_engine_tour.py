"""The tour of the engine is true: each of its steps is done, and prints what the page shows."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sluice.spark.left_behind import forget_tables
from tests.draw_tour import PAGE
from tests.shown_code import played, steps_of

pytestmark = pytest.mark.spark

SHOWN = PAGE.read_text("utf-8")
STEPS = steps_of(SHOWN)


@pytest.fixture(scope="module")
def today(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The steps with what is printed today. The settings of the page's project hold for this session as long."""
    folder, before, handler = tmp_path_factory.mktemp("tour"), dict(spark.conf.getAll), signal.getsignal(signal.SIGTERM)
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder)
        found = steps_of(played(SHOWN, folder))
    yield found
    # `sluice run` stops at it.
    signal.signal(signal.SIGTERM, handler)
    # Spark's own way back would refuse what its builder has let in.
    conf: Any = spark._jsparkSession.sessionState().conf()
    for key in spark.conf.getAll.keys() - before.keys():
        conf.unsetConf(key)
    for key, value in before.items():
        conf.setConfString(key, value)
    forget_tables(spark)


@pytest.mark.parametrize("step", STEPS)
def test_figures_of_the_text(step: str) -> None:
    """What the text says in figures stands in a block of the same step."""
    text, *blocks = re.split(r"^```\w*$", STEPS[step], flags=re.MULTILINE)
    text += "".join(blocks[1::2])
    figures = re.findall(r"(?<![\w.])\d+(?::\d+)?(?!\w)", text)
    shown = "".join(blocks[::2])
    assert [figure for figure in figures if not re.search(rf"(?<!\d){figure}(?!\d)", shown)] == []


@pytest.mark.parametrize("step", STEPS)
def test_step_of_the_tour(today: dict[str, str], step: str) -> None:
    """`python -m tests.draw_tour` writes what is printed anew."""
    assert today[step].splitlines() == STEPS[step].splitlines()
