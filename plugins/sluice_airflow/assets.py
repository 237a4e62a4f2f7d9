"""Assets: what a stream writes, each partition of it, its commits and its arrivals; and the events of a run.

| asset | changes | by |
|---|---|---|
| `NAME`, the sink's location | when a run of Airflow's has written | the operator, one event per run |
| `NAME/partitions` | for each partition that the run touched | the operator, one event per partition |
| `NAME/commits` | when a batch is committed, whoever runs the stream | a watcher |
| `NAME/arrivals` | when the sources have something for the stream | a watcher |

`NAME` is the stream's; in a project other than Airflow's own, `PROJECT/STREAM`.

Events with a partition key reach only DAGs that are scheduled by partition, and events without one only the others:
hence two assets for one table.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow.sdk import Asset, AssetWatcher

from sluice.errors import DeclarationError
from sluice.locations import is_local, join, local_path
from sluice.monitoring.touched_partitions import Partition, touched_partitions
from sluice.sinks.contract import ReadableSink
from sluice_airflow.outcomes import summary
from sluice_airflow.projects import airflow_project, project_for_others
from sluice_airflow.unannounced_runs import Untold, untold_runs, written_versions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow.sdk import Context

    from sluice.home import StreamHome
    from sluice.runs.record import RunRecord
    from sluice.stream import Stream
    from sluice_airflow.triggers.arrivals import ArrivalWatch
    from sluice_airflow.triggers.commits import CommitWatch

logger = logging.getLogger(__name__)

GROUP = "sluice"
_MAX_LISTED = 1000
"""How many partitions an event lists at most; each has its own event anyway."""
_MAX_KEY = 250
"""The longest partition key that Airflow takes."""
_NULL = "__HIVE_DEFAULT_PARTITION__"


def stream_asset(stream: str | Stream, *, project: str | None = None) -> Asset:
    """What a stream writes: an event per run that wrote.

    Args:
        stream: The stream, or its name.
        project: The folder of `sluice.toml`; Airflow's own project when not given.

    Raises:
        DeclarationError: The stream is not declared.
    """
    found = _declared(stream, project)
    return Asset(name=_name(found.name, project), uri=_sink_uri(found), group=GROUP)


def partition_asset(stream: str | Stream, *, project: str | None = None) -> Asset:
    """The partitions of what a stream writes: an event per partition that a run touched.

    Args:
        stream: The stream, or its name.
        project: The folder of `sluice.toml`; Airflow's own project when not given.

    Raises:
        DeclarationError: The stream is not declared.
    """
    found = _declared(stream, project)
    name = f"{_name(found.name, project)}/partitions"
    return Asset(name=name, uri=f"{_sink_uri(found)}?by=partition", group=GROUP)


def commit_asset(stream: str, *, project: str | None = None) -> Asset:
    """A stream's commits, watched in its checkpoint: also of a stream that Airflow does not run.

    Args:
        stream: The stream's name.
        project: The folder of `sluice.toml`; Airflow's own project when not given.

    Raises:
        DeclarationError: The project is not right.
    """
    from sluice_airflow.triggers.commits import CommitWatch

    return _watched(stream, "commits", CommitWatch, project)


def arrival_asset(stream: str, *, project: str | None = None) -> Asset:
    """What arrives for a stream, watched in its sources.

    Args:
        stream: The stream's name.
        project: The folder of `sluice.toml`; Airflow's own project when not given.

    Raises:
        DeclarationError: The project is not right.
    """
    from sluice_airflow.triggers.arrivals import ArrivalWatch

    return _watched(stream, "arrivals", ArrivalWatch, project)


def outlets(stream: str | Stream, *, project: str | None = None) -> list[Asset]:
    """The outlets of a task that runs a stream; `emit_events` fills their events.

    Args:
        stream: The stream, or its name.
        project: The folder of `sluice.toml`; Airflow's own project when not given.

    Raises:
        DeclarationError: The stream is not declared.
    """
    found = _declared(stream, project)
    partitions = [partition_asset(found, project=project)] if _columns(found) else []
    return [stream_asset(found, project=project), *partitions]


def emit_events(
    context: Context, stream: Stream, record: RunRecord, *, home: StreamHome, project: str | None = None
) -> Untold | None:
    """Fill the events of a run that wrote; called before the task succeeds. Never fails a run.

    They tell also of what other runs had written of which no event has told.

    Args:
        context: The task's.
        stream: The stream, with absolute locations.
        record: The record of the run.
        home: The stream's folder in the home.
        project: The folder of `sluice.toml`; Airflow's own project when not given.

    Returns:
        What they tell of beside the run; None where they lack their details.
    """
    try:
        untold = untold_runs(home, record)
        partitions = _touched(stream, [*untold.runs, record], home)
        events = context["outlet_events"]
        events[stream_asset(stream, project=project)].extra = event_extra(record, partitions, untold.runs)
        if partitions:
            touched = events[partition_asset(stream, project=project)]
            touched.extra = {"run_id": record.run_id, "stream": record.stream}
            touched.add_partitions([key for key in map(partition_key, partitions) if _is_usable(key)])
        return untold
    except Exception:
        # The rows are committed: an event without details is worse than one with them, and better than a failed run.
        logger.warning("the asset events of run %s lack their details", record.run_id, exc_info=True)
        return None


def told_outlet(given: Sequence[Any], stream: Stream, *, project: str | None = None) -> Asset | None:
    """That of a task's outlets whose event tells of the stream's runs; None where none does.

    Args:
        given: The task's outlets.
        stream: The stream.
        project: The folder of `sluice.toml`; Airflow's own project when not given.
    """
    uris = {outlet.uri for outlet in given if isinstance(outlet, Asset)}
    return next((asset for asset in outlets(stream, project=project) if asset.uri in uris), None)


def event_extra(record: RunRecord, partitions: Sequence[Partition], untold: Sequence[RunRecord] = ()) -> dict[str, Any]:
    """What the event of a run says: its summary, `partition_count`, and `partitions` up to a thousand.

    The partitions are also those of the runs before it that have no event: `since_runs`, oldest first.
    """
    keys = [partition_key(partition) for partition in partitions[:_MAX_LISTED]]
    since = [run.run_id for run in untold[-_MAX_LISTED:]]
    return {**summary(record), "since_runs": since, "partition_count": len(partitions), "partitions": keys}


def partition_key(partition: Partition) -> str:
    """A partition as Airflow's key: its values, joined by `|` as Airflow's own mappers do; nulls as Hive has them."""
    return "|".join(_NULL if value is None else value for value in partition)


def _watched(stream: str, what: str, watch: type[CommitWatch | ArrivalWatch], project: str | None) -> Asset:
    name = f"{_name(stream, project)}/{what}"
    watcher = AssetWatcher(name=name, trigger=watch(asset=name, stream=stream, project=_one_name(project)))
    uri = _uri(join(airflow_project(project).home, stream, what))
    return Asset(name=name, uri=uri, group=GROUP, watchers=[watcher])


def _is_usable(key: str) -> bool:
    is_usable = bool(key.strip()) and len(key) <= _MAX_KEY
    if not is_usable:
        logger.warning("the partition %.60r... gets no event: Airflow takes keys of up to %s characters", key, _MAX_KEY)
    return is_usable


def _touched(stream: Stream, runs: Sequence[RunRecord], home: StreamHome) -> list[Partition]:
    """The partitions that a run touched, and the runs before it that have no event."""
    columns = _columns(stream)
    if not columns or stream.sink.location is None:
        return []
    return touched_partitions(stream.sink.location, written_versions(stream, home, runs), columns, storage=home.storage)


def _columns(stream: Stream) -> tuple[str, ...]:
    """The partition columns of a sink whose log tells of them."""
    return stream.sink.partition_columns if isinstance(stream.sink, ReadableSink) else ()


def _declared(stream: str | Stream, project: str | None) -> Stream:
    return airflow_project(project).stream(stream) if isinstance(stream, str) else stream


def _name(stream: str, project: str | None) -> str:
    """Airflow takes one place per name: streams of projects beside its own bear their project's name."""
    own = _one_name(project)
    return stream if own is None else f"{airflow_project(own).name}/{stream}"


def _one_name(project: str | None) -> str | None:
    """One way of naming a project: two DAG files that name it differently must not make two watchers of an asset."""
    if project is None:
        return project_for_others()
    root = airflow_project(project).root
    try:
        return project_for_others() if airflow_project().root == root else root
    except DeclarationError:
        return root


def _sink_uri(stream: Stream) -> str:
    # A sink without a place (a function, a console) still is something that changes.
    return _uri(stream.sink.location) if stream.sink.location else f"sluice://{stream.sink.kind}/{stream.name}"


def _uri(location: str) -> str:
    """A location as a URI; what means something else in URIs is escaped, for Airflow would cut it off."""
    if is_local(location):
        return f"file://{quote(local_path(location))}"
    scheme, _, rest = location.partition("://")
    return f"{scheme}://{quote(rest)}"
