"""What was decided of a batch that goes into several tables, and how it is called on disk. Without Spark.

<home>/<stream>/staged/0001/<batch_id>.json        what was decided by a suite; who puts it there first has decided
<home>/<stream>/staged/0001/<batch_id>.sinks.json  what each of several sinks gets, likewise
<home>/<stream>/staged/0001/<batch_id>-<token>/    the rows as Parquet, each with where it goes and why
"""

from __future__ import annotations

from typing import Any, ClassVar, TypeVar

import msgspec

from sluice.checkpoint.reader import CheckpointState
from sluice.documents import Document, encode_document, read_document
from sluice.errors import BatchFailedError, Problem, RefusedError
from sluice.gate.quarantine_places import note_quarantine
from sluice.home import StreamHome
from sluice.locations import join
from sluice.project import Project
from sluice.runs.kept_table import Table
from sluice.sinks.contract import Sink


class Staged(Document, frozen=True, kw_only=True):
    """A batch that is staged, and decided: on disk before any table has any of it."""

    if_lost = "delete it: the batch is decided anew, unless a table has its part of it already; that is refused then"
    ending: ClassVar[str]
    """What the name of its file ends in, after the batch."""
    batch_id: int
    query_id: str
    run_id: str
    """The run that has decided."""
    folder: str
    """The name of the folder that has the rows, beside this file."""
    files: dict[str, int]
    """Their files' sizes in bytes, by name."""


S = TypeVar("S", bound=Staged)


class Decision(Staged, frozen=True, kw_only=True):
    """What a suite has decided of a batch, and by what."""

    ending = ".json"
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


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """What one of several sinks gets of a batch."""

    place: str
    """Where the sink is, from the project's folder where it lies in it."""
    row_type: str
    """The columns of its result, as Spark's JSON of a struct type."""
    rows: int


class Division(Staged, frozen=True, kw_only=True):
    """What several sinks get of a batch."""

    ending = ".sinks.json"
    parts: dict[str, Part]
    """By the names of the sinks."""


def read_decision(home: StreamHome, generation: int, batch_id: int) -> Decision | None:
    """What a suite has decided of a batch; None when nothing was, or it is done; see `read_staged`."""
    return read_staged(home, generation, batch_id, Decision)


def read_staged(home: StreamHome, generation: int, batch_id: int, kind: type[S]) -> S | None:
    """What was decided of a batch in one way; None when nothing was, or it is done.

    Raises:
        RefusedError: The file is damaged, or is about another batch.
        StorageError: It can't be read.
    """
    file = _file(home, generation, batch_id, kind)
    found = read_document(home.storage, file, kind)
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
    return checkpoint.is_pending and is_decided(home, generation, checkpoint.planned_id or 0)


def is_decided(home: StreamHome, generation: int, batch_id: int) -> bool:
    """Whether it is decided where the rows of a batch go that is not done; see `read_staged`."""
    found = (read_staged(home, generation, batch_id, kind) for kind in (Decision, Division))
    return any(decided is not None for decided in found)


def decide(project: Project, home: StreamHome, generation: int, decision: Decision) -> Decision:
    """Put a suite's decision on disk; see `put_staged`."""
    note_quarantine(project, home, decision.quarantine.sink(project).location or "", decision.interval_column)
    return put_staged(home, generation, decision)


def put_staged(home: StreamHome, generation: int, decided: S) -> S:
    """Put what was decided on disk; gives what counts: that of another driver, if it was faster.

    Raises:
        BatchFailedError: Another driver has decided it, and finished it since.
        RefusedError: The file that is there is damaged.
        StorageError: It could not be written.
    """
    file = _file(home, generation, decided.batch_id, type(decided))
    if home.storage.put_if_absent(file, encode_document(decided)):
        return decided
    found = read_staged(home, generation, decided.batch_id, type(decided))
    if found is None:
        raise _outdated(decided, file)
    return found


def check_counts(home: StreamHome, generation: int, decision: Staged) -> None:
    """Make sure that a decision still counts: who was stopped for long may come back to a batch that is over.

    Raises:
        BatchFailedError: The batch was finished, or decided anew.
        RefusedError: The file that is there is damaged.
        StorageError: It can't be read.
    """
    found = read_staged(home, generation, decision.batch_id, type(decision))
    if found is None or found.folder != decision.folder:
        raise _outdated(decision, _file(home, generation, decision.batch_id, type(decision)))


def check_staged(home: StreamHome, generation: int, decision: Staged) -> None:
    """Make sure that the staged rows are those that were decided about.

    Raises:
        RefusedError: They are gone, or others.
        StorageError: They can't be listed.
    """
    folder = join(home.staged_folder(generation), decision.folder)
    if staged_files(home, folder) != decision.files:
        raise RefusedError(
            Problem(
                code="STAGED_ROWS_GONE",
                file=folder,
                cause=f"rows that run {decision.run_id} has staged of batch {decision.batch_id} are gone",
                consequence="a part of the batch may be in one table already; decided anew, rows could be doubled",
                remedy="restore the folder from a backup",
            )
        )


def staged_files(home: StreamHome, folder: str) -> dict[str, int]:
    """The Parquet files of a folder, and their sizes in bytes."""
    listed = home.storage.list_folder(folder)
    if listed is None:
        return {}
    found = {name: listed.stat(name) for name in sorted(listed.files) if name.endswith(".parquet")}
    return {name: stat.size_bytes for name, stat in found.items() if stat is not None}


def forget_batches_before(home: StreamHome, generation: int, batch_id: int) -> None:
    """Delete what became of batches before; another driver's try of this one may count yet."""
    root, own = home.staged_folder(generation), str(batch_id)
    found = home.storage.list_folder(root)
    for name in found.files if found is not None else ():
        if name.partition(".")[0] != own:
            home.storage.delete(join(root, name))
    for name in found.folders if found is not None else ():
        if name.partition("-")[0] != own:
            home.storage.delete_folder(join(root, name))


def forget(home: StreamHome, generation: int, batch_id: int) -> None:
    """Delete what was staged of a batch, by whomever: all tables have it, and its commit is on disk.

    Raises:
        StorageError: Something is still there.
    """
    root = home.staged_folder(generation)
    found = home.storage.list_folder(root)
    if found is None:
        return
    for kind in (Decision, Division):
        home.storage.delete(_file(home, generation, batch_id, kind))
    for name in found.folders:
        if name.partition("-")[0] == str(batch_id):
            home.storage.delete_folder(join(root, name))


def discard(home: StreamHome, generation: int, folder: str) -> None:
    """Delete staged rows of which nothing was decided.

    Raises:
        StorageError: Something is still there.
    """
    home.storage.delete_folder(join(home.staged_folder(generation), folder))


def _outdated(decision: Staged, file: str) -> BatchFailedError:
    return BatchFailedError(
        f"batch {decision.batch_id} was finished or decided anew by another driver meanwhile",
        where=file,
        remedy="run it again",
    )


def lost_decision(
    batch_id: int, table: Sink, *, named: str = "the quarantine", lacks: str = "the sink"
) -> RefusedError:
    """What to raise where a table has its part of a batch, the one after it has not, and nothing tells why."""
    return RefusedError(
        Problem(
            code="DECISION_LOST",
            file=table.location or "",
            cause=f"{named} holds its part of batch {batch_id}, {lacks} does not, and what was decided is gone",
            consequence="decided anew, rows could be in both tables or in neither",
            remedy="restore the folder `staged` of the stream's home",
        )
    )


def _file(home: StreamHome, generation: int, batch_id: int, kind: type[Staged]) -> str:
    return join(home.staged_folder(generation), f"{batch_id}{kind.ending}")
