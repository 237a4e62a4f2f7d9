"""The benchmark of the pages, which nothing else runs: with few streams, so that it is not found broken when needed."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import many_streams

pytestmark = [pytest.mark.airflow]


def test_it_measures_every_page(airflow_tables: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each answers, and has a figure."""
    for name, few in {"STREAMS": 20, "RECORDS": 3, "LONG_LIFE": 5, "DAGS": 2, "ROUNDS": 1}.items():
        monkeypatch.setattr(many_streams, name, few)
    monkeypatch.setattr(many_streams, "tables_for_all", lambda _base, _worker: airflow_tables)

    figures = many_streams.measure()

    assert [figure.name.partition(",")[0] for figure in figures[:4]] == ["list"] * 4
    assert "stream with 5 records" in {figure.name for figure in figures}
    assert all(figure.value > 0 for figure in figures)
