"""Settings of Spark for one stream: what is refused, what wins, and what is told of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sluice.errors import DeclarationError
from sluice.project import Project, find_project
from sluice.spark.session import spark_conf
from tests.builders import make_stream


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project with settings of its own."""
    conf = '"spark.sql.shuffle.partitions" = "2"\n"spark.log.level" = "ERROR"\n'
    (tmp_path / "sluice.toml").write_text(f"[spark]\nmaster = 'local[2]'\n[spark.conf]\n{conf}")
    return find_project(str(tmp_path))


def test_the_stream_s_own_win(project: Project) -> None:
    stream = make_stream(conf={"spark.sql.shuffle.partitions": 8, "spark.sql.ansi.enabled": False}, memory="4g")

    conf = spark_conf(project, stream, "local[2]")

    assert conf["spark.sql.shuffle.partitions"] == "8"
    assert conf["spark.sql.ansi.enabled"] == "false"
    assert conf["spark.driver.memory"] == "4g"
    assert conf["spark.log.level"] == "ERROR"
    assert project.conf_of(replace(stream, conf=None, memory=None)) == project.spark_conf


def test_variables_of_the_environment(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_KEY", "hush-hush")
    stream = make_stream(conf={"spark.hadoop.fs.s3a.secret.key": "${SHOP_KEY}"})

    assert project.conf_of(stream)["spark.hadoop.fs.s3a.secret.key"] == "hush-hush"
    assert "SHOP_KEY" not in repr(stream)
    assert "hush-hush" not in str(DeclarationError("it is hush-hush"))


def test_what_planning_relies_on(project: Project) -> None:
    stream = make_stream(conf={"spark.sql.streaming.fileSource.log.compactInterval": 3})

    with pytest.raises(DeclarationError, match=r"compactInterval` can't be set \[.*conf\]"):
        spark_conf(project, stream, "local[2]")


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"conf": ["spark.a"]}, "`conf` is a list"),
        ({"conf": {"shuffle.partitions": 8}}, "unknown setting 'shuffle.partitions' .stream `visits`, conf"),
        ({"conf": {"spark.secret": {"a": 1}}}, "`spark.secret` in `conf` is a dict"),
        ({"memory": "4"}, "`memory` is '4'"),
        ({"memory": "0g"}, "`memory` is '0g'"),
        ({"memory": 4}, "`memory` is 4"),
        ({"memory": "4g", "conf": {"spark.driver.memory": "2g"}}, "say the same"),
    ],
)
def test_refused(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(DeclarationError, match=problem):
        make_stream(**given)
