"""When a stream runs, and when something runs after it: every choice of schedule.

| schedule | runs |
|---|---|
| `data_intervals("0 * * * *")` | by the clock, for what arrived in the interval |
| `on_arrival("departures")` | the stream, as soon as there is something for it |
| `after_run("departures")` | something else, after each run of Airflow's that wrote |
| `after_run("visits", sink="rest")` | something else, after each of those that wrote into one of several sinks |
| `per_partition("departures")` | something else, once for each partition that a run touched |
| `on_commit("departures")` | something else, after every commit, whoever made it |
"""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import Any

from airflow.sdk import CronDataIntervalTimetable, PartitionedAssetTimetable

from sluice_airflow.assets import arrival_asset, commit_asset, partition_asset, stream_asset, stream_assets


def data_intervals(cron: str, *, timezone: Any = "UTC") -> CronDataIntervalTimetable:
    """Runs by the clock, each for what arrived since the run before.

    A plain cron string gets intervals without length from Airflow: everything would be due at their start.

    Args:
        cron: A cron expression.
        timezone: Where it is meant: a name, or a zone of pendulum's.
    """
    return CronDataIntervalTimetable(cron, timezone=timezone)


def on_arrival(*streams: str, project: str | None = None) -> Any:
    """A run as soon as a source of one of these streams has something for it: no clock, no empty runs.

    Args:
        streams: The streams' names.
        project: The folder of `sluice.toml`; Airflow's own project when not given.

    Raises:
        DeclarationError: The project is not right.
    """
    return reduce(or_, [arrival_asset(stream, project=project) for stream in streams])


def on_commit(*streams: str, project: str | None = None) -> Any:
    """A run after each commit of one of these streams, also where Airflow does not run the stream.

    Args:
        streams: The streams' names.
        project: The folder of `sluice.toml`; Airflow's own project when not given.

    Raises:
        DeclarationError: The project is not right.
    """
    return reduce(or_, [commit_asset(stream, project=project) for stream in streams])


def after_run(*streams: str, sink: str | None = None, project: str | None = None) -> Any:
    """A run after each run of Airflow's that wrote what one of these streams writes.

    Args:
        streams: The streams' names.
        sink: Of several sinks, the name of the table that has to be written; any of them when not given.
        project: The folder of `sluice.toml`; Airflow's own project when not given.

    Raises:
        DeclarationError: A stream is not declared, or has no such table.
    """
    if sink is not None:
        return reduce(or_, [stream_asset(stream, sink=sink, project=project) for stream in streams])
    return reduce(or_, [asset for stream in streams for asset in stream_assets(stream, project=project)])


def per_partition(stream: str, *, sink: str | None = None, project: str | None = None) -> PartitionedAssetTimetable:
    """One run per partition that a run of the stream touched; `dag_run.partition_key` names it.

    Late rows touch an old partition, and it gets another run.

    Args:
        stream: The stream's name; its sink is a partitioned Delta table.
        sink: Of several sinks, the name of that table; the first when not given.
        project: The folder of `sluice.toml`; Airflow's own project when not given.

    Raises:
        DeclarationError: The stream is not declared, or has no such table.
    """
    return PartitionedAssetTimetable(assets=partition_asset(stream, sink=sink, project=project))
