"""What was decided of a batch that goes into two tables, and how it is called on disk. Without Spark.

<home>/<stream>/staged/0001/<batch_id>.json      what was decided; who puts it there first has decided
<home>/<stream>/staged/0001/<batch_id>-<token>/  the rows as Parquet, each with where it goes and why
"""

from __future__ import annotations

from typing import Any

from sluice.checkpoint.reader import CheckpointState
from sluice.documents import Document, encode_document, read_document
from sluice.errors import BatchFailedError, Problem, RefusedError
from sluice.gate.quarantine_places import note_quarantine
from sluice.home import StreamHome
from sluice.locations import join
from sluice.project import Project
from sluice.runs.kept_table import Table
from sluice.sinks.splitting import SplittingSink


class Decision(Document, frozen=True, kw_only=True):
    """What was decided of a batch, and by what: on disk before either table has any of it."""

    if_lost = (
        "delete it: the batch is decided anew, unless the quarantine has its part of it already; that is refused then"
    )
    batch_id: int
    query_id: str
    run_id: str
    """The run that has decided."""
    folder: str
    """The name of the folder that has the rows, beside this file."""
    files: dict[str, int]
    """Their files' sizes in bytes, by name."""
    row_type: str
    """The columns of the result, as Spark's JSON of a struct type."""
    sink: Table
    quarantine: Table
    values: dict[str, Any]
    """What was measured of the rows, by the suite of then."""
    quarantined: int
    """How many rows go to the quarantine."""
    dropped: int = 0
    """How many rows go nowhere."""
    interval_column: str | None = None
    """The stream's, whose value the quarantine keeps beside each row."""

    def removed(self) -> dict[str, int]:
        """How many rows do not go to the sink, by the policy that took them."""
        return {"quarantine": self.quarantined, "drop": self.dropped}


def read_decision(home: StreamHome, generation: int, batch_id: int) -> Decision | None:
    """What was decided of a batch; None when nothing was, or it is done.

    Raises:
        RefusedError: The file is damaged, or is about another batch.
        StorageError: It can't be read.
    """
    file = _file(home, generation, batch_id)
    found = read_document(home.storage, file, Decision)
    if found is not None and (found.batch_id != batch_id or "/" in found.folder or not found.folder.strip(".")):
        raise RefusedError(
            Problem(
                code="DECISION_DAMAGED",
                file=file,
                cause=f"the file is about batch {found.batch_id} and the folder `{found.folder[:100]}`",
                consequence="rows of another batch could be published",
                remedy="restore it from a backup",
            )
        )
    return found


def is_pending_decided(home: StreamHome, generation: int, checkpoint: CheckpointState) -> bool:
    """Whether it is decided where the rows of the batch go that is planned and not committed.

    Raises:
        RefusedError: The file is damaged, or is about another batch.
        StorageError: It can't be read.
    """
    return checkpoint.is_pending and read_decision(home, generation, checkpoint.planned_id or 0) is not None


def decide(project: Project, home: StreamHome, generation: int, decision: Decision) -> Decision:
    """Put a decision on disk; gives the one that counts: that of another driver, if it was faster.

    Raises:
        RefusedError: The file that is there is damaged.
        StorageError: It could not be written.
    """
    file = _file(home, generation, decision.batch_id)
    note_quarantine(project, home, decision.quarantine.sink(project).location or "", decision.interval_column)
    if home.storage.put_if_absent(file, encode_document(decision)):
        return decision
    found = read_decision(home, generation, decision.batch_id)
    if found is None:
        raise _outdated(decision, file)
    return found


def check_counts(home: StreamHome, generation: int, decision: Decision) -> None:
    """Make sure that a decision still counts: who was stopped for long may come back to a batch that is over.

    Raises:
        BatchFailedError: The batch was finished, or decided anew.
        RefusedError: The file that is there is damaged.
        StorageError: It can't be read.
    """
    found = read_decision(home, generation, decision.batch_id)
    if found is None or found.folder != decision.folder:
        raise _outdated(decision, _file(home, generation, decision.batch_id))


def forget(home: StreamHome, generation: int, batch_id: int) -> None:
    """Delete what was staged of a batch, by whomever: both tables have it, and its commit is on disk.

    Raises:
        StorageError: Something is still there.
    """
    root = staged_folder(home, generation)
    found = home.storage.list_folder(root)
    if found is None:
        return
    home.storage.delete(_file(home, generation, batch_id))
    for name in found.folders:
        if name.partition("-")[0] == str(batch_id):
            home.storage.delete_folder(join(root, name))


def discard(home: StreamHome, generation: int, folder: str) -> None:
    """Delete staged rows of which nothing was decided.

    Raises:
        StorageError: Something is still there.
    """
    home.storage.delete_folder(join(staged_folder(home, generation), folder))


def _outdated(decision: Decision, file: str) -> BatchFailedError:
    return BatchFailedError(
        f"batch {decision.batch_id} was finished or decided anew by another driver meanwhile",
        where=file,
        remedy="run it again",
    )


def lost_decision(batch_id: int, table: SplittingSink) -> RefusedError:
    """What to raise where the quarantine has its part of a batch, the sink has not, and nothing tells why."""
    return RefusedError(
        Problem(
            code="DECISION_LOST",
            file=table.location or "",
            cause=f"the quarantine holds its part of batch {batch_id}, the sink does not, and what was decided is gone",
            consequence="decided anew, rows could be in both tables or in neither",
            remedy="restore the folder `staged` of the stream's home",
        )
    )


def staged_folder(home: StreamHome, generation: int) -> str:
    """Where the batches of a generation are that go into two tables, until both have them."""
    return join(home.staged_folder(), f"{generation:04d}")


def _file(home: StreamHome, generation: int, batch_id: int) -> str:
    return join(staged_folder(home, generation), f"{batch_id}.json")
