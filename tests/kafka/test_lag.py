"""What `sluice lag` tells of a Kafka source: the offsets that wait, in each partition."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sluice.cli.app import app
from tests.kafka.topics import Kafka


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "streams").mkdir()
    (tmp_path / "sluice.toml").write_text('[project]\nname = "p"\n', "utf-8")
    return tmp_path


def declare(project: Path, kafka: Kafka, topic: str) -> None:
    (project / "streams" / "orders.py").write_text(
        "from sluice import Stream, sinks, sources\n"
        f"source = sources.kafka({kafka.bootstrap!r}, topics=[{topic!r}])\n"
        "orders = Stream(name='orders', sources={'orders': source}, transform='jobs:same', sink=sinks.delta('out'))\n",
        "utf-8",
    )


def told(project: Path, *options: str) -> str:
    answer = CliRunner().invoke(app, ["lag", "orders", "--project", str(project), *options])
    assert answer.exit_code == 0, answer.output
    return answer.stdout


def test_what_waits_in_each_partition(project: Path, kafka: Kafka) -> None:
    """The fullest first; those in which nothing waits are in the document alone."""
    topic = kafka.topic(3)
    kafka.send(topic, "a", partition=0)
    kafka.send(topic, "bcd", partition=2)
    declare(project, kafka, topic)

    lines = [line.split() for line in told(project).splitlines() if topic in line]
    assert [[cell for cell in line if cell != "│"] for line in lines] == [
        [f"{topic}-2", "0", "3", "3"],
        [f"{topic}-0", "0", "1", "1"],
    ]
    assert json.loads(told(project, "--json"))["sources"]["orders"]["partitions"] == {
        f"{topic}-0": {"read": 0, "end": 1, "offsets": 1},
        f"{topic}-1": {"read": 0, "end": 0, "offsets": 0},
        f"{topic}-2": {"read": 0, "end": 3, "offsets": 3},
    }


def test_a_topic_of_many_partitions(project: Path, kafka: Kafka) -> None:
    """A terminal gets the fullest twenty."""
    topic = kafka.topic(25)
    for number in range(25):
        kafka.send(topic, "x" * (number + 1), partition=number)
    declare(project, kafka, topic)

    text = told(project)
    assert "5 more have fewer offsets each; `--json` has them all" in text
    assert f"{topic}-24" in text
    assert len([line for line in text.splitlines() if f"{topic}-" in line]) == 20
