"""Run keys: what names the Airflow task of a run."""

from __future__ import annotations

import pytest

from sluice_airflow.run_keys import RunKey, parse_run_key


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("flights/scheduled__2026-01-01T00:00:00+00:00/departures/-1/0",
         RunKey("flights", "scheduled__2026-01-01T00:00:00+00:00", "departures", -1, 0)),
        ("d/a/b/c/t/3/2", RunKey("d", "a/b/c", "t", 3, 2)),
    ],
)  # fmt: skip
def test_a_key_of_ours(text: str, key: RunKey) -> None:
    """A DAG run's id may have slashes; reading and writing agree."""
    assert parse_run_key(text) == key
    assert str(key) == text


@pytest.mark.parametrize("text", [None, "", "nightly", "a/b/c/d", "a/b/c/x/0", "a/b/c/0/y", "//c/0/0", "a/b//0/0"])
def test_a_key_of_others(text: str | None) -> None:
    """The command line takes any text."""
    assert parse_run_key(text) is None
