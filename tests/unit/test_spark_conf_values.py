"""What the values of Spark's well-known settings may be, and which names are misspelt."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sluice.errors import DeclarationError
from sluice.option_values import Check
from sluice.project import Project, find_project, load_project
from sluice.redaction import is_secret_name
from sluice.spark_conf_values import (
    SETTINGS,
    boolean,
    class_name,
    codec,
    duration,
    duration_from_zero,
    meant_setting,
    number,
    serializer,
    size,
    whole,
)
from tests.builders import make_stream, put

ANSI = "spark.sql.ansi.enabled"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project without settings."""
    put(tmp_path / "sluice.toml", "")
    return find_project(str(tmp_path))


@pytest.mark.parametrize(
    ("check", "taken", "refused"),
    [
        (boolean, ["true", "FALSE", " true "], ["yes", "1", "", "maybe"]),
        (whole(), ["5", "+5", "-1", " 5 ", "0", "007"], ["", "x", "1.5", "5m", "2147483648", "9" * 400]),
        (whole(0), ["0", "-0"], ["-1"]),
        (whole(1), ["1", "2147483647"], ["0", "-1", "many"]),
        (number, ["0.6", ".5", "1.", "1e-2", "2d", "-1", "NaN", " 1 ", "Infinity"], ["", "60%", "half", "1,5"]),
        (size(), ["1", "64m", "64MB", "1g", "2T", "3pb", "0b", "-1", "-64m", "64kib"], ["x", "0.5g", "64 m"]),
        (size(0), ["0", "0b", "1k"], ["-1", "-1m", ""]),
        (size(1), ["1", "64m"], ["0", "0m", "-1", "64mx"]),
        (
            duration,
            ["30", "30s", "5min", "100MS", "2h", "1d", "7us", " 5m ", "-1ms"],
            ["", "soon", "5 s", "1w", "1.5s"],
        ),
        (duration_from_zero, ["0", "30s", "-0"], ["-1", "-30s", "soon"]),
        (class_name, ["a.B", "a.b_c.D$E"], ["", "B", "a.", ".B", "a..B", "a b.C", "a.1"]),
        (serializer, ["org.apache.spark.serializer.KryoSerializer"], ["kryo", "fast"]),
        (codec, ["lz4", "ZSTD", "lzf", "snappy", "my.own.Codec"], ["gzip", "zip", ""]),
    ],
)
def test_grammar(check: Check, taken: list[str], refused: list[str]) -> None:
    """A check takes what Spark takes, blanks and units included."""
    assert [value for value in taken if check(value) is not None] == []
    assert [value for value in refused if check(value) is None] == []


def test_no_setting_is_a_secret() -> None:
    """Messages may tell what was given."""
    assert [key for key in SETTINGS if is_secret_name(key)] == []


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("spark.sql.shufle.partitions", "spark.sql.shuffle.partitions"),
        ("spark.sql.shuffle.partition", "spark.sql.shuffle.partitions"),
        ("spark.sql.session.timezone", "spark.sql.session.timeZone"),
        ("spark.sql.adaptive.enable", "spark.sql.adaptive.enabled"),
        ("spark.executor.core", "spark.executor.cores"),
        # These are settings, or may be some of others.
        ("spark.sql.shuffle.partitions", None),
        ("spark.kryoserializer.buffer.max.mb", None),
        ("spark.shuffle.partitions", None),
        ("spark.shop.level", None),
        ("spark.hadoop.fs.s3a.secret.key", None),
    ],
)
def test_misspelt_names(name: str, meant: str | None) -> None:
    assert meant_setting(name) == meant


def test_a_variable_is_checked_for_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told by its name alone: what it says may be a secret."""
    file = put(tmp_path / "sluice.toml", f'spark.conf."{ANSI}" = "${{SHOP_ANSI}}"')
    monkeypatch.setenv("SHOP_ANSI", "true")
    assert load_project(file).spark_conf == {ANSI: "true"}

    monkeypatch.setenv("SHOP_ANSI", "no")
    with pytest.raises(DeclarationError) as caught:
        load_project(file)
    assert caught.value.problem == f"`{ANSI}` is '${{SHOP_ANSI}}'"


def test_a_variable_of_a_stream(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is filled in by the project, not when the stream is declared."""
    stream = make_stream(conf={ANSI: "${SHOP_ANSI}"})
    monkeypatch.setenv("SHOP_ANSI", "no")
    with pytest.raises(DeclarationError) as caught:
        project.conf_of(stream)
    assert caught.value.problem == f"`{ANSI}` is '${{SHOP_ANSI}}'"
    assert caught.value.where == f"{stream.place}, conf"

    monkeypatch.setenv("SHOP_ANSI", "false")
    assert project.conf_of(replace(stream)) == {ANSI: "false"}


def test_variables_of_spark_s_own(tmp_path: Path) -> None:
    """Spark fills them in, and judges what comes of it."""
    text = '"spark.sql.shuffle.partitions" = "${spark.default.parallelism}"'
    file = put(tmp_path / "sluice.toml", f"[spark.conf]\n{text}")

    assert load_project(file).spark_conf == {"spark.sql.shuffle.partitions": "${spark.default.parallelism}"}
