"""A listener that fails, whatever it called: what Airflow told it of goes on."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def failing_alone(logger: logging.Logger, fails: str) -> Iterator[None]:
    """Whatever is raised while this lasts is logged, and goes no further.

    Args:
        logger: Where it is logged.
        fails: What has failed then.
    """
    try:
        yield
    except BaseException as exc:
        # The library is not loaded with the plugin: Airflow loads that in every process.
        from sluice.foreign_code import is_failure

        if not is_failure(exc):
            raise
        logger.warning("%s", fails, exc_info=True)
