"""A run of one of Nexmark's queries in a process of its own, which a signal kills at a moment of its first batch.

Usage: python -m tests.spark.killed_nexmark FOLDER QUERY SEED NOW MOMENT
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import deltalake.transaction
from pyspark.sql.readwriter import DataFrameWriter

from sluice.locations import spark_location
from sluice.sinks.delta import merge
from tests.spark.killed_driver import PLACES, dying
from tests.spark.nexmark_histories import History

_COMMITS = (
    (deltalake.DeltaTable, "create_write_transaction"),
    (deltalake.transaction, "create_table_with_add_actions"),
    (merge, "merge"),
)


def _die(moment: str, table: str) -> None:
    """Let this process die at a moment: at any of several places, if it is that of the sink's commit."""
    *place, is_done = PLACES[moment]
    is_commit = tuple(place) == _COMMITS[0]
    for owner, name in _COMMITS if is_commit else [place]:
        setattr(owner, name, dying(getattr(owner, name), is_done=is_done))
    if is_commit:
        # A table that is merged into is made so.
        write = DataFrameWriter.save
        made = dying(write, is_done=is_done)
        DataFrameWriter.save = lambda writer, path=None, **how: (made if path == table else write)(writer, path, **how)


if __name__ == "__main__":
    folder, query, seed, now, moment = sys.argv[1:]
    os.setsid()
    history = History(Path(folder), query, int(seed), now=now)
    _die(moment, spark_location(history.bench.stream.sink.location or ""))
    history.bench.run()
