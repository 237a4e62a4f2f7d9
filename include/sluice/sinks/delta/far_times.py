"""Dates and times of partitions that delta-rs can't read: one of them, committed, and no plan opens the table again."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from sluice.errors import DeclarationError
from sluice.sql_text import identifier, string_literal

if TYPE_CHECKING:
    from deltalake.transaction import AddAction
    from pyspark.sql import DataFrame

FARTHEST_YEAR = 262_142
"""The last one, and the first before the common era, that the library knows."""
_YEAR = re.compile(r"[+-]?(\d{5,})-")
_RAISED = re.compile(r"\[USER_RAISED_EXCEPTION\] a row has a date in the partition column `(.*?)` that is beyond")
_KINDS = ("date", "timestamp", "timestamp_ntz")


def refusing_far_times(frame: DataFrame, partitions: Mapping[str, str]) -> DataFrame:
    """The same rows, whose computation fails at one that a table could not be read with: for what Spark itself commits.

    Args:
        frame: The rows.
        partitions: What partitions the table, with its types as Spark names them; the rows need not have it.
    """
    own = {name.lower(): name for name in frame.columns}
    for partition, kind in partitions.items():
        # What the table computes itself, or the result does not give, is no column of the rows.
        name = own.get(partition.lower())
        if name is not None and kind in _KINDS:
            is_near = f"coalesce(abs(year({identifier(name)})) <= {FARTHEST_YEAR}, true)"
            frame = frame.where(f"assert_true({is_near}, {string_literal(_told(name))}) IS NULL")
    return frame


def check_rows(frame: DataFrame, partitions: Mapping[str, str], *, place: str) -> None:
    """Make sure that a table can be read once these rows are in it; computes them, where a time partitions it.

    Args:
        frame: The rows.
        partitions: See `refusing_far_times`.
        place: The table, for messages.

    Raises:
        DeclarationError: It could not be.
    """
    guarded = refusing_far_times(frame, partitions)
    if guarded is frame:
        return
    try:
        guarded.write.format("noop").mode("overwrite").save()
    except Exception as exc:
        if (known := far_time_told(str(exc), place=place)) is None:
            raise
        raise known from exc


def far_time_told(said: str, *, place: str) -> DeclarationError | None:
    """What to raise where Spark says that it met such a row; None where it does not.

    Args:
        said: All that Spark said: its plan quotes the words, too, and not as raised.
        place: The table, for messages.
    """
    found = _RAISED.search(said)
    return None if found is None else _error(found[1], place)


def check_far_times(added: Iterable[AddAction], kinds: Mapping[str, str], *, place: str) -> None:
    """Make sure that a table can be read once files are in it.

    Args:
        added: What a commit would add.
        kinds: The types of the table's columns, by name.
        place: The table, for messages.

    Raises:
        DeclarationError: It could not be; nothing is committed.
    """
    for action in added:
        for name, value in action.partition_values.items():
            year = _YEAR.match(value) if value is not None and kinds.get(name) in _KINDS else None
            if year is not None and int(year[1]) > FARTHEST_YEAR:
                raise _error(name, place)


def _error(name: str, place: str) -> DeclarationError:
    remedy = "leave such rows out in the transform, or partition by another column"
    return DeclarationError(f"{_told(name)}; the batch is not published", where=place, remedy=remedy)


def _told(name: str) -> str:
    return (
        f"a row has a date in the partition column `{name}` that is beyond the year {FARTHEST_YEAR:,}, and with it"
        " nobody but Spark could read the table"
    )
