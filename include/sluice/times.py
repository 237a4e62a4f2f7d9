"""Times as people write them, and as our files and commands do: ISO 8601, UTC unless a zone is given."""

from __future__ import annotations

from datetime import UTC, datetime

from sluice.errors import DeclarationError


def parse_time(text: str | None) -> datetime | None:
    """Read a time; a date alone is its midnight, without a zone it is UTC, an empty text is None.

    Raises:
        DeclarationError: It is no ISO 8601 time.
    """
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as exc:
        raise DeclarationError(
            f"{text!r} is no time", where="--until", remedy="write ISO 8601: 2026-01-31 or 2026-01-31T12:00:00Z"
        ) from exc
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def iso_time(moment: datetime) -> str:
    """A time as our files and commands write it: ISO 8601, UTC, milliseconds, `Z`."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def iso_millis(milliseconds: int | None) -> str | None:
    """Milliseconds since the epoch as `iso_time` writes them; None for none."""
    return None if milliseconds is None else iso_time(datetime.fromtimestamp(milliseconds / 1000, UTC))
