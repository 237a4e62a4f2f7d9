"""Reads what templates have rendered: one that finds nothing gives an empty text or `None` as a word."""

from __future__ import annotations

from sluice.errors import DeclarationError


def text(value: str | None) -> str | None:
    """A text; None when there is none."""
    return None if value is None or value in {"", "None"} else value


def number(name: str, value: str | int | None, *, least: int = 0) -> int | None:
    """A whole number; None when there is none.

    Raises:
        DeclarationError: It is something else, or below `least`; the error names the argument.
    """
    found = text(None if value is None else str(value))
    if found is not None and not found.isdecimal():
        raise DeclarationError(f"{found!r} is no whole number", where=name, remedy="give one, or leave it empty")
    if found is not None and int(found) < least:
        raise DeclarationError(f"it is {found}", where=name, remedy=f"give {least} or more, or leave it empty")
    return None if found is None else int(found)
