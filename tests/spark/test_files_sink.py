"""A folder of files as the sink: its manifest tells of every batch, so a folder that lacks one is another one."""

from __future__ import annotations

import json
import shutil

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sluice import Stream, sinks, sources
from sluice.errors import RefusedError
from tests.spark.lab import Lab, write_files

pytestmark = pytest.mark.spark


def per_minute(clicks: DataFrame) -> DataFrame:
    windows = clicks.withWatermark("at", "0 seconds").groupBy(F.window("at", "1 minute"))
    return windows.count().select("window.start", "count")


def test_every_batch_is_in_the_manifest(lab: Lab) -> None:
    """Also those without rows, and those without input; once the folder or its manifest is gone, a run is refused."""
    stream = Stream(
        name="s",
        sources={"clicks": sources.files("land", format="json", schema="at timestamp", max_files_per_batch=1)},
        transform=f"{__name__}:per_minute",
        sink=sinks.files("out", format="json"),
    )
    times = ("2026-01-01T00:00:10Z", "2026-01-01T00:00:20Z", "2026-01-01T00:05:00Z")
    write_files(lab.root / "land", {f"{n}.json": json.dumps({"at": at}) for n, at in enumerate(times)})

    record = lab.run(stream)

    assert [(batch.kind, batch.output_rows) for batch in record.batches][-1][0] == "no_data"
    manifest = lab.root / "out" / "_spark_metadata"
    assert [(manifest / str(batch.batch_id)).is_file() for batch in record.batches] == [True] * len(record.batches)
    assert lab.plan(stream).verdict == "skip"

    for gone in (manifest, lab.root / "out"):
        shutil.rmtree(gone)
        write_files(lab.root / "land", {f"{gone.name}.json": json.dumps({"at": "2026-01-01T00:09:00Z"})}, first=9)
        with pytest.raises(RefusedError, match="the manifest there has none of them") as refused:
            lab.run(stream)
        assert refused.value.finding.code == "SINK_REPLACED"
