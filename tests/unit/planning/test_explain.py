"""A plan in words."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
from deltalake import write_deltalake

from sluice import sources
from sluice.plan import Judging
from sluice.planning.explain import explain
from sluice.planning.planner import Limits
from tests.unit.engine_lab import Lab, leave_pending, make_lab, make_stream, until


def test_a_skip_is_one_line(tmp_path: Path) -> None:
    """Nothing to do needs no more than the reason."""
    assert list(explain(make_lab(tmp_path).plan())) == ["numbers, generation 1: skip (nothing new)"]


def test_batches_with_offsets_and_amounts(tmp_path: Path) -> None:
    """Every batch with what it takes from each source that moves."""
    lab = make_lab(tmp_path, names=("a", "b"), max_files_per_batch=1)
    lab.arrive(1, source="a")
    lab.arrive(2, source="a")
    lab.arrive(1, source="b")
    assert list(explain(lab.plan(until(5)))) == [
        "numbers, generation 1: run (`a`: 2 new files, `b`: 1 new file before 2026-01-01T00:00:05+00:00)",
        "  until 2026-01-01T00:00:05.000Z, exclusive",
        "  strategy exact, 2 batches",
        "  batch 0 (data)",
        '    a: start -> {"logOffset":0} (1 file, 19 bytes)',
        '    b: start -> {"logOffset":0} (1 file, 19 bytes)',
        "  batch 1 (data)",
        '    a: {"logOffset":0} -> {"logOffset":1} (1 file, 19 bytes)',
        "  stages",
        "    lease           take the lease of generation 1",
        "    session         start Spark, and analyse `tests.builders:anything`",
        "    begin           begin the checkpoint, or go on with it",
        "    batches 0 to 1  write it with the sink's own stream writer",
        "    no data         batches without input, as long as the watermark or a time-out makes state due",
        "    record          close the record",
    ]


def test_a_batch_that_runs_again(tmp_path: Path) -> None:
    """The uncommitted batch has no amounts: it is as it was logged."""
    lab = make_lab(tmp_path)
    leave_pending(lab)
    assert list(explain(lab.plan())) == [
        "numbers, generation 1: resume (batch 0 was planned and not committed)",
        "  strategy exact, 1 batch",
        "  batch 0 (uncommitted)",
        '    landing: start -> {"logOffset":0}',
        "  stages",
        "    lease    take the lease of generation 1",
        "    session  start Spark, and analyse `tests.builders:anything`",
        "    begin    begin the checkpoint, or go on with it",
        "    batch 0  as it was logged: write it with the sink's own stream writer",
        "    no data  batches without input, as long as the watermark or a time-out makes state due",
        "    record   close the record",
    ]


def test_rows_that_the_log_knows(tmp_path: Path) -> None:
    """A Delta table knows its rows."""
    write_deltalake(tmp_path / "table", pa.table({"id": list(range(1234))}))
    lab = Lab(tmp_path, make_stream(tmp_path, {"table": sources.delta(str(tmp_path / "table"))}))
    assert list(explain(lab.plan()))[3].endswith("bytes, 1,234 rows)")


def test_where_it_is_judged_and_why(tmp_path: Path) -> None:
    """Who reads a plan learns where the run will be judged, and what is read again."""
    lab = make_lab(tmp_path)
    lab.arrive(1)
    judging = Judging("daily", checks=3, where="cache", measured="afterwards", rereads=1, reason="rows are split")

    told = list(explain(replace(lab.plan(), quality=judging, stages=())))

    quality = "  quality: 3 checks of `daily`, 1 by Great Expectations"
    assert told[-2:] == [
        f"{quality}; judged before it is written, measured by reading it once more",
        "    rows are split",
    ]


def test_a_refusal_names_file_consequence_and_remedy(tmp_path: Path) -> None:
    """Who reads a refusal learns what to do."""
    lab = make_lab(tmp_path)
    leave_pending(lab)
    (lab.checkpoint / "metadata").unlink()
    lines = list(explain(lab.plan()))
    assert lines[1].startswith("  refused METADATA_MISSING: the checkpoint has batches")
    assert lines[2] == f"    file: {lab.checkpoint}/metadata"
    assert [line.split(":")[0].strip() for line in lines[3:]] == ["consequence", "remedy"]


def test_warnings_come_last(tmp_path: Path) -> None:
    """What was left out is said after what is done."""
    lab = make_lab(tmp_path)
    lab.arrive(name="a:b.json")
    lines = list(explain(lab.plan()))
    assert lines[0] == "numbers, generation 1: skip (nothing new)"
    assert lines[1].startswith("  warning NAME_UNREADABLE: Spark")


def test_drain_says_that_spark_decides(tmp_path: Path) -> None:
    """The strategy is in the lines."""
    lab = make_lab(tmp_path)
    lab.arrive()
    assert "  strategy drain, 1 batch" in list(explain(lab.plan(Limits(strategy="drain"))))
