"""Every example of an operator gives what a batch gives of the rows that counted, whatever happened to its runs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from sluice import Stream, sinks
from sluice.errors import RefusedError
from sluice.spark.first_batch_check import ROCKSDB, STATE_STORE
from sluice.testing import Bench
from tests.campaign import CAMPAIGN
from tests.spark.lab import log_files
from tests.spark.operator_answers import EXAMPLES, Expected
from tests.spark.operator_histories import MORNING, History, examples

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

_SEEDS = 3 * CAMPAIGN or 1
_SECOND_FORMAT = {
    STATE_STORE: ROCKSDB,
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.stateStore.checkpointFormatVersion": 2,
}


def test_every_example_has_an_answer(tmp_path: Path) -> None:
    assert examples(tmp_path).streams().keys() == EXAMPLES.keys()


@pytest.mark.parametrize("seed", range(_SEEDS))
@pytest.mark.parametrize("name", EXAMPLES)
def test_a_history(tmp_path: Path, name: str, seed: int) -> None:
    """Random order, lateness, batch sizes, stops and a kill: the rows are the batch's, and so is the state."""
    expected = EXAMPLES[name]
    with Bench(tmp_path / "bench", examples(tmp_path / "bench")) as bench:
        history = History(bench, name, seed, began_as=expected.began_as)
        history.live(6 if CAMPAIGN else 1, is_closed=expected.is_closed)
        _check(history, expected)


@pytest.mark.parametrize("seed", range(_SEEDS))
def test_a_history_in_the_second_format_of_state(tmp_path: Path, seed: int) -> None:
    """A stream's own settings choose it: each commit names the state that belongs to it, and all else is the same."""
    with Bench(tmp_path / "bench", examples(tmp_path / "bench")) as bench:
        history = History(bench, "tumbling_window", seed, conf=_SECOND_FORMAT)
        history.live(6 if CAMPAIGN else 1)
        _check(history, EXAMPLES["tumbling_window"])
        commits = [file.read_text("utf-8").split("\n") for file in log_files(history.checkpoint / "commits")]
    assert {version for version, _ in commits} == {"v2"}
    assert all(json.loads(said)["stateUniqueIds"]["0"] for _, said in commits)


def test_a_state_that_gets_a_field_more(tmp_path: Path) -> None:
    """What was kept goes on, and has none of the field; what comes has it. Only Avro lets Spark read the old rows."""
    with Bench(tmp_path / "bench", examples(tmp_path / "bench")) as bench:
        bench.open(_edited("evolved_state", tmp_path, "value_state"), sink=sinks.memory())
        bench.add("flights", [_flight("AA", 100), _flight("B6", 200)])
        bench.run()
        evolved = bench.open("evolved_state", sink=sinks.memory())
        evolved.add("flights", [_flight("AA", 300), _flight("UA", 400)])
        evolved.run()
        evolved.check_rows([("AA", 2), ("UA", 1)])
        evolved.check_state(
            [
                {"carrier": "AA", "flights": 2, "miles": 300},
                {"carrier": "B6", "flights": 1, "miles": None},
                {"carrier": "UA", "flights": 1, "miles": 400},
            ],
            state_var_name="totals",
        )


def test_a_state_that_may_not_change_its_form(tmp_path: Path) -> None:
    """Without Avro the same edit is refused, and the stream goes on as it was."""
    with Bench(tmp_path / "bench", examples(tmp_path / "bench")) as bench:
        bench.open("value_state", sink=sinks.memory())
        bench.add("flights", [_flight("AA", 100)])
        bench.run()
        edited = bench.open(_edited("value_state", tmp_path, "evolved_state"), sink=sinks.memory())
        edited.add("flights", [_flight("AA", 300)])
        edited.check_error("STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE", kind=RefusedError)
        again = bench.open("value_state", sink=sinks.memory())
        again.run()
        again.check_rows([("AA", 2)])


def _edited(name: str, root: Path, transform: str) -> Stream:
    return replace(examples(root / "bench").stream(name), transform=f"jobs.operators.processors:{transform}")


def _flight(carrier: str, distance: int) -> dict[str, Any]:
    return {"time_hour": MORNING, "minute": 0, "carrier": carrier, "distance": distance}


def _check(history: History, expected: Expected) -> None:
    """The rows, the state, and the watermark of every batch are those of the rows that counted."""
    batches, bench = history.batches(), history.bench
    watermarks = [batch.watermark for batch in batches]
    if expected.any_of_them is None:
        assert history.watermarks() == watermarks
        bench.check_rows(expected.rows(batches))
    else:
        # A task that has its rows reads no further: the times of those behind them are not seen.
        assert all(found <= most for found, most in zip(history.watermarks(), watermarks, strict=True))
        _check_any(bench, expected.rows(batches), expected.any_of_them)
    for view, wanted in expected.states:
        assert _looked_at(history.state(**view), wanted(batches)) == _sorted(wanted(batches)), view


def _check_any(bench: Bench, rows: list[dict[str, Any]], many: int) -> None:
    """Of the rows, so many are there: any, and each no more often than it came."""
    table = DeltaTable(bench.stream.sink.location or "").to_pyarrow_table().to_pylist()
    came, found = (Counter(str(_in_utc(row)) for row in some) for some in (rows, table))
    assert found.total() == min(many, len(rows))
    assert found <= came


def _in_utc(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value.replace(tzinfo=None) if hasattr(value, "tzinfo") else value for name, value in row.items()}


def _looked_at(state: list[dict[str, Any]], wanted: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The columns of a state's rows that are asked for, whatever structs they are in."""
    names = wanted[0] if wanted else {}
    return _sorted([{name: found for name, found in _flat(row) if name in names} for row in state])


def _flat(row: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in row.items():
        if isinstance(value, dict):
            yield from _flat(value)
        else:
            yield name, value


def _sorted(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted((dict(sorted(row.items())) for row in rows), key=str)
