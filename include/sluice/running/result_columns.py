"""The columns of a result, and the tables that it goes to: compared before a run begins, then let follow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from sluice.auditing.quarantine import let_quarantine_follow
from sluice.errors import SluiceError
from sluice.home import Generation
from sluice.quality.compile import QualityPlan
from sluice.runs.lease import Lease
from sluice.sinks.contract import SinkState
from sluice.spark.fingerprints import columns_for
from sluice.spark.query import Query, spark_failed
from sluice.storage import Storage


def newest_written(committed_id: int | None, sink: SinkState) -> int | None:
    """The newest batch whose rows the sink has, as far as it is known; what was planned, and is not there, is none."""
    return max((batch_id for batch_id in (committed_id, sink.last_batch) if batch_id is not None), default=None)


def check_result(
    query: Query, known: Generation | None, newest: int | None, conf: Mapping[str, str], *, storage: Storage
) -> None:
    """Make sure that the sink takes the columns of a result; see `Sink.check_result`.

    Args:
        query: The query, analysed.
        known: What is known of the generation; None before its first run.
        newest: The newest batch whose rows the sink has; None where it has none.
        conf: The settings of Spark that it runs with.
        storage: Where the sink is.

    Raises:
        DeclarationError: It does not.
        StorageError: It can't be read right now.
    """
    begun = known.declared_at(newest) if known is not None and newest is not None else {}
    for name, stream, result in query.outputs:
        use = replace(stream.sink_use(conf, storage=storage), written=begun.get(columns_for(name), ""))
        stream.sink.check_result(result, use)


def let_tables_follow(query: Query, plan: QualityPlan | None, lease: Lease, *, storage: Storage) -> None:
    """Let the sink and the quarantine follow a result, as far as they are declared to; see `Sink.evolve`.

    Args:
        query: The query, whose result was checked.
        plan: What its suite measures, if it has one.
        lease: The right to write.
        storage: Where the tables are.

    Raises:
        DeclarationError: A table can't.
        BatchFailedError: Spark failed; what a table has got stays, and the next try goes on.
        LeaseLostError: Another run goes on with the checkpoint.
        StorageError: A table can't be read right now.
    """
    stream = query.stream
    lease.check()
    try:
        for _, output, result in query.outputs:
            output.sink.evolve(result, output.sink_use(query.project.conf_of(stream), storage=storage))
        if plan is not None and plan.quarantined is not None and stream.quarantine_table is not None:
            let_quarantine_follow(stream.quarantine_table, query.frame, storage=storage)
    except SluiceError:
        raise
    except Exception as exc:
        consequence = "no batch was begun, and the next try goes on from the columns that the tables have by then"
        raise spark_failed(exc, where=f"stream `{stream.name}`", consequence=consequence) from exc
