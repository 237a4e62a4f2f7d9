"""The pool that bounds the drivers on a host: made when a scheduler starts, and from then on a person's to change."""

from __future__ import annotations

import logging
import os
from typing import Any

from airflow.listeners import hookimpl

from sluice_airflow.listeners.failing_alone import failing_alone

logger = logging.getLogger(__name__)

POOL = "sluice"
"""It counts deferred tasks too: its slots are the drivers at work."""
_DESCRIPTION = "Drivers of streams at work: one slot each, deferred tasks included (Sluice)"


@hookimpl
def on_starting(component: Any) -> None:
    """Make the pool if there is none: Airflow starts no task of a pool that does not exist. Fails nothing.

    Args:
        component: What starts. A scheduler, a triggerer and a DAG processor begin with a job, and have the database;
            which of them it is, Airflow says only later.
    """
    if type(component).__name__ != "Job":
        return
    with failing_alone(logger, f"the pool {POOL!r} could not be made: `airflow pools set` makes it"):
        _make_pool()


def _make_pool() -> None:
    from airflow.models.pool import Pool
    from sqlalchemy.exc import IntegrityError

    if Pool.get_pool(POOL) is not None:
        return
    # A driver keeps two cores busy; one slot would let a stream that hangs hold up all others.
    slots = max(2, (os.cpu_count() or 2) // 2)
    try:
        Pool.create_or_update_pool(POOL, slots, _DESCRIPTION, include_deferred=True)
    except IntegrityError:
        # Another component starts at the same moment, and was first.
        return
    logger.info("made the pool %r with %s slots", POOL, slots)
