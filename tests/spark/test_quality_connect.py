"""Streams with a suite on a Spark Connect server: measured and judged once they are written."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.campaign import in_campaigns
from tests.spark.connect_server import DELTA, Server, free_port, serving
from tests.spark.lab import write_numbers
from tests.spark.test_connect import Work, rows
from tests.unit.quality.suites import document, row

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that has what a project with Delta tables needs."""
    with serving(tmp_path_factory.mktemp("server"), DELTA) as running:
        yield running


@pytest.fixture
def work(tmp_path: Path, server: Server) -> Work:
    """A project whose stream has a suite, with six numbers in two files."""
    work = Work(tmp_path, server.url)
    work.declare("checked")
    write_numbers(tmp_path / "a", 2, rows=3)
    return work


def up_to(most: int, policy: str, mostly: float = 1.0) -> dict:
    return row("expect_column_values_to_be_between", policy=policy, column="id", max_value=most, mostly=mostly)


def declare(work: Work, *rows: dict) -> None:
    (work.root / "suite.json").write_bytes(document(*rows))


def numbers(work: Work) -> list[int]:
    return [found[0] for found in rows(work.root)] if (work.root / "out" / "_delta_log").exists() else []


def test_rows_are_measured_and_dropped(work: Work) -> None:
    """The figures are those of the whole run."""
    largest = row("expect_column_max_to_be_between", policy="warn", column="id", max_value=3)
    declare(work, up_to(4, "drop"), up_to(2, "warn"), largest)

    record = work.run()

    quality = record["quality"]
    assert numbers(work) == [0, 1, 2, 3, 4]
    assert (record["plan"]["quality"]["gate"], quality["verdict"]) == ("write", "warn")
    assert (quality["rows"], quality["dropped"]) == (6, 1)
    assert [check["result"].get("unexpected_count") for check in quality["checks"]] == [1, 3, None]
    assert quality["checks"][2]["result"] == {"observed_value": 4}


@in_campaigns
def test_a_row_that_fails_ends_the_batch(work: Work) -> None:
    """The batches before it stand; nothing of its own does, until the rule is relaxed."""
    declare(work, up_to(4, "fail"))

    returned, _, errors = work.sluice("run", "s")

    assert (returned, numbers(work)) == (4, [0, 1, 2])
    assert "expect_column_values_to_be_between" in errors
    declare(work, up_to(5, "fail"))
    assert work.run()["quality"]["verdict"] == "pass"
    assert numbers(work) == [0, 1, 2, 3, 4, 5]


@in_campaigns
def test_failed_rows_hold_the_stream(work: Work) -> None:
    """What only the whole run tells fails after it is written: no more runs until the suite passes."""
    declare(work, row("expect_column_max_to_be_between", policy="fail", column="id", max_value=4))

    assert work.sluice("run", "s")[0] == 4
    write_numbers(work.root / "a", 1, first=2, rows=3)
    returned, _, errors = work.sluice("run", "s")

    assert returned == 4
    assert "sluice quality release s" in errors
    assert numbers(work) == [0, 1, 2, 3, 4, 5]
    declare(work, row("expect_column_max_to_be_between", policy="fail", column="id", max_value=8))
    assert work.run()["status"] == "succeeded"
    assert numbers(work) == list(range(9))


@in_campaigns
def test_the_table_is_audited(work: Work) -> None:
    """By the command, on the server: compiled checks and what Great Expectations reads itself."""
    declare(work, up_to(9, "warn"))
    work.run()
    unique = row("expect_column_values_to_be_unique", policy="fail", column="id")
    largest = row("expect_column_max_to_be_between", policy="fail", column="id", max_value=4)
    (work.root / "table.json").write_bytes(document(up_to(3, "drop"), unique, largest))
    audit = ("quality", "audit", "s", "--suite", "table.json", "--json")

    returned, output, errors = work.sluice(*audit, "--where", "id < 5")

    assert returned == 0, errors
    found = json.loads(output)["quality"]
    assert (found["verdict"], found["rows"]) == ("warn", 5)
    assert [check["result"].get("unexpected_count") for check in found["checks"]] == [1, None, 0]
    assert work.sluice(*audit)[0] == 4
    assert numbers(work) == [0, 1, 2, 3, 4, 5]


def test_quarantine_is_refused_before_spark(work: Work) -> None:
    """The server is not even asked."""
    declare(work, up_to(4, "quarantine"))
    nobody = Work(work.root, f"sc://127.0.0.1:{free_port()}")

    for command in ("plan", "run"):
        returned, _, errors = nobody.sluice(command, "s")
        assert returned == 2
        assert "Spark Connect can't split a batch" in errors
    assert not work.home.exists()


@in_campaigns
def test_a_backfill_is_judged(work: Work) -> None:
    """Before it replaces a row, on the server as well."""
    work.declare("dated")
    work.run()
    work.declare("checked_days")
    day = ("--start", "2026-01-02", "--end", "2026-01-03", "--json")
    declare(work, up_to(7, "fail"))

    returned, _, errors = work.sluice("backfill", "s", *day)

    assert returned == 4, errors
    assert "nothing was replaced" in errors
    assert sorted(number for _, number in rows(work.root)) == [0, 1, 2, 3, 4, 5]
    declare(work, up_to(7, "drop"))
    assert work.sluice("backfill", "s", *day)[0] == 0
    assert sorted(number for _, number in rows(work.root)) == [0, 2, 2, 3, 5]
