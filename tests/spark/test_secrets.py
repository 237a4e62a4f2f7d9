"""Every command of the command line, with secrets of every kind in its project: none of them tells one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sluice.spark.query_words import QueryWords
from sluice.spark.shown_log import shown_lines
from tests.builders import put
from tests.campaign import rarely
from tests.canaries import CANARIES, FROM_FILES, files, leaks, open_to_others, processes, row, settings, transform

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

REPOSITORY = Path(__file__).parents[2]
DECLARED = """
from sluice import Stream, sinks, sources
events = Stream(
    name="events",
    sources={"events": sources.files("in", format="json", schema="n bigint, text string, day date")},
    transform="salted:events",
    sink=sinks.delta("out/events", partition_by="day"),
    quality="suite.json",
    quarantine=sinks.delta("out/aside"),
    interval_column="day",
)
calling = Stream(
    name="calling",
    sources={"events": sources.files("in", format="json", schema="n bigint, text string")},
    transform="salted:events",
    sink=sinks.foreach_batch("salted:keep"),
)
"""
SUITE = """
{"name": "events", "expectations": [{"type": "expect_column_values_to_be_between",
 "kwargs": {"column": "n", "max_value": 5}, "meta": {"sluice": {"policy": "quarantine"}}}]}
"""
PROGRAM = """
import pathlib, sys
from sluice.cli.app import _run

for line in pathlib.Path("commands").read_text().splitlines():
    ill, expected, *words = line.split()
    pathlib.Path("ill").write_text(ill)
    if ill == "batch":
        pathlib.Path("in", "ill.json").write_text(pathlib.Path("ill.json").read_text())
    sys.argv = ["sluice", *words]
    print("$", *words, flush=True)
    try:
        code = _run()
    except SystemExit as exc:
        code = exc.code or 0
    print("ended with", code, flush=True)
    assert code == int(expected), (words, code)
"""
COMMANDS = """
none 0 check --no-spark
none 0 list --json
none 0 plan events --json
none 0 run events
none 0 run calling --json
none 0 quality events
none 0 quality show events --html report.html
none 0 backfill events --start 2026-01-01 --end 2026-01-02
batch 1 run events --json
none 0 inspect events --json
none 0 lag events
transform 2 run calling
none 0 runs events --json
none 0 runs calling
"""
MORE = ("none 0 quality audit events", "none 0 quality release events --rows", "transform 2 check calling")


def test_no_command_tells_a_secret(tmp_path: Path) -> None:
    """Neither what it prints, a command line, the home, a table, a report nor a temporary file."""
    (tmp_path / "aside").mkdir()
    put(tmp_path / "sluice.toml", settings())
    put(tmp_path / "salted.py", transform(tmp_path))
    put(tmp_path / "streams" / "events.py", DECLARED)
    put(tmp_path / "suite.json", SUITE)
    put(tmp_path / "in" / "0.json", "\n".join(map(row, range(8))))
    put(tmp_path / "ill.json", row(9, text=CANARIES["row"]))
    commands = [*COMMANDS.strip().splitlines(), *rarely(*MORE)]
    put(tmp_path / "commands", "\n".join(commands))
    aside = str(tmp_path / "aside")
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "SLUICE_"))},
        "PYTHONPATH": os.pathsep.join(str(REPOSITORY / name) for name in ("include", "plugins", ".")),
        "EXAMPLE_API_KEY": CANARIES["environment"],
        "TMPDIR": aside,
        "SPARK_LOCAL_DIRS": aside,
        "JAVA_TOOL_OPTIONS": f"-Djava.io.tmpdir={aside}",
    }

    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )

    assert ended.returncode == 0, f"{ended.stdout}\n{ended.stderr}"
    assert ended.stdout.count("ended with") == len(commands)
    home = tmp_path / "var" / "sluice"
    places = [
        ("standard output", ended.stdout),
        # Spark's own log of its errors is there as it is: by hand, standard error is the driver's log.
        ("standard error", "\n".join(shown_lines(ended.stderr.splitlines(), QueryWords()))),
        *processes(tmp_path, "cmdline"),
        *processes(tmp_path, "file"),
        *files(home, tmp_path / "out", tmp_path / "aside", tmp_path / "report.html"),
    ]
    told = [*leaks(places, CANARIES), *leaks(processes(tmp_path, "environ"), FROM_FILES)]
    assert not told, "\n".join(told)
    assert open_to_others(home) == {}
    assert any(CANARIES["failing_literal"] in text for place, text in files(home) if place.endswith(".log"))
