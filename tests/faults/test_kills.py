"""Kill -9 at every step of a run: nothing is lost, nothing is doubled, and the next run explains and finishes."""

import random
import subprocess
from pathlib import Path

import pytest
from numbers_project import STREAM, Numbers, make_numbers
from pyspark.sql import SparkSession

from sluice.runs.record import RunRecords
from tests.campaign import CAMPAIGN, in_campaigns

pytestmark = pytest.mark.spark

DRIVER = str(Path(__file__).with_name("crashing_driver.py"))


STEPS = [
    *((moment, "write", count) for moment in ("before", "after") for count in (range(1, 20) if CAMPAIGN else (9,))),
    *((moment, step, 1) for moment in ("before", "after") for step in ("aside", "publish")),
]
RARE = {("before", "write", 9), ("before", "aside", 1), ("after", "aside", 1), ("before", "publish", 1)}


@pytest.mark.parametrize(
    ("moment", "step", "count"),
    [pytest.param(*step, marks=in_campaigns) if step in RARE else step for step in STEPS],
)
def test_a_kill_at_any_write_loses_and_doubles_nothing(
    numbers: Numbers, spark: SparkSession, moment: str, step: str, count: int
) -> None:
    """Writes 8 to 10 are the source's log, the offsets, and the record of the first batch; the second is published."""
    numbers.arrive(5)
    driver = numbers.start(DRIVER, str(numbers.root), STREAM, moment, step, str(count))
    returned = driver.wait(timeout=180)

    record = numbers.run(spark)

    assert returned == -9, (numbers.root / "driver.log").read_text()[-3000:]
    assert record.status == "succeeded"
    assert numbers.rows() == list(range(numbers.arrived))
    assert numbers.run(spark) == record


SEEDS = [1] if not CAMPAIGN else range(CAMPAIGN)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_kill_while_spark_writes_a_batch(tmp_path: Path, spark: SparkSession, seed: int) -> None:
    """The batch is planned, data files appear, nothing is committed: the retry runs it as logged."""
    numbers = _slow(tmp_path)
    driver = numbers.start("-m", "sluice", "run", STREAM, "--run-key", "the only one")
    files = random.Random(seed).randint(1, 3)
    batch = files - 1
    killed = numbers.kill_when(
        driver,
        lambda: (
            len(list(numbers.output.rglob("*.parquet"))) >= files
            and (numbers.checkpoint / "offsets" / str(batch)).exists()
            and not (numbers.checkpoint / "commits" / str(batch)).exists()
        ),
    )
    offsets = _newest(numbers.checkpoint / "offsets")
    planned = (numbers.checkpoint / "offsets" / offsets).read_bytes()

    record = numbers.run(spark)

    assert killed
    assert (numbers.checkpoint / "offsets" / offsets).read_bytes() == planned
    assert record.status == "succeeded"
    assert numbers.rows() == list(range(numbers.arrived))


@in_campaigns
@pytest.mark.parametrize("seed", SEEDS)
def test_a_kill_between_the_sink_and_the_commit(tmp_path: Path, spark: SparkSession, seed: int) -> None:
    """The table holds the batch, the commit log does not: the batch runs again and is skipped by the table."""
    numbers = _slow(tmp_path)
    driver = numbers.start("-m", "sluice", "run", STREAM, "--run-key", "the only one")
    version = random.Random(seed).randint(0, 2)
    commit = numbers.output / "_delta_log" / f"{version:020d}.json"
    killed = numbers.kill_when(driver, commit.exists)
    held = (numbers.checkpoint / "commits" / str(version)).exists()

    record = numbers.run(spark)

    assert killed
    assert record.status == "succeeded"
    assert numbers.rows() == list(range(numbers.arrived))
    replayed = [batch for batch in record.batches if batch.batch_id == version]
    assert held or replayed[0].was_in_sink


@in_campaigns
def test_a_dead_drivers_record_is_closed_by_the_next_run(tmp_path: Path, spark: SparkSession) -> None:
    """A run that died without a word does not look as if it were running for ever."""
    numbers = _slow(tmp_path)
    driver = numbers.start("-m", "sluice", "run", STREAM)
    assert numbers.kill_when(driver, (numbers.checkpoint / "offsets" / "0").exists)

    numbers.run(spark)

    home = numbers.project.stream_home(numbers.project.stream(STREAM))
    statuses = [(record.status, record.error and record.error.type) for record in RunRecords(home).newest(5)]
    assert statuses == [("succeeded", None), ("failed", "LeaseLostError")]


@in_campaigns
def test_sigterm_ends_a_run_between_batches(tmp_path: Path, spark: SparkSession) -> None:
    """The batch under way is committed, no other is begun, and the exit code says that all is well."""
    numbers = _slow(tmp_path)
    driver = numbers.start("-m", "sluice", "run", STREAM)
    while not (numbers.checkpoint / "offsets" / "0").exists():
        assert driver.poll() is None

    driver.terminate()
    returned = driver.wait(timeout=120)

    home = numbers.project.stream_home(numbers.project.stream(STREAM))
    assert returned == 0
    assert [record.status for record in RunRecords(home).newest(5)] == ["stopped"]
    assert _newest(numbers.checkpoint / "offsets") == _newest(numbers.checkpoint / "commits") == "0"


@in_campaigns
def test_two_runs_at_once_are_one_run_and_one_refusal(tmp_path: Path, spark: SparkSession) -> None:
    """The second run finds the lease taken by a live process, and says by whom; exit code 5."""
    numbers = _slow(tmp_path)
    driver = numbers.start("-m", "sluice", "run", STREAM)
    while not (numbers.checkpoint / "offsets" / "0").exists():
        assert driver.poll() is None

    second = subprocess.run(
        [*driver.args[:3], "run", STREAM], cwd=numbers.root, capture_output=True, text=True, timeout=60, check=False
    )

    assert second.returncode == 5
    assert str(driver.pid) in second.stderr
    assert driver.wait(timeout=120) == 0
    assert numbers.rows() == list(range(numbers.arrived))


def _slow(root: Path) -> Numbers:
    """Three batches of about a second each."""
    numbers = make_numbers(root, delay_ms=150)
    numbers.arrive(6)
    return numbers


def _newest(log: Path) -> str:
    return max((file.name for file in log.iterdir() if file.name.isdigit()), key=int)
