"""What of the package needs more than its bare installation: the extras `spark`, `quality` and `kafka`."""

from __future__ import annotations

import importlib.util

from sluice.errors import DeclarationError

_MODULES = {"spark": "pyspark", "quality": "great_expectations", "kafka": "confluent_kafka"}


def is_installed(extra: str) -> bool:
    """Whether an extra is there: `spark`, `quality` or `kafka`."""
    return importlib.util.find_spec(_MODULES[extra]) is not None


def check_extra(extra: str, what: str) -> None:
    """Make sure that an extra is installed.

    Args:
        extra: `spark`, `quality` or `kafka`.
        what: What needs it.

    Raises:
        DeclarationError: It is not.
    """
    if not is_installed(extra):
        raise DeclarationError(
            f"{what} needs `{_MODULES[extra]}`, which is not installed",
            where="this Python's packages",
            remedy=f"pip install 'sluice-streaming[{extra}]'",
        )
