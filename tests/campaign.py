"""What only `make campaign` runs: long series of kills, and cases that take a driver each."""

from __future__ import annotations

import os
from typing import TypeVar

import pytest

CAMPAIGN = int(os.environ.get("SLUICE_KILLS", "0"))
"""How many kills of every kind a campaign asks for; 0 outside of one."""
_Case = TypeVar("_Case")
in_campaigns = pytest.mark.skipif(not CAMPAIGN, reason="takes a driver or two: a part of `make campaign`")


def rarely(*cases: _Case) -> tuple[_Case, ...]:
    """Cases of campaigns only."""
    return cases if CAMPAIGN else ()
