"""Waiting for a condition in an event loop that is not ours to instrument."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

SOON = 20.0
"""Seconds within which something must happen; nothing waits that long unless it fails."""


async def until(condition: Callable[[], object]) -> None:
    """Wait until a condition holds."""
    async with asyncio.timeout(SOON):
        while True:
            if condition():
                return
            await asyncio.sleep(0.005)
