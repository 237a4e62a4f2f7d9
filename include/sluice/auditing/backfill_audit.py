"""Audits a backfill: judges the rows of its interval before they replace any, and parts them by the suite."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from sluice.auditing.quarantine import (
    COMPUTED,
    add_column,
    check_quarantine,
    is_quarantine,
    kept_rows,
    let_quarantine_follow,
    quarantined_rows,
    replace_own,
)
from sluice.auditing.written_rows import measure
from sluice.gate.audit_record import quality_record
from sluice.gate.quarantine_places import note_quarantine
from sluice.home import StreamHome
from sluice.planning.checked_declaration import CheckedDeclaration
from sluice.project import Project
from sluice.quality.compile import QualityPlan, compile_suite
from sluice.quality.judgement import Judgement, judge_run
from sluice.quality.reread import reread
from sluice.runs.record import QualityRecord
from sluice.sinks.replaceable import Replacement
from sluice.storage import Storage
from sluice.stream import Stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class BackfillAudit:
    """The rows of an interval, kept by Spark and measured."""

    stream: Stream
    plan: QualityPlan
    rows: DataFrame
    """What the transform gives for the interval; released by `end`."""
    judged: Judgement

    @property
    def kept(self) -> DataFrame:
        """The rows that are to be published."""
        return kept_rows(self.rows, self.plan.removed)

    def recorded(self) -> QualityRecord:
        """The judgement as the run record has it."""
        return quality_record(self.judged, self.plan.suite.name, "cache", dict(self.rows.dtypes))

    def put_aside(self, wanted: Replacement, run_id: str, batch_id: int, project: Project, home: StreamHome) -> None:
        """Put the rows that fail into the quarantine, in place of those of this run's earlier attempts.

        What others have put there of the interval stays until the rows are replaced: no row is ever in neither table.
        """
        table, storage = self.stream.quarantine_table, home.storage
        condition, column, session = self.plan.quarantined, wanted.column, self.rows.sparkSession
        if table is None or (condition is None and not is_quarantine(table, storage=storage)):
            return
        if condition is None:
            # Whatever columns an earlier suite has let it have.
            rows = table.read_versions(session, [], storage=storage)
        else:
            rows = quarantined_rows(self.rows, self.plan, condition, run_id, batch_id, interval_column=column)
            if COMPUTED in rows.columns:
                add_column(table, session, COMPUTED, storage=storage)
            let_quarantine_follow(table, self.rows, storage=storage)
        note_quarantine(project, home, table.location or "", column)
        replace_own(table, rows, run_id, wanted.application, wanted.number)

    def end(self) -> None:
        """Let go of what Spark keeps."""
        self.rows.unpersist()


def audit_interval(
    declared: CheckedDeclaration, frame: DataFrame, wanted: Replacement, *, now: datetime, storage: Storage
) -> BackfillAudit | None:
    """Measure and judge the rows of an interval; None for a stream without a suite.

    Rules about history are left out: they are about what a run of the live stream brings.

    Args:
        declared: The declaration.
        frame: The result of the transform.
        wanted: What is to be replaced.
        now: The clock of the audit.
        storage: Where the quarantine is.

    Raises:
        DeclarationError: The suite is wrong, or does not fit the result or the quarantine.
    """
    stream, suite = declared.stream, declared.suite
    kind = dict(frame.dtypes).get(wanted.column)
    if suite is None or kind is None:
        # A result without the interval column is refused when it is written.
        return None
    plan = compile_suite(suite.without_history(), dict(frame.dtypes), sample=suite.sample)
    if plan.quarantined is not None and stream.quarantine_table is not None:
        check_quarantine(stream.quarantine_table, frame, storage=storage)
    rows = frame.where(wanted.interval.condition(wanted.column, kind)).persist()
    try:
        audit = BackfillAudit(stream, plan, rows, Judgement("pass", (), None, {}))
        judged = judge_run(plan, [measure(plan, rows)], [], now=now, rereads=reread(plan, audit.kept))
    except BaseException:
        rows.unpersist()
        raise
    return replace(audit, judged=judged)
