"""The state of a batch whose rows count already, and that is not committed: Spark computes it once more.

On this machine, what is there stays. Elsewhere, and where each try has files of its own, what the last try has made
counts: so it must be made of the same rows by the same code.
"""

from __future__ import annotations

from collections.abc import Mapping

from sluice.errors import Problem, RefusedError
from sluice.locations import is_local, join
from sluice.planning.survey import Survey
from sluice.spark.query import Query
from sluice.spark.session import CHECKPOINT_FILES

_FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"
_CODE = ("transform", "text of the transform's module")


def check_redone_state(query: Query, seen: Survey, then: Mapping[str, str], now: Mapping[str, str]) -> None:
    """Make sure that the state of a pending batch, whose rows count, comes out as it did before.

    Args:
        query: The query that goes on with the batch.
        seen: What is there.
        then: What was declared when the batch was begun.
        now: What is declared.

    Raises:
        RefusedError: It would be made by other code.
    """
    is_same = all(then.get(name) == now.get(name) for name in _CODE)
    if is_same or not seen.checkpoint.operators or _stays(query, seen):
        return
    raise RefusedError(
        Problem(
            code="STATE_CHANGED",
            file=join(seen.checkpoint.location, "state"),
            cause=f"the rows of batch {seen.checkpoint.planned_id} are written, or it is decided where they go, and the"
            " transform was edited before Spark has committed the batch",
            consequence="what the stream remembers of these rows would be what the edited transform makes of them",
            remedy="set it back, run the stream once, and edit it then",
        )
    )


def _stays(query: Query, seen: Survey) -> bool:
    """Whether state that is there is not written over."""
    conf = query.frame.sparkSession.conf
    is_of_each_try = conf.get(_FORMAT, "1") != "1"
    is_kept = all(conf.get(name, None) == value for name, value in CHECKPOINT_FILES.items())
    return is_kept and not is_of_each_try and is_local(seen.checkpoint.location)
