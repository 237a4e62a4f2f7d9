"""Nexmark's queries on a schedule give DuckDB's rows, whichever side arrives first and whatever happens to the runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.campaign import CAMPAIGN
from tests.spark.nexmark_answers import ANSWERS
from tests.spark.nexmark_histories import History
from tests.spark.nexmark_queries import QUERIES

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]


def test_every_query_has_an_answer() -> None:
    assert QUERIES.keys() == ANSWERS.keys()


@pytest.mark.parametrize("seed", range(3 * CAMPAIGN or 1))
@pytest.mark.parametrize("name", QUERIES)
def test_a_query(tmp_path: Path, name: str, seed: int) -> None:
    """Arrivals by side, out of order, limits, a stop, a kill: the rows are those of all of it at once."""
    with History(tmp_path, name, seed) as history:
        if CAMPAIGN:
            history.live(260, files=6, runs=5, is_signalled=not seed % 3)
        else:
            history.live(120, files=2, runs=len(history.sides))
        history.check()
