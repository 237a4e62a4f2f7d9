"""Whether Spark runs a query with the settings of streams that are declared: it is tried, and nothing is left.

What Spark makes of most of them it says in a query's first batch alone, and by then its checkpoint pins them. So the
query runs one without rows, into no sink, on a checkpoint that is thrown away.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from uuid import uuid4

from sluice.checkpoint.offsets import OffsetFile
from sluice.checkpoint.writer import write_metadata, write_planned_batch
from sluice.errors import DeclarationError
from sluice.spark.connect_session import is_connected
from sluice.spark.query import Query
from sluice.spark.served import served_session
from sluice.spark.session import SHUFFLE_PARTITIONS, pinned_conf, setting_place
from sluice.spark.shown_error import spark_message
from sluice.spark_setting import spark_setting, without_setting

logger = logging.getLogger(__name__)

_OF_STREAMS = "spark.sql.streaming."


def try_settings(query: Query, conf: Mapping[str, str]) -> None:
    """Make sure that Spark takes the settings of streams that are declared, if any is.

    A query on a server elsewhere is left to its first batch: nobody knows a folder there that may be thrown away.

    Args:
        query: The query of a checkpoint that has nothing yet.
        conf: The settings that are declared for it.

    Raises:
        DeclarationError: Spark does not take one.
    """
    keys = [key for key in conf if key.startswith(_OF_STREAMS)]
    session = query.frame.sparkSession
    if not keys or (is_connected(session) and served_session(session) is None):
        return
    if (failed := _failure(query)) is None:
        return
    if _failure(query, keys) is not None:
        # It is none of them: whatever it is, is told of the query's shape, or the batch itself fails with it.
        logger.warning("whether Spark takes the first batch is told when it runs", exc_info=failed)
        return
    # Which one it is, Spark does not always say.
    wrong = next(([key] for key in keys if len(keys) > 1 and _failure(query, [key]) is None), keys)
    named = ", ".join(f"`{key}`" for key in wrong)
    told = [conf[key] for key in wrong]
    raise DeclarationError(
        f"Spark runs no batch with what is declared for {named}: {spark_message(failed, told=told)}",
        where=setting_place(query.stream, wrong),
        remedy="correct the value, or leave the setting out; nothing was planned",
    ) from failed


def _failure(query: Query, without: Iterable[str] = ()) -> Exception | None:
    """What a first batch without rows fails with, if it does; without some of the session's settings."""
    session, storage = query.frame.sparkSession, query.project.storage()
    with ExitStack() as at_end:
        folder = at_end.enter_context(tempfile.TemporaryDirectory(prefix="sluice-trial-", ignore_cleanup_errors=True))
        for key in without:
            at_end.enter_context(without_setting(session, key))
        # One partition of a state tells as much as two hundred.
        at_end.enter_context(spark_setting(session, SHUFFLE_PARTITIONS, "1"))
        nothing = dict.fromkeys(map(str, range(len(query.lines))))
        write_metadata(folder, str(uuid4()), storage=storage)
        planned = OffsetFile(0, 1, 0, 1, pinned_conf(session), nothing)
        write_planned_batch(folder, planned, {}, {}, storage=storage)
        try:
            query.start_replay(folder).awaitTermination()
        except Exception as exc:
            return exc
    return None
