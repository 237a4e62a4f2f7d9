"""Settings of streams that Spark takes without a word, and fails of in a first batch: told before it is planned."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame

from sluice import Stream, sinks, sources
from sluice.errors import DeclarationError, SluiceError
from sluice.running.check import check_project
from sluice.spark.first_batch_check import ROCKSDB, STATE_STORE
from sluice.spark.session import SHUFFLE_PARTITIONS
from sluice.spark_setting import spark_setting
from tests.builders import put
from tests.spark.lab import Lab, rows, write_numbers

pytestmark = pytest.mark.spark

FILES = "spark.sql.streaming.checkpointFileManagerClass"
CODEC = "spark.sql.streaming.stateStore.compression.codec"
IDS = "spark.sql.streaming.stateStore.checkpointFormatVersion"
RETAINED = "spark.sql.streaming.minBatchesToRetain"
JOINS = "spark.sql.streaming.join.stateFormatVersion"
HARMLESS = "spark.sql.streaming.stateStore.minDeltasForSnapshot"


def counted(numbers: DataFrame) -> DataFrame:
    return numbers.groupBy("id").count()


def declared(**changes: Any) -> Stream:
    known: dict[str, Any] = {
        "name": "counts",
        "sources": {"numbers": sources.files("in", format="json", schema="id bigint")},
        "transform": f"{__name__}:counted",
        "sink": sinks.delta("out"),
        "output_mode": "complete",
        "declared_at": "streams/counts.py:4",
    }
    return Stream(**known | changes)


@contextmanager
def set_in_session(lab: Lab, conf: dict[str, str]) -> Iterator[None]:
    """As a session of the stream's own has them: the one of these tests is shared."""
    if not conf:
        yield
        return
    (key, value), *others = conf.items()
    with spark_setting(lab.spark, key, value), set_in_session(lab, dict(others)):
        yield


@pytest.mark.parametrize(
    ("conf", "wrong", "words"),
    [
        ({STATE_STORE: "java.lang.String"}, STATE_STORE, "STATE_STORE_INVALID_PROVIDER.*java.lang.String"),
        (
            {HARMLESS: "5", STATE_STORE: "no.such.Store"},
            STATE_STORE,
            r"java\.lang\.ClassNotFoundException: no\.such\.Store",
        ),
        ({FILES: "no.such.Manager", HARMLESS: "5"}, FILES, "CANNOT_LOAD_CHECKPOINT_FILE_MANAGER.ERROR_LOADING_CLASS"),
        ({CODEC: "no.such.Codec"}, CODEC, "CODEC_NOT_AVAILABLE"),
        ({IDS: "2"}, IDS, "STATE_STORE_CHECKPOINT_IDS_NOT_SUPPORTED"),
        ({RETAINED: "0"}, RETAINED, "minBatchesToRetain has to be positive"),
    ],
)
def test_a_setting_that_spark_fails_of(lab: Lab, conf: dict[str, str], wrong: str, words: str) -> None:
    """It is named with its stream's line and Spark's words, and nothing is planned."""
    write_numbers(lab.root / "in", 2)
    stream = declared(conf=conf)
    with set_in_session(lab, conf), pytest.raises(DeclarationError, match=words) as refused:
        lab.run(stream)
    assert f"what is declared for `{wrong}`:" in refused.value.problem
    assert refused.value.where == "streams/counts.py:4: stream `counts`, conf"
    assert refused.value.remedy == "correct the value, or leave the setting out; nothing was planned"
    assert not (lab.checkpoint(stream) / "offsets").exists()


def test_the_next_run_of_a_mended_declaration(lab: Lab) -> None:
    """It begins as if nothing had been."""
    write_numbers(lab.root / "in", 2)
    with set_in_session(lab, {RETAINED: "0"}), pytest.raises(DeclarationError, match="what is declared for"):
        lab.run(declared(conf={RETAINED: "0"}))

    assert lab.run(declared()).status == "succeeded"
    assert rows(lab.table("out")) == [(0, 1), (1, 1)]


def test_check_tells_it(lab: Lab) -> None:
    """With the stream's line, also where a run before it has left a generation and no batch."""
    put(
        lab.root / "streams" / "counts.py",
        "from sluice import Stream, sinks, sources\n"
        "numbers = sources.files('in', format='json', schema='id bigint')\n"
        "wrong = Stream(name='wrong', sources={'numbers': numbers}, sink=sinks.delta('a'), output_mode='complete',"
        f" transform='{__name__}:counted', conf={{'{STATE_STORE}': 'java.lang.String'}})\n"
        "right = Stream(name='right', sources={'numbers': numbers}, sink=sinks.delta('b'), output_mode='complete',"
        f" transform='{__name__}:counted')\n",
    )
    write_numbers(lab.root / "in", 1)
    project = replace(lab.project, stream_folders=(str(lab.root / "streams"),))

    for _ in range(2):
        # What a stream declares is gone once a session is opened for the next one.
        wrong, right = check_project(project)
        with (
            spark_setting(lab.spark, STATE_STORE, "java.lang.String"),
            pytest.raises(SluiceError, match=r"\[STATE_STORE"),
        ):
            lab.run(project.stream("wrong"))
        assert right.error is None
        assert "STATE_STORE_INVALID_PROVIDER" in str(wrong.error)
        assert f"{lab.root / 'streams' / 'counts.py'}:3" in str(wrong.error)


def test_a_value_that_a_start_refuses(tmp_path: Path) -> None:
    """It is told with the stream's line and what Spark takes; the stream behind it has a Spark of its own."""
    put(tmp_path / "sluice.toml", '[project]\nname = "p"\n[spark]\nmaster = "local[1]"\n')
    put(tmp_path / "jobs.py", "def same(numbers):\n    return numbers\n")
    put(
        tmp_path / "streams" / "numbers.py",
        "from sluice import Stream, sinks, sources\n"
        "numbers = {'numbers': sources.files('in', format='json', schema='id bigint')}\n"
        "given = {'sources': numbers, 'transform': 'jobs:same', 'sink': sinks.noop()}\n"
        f"wrong = Stream(name='a', conf={{'{JOINS}': '7'}}, **given)\n"
        "right = Stream(name='b', **given)\n"
        f"again = Stream(name='c', conf={{'{JOINS}': '8'}}, **given)\n",
    )
    write_numbers(tmp_path / "in", 1)
    told = subprocess.run(
        [sys.executable, "-m", "sluice", "check"], cwd=tmp_path, text=True, capture_output=True, check=False
    )
    lines = told.stdout.splitlines()
    for name, line in (("a", 4), ("c", 6)):
        (found,) = [text for text in lines if f": {name}: " in text]
        assert found.startswith(f"{tmp_path / 'streams' / 'numbers.py'}:{line}")
        assert f'"{JOINS}" is invalid. Valid versions are 1, 2, 3, and 4' in found
        assert "; correct its value, or leave it out" in found
    assert not [text for text in lines if ": b: " in text or "Java 17" in text]
    assert told.returncode == 2


def test_what_is_taken_is_tried_without_a_trace(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    """The session is as it was, and the checkpoint has what was declared."""
    write_numbers(lab.root / "in", 1)
    conf = {HARMLESS: "5", CODEC: "snappy"}
    with set_in_session(lab, conf), caplog.at_level(logging.WARNING):
        partitions = lab.spark.conf.get(SHUFFLE_PARTITIONS)
        assert lab.run(declared(conf=conf)).status == "succeeded"
        assert lab.spark.conf.get(SHUFFLE_PARTITIONS) == partitions
    assert pinned(lab.checkpoint(declared()))[CODEC] == "snappy"
    assert not [record for record in caplog.records if record.name == "sluice.spark.settings_trial"]


def test_what_a_batch_pins_that_never_ran(lab: Lab) -> None:
    """As earlier versions left it: a provider that is none, pinned for good; it is pinned anew as it is declared."""
    write_numbers(lab.root / "in", 2)
    stream = declared()
    lab.run(stream)
    left = lab.checkpoint(stream)
    planned = left / "offsets" / "0"
    partitions = pinned(left)[SHUFFLE_PARTITIONS]
    planned.write_text(planned.read_text().replace(pinned(left)[STATE_STORE], "java.lang.String"))
    for folder in ("commits", "state"):
        forget(left / folder)
    forget(lab.root / "out")
    assert pinned(left)[STATE_STORE] == "java.lang.String"
    assert not lab.plan(declared(conf={STATE_STORE: ROCKSDB})).warnings

    (batch,) = lab.run(stream).batches

    assert (batch.batch_id, batch.input_rows) == (0, 2)
    assert rows(lab.table("out")) == [(0, 1), (1, 1)]
    assert pinned(left)[STATE_STORE].endswith("HDFSBackedStateStoreProvider")
    assert pinned(left)[SHUFFLE_PARTITIONS] == partitions
    write_numbers(lab.root / "in", 1, first=2)
    assert [batch.batch_id for batch in lab.run(stream).batches] == [1]


def pinned(checkpoint: Path) -> dict[str, str]:
    found: dict[str, str] = json.loads((checkpoint / "offsets" / "0").read_text().splitlines()[1])["conf"]
    return found


def forget(folder: Path) -> None:
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
