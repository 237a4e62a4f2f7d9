"""What is noted with a generation: what Spark's plan of its query said, what its table had. No run asks again."""

from __future__ import annotations

from datetime import datetime

import msgspec


class DropsDuplicates(msgspec.Struct, frozen=True):
    """What Spark's plan of the query said of the duplicates that it drops."""

    column: str
    """The interval column then."""
    transform: str | None
    """Tells the text of the transform's module from others; None where there is none."""
    across: str | None
    """The operator whose keys do not tell the interval column; None when there is none."""
    timeless: str | msgspec.UnsetType | None = msgspec.UNSET
    """The operator of which neither the keys nor the interval column tell the event time; None when there is none.
    Unset where a version before this one has looked."""

    def is_about(self, column: str | None, transform: str) -> bool:
        """Whether this is what Spark would say of a declaration."""
        return (self.column, self.transform) == (column, transform)


class StatefulOperator(msgspec.Struct, frozen=True):
    """One operator that keeps state."""

    shown: str
    """What it does, for people: without literals, which may be secrets."""
    digest: str
    """Tells what it does from anything else, literals included."""
    feeds: tuple[str, ...] = ()
    """Tells what it is fed by, and the code that it calls, from anything else; of a join, one for each side."""


class KeptState(msgspec.Struct, frozen=True):
    """What the stateful operators of a query keep."""

    read_by: str
    """Who has read the plan: other versions spell one meaning in other words."""
    operators: tuple[StatefulOperator, ...]
    """In the order of the plan, from its root."""
    time_zone: str = ""
    """The session's, by which times become days."""


class KnownTimers(msgspec.Struct, frozen=True):
    """When the next time-out or timer in processing time is due, by the state that a batch has left."""

    batch_id: int
    timestamp_ms: int
    """The clock of the batch: another batch of its number tells something else."""
    due_ms: int | None
    """Milliseconds since the epoch; None where none waits."""


class Unproven(msgspec.Struct, frozen=True):
    """A batch that is done again beside drivers that may wake up, and write some of its state."""

    batch_id: int
    leases: dict[int, datetime]
    """By token, until when theirs were renewed before the batch was begun: who wakes up renews it."""


class WrittenBatch(msgspec.Struct, frozen=True):
    """The newest batch that a table had when one was noted: a table without it is older than the checkpoint."""

    batch_id: int
    version: int
    """The table's: that which the batch made, or a later one."""
    identity: str | None = None
    """What tells the table from others, where it is not the sink."""


class BegunWith(msgspec.Struct, frozen=True):
    """What a generation's batches were begun with, from one on."""

    from_batch: int
    declared: dict[str, str]
    """Fingerprints, by the name of what is declared; see `declared.fingerprints`."""


class BegunRun(msgspec.Struct, frozen=True):
    """A try of a run that has begun to write a generation's batches."""

    run_id: str
    behind: int
    """The newest batch that was committed then; -1 for none. Until the next one begins, those behind it are its own."""
