"""A project with more streams: `hourly` reads `events`, `failing` fails at its first try, `idle` has nothing to do."""

from __future__ import annotations

from airflow_project import StreamProject

from sluice.home import StreamHome
from sluice.project import find_project
from sluice.runs.record import RunRecord, RunRecords

_MORE = """
from sluice import Stream, sinks, sources

def numbers(name, place, transform):
    read = sources.files(place, format="json", schema="n bigint")
    return Stream(name=name, sources={"events": read}, transform=transform, sink=sinks.delta(f"out/{name}"))

failing = numbers("failing", "in", "transform_events:until_mended")
idle = numbers("idle", "nothing", "transform_events:events")
"""
_TRANSFORMS = """
from pathlib import Path

def events(events):
    return events

def until_mended(events):
    mended = Path(__file__).with_name("mended")
    is_mended = mended.exists()
    mended.touch()
    return events if is_mended else events.where("raise_error('not yet') is null")
"""
NAMES = ("events", "failing", "hourly", "idle")


def make_several(project: StreamProject) -> StreamProject:
    """Write the declarations of the further streams."""
    (project.root / "streams" / "more.py").write_text(_MORE)
    (project.root / "transform_events.py").write_text(_TRANSFORMS)
    (project.root / "nothing").mkdir()
    return project


def home_of(project: StreamProject, name: str) -> StreamHome:
    """The folder of a stream in the home."""
    return find_project(str(project.root)).home_named(name)


def records_of(project: StreamProject, name: str) -> list[RunRecord]:
    """Its run records, newest first."""
    return list(RunRecords(home_of(project, name)).newest(10))
