"""The trigger that follows a run: what it says, and when it gives up; as the triggerer runs it, over a real home."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import msgspec
import pytest
from airflow_project import StreamProject
from until import SOON, until

from sluice.documents import encode_document
from sluice.home import StreamHome
from sluice.plan_document import PlanDocument
from sluice.runs.driver import Driver
from sluice.runs.process import boot_id, machine
from sluice.runs.record import RecordedPhase, RunRecord, RunRecords
from sluice.runs.summary import RecordedInterval
from sluice_airflow.triggers import absence
from sluice_airflow.triggers.run import RunTrigger
from tests.builders import NOW

pytestmark = [pytest.mark.airflow, pytest.mark.filterwarnings("ignore")]

RUN = RunRecord(
    run_id="20260131T120000000Z-0f1e2d3c",
    stream="events",
    generation=1,
    planned_at=NOW,
    plan=PlanDocument(verdict="run"),
    status="running",
    interval=RecordedInterval(NOW, NOW),
)


class Lines:
    """What a trigger says."""

    def __init__(self, trigger: RunTrigger) -> None:
        self.texts: list[str] = []
        self.levels: list[int] = []
        trigger._log = self  # type: ignore[assignment]

    def info(self, text: str, *values: Any) -> None:
        self._add(logging.INFO, text % values)

    def warning(self, text: str, *values: Any) -> None:
        self._add(logging.WARNING, text % values)

    def _add(self, level: int, text: str) -> None:
        self.levels.append(level)
        self.texts.append(text)


def follow(project: StreamProject, **changes: Any) -> tuple[RunTrigger, Lines]:
    trigger = RunTrigger(**{"project": str(project.root), "stream": "events", "run_id": RUN.run_id} | changes)
    return trigger, Lines(trigger)


def at_work(home: StreamHome) -> None:
    """A driver that was sent off and has yet to show itself: the run is not over."""
    driver = Driver(run_id=RUN.run_id, machine=machine(), boot_id=boot_id(), process=None, log="", submitted_at=NOW)
    home.storage.replace(f"{home.drivers_folder()}/{RUN.run_id}.json", encode_document(driver))


def test_the_phases_of_a_backfill_are_told(stream_project: StreamProject) -> None:
    """Each once, as it begins; another triggerer goes on where the first one was."""
    home = stream_project.home()
    records = RunRecords(home)
    trigger, told = follow(stream_project)
    begun = (RecordedPhase("starting Spark", "t"), RecordedPhase("writing the rows aside", "t"))

    async def scenario() -> dict[str, Any]:
        at_work(home)
        records.save(msgspec.structs.replace(RUN, phases=begun[:1]))
        following = asyncio.create_task(trigger.follow(poll_seconds=0.01))
        await until(lambda: "starting Spark" in told.texts)
        records.save(msgspec.structs.replace(RUN, phases=begun))
        await until(lambda: "writing the rows aside" in told.texts)
        kwargs = trigger.serialize()[1]
        records.save(msgspec.structs.replace(RUN, phases=begun, status="succeeded"))
        await asyncio.wait_for(following, SOON)
        return kwargs

    kwargs = asyncio.run(scenario())
    assert told.texts[1:] == ["starting Spark", "writing the rows aside"]
    again = RunTrigger(**json.loads(json.dumps(kwargs)))
    heard = Lines(again)
    asyncio.run(again.follow(poll_seconds=0.01))
    assert heard.texts[1:] == []


def test_a_home_that_is_away_is_told_once(stream_project: StreamProject, monkeypatch: pytest.MonkeyPatch) -> None:
    """And once that it is back; after a while the trigger fires, and the task fails with what is missing."""
    home = stream_project.home()
    trigger, told = follow(stream_project)
    at_work(home)
    RunRecords(home).save(RUN)
    there, away = Path(home.location), Path(f"{home.location}.away")
    look, looks = trigger.look, iter(range(1000))

    def look_at_what_comes_and_goes() -> Any:
        number = next(looks)
        if number in {2, 12}:
            there.rename(away)
        if number == 8:
            away.rename(there)
        return look()

    monkeypatch.setattr(trigger, "look", look_at_what_comes_and_goes)
    monkeypatch.setattr(absence, "AWAY_SECONDS", 2.0)
    asyncio.run(asyncio.wait_for(trigger.follow(poll_seconds=0.01), SOON))

    assert told.levels[1:] == [logging.WARNING, logging.INFO, logging.WARNING]
    assert "nothing is known of the run" in told.texts[1]
    assert next(looks) > 20
