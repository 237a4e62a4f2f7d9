"""Commands and drivers end with an exit code of ours, also beside delta-rs' reader, whose threads outlive Python."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from deltalake import DeltaTable

from sluice.running import submit
from tests.builders import make_delta, put
from tests.campaign import CAMPAIGN, in_campaigns

pytestmark = [pytest.mark.spark, in_campaigns]

TURNS = max(50, CAMPAIGN)
"""A process aborts in a few of a hundred."""
DECLARATION = """
from pathlib import Path
from deltalake import DeltaTable
from sluice import Stream, sinks, sources
known = DeltaTable(str(Path(__file__).parent.parent / "known")).to_pyarrow_table().num_rows
numbers = Stream(
    name="numbers",
    sources={"numbers": sources.files("in", format="json", schema="n bigint, day date")},
    transform="transform_read_beside:numbers",
    sink=sinks.delta("out", partition_by=["day"]),
    interval_column="day",
    quality="suite.json",
)
"""
TRANSFORM = """
from pathlib import Path
from deltalake import DeltaTable

def numbers(numbers):
    assert DeltaTable(str(Path(__file__).parent / "known")).to_pandas().shape == (300, 2)
    return numbers
"""
ROWS = 8


def work(root: Path, command: str) -> int:
    """Do one thing in a process of its own; returns its exit code."""
    named = ["--project", str(root)]
    command_line = [sys.executable, "-m", "sluice"]
    words = {
        "run": [*command_line, "run", "numbers", *named],
        "driver": [sys.executable, submit.__file__, *named, "--stream", "numbers"],
        "backfill": [*command_line, "backfill", "numbers", "--start", "2026-01-01", "--end", "2026-01-02", *named],
        "audit": [*command_line, "quality", "audit", "numbers", *named],
        "release": [*command_line, "quality", "release", "numbers", "--rows", *named],
    }[command]
    with (root / "log").open("ab") as log:
        return subprocess.run(words, stdout=log, stderr=log, check=False).returncode


def judge(root: Path, most: int) -> None:
    """Quarantine the numbers beyond a limit."""
    kwargs, policy = {"column": "n", "max_value": most}, {"sluice": {"policy": "quarantine"}}
    expectation = {"type": "expect_column_values_to_be_between", "kwargs": kwargs, "meta": policy}
    put(root / "suite.json", json.dumps({"name": "numbers", "expectations": [expectation]}))


def rows(table: Path) -> list[int]:
    return sorted(DeltaTable(str(table)).to_pyarrow_table().column("n").to_pylist()) if table.exists() else []


@pytest.mark.timeout(0)
def test_every_exit_code_is_ours(tmp_path: Path) -> None:
    """Run, backfill, audit, release: fifty times, or as a campaign asks, each ends with 0, and its work is done."""
    put(tmp_path / "sluice.toml", '[spark]\nmaster = "local[1]"\nconf = { "spark.sql.shuffle.partitions" = 1 }\n')
    put(tmp_path / "streams" / "numbers.py", DECLARATION)
    put(tmp_path / "transform_read_beside.py", TRANSFORM)
    make_delta(tmp_path / "known", range(300))
    codes: Counter[tuple[str, int]] = Counter()
    for turn in range(TURNS):
        numbers = range(turn * ROWS, (turn + 1) * ROWS)
        put(tmp_path / "in" / f"{turn:04d}.json", "\n".join(f'{{"n": {n}, "day": "2026-01-01"}}' for n in numbers))
        judge(tmp_path, numbers[-1] - 1)
        codes["run", work(tmp_path, "driver" if turn % 2 else "run")] += 1
        assert rows(tmp_path / "out_quarantine") == [numbers[-1]], (tmp_path / "log").read_text()[-4000:]
        judge(tmp_path, numbers[-1])
        for command in ("audit", "release", "backfill"):
            codes[command, work(tmp_path, command)] += 1
        assert (rows(tmp_path / "out"), rows(tmp_path / "out_quarantine")) == (list(range(numbers[-1] + 1)), [])
        sys.stdout.write(f"{dict(codes)}\n")
    assert codes == {(command, 0): TURNS for command in ("run", "audit", "release", "backfill")}, (
        tmp_path / "log"
    ).read_text()[-4000:]


READS = "for _ in range(8): DeltaTable({table!r}).to_pyarrow_table()"
PLAIN = "from deltalake import DeltaTable\n" + READS
OURS = f"""
from deltalake import DeltaTable
from sluice.exit_code import leave_with
def work():
    {READS}
    return 4
leave_with(work)
"""


@pytest.mark.timeout(0)
def test_delta_rs_alone(tmp_path: Path) -> None:
    """What aborts a process of Python's own in a few of a hundred ends with our code in every process of ours."""
    table = str(make_delta(tmp_path / "known", *([number] for number in range(30))))
    codes: Counter[tuple[str, int]] = Counter()
    for _ in range(10 * CAMPAIGN):
        for name, program in (("plain", PLAIN), ("ours", OURS)):
            words = [sys.executable, "-c", program.format(table=table)]
            codes[name, subprocess.run(words, stderr=subprocess.DEVNULL, check=False).returncode] += 1
    sys.stdout.write(f"{dict(codes)}\n")
    assert codes["ours", 4] == 10 * CAMPAIGN
