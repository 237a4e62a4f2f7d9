"""What is nested far deeper than anybody means is an error of ours with a place, and never a traceback."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sluice.checkpoint.offsets import read_offset_file
from sluice.delta_log.table import load_table, open_log, read_commit, spark_columns
from sluice.errors import SluiceError
from sluice.home import StreamHome
from sluice.plan_document import PlanDocument
from sluice.project import load_project
from sluice.quality.columns import Schema
from sluice.quality.suite import parse_suite
from sluice.runs.record import RunRecord, RunRecords, new_run_id
from sluice.schema_text import schema_problem
from sluice.storage import Storage
from tests.builders import NOW, commit_file, edit_commit, make_delta, offsets_bytes, put

DEPTHS = [2_000, 20_000]


def arrays(depth: int) -> str:
    return "[" * depth + "]" * depth


def objects(depth: int) -> str:
    return '{"a":' * depth + "1" + "}" * depth


NESTED = [arrays, objects]


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize(("opening", "closing"), [("array<", ">"), ("struct<a:", ">"), ("map<int,", ">"), ("(", ")")])
def test_schemas(depth: int, opening: str, closing: str) -> None:
    """In a declaration, and as the columns of a suite."""
    text = opening * depth + "int" + closing * depth

    schema_problem(f"a {text}")
    if "<" in opening:
        with pytest.raises(SluiceError, match="nested too deeply"):
            Schema.of({"a": text})
        with pytest.raises(SluiceError, match="nested too deeply"):
            Schema.of(f"a {text}")


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("nested", NESTED)
@pytest.mark.parametrize("key", ["plan", "quality", "error", "batches", "unknown"])
def test_records(tmp_path: Path, key: str, nested: Callable[[int], str], depth: int) -> None:
    """A record is refused as damaged, or read; those beside it are."""
    home = StreamHome(str(tmp_path), Storage())
    records = RunRecords(home)
    good = RunRecord(
        run_id=new_run_id(NOW, "1"), stream="s", generation=1, planned_at=NOW, plan=PlanDocument(), status="failed"
    )
    records.save(good)
    bad = msgspec.structs.replace(good, run_id=new_run_id(NOW, "2"))
    records.save(bad)
    file = Path(records.file(bad.run_id))
    file.write_text(file.read_text().replace('"format"', f'"{key}": {nested(depth)}, "format"', 1))

    found, damaged = records.newest_readable(5)

    assert sorted([*(record.run_id for record in found), *damaged]) == sorted([good.run_id, bad.run_id])
    assert good.run_id not in damaged


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("nested", NESTED)
def test_other_files(tmp_path: Path, nested: Callable[[int], str], depth: int) -> None:
    """Suites, settings, offsets, watermarks, and the log of a Delta table: read, or refused with the file."""
    text = nested(depth)
    table = make_delta(tmp_path / "table", [1], [2])
    edit_commit(table, 1, {})
    put(commit_file(table, 1), f'{{"commitInfo":{text}}}')
    home = StreamHome(str(tmp_path / "home"), Storage())
    put(tmp_path / "home" / "watermarks" / "0001.json", f'{{"format":1,"inputs":{text}}}')

    def commit() -> Any:
        log = open_log(str(table), storage=Storage())
        return None if log is None else read_commit(log, 1, storage=Storage())

    offsets = put(tmp_path / "offsets" / "0", offsets_bytes(text))
    looks: list[Callable[[], Any]] = [
        lambda: parse_suite(text.encode(), source="s.json"),
        lambda: parse_suite(f'{{"name":"s","expectations":[],"meta":{{"sluice":{text}}}}}'.encode(), source="s.json"),
        lambda: load_project(put(tmp_path / "sluice.toml", f"spark.conf = {arrays(depth)}")),
        lambda: read_offset_file(str(offsets), 0, storage=Storage()),
        lambda: home.watermarks(1),
        commit,
        lambda: spark_columns(load_table(str(table), storage=Storage())),
    ]
    for look in looks:
        with contextlib.suppress(SluiceError):
            look()
