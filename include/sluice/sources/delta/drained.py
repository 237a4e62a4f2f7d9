"""Delta sources whose batches only Spark can decide, and why."""

from __future__ import annotations

from collections.abc import Mapping

from sluice.sources.delta.feeding import TRACKED


def why_drained(options: Mapping[str, str]) -> str | None:
    """Why the batches of a source can't be decided from outside of Spark; None when they can.

    Args:
        options: The source's, as Spark spells them.
    """
    if options.get("withEventTimeOrder") == "true":
        return "Spark alone knows the offsets of a Delta source with `withEventTimeOrder`"
    if TRACKED in options:
        return f"Spark alone ends its batches where the columns change, as `{TRACKED}` lets it"
    return None
