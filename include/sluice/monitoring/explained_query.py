"""What `sluice explain` tells: how Spark runs a stream's query, and what its state was at a batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from sluice.checkpoint.offsets import read_offset_file
from sluice.checkpoint.places import offset_file
from sluice.errors import DeclarationError
from sluice.home import StreamHome
from sluice.monitoring.batch_records import recorded_batches
from sluice.planning.begun_stream import as_begun
from sluice.project import Project
from sluice.spark.java import Work
from sluice.spark.query import build_query
from sluice.spark.session import opened_session
from sluice.stream import Stream
from sluice.times import iso_millis

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def explained_batch(stream: str, home: StreamHome, batch_id: int) -> dict[str, Any]:
    """A batch by the records: Spark's plan of the run that did it, its watermarks and its state. Starts no Spark.

    Raises:
        DeclarationError: No record has it.
        RefusedError: A file is damaged.
    """
    number = home.current_generation()
    records, _ = recorded_batches(home, number)
    if batch_id not in records:
        known = f"the newest that one has is {max(records)}" if records else "none has any"
        raise DeclarationError(
            f"no record has batch {batch_id}", where=f"sluice explain {stream}", remedy=f"name another one: {known}"
        )
    run, batch = records[batch_id]
    place = offset_file(home.checkpoint_location(number), batch_id)
    planned = read_offset_file(place, batch_id, storage=home.storage)
    ran_with = planned.watermark_ms if planned is not None else 0
    return {
        "stream": stream,
        "batch_id": batch_id,
        "run_id": run.run_id,
        "kind": batch.kind,
        "ran_with_watermark": iso_millis(ran_with) if ran_with else None,
        "left_watermark": batch.watermark,
        # Spark numbers the versions of state from 1 on.
        "state": [
            {**msgspec.to_builtins(kept), "loaded_version": batch_id, "left_version": batch_id + 1}
            for kept in batch.state
        ],
        "physical": run.explain,
    }


def explained_query(project: Project, stream: Stream, *, session: SparkSession | None = None) -> dict[str, Any]:
    """The query as it is declared now, by Spark's physical plan; each literal in it is a `?`.

    Raises:
        DeclarationError: The transform can't be called, or Spark does not run its result as a stream.
        BatchFailedError: Spark does not start.
    """
    home = project.stream_home(stream)
    record = home.generation(home.current_generation())
    with opened_session(project, stream, session, work=Work(0)) as opened:
        query = build_query(project, as_begun(stream, record), opened, {})
        return {"stream": stream.name, "physical": query.explain()}
