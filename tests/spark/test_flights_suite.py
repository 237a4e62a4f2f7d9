"""The example's suite on real days: what is odd in them, a day that is broken, and the day as it should have been."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from demo.landing import BAD_DAY, land_correction, land_flights
from sluice.errors import QualityFailedError
from sluice.gate.state import release_gate
from sluice.planning.verdict import Request
from sluice.project import Project
from sluice.running.runner import run_stream
from sluice.runs.record import QualityRecord
from sluice.times import system_clock
from tests.spark.lab import Lab

pytestmark = pytest.mark.spark

REPOSITORY = Path(__file__).parents[2]
ODD_DAYS = ("2013-07-05", "2013-07-27")
FLIGHTS_OF_THE_BAD_DAY, ODD_NUMBERS = 993, 635


@pytest.fixture(scope="module")
def year(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every day of the year, as the demo lands it."""
    folder = tmp_path_factory.mktemp("year")
    land_flights(folder)
    return folder


@pytest.fixture
def project(lab: Lab) -> Project:
    """The example project, with its data in a folder of its own."""
    shutil.copytree(REPOSITORY / "include" / "expectations", lab.root / "include" / "expectations")
    (lab.root / "data" / "landing" / "flights").mkdir(parents=True)
    streams = (str(REPOSITORY / "include" / "streams"),)
    return replace(lab.project, stream_folders=streams, import_roots=(str(REPOSITORY),))


def land(lab: Lab, year: Path, *days: str) -> None:
    for day in days:
        shutil.copy2(year / f"flights-{day}.csv", lab.root / "data" / "landing" / "flights")


def run(lab: Lab, project: Project) -> QualityRecord:
    quality = run_stream(project, Request(project.stream("departures")), session=lab.spark).quality
    assert quality is not None
    return quality


def checks(quality: QualityRecord, policy: str) -> dict[str, Any]:
    return {check.type: check.success for check in quality.checks if check.policy == policy}


def of_the_bad_day(lab: Lab, table: str) -> list[tuple[Any, ...]]:
    rows = lab.table(f"data/lake/{table}").where(f"flight_date = '{BAD_DAY}'")
    return [tuple(row) for row in rows.select("carrier", "flight", "origin").collect()]


def test_odd_rows_of_real_days_leave(lab: Lab, project: Project, year: Path) -> None:
    """A tail number that no American aircraft has, and a flight of 17 miles; everything that may fail a run passes."""
    land(lab, year, *ODD_DAYS)

    quality = run(lab, project)

    assert quality.verdict == "warn"
    assert all(checks(quality, "fail").values())
    odd = lab.table("data/lake/departures_quarantine").orderBy("flight_date").collect()
    assert [(row["flight"], row["tailnum"], row["dest"]) for row in odd] == [
        (781, "D942DN", "ATL"),
        (1632, None, "LGA"),
    ]
    assert (quality.dropped, quality.quarantined) == (0, 2)
    assert quality.rows == lab.table("data/lake/departures").count() + 2


def test_the_bad_day_is_stopped_released_and_delivered_anew(lab: Lab, project: Project, year: Path) -> None:
    """In the end every flight of it is there once; what was broken stays in the quarantine."""
    land(lab, year, "2013-09-29")
    run(lab, project)
    land(lab, year, BAD_DAY)

    with pytest.raises(QualityFailedError, match=r"`expect_column_values_to_be_in_set` of `origin`: 636 unexpected"):
        run(lab, project)

    assert of_the_bad_day(lab, "departures") == []
    assert of_the_bad_day(lab, "departures_quarantine") == []
    release_gate(project.stream_home(project.stream("departures")), "ada", system_clock())

    released = run(lab, project)

    assert (released.verdict, released.released_by) == ("fail", "ada")
    assert (released.dropped, released.quarantined) == (1, ODD_NUMBERS)
    assert len(of_the_bad_day(lab, "departures")) == FLIGHTS_OF_THE_BAD_DAY - ODD_NUMBERS
    land_correction(lab.root / "data" / "landing" / "flights")

    again = run(lab, project)

    assert (again.verdict, again.quarantined) == ("pass", 0)
    flights = of_the_bad_day(lab, "departures")
    assert len(flights) == len(set(flights)) == FLIGHTS_OF_THE_BAD_DAY
    assert {origin for _, _, origin in flights} == {"EWR", "JFK", "LGA"}
    broken = of_the_bad_day(lab, "departures_quarantine")
    assert len(broken) == len(set(broken)) == ODD_NUMBERS
    assert all(flight % 2 for _, flight, _ in broken)
