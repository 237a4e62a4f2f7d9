"""The suite of the example project, as a file that Great Expectations reads and writes too."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import get_args

from sluice.quality.suite import Policy, parse_suite

FILE = Path(__file__).parents[3] / "include" / "expectations" / "departures.json"
WRITE_AGAIN = """
import json, logging, sys, warnings
warnings.simplefilter("ignore"); logging.disable(50)
import great_expectations as gx
print(json.dumps(gx.ExpectationSuite(**json.load(open(sys.argv[1]))).to_json_dict()))
"""


def test_it_is_what_great_expectations_writes() -> None:
    """Also its row conditions and notes: who edits it there changes nothing else."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", WRITE_AGAIN, str(FILE)], capture_output=True, text=True, check=True
    )
    described, written = json.loads(FILE.read_bytes()), json.loads(done.stdout.splitlines()[-1])

    assert {key: written[key] for key in described} == described


def test_it_has_every_policy() -> None:
    """What an example is for."""
    suite = parse_suite(FILE.read_bytes(), source="departures.json")

    assert {expectation.policy for expectation in suite.expectations} == set(get_args(Policy))
    assert any(expectation.kind.path == "reread" for expectation in suite.expectations)
