"""Every example of an operator gives what a batch gives of the rows that counted, whatever happened to its runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from sluice.testing import Bench
from tests.campaign import CAMPAIGN
from tests.spark.operator_answers import EXAMPLES
from tests.spark.operator_histories import History, examples

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

_SEEDS = 3 * CAMPAIGN or 1


def test_every_example_has_an_answer(tmp_path: Path) -> None:
    assert examples(tmp_path).streams().keys() == EXAMPLES.keys()


@pytest.mark.parametrize("seed", range(_SEEDS))
@pytest.mark.parametrize("name", EXAMPLES)
def test_a_history(tmp_path: Path, name: str, seed: int) -> None:
    """Random order, lateness, batch sizes, stops and a kill: the rows are the batch's, and so is the state."""
    expected = EXAMPLES[name]
    with Bench(tmp_path / "bench", examples(tmp_path / "bench")) as bench:
        history = History(bench, name, seed, expected.began_as)
        history.live(6 if CAMPAIGN else 1)
        batches = history.batches()
        assert history.watermarks() == [batch.watermark for batch in batches]
        if expected.any_of_them is None:
            bench.check_rows(expected.rows(batches))
        else:
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
