"""What the logs of a checkpoint say of the batches of a run, and whether that is what was planned."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sluice.checkpoint.log import list_log
from sluice.checkpoint.offsets import CommitFile, OffsetFile, decoded_offset, read_commit_file, read_offset_file
from sluice.checkpoint.places import commit_file, offset_file, offsets_folder
from sluice.errors import BatchFailedError, Problem, RefusedError
from sluice.home import SourceLine, lines_by_log
from sluice.locations import join
from sluice.plan import PlannedBatch
from sluice.spark.progress import Report
from sluice.storage import Storage


@dataclass(frozen=True)
class BatchLogs:
    """The offset log and the commit log of one generation. Read only; see `PlannedFiles` for what the batches read."""

    location: str
    """The checkpoint."""
    lines: Sequence[SourceLine]
    """What the lines of an offset file are about."""
    storage: Storage

    def check_planned(self, batch: PlannedBatch) -> OffsetFile:
        """What the offset log says of a batch just before it starts: it is the newest, as planned.

        Raises:
            RefusedError: It is not: somebody else writes this checkpoint.
        """
        location = offsets_folder(self.location)
        offsets = list_log(location, storage=self.storage)
        planned = None
        if offsets is not None and offsets.latest == batch.batch_id:
            planned = read_offset_file(offsets.file(batch.batch_id), batch.batch_id, storage=self.storage)
        ends = [batch.sources[line.source].end for line in self.lines]
        if planned is None or list(planned.offsets.values()) != ends:
            raise RefusedError(_foreign_writer(join(location, str(batch.batch_id)), "the offset log is not as planned"))
        return planned

    def check_committed(self, batch_id: int) -> CommitFile:
        """What the commit log says of a batch just after it ended: it is the newest in both logs.

        Raises:
            BatchFailedError: It is not.
        """
        for log in ("offsets", "commits"):
            if (newest := self._newest(log)) != batch_id:
                raise self.differs(batch_id, f"`{log}` stands at {newest} after it ended")
        committed = self.committed(batch_id)
        if committed is None:
            raise self.differs(batch_id, "it ended without a commit")
        return committed

    def committed(self, batch_id: int) -> CommitFile | None:
        """What the commit log says of a batch; None where it is not committed."""
        return read_commit_file(commit_file(self.location, batch_id), batch_id, storage=self.storage)

    def offsets(self, batch_id: int) -> list[str | None]:
        """Where a batch ends by the offset log, by its lines; empty for one that is not there."""
        if batch_id < 0:
            return []
        planned = read_offset_file(offset_file(self.location, batch_id), batch_id, storage=self.storage)
        return [] if planned is None else list(planned.offsets.values())

    def difference(self, batch: PlannedBatch, planned: OffsetFile, report: Report) -> BatchFailedError | None:
        """What to raise of a committed batch that Spark reports otherwise than it was planned."""
        # Spark reports a source once however often the plan reads it; an offset file has a line each time.
        offsets = list(planned.offsets.values())
        ends = [decoded_offset(offsets[index]) for index, _ in lines_by_log(self.lines).values()]
        reported = [source.get("endOffset") for source in report.get("sources", [])]
        if not report or reported == ends:
            return None
        return self.differs(batch.batch_id, f"Spark reports the offsets {reported}, planned were {ends}")

    def surplus(self, batch: PlannedBatch, report: Report) -> Iterator[str]:
        """Spark counts a row as often as it reads it, so that a surplus is no proof that one counts twice."""
        rows = report.get("numInputRows")
        is_reused = len({line.source for line in self.lines}) < len(self.lines)
        if rows is not None and batch.rows is not None and not is_reused and rows > batch.rows:
            yield (
                f"Spark read {rows:,} rows in batch {batch.batch_id}, the sources' logs promised {batch.rows:,}: the"
                " transform or the sink reads its input more than once (several actions, or a sort that samples);"
                " `persist()` it there"
            )

    def has_moved(self, batch_id: int) -> bool:
        """Whether a batch ends elsewhere than the one before it."""
        before, after = (list(map(decoded_offset, self.offsets(number))) for number in (batch_id - 1, batch_id))
        return before != after

    def newest_commit(self) -> int:
        """The newest batch that is committed; -1 for none."""
        return self._newest("commits")

    def newest_planned(self) -> int:
        """The newest batch that is planned, committed or not; -1 for none."""
        return self._newest("offsets")

    def _newest(self, log: str) -> int:
        found = list_log(join(self.location, log), storage=self.storage)
        return -1 if found is None or found.latest is None else found.latest

    def differs(self, batch_id: int, what: str) -> BatchFailedError:
        """What to raise of a batch with which something else was done than planned."""
        return BatchFailedError(
            f"batch {batch_id} is not what was planned: {what}",
            where=self.location,
            remedy="look at the checkpoint with `sluice inspect`, and find out who else writes it",
        )


def _foreign_writer(file: str, cause: str) -> Problem:
    return Problem(
        code="CHECKPOINT_CHANGED",
        file=file,
        cause=cause,
        consequence="two writers on one checkpoint lose or double rows",
        remedy="find the other writer (another Airflow, a notebook, a streaming job) and stop it",
    )
