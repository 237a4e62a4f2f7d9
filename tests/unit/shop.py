"""A small project on disk, for tests of how it is read."""

from __future__ import annotations

from pathlib import Path

from sluice.project import Project, load_project
from tests.builders import put

TOML = """
[project]
name = "shop"
home = "var/home"
streams = ["declared"]
path = ["."]

[spark]
master = "local[2]"
conf = { "spark.driver.memory" = "2g", "spark.ui.enabled" = false, "spark.task.maxFailures" = 1 }

[storage]
endpoint = "https://localhost:9000"
"""
DECLARATION = """
from sluice import Stream, sinks, sources

visits = Stream(
    name="visits",
    sources={"visits": sources.files("data/visits", format="json", schema="id bigint")},
    transform="shop_jobs:visits",
    sink=sinks.delta("data/lake"),
)
"""


def make_project(folder: Path, toml: str = TOML, **declarations: str) -> Project:
    for name, content in (declarations or {"visits": DECLARATION}).items():
        put(folder / "declared" / f"{name}.py", content)
    return load_project(put(folder / "sluice.toml", toml))
