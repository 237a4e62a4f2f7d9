"""Numbers, times and offsets as a person reads them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from sluice.runs.lease import TTL

NONE = "\N{EN DASH}"
"""What stands where nothing is known."""

_LONGEST = 96


def count(number: int | None, unit: str = "", *, units: str | None = None) -> str:
    """`1,234 rows`; a dash for None."""
    if number is None:
        return NONE
    name = unit if number == 1 else (units or f"{unit}s" if unit else "")
    return f"{number:,} {name}".rstrip()


def size(size_bytes: int | None) -> str:
    """`12.3 MB`, in powers of 1000."""
    if size_bytes is None:
        return NONE
    amount = float(size_bytes)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:,.1f} TB"


def rate(rows_per_second: float | None) -> str:
    """`5,689 rows/s`; slow ones with a decimal."""
    if rows_per_second is None:
        return NONE
    return f"{rows_per_second:,.0f} rows/s" if rows_per_second >= 10 else f"{rows_per_second:.1f} rows/s"


def span(seconds: float | None) -> str:
    """`450 ms`, `3.2 s`, `4 min 5 s`, `2 h 10 min`, `3 d 4 h`."""
    if seconds is None:
        return NONE
    if seconds < 1:
        return f"{max(0.0, seconds) * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for unit, length, part, part_length in (("d", 86400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1)):
        if whole >= length:
            rest = whole % length // part_length
            return f"{whole // length:,} {unit}" + (f" {rest} {part}" if rest else "")
    return f"{whole} s"


LEASE_LIFETIME = span(TTL.total_seconds())
"""How long a lease lasts that its owner does not renew."""


def moment(when: datetime | None) -> str:
    """`2026-01-31 12:00:00` in UTC."""
    return NONE if when is None else when.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def interval(start: datetime, end: datetime) -> str:
    """`2026-01-01 to 2026-02-01`, and the times of day where they are not midnights; the end is not in it."""
    texts = [moment(read_moment(at.isoformat())) for at in (start, end)]
    if all(text.endswith(" 00:00:00") for text in texts):
        texts = [text.removesuffix(" 00:00:00") for text in texts]
    return " to ".join(texts)


def ago(when: datetime | None, now: datetime) -> str:
    """How long ago, or how far ahead."""
    if when is None:
        return ""
    seconds = (now - when).total_seconds()
    if seconds < -1:
        return f"in {_coarse(-seconds)}"
    return "just now" if seconds < 5 else f"{_coarse(seconds)} ago"


def _coarse(seconds: float) -> str:
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:,.0f} {unit}"
    return f"{seconds:.0f} s"


def read_moment(text: Any) -> datetime | None:
    """A time from a document; None when it is none."""
    if not isinstance(text, str):
        return None
    try:
        found = datetime.fromisoformat(text)
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def offset(document: Any) -> str:
    """An offset of Spark's, decoded, in short: its entry of a file log, its table version, its own JSON."""
    if document is None:
        return "start"
    if isinstance(document, dict):
        if set(document) == {"logOffset"}:
            return f"entry {document['logOffset']}"
        if "reservoirVersion" in document:
            # Index -1 is the end of the version before; any other is a place within this one.
            version, index = document["reservoirVersion"], document.get("index", -1)
            if index == -1 and isinstance(version, int):
                return f"before version {version}"
            return f"version {version}, file {index}"
    return short(exact(document))


def logged_offset(text: str | None) -> str:
    """An offset as it stands in a log, in short."""
    return offset(decoded(text))


def decoded(text: str | None) -> Any:
    """JSON out of a log that was checked when it was read; what is none after all stays text."""
    if text is None:
        return None
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return text


def exact(document: Any) -> str:
    """A document as JSON."""
    return msgspec.json.encode(document).decode()


def code_pieces(text: str) -> list[tuple[bool, str]]:
    """A sentence of Sluice's in pieces, and whether each is code: what stands between backticks."""
    pieces = text.split("`")
    if len(pieces) % 2 == 0:
        return [(False, text)]
    return [(index % 2 == 1, piece) for index, piece in enumerate(pieces) if piece]


def short(text: str, longest: int = _LONGEST) -> str:
    """A text, cut where it gets too long for a table."""
    return text if len(text) <= longest else f"{text[: longest - 1]}\N{HORIZONTAL ELLIPSIS}"
