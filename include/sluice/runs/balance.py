"""Where the rows of a run went, by its record: read = published + quarantined + dropped + left out by the transform."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from sluice.amounts import known_sum
from sluice.errors import Problem

if TYPE_CHECKING:
    from sluice.runs.record import BatchRecord, RunRecord


class CountedBatch(Protocol):
    """As much of a batch's record as its balance needs; each means what `BatchRecord` says of it."""

    @property
    def input_rows(self) -> int | None: ...
    @property
    def output_rows(self) -> int | None: ...
    @property
    def result_rows(self) -> int | None: ...
    @property
    def quarantined_rows(self) -> int: ...
    @property
    def dropped_rows(self) -> int: ...
    @property
    def unmatched_rows(self) -> int | None: ...


class JudgedInterval(Protocol):
    """As much of what quality has said of a backfill."""

    @property
    def rows(self) -> int | None: ...
    @property
    def quarantined(self) -> int: ...
    @property
    def dropped(self) -> int: ...


@dataclass(frozen=True)
class Balance:
    """What a record says of where rows went."""

    text: str
    is_broken: bool
    """Whether rows went nowhere, or to several places."""


def balance_of(record: RunRecord) -> Balance | None:
    """The balance of a run or a backfill; None where no row is known to have been read."""
    return _of_backfill(record) if record.interval is not None else _of_batches(record.batches)


def broken_balance(record: RunRecord) -> Problem | None:
    """What is wrong with where the rows of a run went; None when nothing is, as far as that is known."""
    balance = balance_of(record)
    if balance is None or not balance.is_broken:
        return None
    return Problem(
        code="ROWS_NOT_IN_BALANCE",
        file=f"run {record.run_id}",
        cause=balance.text,
        consequence="rows of the run are nowhere, or there twice",
        remedy="compare the sink and the quarantine with the sources before anything is built on them; a backfill"
        " computes the rows of an interval anew",
        is_blocking=False,
    )


def is_broken(batch: CountedBatch) -> bool:
    """Whether rows of a batch went nowhere, or to several places, as far as that can be known."""
    if batch.input_rows is None:
        # What was in the sink already was read by another run.
        return False
    made = _made(batch)
    if made is None:
        return False
    if batch.result_rows is not None and batch.output_rows is not None and made != _gone(batch):
        return True
    return batch.unmatched_rows is not None and batch.input_rows != made + batch.unmatched_rows


def is_backfill_broken(judged: JudgedInterval | None, written: int | None) -> bool:
    """Whether rows of a backfill's interval went nowhere, or to several places, as far as that can be known.

    Args:
        judged: What quality has said of them; None where there was no suite.
        written: How many were written to the sink; None where that is not known.
    """
    if judged is None or judged.rows is None or written is None:
        return False
    return judged.rows != written + judged.quarantined + judged.dropped


def _of_batches(batches: Iterable[BatchRecord]) -> Balance | None:
    counted = [batch for batch in batches if batch.input_rows is not None]
    if not counted:
        return None
    read = sum(batch.input_rows or 0 for batch in counted)
    published = known_sum(batch.output_rows for batch in counted)
    quarantined = sum(batch.quarantined_rows for batch in counted)
    dropped = sum(batch.dropped_rows for batch in counted)
    unmatched = known_sum(batch.unmatched_rows for batch in counted)
    places = f"{_count(published)} published + {quarantined:,} put into quarantine + {dropped:,} dropped"
    if unmatched is not None:
        told = f"{read:,} rows read = {places} + {unmatched:,} not matched by the transform"
    else:
        made = known_sum(map(_made, counted))
        told = f"{read:,} rows read; {_count(made)} made of them = {places}; what the transform left out is not known"
    broken = [str(batch.batch_id) for batch in counted if is_broken(batch)]
    if broken:
        told = f"{_unequal(told)}: {'batch' if len(broken) == 1 else 'batches'} {', '.join(broken)} not in balance"
    return Balance(told, bool(broken))


def _of_backfill(record: RunRecord) -> Balance | None:
    quality, backfill = record.quality, record.backfill
    if quality is None or quality.rows is None or backfill is None or backfill.rows_written is None:
        return None
    is_broken = is_backfill_broken(quality, backfill.rows_written)
    told = (
        f"{quality.rows:,} rows of the interval = {backfill.rows_written:,} published"
        f" + {quality.quarantined:,} put into quarantine + {quality.dropped:,} dropped"
    )
    return Balance(_unequal(told) if is_broken else told, is_broken)


def _unequal(text: str) -> str:
    return text.replace(" = ", " \u2260 ")


def _made(batch: CountedBatch) -> int | None:
    """How many rows came out of the transform: measured, or as many as went somewhere."""
    return batch.result_rows if batch.result_rows is not None else _gone(batch)


def _gone(batch: CountedBatch) -> int | None:
    return None if batch.output_rows is None else batch.output_rows + batch.quarantined_rows + batch.dropped_rows


def _count(count: int | None) -> str:
    return "?" if count is None else f"{count:,}"
