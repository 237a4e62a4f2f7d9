"""The Spark session of a backfill: on the project's warm Spark, where that does what one of its own would do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sluice.planning.backfill import BackfillPlan
from sluice.running.backfill_preparation import BackfillPreparation
from sluice.running.warm_runs import why_own_sink
from sluice.runs.lease import Lease
from sluice.spark.java import Work
from sluice.spark.served import NotServed, is_served, warm_failure
from sluice.spark.session import close_session, open_served, open_session
from sluice.spark.writers import check_home, name_writer
from sluice.stream import Stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass
class BackfillSession:
    """A session that is opened when it is needed first."""

    given: SparkSession | None
    """A session to use in place of any other."""
    phase: Callable[[str], None]
    """Tells what begins."""
    is_warm: bool = False
    """Whether it is on the project's warm Spark."""
    _own: SparkSession | None = None
    """The session, if it was opened here."""
    _why_own: str | None = None
    """Why a Spark of its own is started: the warm one has failed."""

    def opened(
        self, preparation: BackfillPreparation, plan: BackfillPlan | None, leases: Sequence[Lease], run_id: str
    ) -> SparkSession:
        """The session; who writes in it is noted in the leases.

        Args:
            preparation: The backfill.
            plan: What is planned; None where the rows are replaced already.
            leases: Those that the backfill has.
            run_id: The run.
        """
        if self.given is not None:
            return self.given
        if self._own is None:
            self.phase("starting Spark")
            project, stream = preparation.project, preparation.request.stream
            size_bytes = plan.size_bytes if plan is not None else None
            work = None if size_bytes is None else Work(size_bytes)
            warm = self._open_warm(preparation, plan, work) if is_served(project) else None
            self._own, self.is_warm = warm or open_session(project, stream, work=work), warm is not None
            try:
                for lease in leases:
                    name_writer(project, self._own, lease)
                check_home(project, self._own, preparation.journal.records.file(run_id))
            except Exception as exc:
                if not self.is_warm:
                    raise
                self.leave_warm(exc, leases)
                return self.opened(preparation, plan, leases, run_id)
        return self._own

    def leave_warm(self, failure: Exception, leases: Sequence[Lease]) -> None:
        """Give the warm Spark up, which has failed before anything was written: the next session is another one's."""
        self.close()
        for lease in leases:
            lease.add_session(None)
        self._own, self.is_warm, self._why_own = None, False, warm_failure(failure)

    def close(self) -> None:
        """End what was opened here."""
        if self._own is not None:
            close_session(self._own)

    def _open_warm(
        self, preparation: BackfillPreparation, plan: BackfillPlan | None, work: Work | None
    ) -> SparkSession | None:
        """A session on the project's warm Spark; None where that would not do what one of its own does."""
        stream: Stream = preparation.request.stream
        why = self._why_own or why_own_sink(stream.sink)
        if why is None and (plan is None or plan.watermark_ms is not None or plan.quality is not None):
            why = "its rows are judged, or it runs as a stream, or it goes on with what another run has replaced"
        try:
            session = None if why is not None else open_served(preparation.project, stream, work=work)
        except NotServed as exc:
            session, why = None, str(exc)
        except Exception as exc:
            session, why = None, warm_failure(exc)
        if why is not None:
            self.phase(f"starting a Spark of its own: {why}")
        return session
