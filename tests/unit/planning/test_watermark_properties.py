"""A stream with a watermark: what Sluice runs, batch by batch, is what Spark's AvailableNow would have run."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from typing import Any

from engine_lab import KilledError, Lab, TransactionalSink, make_lab
from hypothesis import given
from hypothesis import strategies as st

from sluice.errors import BatchFailedError, StorageError
from tests.engine_model import Engine, FileSource, HeldRows, Log, Row

DELAY_MS = 20
faults = st.tuples(st.sampled_from(["kill", "error"]), st.integers(0, 40))
stages = st.lists(
    st.tuples(st.lists(st.integers(1, 100), max_size=3), st.lists(faults, max_size=3)), min_size=1, max_size=4
)
"""What happens in turn: files with a row of these event times arrive, then a run is tried with these faults."""


@given(stages, st.sampled_from([None, 1, 2]))
def test_exact_runs_emit_what_available_now_emits(
    stages: list[tuple[list[int], list[tuple[Any, int]]]], max_files: int | None
) -> None:
    """Each batch emits, drops and keeps the same rows as Spark's own, and leaves the same watermark."""
    with tempfile.TemporaryDirectory() as folder:
        lab = make_lab(Path(folder), operator=HeldRows(DELAY_MS), max_files_per_batch=max_files)
        own_sink = TransactionalSink(f"{folder}/own")
        for events, tries in stages:
            for at_ms in events:
                lab.arrive(lab.rows, at_ms=at_ms)
            for lab.fault.kind, lab.fault.countdown in tries:
                with contextlib.suppress(KilledError, StorageError, BatchFailedError):
                    lab.run()
            lab.run()
            spark_itself(lab, Path(folder, "checkpoint"), own_sink).available_now()
        assert lab.sink.batches() == own_sink.batches()
        assert watermarks(lab.checkpoint) == watermarks(Path(folder, "checkpoint"))


def spark_itself(lab: Lab, checkpoint: Path, sink: TransactionalSink) -> Engine:
    """The same query without Sluice, on a checkpoint and a sink of its own."""
    landing = Path(lab.stream.sources["landing"].location)
    source = FileSource(landing, Log(checkpoint / "sources" / "0"), lab.stream.sources["landing"].max_files_per_batch)
    return Engine(checkpoint, [source], sink, lab.operator)


def watermarks(checkpoint: Path) -> list[Row | list[str]]:
    """What every commit says, and with which watermark its batch ran."""
    commits, offsets = Log(checkpoint / "commits"), Log(checkpoint / "offsets")
    newest = commits.latest()
    batch_ids = range(0 if newest is None else newest + 1)
    return [[commits.read(batch_id)[0], offsets.read(batch_id)[0].split(",")[0]] for batch_id in batch_ids]
