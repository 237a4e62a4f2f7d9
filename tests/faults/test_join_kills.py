"""Kill -9 of a driver in the middle of a join: what one side had brought is not forgotten, and comes out once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.builders import put
from tests.campaign import in_campaigns
from tests.spark import join_histories
from tests.spark.join_histories import History, Step, computed_at_once
from tests.spark.lab import Lab

pytestmark = [pytest.mark.spark, in_campaigns]

DRIVER = str(Path(__file__).with_name("crashing_driver.py"))
REPOSITORY = Path(__file__).parents[2]
DECLARATION = f"""
from sluice import Stream, sinks, sources
joined = Stream(
    name="joined",
    sources={{name: sources.files(name, format="json", schema="{join_histories.SCHEMA}") for name in "ab"}},
    transform="tests.spark.join_histories:NAME",
    sink=sinks.delta("joined"),
)
"""


STEPS = [
    f"{moment} {step}"
    for moment in ("before", "after")
    for step in ("aside 1", "publish 1", *(f"write {count}" for count in range(2, 12, 3)))
]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("name", ["left_outer", "windows_of_windows"])
def test_a_killed_join(tmp_path: Path, spark: SparkSession, name: str, step: str) -> None:
    """A side per run; the driver of the second dies: the rows, and the watermarks, of a query that never stopped."""
    put(tmp_path / "sluice.toml", '[project]\nname = "lab"\nhome = "home"\n[spark]\nmaster = "local[2]"\n')
    put(tmp_path / "streams" / "joined.py", DECLARATION.replace("NAME", name))
    history = History(Lab(spark, tmp_path), name)
    history.run(Step({"a": [[(1, 100), (2, 110)], [(3, 140)]]}))
    history.arrive("b", [(1, 105), (9, 300)])
    with (tmp_path / "driver.log").open("wb") as log:
        killed = subprocess.run(
            [sys.executable, DRIVER, str(tmp_path), "joined", *step.split()],
            env=os.environ | {"PYTHONPATH": f"{REPOSITORY}:{REPOSITORY / 'include'}"},
            cwd=tmp_path,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            check=False,
            timeout=300,
        )
    assert killed.returncode == -9, (tmp_path / "driver.log").read_text()[-3000:]
    history.run(Step({"a": [[(4, 400)]]}))
    history.run(Step({"b": [[(4, 401)]]}))
    history.finish()
    emitted, watermarks = history.never_stopped()
    assert history.emitted() == emitted == computed_at_once(name, history.arrived)
    assert history.watermarks() == watermarks
