"""What a connection must say before a driver is started for it: Spark would only tell after its JVM is up."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from sluice import Stream, sinks, sources
from sluice.project import Project
from sluice_airflow.submission import _connection, _submission

pytestmark = pytest.mark.airflow


def declare(monkeypatch: pytest.MonkeyPatch, **said: Any) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_HERE", json.dumps({"conn_type": "spark", **said}))


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({}, "connection `spark_here` names no master; set its host, such as local[2]"),
        (
            {"host": "locl[2]"},
            "no Spark has the name `locl[2]` [the host of connection `spark_here`]; did you mean `local[2]`?",
        ),
        (
            {"host": "http://spark:7077"},
            (
                "`http://` names no Spark [the host of connection `spark_here`];"
                " write spark://HOST:7077, or k8s://https://HOST:PORT"
            ),
        ),
        (
            {"host": "local", "conn_type": "postgres"},
            "connection `spark_here` has type postgres; `spark` or `spark_connect` is needed",
        ),
        (
            {"host": "serve", "extra": {"queue": "q"}},
            (
                "connection `spark_here` names the Spark of `sluice serve`, which is started as the project says:"
                " remove what else it says"
            ),
        ),
    ],
)
def test_what_names_no_spark(monkeypatch: pytest.MonkeyPatch, said: dict[str, Any], message: str) -> None:
    """The task fails for good, and says what to write."""
    declare(monkeypatch, **said)
    with pytest.raises(AirflowFailException) as caught:
        _connection("spark_here")
    assert str(caught.value) == message


@pytest.mark.parametrize(
    "said",
    [
        *(
            {"host": host}
            for host in ("local", "local[2]", "local[*]", "serve", "yarn", "spark://a:7077", "k8s://https://h:1")
        ),
        {"host": "spark", "port": 7077},
        {"host": "spark://spark", "port": 7077},
        {"host": "localhost", "port": 15002, "conn_type": "spark_connect"},
    ],
)
def test_what_names_one(monkeypatch: pytest.MonkeyPatch, said: dict[str, Any]) -> None:
    """A cluster's host may have its port beside it."""
    declare(monkeypatch, **said)
    assert _connection("spark_here").host == said["host"]


def test_a_driver_for_the_warm_spark(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It is plain Python, which looks for the server itself; what the worker was told of Spark does not count."""
    declare(monkeypatch, host="serve")
    monkeypatch.setenv("SPARK_REMOTE", "sc://elsewhere")
    project = Project(str(tmp_path), "p", str(tmp_path / "home"), (), ())
    stream = Stream(
        name="s",
        sources={"a": sources.files("in", format="json", schema="id bigint")},
        transform="m:f",
        sink=sinks.noop(),
    )
    with _submission(project, stream, [], "spark_here") as submission:
        assert submission.command[0] == sys.executable
        assert submission.environment["SLUICE_SPARK_MASTER"] == "serve"
        assert "SPARK_REMOTE" not in submission.environment
