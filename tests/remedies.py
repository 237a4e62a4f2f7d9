"""Reading a remedy before it is walked, in the tests that `tests/unit/planning/test_remedies.py` names."""

from __future__ import annotations

import re

from sluice.errors import Problem, RefusedError


def read_remedy(said: Problem | RefusedError | None, code: str, says: str) -> Problem:
    """Make sure that a problem is of this code, and what its remedy says; the rest of the test does that.

    Args:
        said: What was refused, or warned of.
        code: The code.
        says: What the remedy has, as a pattern.
    """
    problem = said.finding if isinstance(said, RefusedError) else said
    assert problem is not None
    assert problem.code == code
    assert re.search(says, problem.remedy), problem.remedy
    return problem
