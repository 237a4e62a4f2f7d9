"""What Airflow is told of: the pages and the places that lead to them, the deadlines, weights, and listeners."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from airflow.plugins_manager import AirflowPlugin

from sluice_airflow.deadlines import StreamWatermark
from sluice_airflow.listeners import drivers_pool, marked_tasks, stream_metrics, told_events
from sluice_airflow.slot_priority import LiveFirst

_PREFIX = "sluice"


class Pages:
    """The app of the pages, loaded with the first request: Airflow loads plugins in every process, even in workers."""

    async def __call__(
        self,
        scope: MutableMapping[str, Any],
        receive: Callable[[], Awaitable[MutableMapping[str, Any]]],
        send: Callable[[MutableMapping[str, Any]], Awaitable[None]],
    ) -> None:
        """Answer a request."""
        from sluice_airflow.ui.app import app

        await app(scope, receive, send)


class SluicePlugin(AirflowPlugin):
    """The streams in Airflow's UI: a page of all of them, and tabs at DAGs, DAG runs and task instances."""

    name = "sluice"
    deadline_references = [StreamWatermark]  # noqa: RUF012 - Airflow's base class wants it so
    priority_weight_strategies = [LiveFirst]  # noqa: RUF012 - Airflow's base class wants it so
    listeners = [drivers_pool, marked_tasks, stream_metrics, told_events]  # noqa: RUF012 - Airflow's base class wants it so
    fastapi_apps = [  # noqa: RUF012 - Airflow's base class wants it so
        {"app": Pages(), "url_prefix": f"/{_PREFIX}", "name": "sluice"}
    ]
    external_views = [  # noqa: RUF012 - Airflow's base class wants it so
        {"name": "Streams", "destination": "nav", "category": "browse", "href": f"{_PREFIX}/", "url_route": "streams"},
        {
            "name": "Streams",
            "destination": "dag",
            "href": f"{_PREFIX}/dag?dag_id={{DAG_ID}}",
            "url_route": "dag-streams",
        },
        {
            "name": "Stream runs",
            "destination": "dag_run",
            "href": f"{_PREFIX}/runs?dag_id={{DAG_ID}}&run_id={{RUN_ID}}",
            "url_route": "dag-run-streams",
        },
        {
            "name": "Stream run",
            "destination": "task_instance",
            "href": f"{_PREFIX}/runs?dag_id={{DAG_ID}}&run_id={{RUN_ID}}&task_id={{TASK_ID}}&map_index={{MAP_INDEX}}",
            "url_route": "task-stream-run",
        },
    ]
