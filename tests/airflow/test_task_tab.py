"""What the tab of a task costs where a listing is a request: homes on an object store."""

from __future__ import annotations

import pytest
from obstore.store import MemoryStore

from sluice import Stream, sinks, sources
from sluice.home import StreamHome
from sluice.runs.summary import RunLine
from sluice_airflow.ui.dag_tasks import StreamTask
from tests.unit.conftest import BUCKET
from tests.unit.ui.test_known_runs import CountingStorage, make_record, run

pytestmark = [
    pytest.mark.airflow,
    pytest.mark.filterwarnings("ignore:Using .httpx. with"),  # Airflow itself does
]

STREAMS = 200


@pytest.mark.parametrize("named", ["s7", None])
def test_streams_that_a_task_does_not_name(named: str | None) -> None:
    """One listing for a task that was skipped; none of a stream that a template could mean, unless a run says so."""
    from sluice_airflow.ui.app import _find_runs, _Found

    storage = CountingStorage()
    storage._stores[BUCKET] = MemoryStore()
    visible = {}
    for number in range(STREAMS):
        home = StreamHome(f"{BUCKET}/home/s{number}", storage)
        numbers = sources.files("in", format="json", schema="n bigint")
        stream = Stream(name=f"s{number}", sources={"n": numbers}, transform="none:none", sink=sinks.noop())
        visible[stream.name] = _Found(stream, home, {"dag"}, "")
    tasks = [StreamTask("dag", "task", named)]

    assert _find_runs(visible, {"key 1"}, tasks) == []
    assert storage.listings == (0 if named is None else 1)

    run_id = run(visible["s9"].home, 1)
    line = RunLine(run_id=run_id, run_key=make_record(1, run_key="key 1").run_key)
    visible["s9"] = _Found(visible["s9"].stream, visible["s9"].home, {"dag"}, "", lines=(line,))
    storage.counts()
    _find_runs(visible, {"key 1"}, tasks)
    assert storage.listings == (1 if named is None else 2)
