"""What of the package needs more than its bare installation: its extras."""

from __future__ import annotations

import importlib.util

from sluice.errors import DeclarationError

_MODULES = {
    "spark": "pyspark",
    "quality": "great_expectations",
    "kafka": "confluent_kafka",
    "lineage": "openlineage.client",
}


def is_installed(extra: str) -> bool:
    """Whether an extra is there: `spark`, `quality`, `kafka` or `lineage`."""
    try:
        return importlib.util.find_spec(_MODULES[extra]) is not None
    except ModuleNotFoundError:
        # Of a package within another one, that one is looked for first.
        return False


def check_extra(extra: str, what: str) -> None:
    """Make sure that an extra is installed.

    Args:
        extra: `spark`, `quality`, `kafka` or `lineage`.
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
