"""A project of Spark's declarative pipelines in Airflow."""

from __future__ import annotations

from pathlib import Path

import pytest

from sluice_airflow.triggers import declared
from sluice_airflow.triggers.declared import DeclaredStreams

pytestmark = pytest.mark.airflow

SPEC = "name: shop\nstorage: {0}/storage\nlibraries:\n  - glob:\n      include: all.sql\n"
CONF = "configuration: {spark.sql.sources.default: delta}\n"
SQL = "CREATE STREAMING TABLE doubled AS SELECT 2 * id AS id FROM STREAM(orders)"


def test_a_full_refresh_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A trigger that waits goes on with the newest checkpoint, though no file of the project has changed."""
    monkeypatch.setattr(declared, "_FRESH_SECONDS", 0.0)
    (tmp_path / "spark-pipeline.yml").write_text(SPEC.format(tmp_path) + CONF)
    (tmp_path / "all.sql").write_text(SQL)
    for table in ("orders", "doubled"):
        (tmp_path / "spark-warehouse" / table / "_delta_log").mkdir(parents=True)
    checkpoints = tmp_path / "storage" / "_checkpoints" / "spark_catalog" / "default" / "doubled" / "doubled"
    (checkpoints / "0").mkdir(parents=True)
    streams = DeclaredStreams(str(tmp_path))
    assert streams.find("doubled").home.checkpoint == str(checkpoints / "0")

    (checkpoints / "1").mkdir()

    assert streams.find("doubled").home.checkpoint == str(checkpoints / "1")
