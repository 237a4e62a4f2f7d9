"""The suites of the example project, as files that Great Expectations reads and writes too."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import get_args

from sluice.quality.suite import Policy, parse_suite

FOLDER = Path(__file__).parents[3] / "include" / "expectations"
WRITE_AGAIN = """
import json, logging, sys, warnings
warnings.simplefilter("ignore"); logging.disable(50)
import great_expectations as gx
print(json.dumps([gx.ExpectationSuite(**json.load(open(file))).to_json_dict() for file in sys.argv[1:]]))
"""


def test_they_are_what_great_expectations_writes() -> None:
    """Also their row conditions and notes: who edits one there changes nothing else."""
    files = sorted(FOLDER.glob("*.json"))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", WRITE_AGAIN, *map(str, files)],
        capture_output=True,
        text=True,
        check=True,
    )
    described = [json.loads(file.read_bytes()) for file in files]
    written = json.loads(done.stdout.splitlines()[-1])

    assert len(described) == 2
    assert [{key: ours[key] for key in own} for own, ours in zip(described, written, strict=True)] == described


def test_it_has_every_policy() -> None:
    """What an example is for."""
    suite = parse_suite((FOLDER / "departures.json").read_bytes(), source="departures.json")

    assert {expectation.policy for expectation in suite.expectations} == set(get_args(Policy))
    assert not any(expectation.is_reread for expectation in suite.expectations)


def test_the_table_is_audited_for_what_costs_a_second_read() -> None:
    """A run does not pay for it."""
    suite = parse_suite((FOLDER / "departures_table.json").read_bytes(), source="departures_table.json")

    assert any(expectation.is_reread for expectation in suite.expectations)
