"""Assets: what a stream writes, each partition of it, its commits and its arrivals; and the events of a run.

| asset | changes | by |
|---|---|---|
| `NAME`, the sink's location | when a run of Airflow's has written | the operator, one event per run |
| `NAME/partitions` | for each partition that the run touched | the operator, one event per partition |
| `NAME/commits` | when a batch is committed, whoever runs the stream | a watcher |
| `NAME/arrivals` | when the sources have something for the stream | a watcher |

`NAME` is the stream's; in a project other than Airflow's own, `PROJECT/STREAM`. Of several sinks, the first is `NAME`,
and another table `NAME.SINK`: each has events of its own, of the runs that wrote rows into it. A topic among them has
none, for nobody can ask it what it has got.

Events with a partition key reach only DAGs that are scheduled by partition, and events without one only the others:
hence two assets for one table.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow.sdk import Asset, AssetWatcher
from airflow.sdk.definitions.asset import AssetNameRef, AssetUriRef

from sluice.errors import DeclarationError
from sluice.locations import is_local, join, local_path
from sluice.monitoring.touched_partitions import Partition, touched_partitions
from sluice.several_sinks import SeveralSinks
from sluice.sinks.contract import ReadableSink
from sluice_airflow.outcomes import summary
from sluice_airflow.projects import airflow_project, project_for_others
from sluice_airflow.unannounced_runs import Untold, untold_runs, written_batches, written_versions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow.sdk import Context
    from airflow.sdk.types import OutletEventAccessorsProtocol

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


@dataclass(frozen=True)
class Emitted:
    """The events of a run that were filled."""

    untold: Untold | None
    """What they tell of beside the run; None where they lack their details."""
    silent: Sequence[Asset] = ()
    """Those of several sinks into which nothing was written: they get no event."""

    def is_silent(self, outlet: Any) -> bool:
        """Whether it is one of these, by itself or by its name or place."""
        if isinstance(outlet, AssetNameRef):
            return any(asset.name == outlet.name for asset in self.silent)
        return isinstance(outlet, Asset | AssetUriRef) and any(asset.uri == outlet.uri for asset in self.silent)


@dataclass(frozen=True)
class _Output:
    """What a stream writes into one sink."""

    stream: Stream
    """The stream as it would be with that sink alone."""
    name: str
    """Of its asset."""
    sink: str | None = None
    """Its name among several; None for the only one."""

    @property
    def asset(self) -> Asset:
        return Asset(name=self.name, uri=_sink_uri(self.stream), group=GROUP)

    @property
    def partitions(self) -> Asset:
        return Asset(name=f"{self.name}/partitions", uri=f"{_sink_uri(self.stream)}?by=partition", group=GROUP)

    @property
    def columns(self) -> tuple[str, ...]:
        """The partition columns of a sink whose log tells of them."""
        sink = self.stream.sink
        return sink.partition_columns if isinstance(sink, ReadableSink) else ()

    @property
    def assets(self) -> list[Asset]:
        return [self.asset, self.partitions] if self.columns else [self.asset]


@dataclass(frozen=True)
class _News:
    """What runs have written into one sink."""

    partitions: Sequence[Partition]
    own: Mapping[str, Any] = field(default_factory=dict)
    """What the event says of the newest of them in place of what its record does."""


def stream_asset(stream: str | Stream, *, sink: str | None = None, project: str | None = None) -> Asset:
    """What a stream writes: an event per run that wrote.

    Args:
        stream: The stream, or its name.
        sink: Of several sinks, the name of a table; the first when not given.
        project: The folder of `sluice.toml`; Airflow's own project when not given.

    Raises:
        DeclarationError: The stream is not declared, or has no such table.
    """
    return _output(stream, sink, project).asset


def stream_assets(stream: str | Stream, *, project: str | None = None) -> list[Asset]:
    """The asset of each table that a stream writes; see `stream_asset`.

    Args:
        stream: The stream, or its name.
        project: The folder of `sluice.toml`; Airflow's own project when not given.

    Raises:
        DeclarationError: The stream is not declared.
    """
    return [output.asset for output in _outputs(_declared(stream, project), project)]


def partition_asset(stream: str | Stream, *, sink: str | None = None, project: str | None = None) -> Asset:
    """The partitions of what a stream writes: an event per partition that a run touched.

    Args:
        stream: The stream, or its name.
        sink: Of several sinks, the name of a table; the first when not given.
        project: The folder of `sluice.toml`; Airflow's own project when not given.

    Raises:
        DeclarationError: The stream is not declared, or has no such table.
    """
    return _output(stream, sink, project).partitions


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
    return [asset for output in _outputs(_declared(stream, project), project) for asset in output.assets]


def emit_events(
    context: Context, stream: Stream, record: RunRecord, *, home: StreamHome, project: str | None = None
) -> Emitted:
    """Fill the events of a run that wrote; called before the task succeeds. Never fails a run.

    They tell also of what other runs had written of which no event has told.

    Args:
        context: The task's.
        stream: The stream, with absolute locations.
        record: The record of the run.
        home: The stream's folder in the home.
        project: The folder of `sluice.toml`; Airflow's own project when not given.
    """
    try:
        untold, silent = untold_runs(home, record), list[Asset]()
        for output in _outputs(stream, project):
            news = _news(output, home, [*untold.runs, record])
            if news is None:
                silent += output.assets
            else:
                _emit(context["outlet_events"], output, record, untold.runs, news)
        return Emitted(untold, silent)
    except Exception:
        # The rows are committed: an event without details is worse than one with them, and better than a failed run.
        logger.warning("the asset events of run %s lack their details", record.run_id, exc_info=True)
        return Emitted(None)


def told_outlets(given: Sequence[Any], stream: Stream, *, project: str | None = None) -> list[Asset]:
    """Those of a task's outlets whose events tell of the stream's runs.

    Args:
        given: The task's outlets.
        stream: The stream.
        project: The folder of `sluice.toml`; Airflow's own project when not given.
    """
    uris = {outlet.uri for outlet in given if isinstance(outlet, Asset)}
    return [asset for asset in outlets(stream, project=project) if asset.uri in uris]


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


def _outputs(stream: Stream, project: str | None) -> list[_Output]:
    """What a stream writes that is an asset: its sink; of several those that know what they have got."""
    name = _name(stream.name, project)
    if not isinstance(stream.sink, SeveralSinks):
        return [_Output(stream, name)]
    alone, (first, *others) = stream.outputs, stream.sink.tables
    return [
        _Output(alone[first], name, first),
        # No stream's name has a dot, and what stands behind a slash may be the name of a sink.
        *(_Output(alone[sink], f"{name}.{sink}", sink) for sink in others),
    ]


def _output(stream: str | Stream, sink: str | None, project: str | None) -> _Output:
    found = _declared(stream, project)
    outputs = _outputs(found, project)
    if sink is None:
        return outputs[0]
    for output in outputs:
        if output.sink == sink:
            return output
    tables = ", ".join(f"`{output.sink}`" for output in outputs if output.sink is not None)
    raise DeclarationError(
        f"there is no asset of a sink `{sink}`",
        where=f"stream `{found.name}`",
        remedy=f"name one of its tables: {tables}" if tables else "it has one sink: leave `sink` out",
    )


def _news(output: _Output, home: StreamHome, runs: Sequence[RunRecord]) -> _News | None:
    """What runs have written into a sink, the newest of which tells; None where that is nothing, of one of several."""
    if output.sink is None:
        return _News(_touched(output, written_versions(output.stream, home, runs), home))
    batches = written_batches(output.stream, output.sink, home, runs)
    if not batches:
        return None
    own = [batches[batch.batch_id] for batch in runs[-1].batches if batch.batch_id in batches]
    told = {
        "output_rows": sum(batch.output_rows or 0 for batch in own),
        "sink_version": max((batch.version for batch in own if batch.version is not None), default=None),
    }
    versions = [batch.version for batch in batches.values() if batch.version is not None]
    return _News(_touched(output, versions, home), told)


def _emit(
    events: OutletEventAccessorsProtocol, output: _Output, record: RunRecord, untold: Sequence[RunRecord], news: _News
) -> None:
    events[output.asset].extra = {**event_extra(record, news.partitions, untold), **news.own}
    if news.partitions:
        touched = events[output.partitions]
        touched.extra = {"run_id": record.run_id, "stream": record.stream}
        touched.add_partitions([key for key in map(partition_key, news.partitions) if _is_usable(key)])


def _touched(output: _Output, versions: Sequence[int], home: StreamHome) -> list[Partition]:
    """The partitions that some versions of a sink touched."""
    location = output.stream.sink.location
    if not output.columns or location is None:
        return []
    return touched_partitions(location, versions, output.columns, storage=home.storage)


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
