"""How the audit of a run begins: what its batches are judged by, where, and what tries before have measured."""

from __future__ import annotations

from collections.abc import Mapping

from sluice.auditing.audit import Audit
from sluice.auditing.run_gate import RunGate
from sluice.auditing.suite_fit import fit_suite
from sluice.gate.judging import choose_judging
from sluice.gate.state import carried_runs, gate_to_go_on_with, read_gate
from sluice.plan import Plan
from sluice.planning.checked_declaration import CheckedDeclaration
from sluice.planning.recovered import done_by
from sluice.planning.survey import Survey, rows_count
from sluice.quality.compile import QualityPlan
from sluice.runs.journal import Journal
from sluice.runs.lease import Lease
from sluice.runs.record import RunRecord
from sluice.spark.fingerprints import read_by
from sluice.spark.query import Query, plan_reader

_EMITS_LATER = "EventTimeWatermark"
"""In Spark's plan of a query whose rows may come out only in batches without data, which no plan has."""


def prepare_audit(  # noqa: PLR0917 - everything that a run is audited by
    declared: CheckedDeclaration,
    begun_with: Mapping[str, str],
    seen: Survey,
    query: Query,
    plan: Plan,
    record: RunRecord,
    *,
    journal: Journal,
    lease: Lease,
) -> Audit | None:
    """The audit of a run that is to begin; None for a stream without a suite.

    Args:
        declared: The project, the stream and its suite.
        begun_with: What is declared now, by fingerprints.
        seen: What is there.
        query: The analysed query.
        plan: What is planned.
        record: As the run began.
        journal: The records of the stream's runs.
        lease: The right to write.

    Raises:
        DeclarationError: The suite is wrong, or does not fit the result or the sink.
        RefusedError: A file of the home is damaged.
    """
    stream, home = query.stream, journal.home
    project, suite = declared.project, declared.suite
    if suite is None or record.query_id is None:
        return None
    compiled = fit_suite(suite, stream, query.frame, storage=home.storage)
    chosen = plan.quality or choose_judging(project, stream, suite, plan.batches, storage=home.storage)
    return Audit(
        project=project,
        stream=stream,
        home=home,
        plan=compiled,
        judging=chosen,
        frame=query.frame,
        query_id=record.query_id,
        record=record,
        lease=lease,
        gate=_run_gate(compiled, begun_with, seen, query, plan, record, journal),
        tables=None if compiled.quarantined is None else stream.split_tables,
        is_read_otherwise=_is_read_otherwise(seen, begun_with),
    )


def _run_gate(  # noqa: PLR0917 - everything that a run is judged by
    compiled: QualityPlan,
    begun_with: Mapping[str, str],
    seen: Survey,
    query: Query,
    plan: Plan,
    record: RunRecord,
    journal: Journal,
) -> RunGate:
    home = journal.home
    found = gate_to_go_on_with(read_gate(home), record.run_id)
    is_planned = plan.batches and plan.strategy == "exact"
    emits_later = _EMITS_LATER in plan_reader(query.frame.sparkSession).analysed_text(query.frame)
    return RunGate(
        stream=query.stream,
        home=home,
        plan=compiled,
        columns=dict(query.frame.dtypes),
        record=record,
        clock=journal.clock,
        last_batch=plan.batches[-1].batch_id if is_planned and not emits_later else None,
        declared=begun_with,
        has_other_inputs=seen.has_other_inputs,
        is_published=_is_counted(seen),
        found=found,
        earlier=done_by(carried_runs(found, record.run_id), seen, home),
    )


def _is_counted(seen: Survey) -> bool:
    """Whether there is a pending batch, and its rows count."""
    return seen.checkpoint.is_pending and rows_count(seen)


def _is_read_otherwise(seen: Survey, begun_with: Mapping[str, str]) -> bool:
    """Whether the pending batch, whose rows count, would come out as others by now."""
    if not _is_counted(seen):
        return False
    then = seen.known.declared_at(seen.checkpoint.planned_id or 0) if seen.known is not None else {}
    return seen.has_other_inputs or bool(read_by(then, begun_with, with_tables=True))
