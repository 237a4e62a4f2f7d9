"""Whether a table that lets transactions expire can still tell that it does not hold a batch."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyarrow import parquet

from sluice import sinks
from sluice.sinks.delta.forgotten import TRANSACTIONS_EXPIRE, absent, why_unknown
from sluice.storage import Storage
from tests.builders import QUERY_ID, commit_file, expire_commits, make_delta, set_commit_times

HOUR_MS = 3_600_000


def now_ms() -> int:
    return int(time.time() * 1000)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Its versions are one hour apart, the last one was made three hours ago; nothing is set."""
    table = make_delta(tmp_path / "lake", [1], [2], [3], [4])
    set_commit_times(table, *(now_ms() - hours * HOUR_MS for hours in (6, 5, 4, 3)))
    return table


def expiring(table: Path, after: str) -> Path:
    DeltaTable(table).alter.set_table_properties({TRANSACTIONS_EXPIRE: after})
    return table


def cleaned_up(table: Path, *, keep: int = 1) -> Path:
    DeltaTable(table).create_checkpoint()
    return expire_commits(table, keep=keep)


def why(table: Path, *, since_ms: int | None = None, version: int = 4) -> str | None:
    return why_unknown(str(table), QUERY_ID, version, since_ms, storage=Storage())


def test_no_table(tmp_path: Path) -> None:
    """Nothing is in it."""
    assert why(tmp_path / "none") is None


def test_a_whole_log(table: Path) -> None:
    """Its commits tell, whatever expires."""
    expiring(table, "interval 0 seconds")
    assert why(table) is None


def test_a_table_that_does_not_forget(table: Path) -> None:
    """The checkpoint tells."""
    assert why(cleaned_up(table)) is None


@pytest.mark.parametrize("after", ["interval 0 seconds", "interval 90 minutes", "1 hour", "no interval", "1 month"])
def test_what_may_have_expired(table: Path, after: str) -> None:
    """It was begun before all commits that are there, and longer ago than transactions are kept."""
    told = why(cleaned_up(expiring(table, after)), since_ms=now_ms() - 2 * HOUR_MS)
    assert told is not None
    assert f"`{TRANSACTIONS_EXPIRE}`: {after}" in told
    assert "before version 4 are gone" in told


@pytest.mark.parametrize("after", ["interval 3 hours", "2 hours 2 minutes", "1 WEEK", "interval 1 week 2 days"])
def test_what_has_not_expired(table: Path, after: str) -> None:
    """Then a checkpoint would have it."""
    assert why(cleaned_up(expiring(table, after)), since_ms=now_ms() - 2 * HOUR_MS) is None


def test_commits_that_reach_back(table: Path) -> None:
    """Those since the batch was begun are there."""
    expiring(table, "interval 0 seconds")
    cleaned_up(table, keep=3)
    assert why(table, since_ms=now_ms() - 3 * HOUR_MS - HOUR_MS // 2) is None
    assert why(table, since_ms=now_ms() - 4 * HOUR_MS - HOUR_MS // 2) is not None
    assert why(table) is not None


def test_an_earlier_batch(table: Path) -> None:
    """What a query has written after it would be there."""
    expiring(table, "interval 0 seconds")
    make_delta(table, [5], app_id=QUERY_ID)
    assert why(cleaned_up(table, keep=2)) is None
    assert why(expire_commits(make_delta(table, [6]))) is not None


def test_what_somebody_has_noted(table: Path) -> None:
    """It is about one batch of one application."""
    expiring(table, "interval 0 seconds")
    make_delta(cleaned_up(table), [], app_id=absent(QUERY_ID, 4))
    assert why(table) is None
    assert why(table, version=5) is not None
    assert why_unknown(str(table), "another", 4, None, storage=Storage()) is not None


@pytest.mark.parametrize("later", ["", "interval 52 weeks"])
@pytest.mark.parametrize("keep", [1, 2])
def test_a_property_that_was_changed(table: Path, later: str, keep: int) -> None:
    """What has expired by then does not come back: the shortest time counts that anything tells of."""
    cleaned_up(expiring(table, "interval 0 seconds"))
    commit = commit_file(expiring(table, later or "interval 1 second"), 5)
    if not later:
        commit.write_text(commit.read_text().replace(f'"{TRANSACTIONS_EXPIRE}":"interval 1 second"', ""))
    if keep == 2:
        make_delta(table, [5])
    assert TRANSACTIONS_EXPIRE not in DeltaTable(table).metadata().configuration or later
    assert why(table, since_ms=now_ms() - 2 * HOUR_MS) is not None


@pytest.mark.parametrize(("version", "is_known"), [(0, False), (1, True)])
def test_a_commit_that_tells_what_a_checkpoint_has_forgotten(table: Path, version: int, *, is_known: bool) -> None:
    """The property is gone again: whoever reads the checkpoint and what came after it takes the batch for new."""
    checkpoint = DeltaTable(make_delta(table, [5], app_id=QUERY_ID)).version()
    DeltaTable(table).create_checkpoint()
    file = table / "_delta_log" / f"{checkpoint:020d}.checkpoint.parquet"
    rows = parquet.read_table(file)
    parquet.write_table(rows.filter(rows.column("txn").is_null()), file)
    make_delta(table, [6])
    assert sinks.delta(str(table)).state(QUERY_ID, storage=Storage()).last_batch is None

    told = why(table, version=version, since_ms=now_ms() - HOUR_MS)

    assert (told is None) == is_known
    assert is_known or "version 4 says that it has it" in str(told)


def test_anybody(table: Path) -> None:
    """Of whom nothing is known, nothing tells when it was."""
    expiring(table, "interval 52 weeks")
    make_delta(cleaned_up(table), [5], app_id=QUERY_ID)
    assert sinks.delta(str(table)).why_unknown(None, 0, None, storage=Storage()) is not None


def test_what_a_state_tells(table: Path) -> None:
    """How long the table remembers, as its property says."""
    sink = sinks.delta(str(table))
    assert sink.state(None, storage=Storage()).forgetful is None
    expiring(table, "interval 2 days")
    told = sink.state(None, storage=Storage()).forgetful
    assert told is not None
    assert "interval 2 days" in told.cause
