"""What a generation keeps of the rows that its query drops as duplicates: a backfill has to know of it."""

from __future__ import annotations

from sluice.plan_notes import DropsDuplicates
from sluice.planning.transform_text import transform_digest
from sluice.spark.duplicates import find_dropped
from sluice.spark.query import Query, plan_reader


def noted_duplicates(query: Query) -> DropsDuplicates | None:
    """Which rows a query drops; None for a stream that can't be backfilled."""
    stream = query.stream
    if stream.interval_column is None:
        return None
    found = find_dropped(query.frame, stream.interval_column, plan_reader(query.frame.sparkSession))
    digest = transform_digest(query.project, stream, query.sql)
    return DropsDuplicates(stream.interval_column, digest, found.across, found.timeless)
