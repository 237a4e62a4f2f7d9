"""Which tasks of a DAG run streams, out of what Airflow's own serialization makes of real DAGs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, task
from airflow.serialization.serialized_objects import DagSerialization

from sluice_airflow.operators.run_stream import RunStreamOperator
from sluice_airflow.operators.run_together import RunTogetherOperator
from sluice_airflow.ui.dag_tasks import stream_tasks

pytestmark = [pytest.mark.airflow]


class OurOperator(RunStreamOperator):
    """What a project derives."""


def found_in(dag: DAG) -> list[tuple[str, str | None]]:
    """The tasks that run streams, with their streams."""
    found = [(found.task_id, found.stream) for found in stream_tasks(dag.dag_id, DagSerialization.to_dict(dag))]
    return sorted(found, key=str)


def test_every_way_to_run_a_stream() -> None:
    """Whoever may see the stream is told by the task, whatever its class is called."""
    with DAG("web", schedule=None) as dag:
        RunStreamOperator(task_id="plain", stream="visits")
        OurOperator(task_id="derived", stream="clicks")

        @task.stream(stream="orders")
        def decorated() -> None: ...

        decorated()

    assert found_in(dag) == [("decorated", "orders"), ("derived", "clicks"), ("plain", "visits")]


def test_expanded_tasks() -> None:
    """Over bounds, over streams, over both."""
    with DAG("web", schedule=None) as dag:
        RunStreamOperator.partial(task_id="bounds", stream="visits").expand(max_batches=[1, 2])
        RunStreamOperator.partial(task_id="streams").expand(stream=["clicks", "orders"])
        RunStreamOperator.partial(task_id="both").expand_kwargs([{"stream": "a", "max_batches": 1}, {"stream": "b"}])

        @task.stream(stream="sales")
        def decorated(at: int) -> dict[str, Any]:
            return {"max_batches": at}

        decorated.expand(at=[1, 2])

    assert found_in(dag) == [
        ("both", "a"), ("both", "b"), ("bounds", "visits"), ("decorated", "sales"),
        ("streams", "clicks"), ("streams", "orders"),
    ]  # fmt: skip


def test_where_the_project_is_looked_for() -> None:
    """In the folder that the task names, else in that of the DAG's file; templates and relative ones tell nothing."""
    with DAG("web", schedule=None) as dag:
        RunStreamOperator(task_id="here", stream="visits")
        RunStreamOperator(task_id="there", stream="visits", project="/elsewhere")
        RunStreamOperator(task_id="templated", stream="visits", project="{{ var.value.project }}")
        RunStreamOperator(task_id="relative", stream="visits", project="sales")
        RunStreamOperator.partial(task_id="mapped", project="/elsewhere").expand(stream=["visits"])

    found = {task.task_id: task.project_folder for task in stream_tasks("web", DagSerialization.to_dict(dag))}

    here = str(Path(__file__).parent)
    assert found == {"here": here, "there": "/elsewhere", "templated": "", "relative": "", "mapped": "/elsewhere"}


def test_a_task_that_runs_several() -> None:
    """It is one of each stream, and its runs bear the keys of their own tasks."""
    with DAG("web", schedule=None) as dag:
        RunTogetherOperator(task_id="together", streams=["visits", "clicks"], project="/elsewhere")

    found = list(stream_tasks("web", DagSerialization.to_dict(dag)))

    assert [(task.task_id, task.stream, task.key_task_id, task.project_folder) for task in found] == [
        ("together", "visits", "visits", "/elsewhere"), ("together", "clicks", "clicks", "/elsewhere"),
    ]  # fmt: skip


def test_other_tasks_run_no_stream() -> None:
    """They are left out."""
    with DAG("web", schedule=None) as dag:
        EmptyOperator(task_id="other")

    assert found_in(dag) == []


def test_a_stream_that_only_a_template_names_is_not_known() -> None:
    """The task runs one, and which one is known by its runs."""
    with DAG("web", schedule=None) as dag:
        RunStreamOperator(task_id="templated", stream="{{ params.stream }}")

    assert found_in(dag) == [("templated", None)]


@pytest.mark.parametrize("document", [None, {}, {"dag": {"tasks": [None, {"__var": {"template_fields": 3}}, 7]}}])
def test_what_is_no_serialized_dag(document: Any) -> None:
    """It has no tasks."""
    assert list(stream_tasks("web", document)) == []
