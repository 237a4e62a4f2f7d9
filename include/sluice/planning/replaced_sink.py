"""What is said of a sink that is not the one with the rows that a stream has written."""

from __future__ import annotations

from sluice.errors import Problem

MISSING = "the rows that were written before would be missing in it for ever"
"""What going on would come to."""


def replaced_sink(
    place: str,
    cause: str,
    *,
    remedy: str = "restore the table, or declare the sink where it is; or a new stream with a sink of its own",
) -> Problem:
    """Another sink, or an older copy of it, is where the rows should be.

    Args:
        place: Where that is.
        cause: What tells.
        remedy: What a person can do.
    """
    return Problem(code="SINK_REPLACED", file=place, cause=cause, consequence=MISSING, remedy=remedy)
