"""What backfills that died have left, before rows of the quarantine are sent back."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import msgspec
import pytest
from deltalake import DeltaTable

from sluice import sinks
from sluice.auditing.dead_backfills import tidy_after_backfills
from sluice.errors import RefusedError
from sluice.home import StreamHome
from sluice.plan_document import PlanDocument
from sluice.runs.backfill_names import application_of
from sluice.runs.record import BackfillRecord, RecordedInterval, RunRecord, RunRecords, new_run_id
from sluice.sinks.delta import replacement
from sluice.storage import Storage
from tests.builders import NOW, make_stream
from tests.lake import Interrupted, append, day, publish, wanted, write_aside
from tests.remedies import read_remedy

UNUSED: Any = None
"""The project and the session: there is no quarantine."""


def test_one_beside_a_change_by_others(tmp_path: Path) -> None:
    """Rows may be there twice, so nothing is sent; once the interval is backfilled again, nothing is said."""
    stream = make_stream(sink=sinks.delta(str(tmp_path / "lake")), interval_column="day")
    quarantine = sinks.delta(str(tmp_path / "lake_quarantine"))
    home = StreamHome(str(tmp_path / "home"), Storage())
    append(tmp_path / "lake", [(1, 1)], 0)
    append(tmp_path / "lake", [(1, 2)], 1)
    dead = RunRecord(
        run_id=new_run_id(NOW, None),
        stream="visits",
        generation=1,
        planned_at=NOW,
        plan=PlanDocument(),
        status="failed",
        interval=RecordedInterval(start=day(1), end=day(2)),
        backfill=BackfillRecord(attempt=0, version=1),
    )
    RunRecords(home).save(dead)
    mine = wanted(1, 1, 1, application=application_of(dead.run_id))
    write_aside(tmp_path / "lake", mine, [(1, 10)])
    publish(tmp_path / "lake", mine, Interrupted(DeltaTable(str(tmp_path / "lake")).optimize.compact))

    with pytest.raises(RefusedError) as refused:
        tidy_after_backfills(UNUSED, stream, quarantine, home, UNUSED, check=UNUSED)
    read_remedy(refused.value, "BACKFILL_UNFINISHED", "backfill the interval again, then release the rows")

    version = DeltaTable(str(tmp_path / "lake")).version()
    again = msgspec.structs.replace(
        dead,
        run_id=new_run_id(NOW, "again"),
        status="succeeded",
        backfill=BackfillRecord(attempt=0, version=version, sink_version=version + 1),
    )
    whole = wanted(1, 1, version, application=application_of(again.run_id))
    write_aside(tmp_path / "lake", whole, [(1, 10)])
    publish(tmp_path / "lake", whole)
    RunRecords(home).save(again)

    tidy_after_backfills(UNUSED, stream, quarantine, home, UNUSED, check=UNUSED)
    rows = DeltaTable(str(tmp_path / "lake")).to_pyarrow_table().to_pylist()
    assert rows == [{"day": date(2026, 1, 1), "n": 10}]
    assert replacement.find_replacement(str(tmp_path / "lake"), whole.application, version, storage=Storage())
