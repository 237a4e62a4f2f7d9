"""What of the package needs more than its bare installation: the extras `spark` and `quality`."""

from __future__ import annotations

import importlib.util

from sluice.errors import DeclarationError

_MODULES = {"spark": "pyspark", "quality": "great_expectations"}


def is_installed(extra: str) -> bool:
    """Whether an extra is there: `spark` or `quality`."""
    return importlib.util.find_spec(_MODULES[extra]) is not None


def check_extra(extra: str, what: str) -> None:
    """Make sure that an extra is installed.

    Args:
        extra: `spark` or `quality`.
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
