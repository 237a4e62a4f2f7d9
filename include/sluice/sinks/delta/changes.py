"""How a feed of changes is applied to a table, as `sinks.changes` declares it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from sluice.declaration_checks import column_names, declares
from sluice.errors import DeclarationError
from sluice.other_names import CHANGES_WORDS

_PLACE = "sinks.changes()"
_QUOTED = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`[^`]*`")
_NOT_OF_THE_ROW = re.compile(
    r"\b(?:(?:current_(?:date|time|timestamp|user)|localtimestamp|select)\b"
    r"|(?:curdate|input_file_name|monotonically_increasing_id|now|rand|randn|random|randstr|session_user|spark_partition_id"
    r"|uniform|unix_timestamp(?=\s*\(\s*\))|user|uuid)\s*\()",
    re.IGNORECASE,
)
"""What tells another thing of the same row at another time, or elsewhere."""


@dataclass(frozen=True)
class Changes:
    """Declared by `sinks.changes`."""

    keys: tuple[str, ...]
    sequence_by: str
    apply_as_deletes: str | None
    stored_as_scd_type: Literal[1, 2]
    except_columns: tuple[str, ...]

    def kept_columns(self, columns: Sequence[str]) -> list[str]:
        """Of the columns of an event, those that the table has."""
        return [name for name in columns if name not in self.except_columns]


@declares(_PLACE, CHANGES_WORDS)
def changes(
    *,
    keys: str | Sequence[str],
    sequence_by: str,
    apply_as_deletes: str | None = None,
    stored_as_scd_type: Literal[1, 2] = 1,
    except_columns: str | Sequence[str] = (),
) -> Changes:
    """Declare how the rows of a result, each of them a change, are applied to a Delta table.

    Of two changes of one key and one sequence, a delete counts before others, and else the greater row does, column by
    column: so the table is the same in whatever order changes arrive, and however they fall into batches.

    Args:
        keys: The columns, or the one, that tell what a change is about.
        sequence_by: The column that orders the changes of a key, whenever they arrive.
        apply_as_deletes: A condition in SQL, about any columns of the result, that a delete meets.
        stored_as_scd_type: 1 keeps the newest row of each key; 2 keeps all, each with the sequence `__START_AT` from
            which on it was so, and `__END_AT` up to which, null where it still is.
        except_columns: Columns of the result that the table does not have.

    Raises:
        DeclarationError: One of them is not what it must be.
    """
    found, left = column_names(keys, "keys", _PLACE), column_names(except_columns, "except_columns", _PLACE)
    if not found:
        raise DeclarationError("`keys` names no column", where=_PLACE, remedy="name the columns that tell a row")
    order = column_names([sequence_by], "sequence_by", _PLACE) if isinstance(sequence_by, str) else ()
    if not order:
        raise DeclarationError(
            f"`sequence_by` is {sequence_by!r}",
            where=_PLACE,
            remedy="name one column; of several, make a struct in the transform",
        )
    if str(stored_as_scd_type) not in {"1", "2"} or isinstance(stored_as_scd_type, bool):
        raise DeclarationError(f"`stored_as_scd_type` is {stored_as_scd_type!r}", where=_PLACE, remedy="it is 1 or 2")
    _check_condition(apply_as_deletes)
    needed = [*found, *order] if str(stored_as_scd_type) == "1" else found
    if (gone := next((name for name in left if name in needed), None)) is not None:
        raise DeclarationError(
            f"`except_columns` names `{gone}`, which the table needs: a later batch finds its rows by it",
            where=_PLACE,
            remedy="leave it in",
        )
    return Changes(found, order[0], apply_as_deletes, 1 if str(stored_as_scd_type) == "1" else 2, left)


def _check_condition(apply_as_deletes: object) -> None:
    if apply_as_deletes is None:
        return
    if not isinstance(apply_as_deletes, str) or not apply_as_deletes.strip():
        raise DeclarationError(
            f"`apply_as_deletes` is {apply_as_deletes!r}",
            where=_PLACE,
            remedy="write a condition in SQL, as in \"op = 'D'\"",
        )
    asked = _NOT_OF_THE_ROW.search(_QUOTED.sub("''", apply_as_deletes))
    if asked is not None:
        raise DeclarationError(
            f"`apply_as_deletes` asks `{asked[0].rstrip('( ')}`, which says something else of the same change later",
            where=_PLACE,
            remedy="let it depend on columns of the change alone",
        )
