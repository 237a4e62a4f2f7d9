"""The settings of a stream's Spark session."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from sluice import sinks
from sluice.errors import DeclarationError, JarsError
from sluice.project import Project
from sluice.spark import jars
from sluice.spark.java import Work
from sluice.spark.session import driver_environment, spark_conf
from tests.builders import make_stream

NO_DELTA = make_stream(sink=sinks.noop())


@pytest.fixture
def no_jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache of jars that is empty."""
    monkeypatch.setenv("SLUICE_JARS", str(tmp_path / "jars"))


@pytest.fixture
def all_jars(no_jars: None) -> list[str]:
    """A cache that has every jar; their paths."""
    for jar in jars.manifest():
        jar.path().parent.mkdir(exist_ok=True)
        jar.path().touch()
        os.truncate(jar.path(), jar.size_bytes)
    return [str(jar.path()) for jar in jars.manifest()]


def make_project(**conf: str) -> Project:
    return Project("/project", "shop", "/home", (), (), "local[2]", spark_conf=conf)


class TestConf:
    """What a session is started with."""

    @pytest.mark.usefixtures("no_jars")
    def test_project_wins(self) -> None:
        """Defaults are overridden by the project's settings."""
        key = "spark.sql.session.timeZone"
        assert spark_conf(make_project(), NO_DELTA, "local[2]")[key] == "UTC"
        assert spark_conf(make_project(**{key: "Europe/Paris"}), NO_DELTA, "local[2]")[key] == "Europe/Paris"

    @pytest.mark.usefixtures("no_jars")
    @pytest.mark.parametrize(
        ("zone", "told"), [("Europe/Paris", "Europe/Paris"), ("GMT+8", "<+08>-08"), ("nowhere", None)]
    )
    def test_the_zone_of_python(self, zone: str, told: str | None) -> None:
        """It is the session's, where it means the same to the system; a project may say another one."""
        key, own = "spark.sql.session.timeZone", "spark.executorEnv.TZ"
        assert spark_conf(make_project(), NO_DELTA, "local[2]")[own] == "UTC"
        assert spark_conf(make_project(**{key: zone}), NO_DELTA, "local[2]").get(own) == told
        assert spark_conf(make_project(**{own: "Asia/Tokyo"}), NO_DELTA, "local[2]")[own] == "Asia/Tokyo"

    def test_what_planning_relies_on(self) -> None:
        """The compaction interval can't be set: planned entries are compacted by it."""
        project = make_project(**{"spark.sql.streaming.fileSource.log.compactInterval": "3"})
        with pytest.raises(DeclarationError, match="planning relies on 10"):
            spark_conf(project, NO_DELTA, "local[2]")

    @pytest.mark.usefixtures("no_jars")
    def test_delta_needs_jars(self) -> None:
        """A stream with a Delta table does not start without the jars; another one does."""
        with pytest.raises(JarsError, match="sluice jars fetch"):
            spark_conf(make_project(), make_stream(), "local[2]")
        assert "spark.sql.extensions" not in spark_conf(make_project(), NO_DELTA, "local[2]")

    @pytest.mark.usefixtures("no_jars")
    def test_checkpoint_files(self) -> None:
        """Spark does without Hadoop's file contexts where the checkpoint is in a folder, unless the project says so."""
        key = "spark.sql.streaming.checkpointFileManagerClass"
        local, remote = make_project(), replace(make_project(), home="s3a://lake/home")
        assert spark_conf(local, NO_DELTA, "local[2]")[key].endswith(".FileSystemBasedCheckpointFileManager")
        assert spark_conf(local, NO_DELTA, "spark://master:7077")[key] == spark_conf(local, NO_DELTA, "local[2]")[key]
        assert key not in spark_conf(remote, NO_DELTA, "local[2]")
        assert key not in spark_conf(local, replace(NO_DELTA, checkpoint="hdfs://lake/s"), "local[2]")
        assert spark_conf(make_project(**{key: "own"}), NO_DELTA, "local[2]")[key] == "own"

    @pytest.mark.usefixtures("no_jars")
    @pytest.mark.parametrize("reader", ["spark.ui.enabled", "spark.eventLog.enabled"])
    def test_plans_that_somebody_reads(self, reader: str) -> None:
        """Spark's pages and its event log show them as Spark tells them; else they are told at no length."""
        key = "spark.sql.ui.explainMode"
        assert spark_conf(make_project(), NO_DELTA, "local[2]")[key] == "simple"
        assert spark_conf(make_project(**{reader: "false"}), NO_DELTA, "local[2]")[key] == "simple"
        assert key not in spark_conf(make_project(**{reader: "true"}), NO_DELTA, "local[2]")
        assert spark_conf(make_project(**{key: "cost"}), NO_DELTA, "local[2]")[key] == "cost"

    @pytest.mark.usefixtures("all_jars")
    def test_snapshots_of_small_runs(self) -> None:
        """A table's snapshot is made in one task where little is read, unless the project says in how many."""
        key = "spark.databricks.delta.snapshotPartitions"
        small, large = Work(size_bytes=0), Work(size_bytes=1 << 40)
        assert spark_conf(make_project(), make_stream(), "local[2]", small)[key] == "1"
        assert spark_conf(make_project(), make_stream(), "local[2]", large)[key] == "2"
        assert spark_conf(make_project(**{key: "9"}), make_stream(), "local[2]", small)[key] == "9"

    def test_jars(self, all_jars: list[str]) -> None:
        """A local driver finds the jars on its class path, a cluster gets them sent."""
        local = spark_conf(make_project(), make_stream(), "local[2]")
        cluster = spark_conf(make_project(), make_stream(), "spark://host:7077")
        assert local["spark.driver.extraClassPath"] == ":".join(all_jars)
        assert cluster["spark.jars"] == ",".join(all_jars)

    @pytest.mark.usefixtures("no_jars")
    def test_only_this_machine_reaches_a_local_driver(self) -> None:
        """A local driver binds loopback; one of a cluster must be reached by its executors."""
        key = "spark.driver.bindAddress"
        assert spark_conf(make_project(), NO_DELTA, "local[2]")[key] == "127.0.0.1"
        assert key not in spark_conf(make_project(), NO_DELTA, "spark://host:7077")

    @pytest.mark.usefixtures("no_jars")
    @pytest.mark.parametrize(
        ("master", "cores", "is_serial"),
        [
            ("local", 8, True),
            ("local[2]", 8, True),
            ("local[*]", 2, True),
            ("local[*]", 8, False),
            ("local[3,2]", 2, False),
            ("spark://host:7077", 2, False),
        ],
    )
    def test_garbage_collector(
        self, master: str, cores: int, *, is_serial: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A driver that runs one or two tasks at once collects garbage without threads of its own."""
        monkeypatch.setattr(os, "cpu_count", lambda: cores)
        options = spark_conf(make_project(), NO_DELTA, master)["spark.driver.extraJavaOptions"]
        assert ("-XX:+UseSerialGC" in options) == is_serial

    @pytest.mark.usefixtures("no_jars")
    def test_the_projects_java_options_come_last(self) -> None:
        """Java takes the last of two that contradict each other."""
        project = make_project(**{"spark.driver.extraJavaOptions": "-XX:MetaspaceSize=99m"})
        options = spark_conf(project, NO_DELTA, "local[2]", Work(0))["spark.driver.extraJavaOptions"]
        assert options.startswith("-XX:MetaspaceSize=256m")
        assert options.endswith("-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:MetaspaceSize=99m")


class TestEnvironment:
    """What a driver's environment says."""

    def test_file_names_are_utf_8(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Whatever the locale: names of files with other letters would be read as missing."""
        for name in ("LC_ALL", "LC_CTYPE", "LANG"):
            monkeypatch.delenv(name, raising=False)
        assert driver_environment()["LC_ALL"] == "C.UTF-8"
        monkeypatch.setenv("LANG", "de_DE.utf8")
        assert "LC_ALL" not in driver_environment()

    def test_workers_run_this_python(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Unless another one is set."""
        monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
        assert driver_environment()["PYSPARK_PYTHON"] == sys.executable
        monkeypatch.setenv("PYSPARK_PYTHON", "/opt/python")
        assert driver_environment()["PYSPARK_PYTHON"] == "/opt/python"
