"""Whatever Spark's stream refuses of a table whose columns have changed, a plan refuses, and nothing else.

Each history is one that Spark is asked about, too: without settings, and with those by which it reads all the same.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException

from sluice import Stream, sinks, sources
from sluice.delta_log.table import commit_file
from tests.campaign import rarely
from tests.spark.lab import Lab, available_now

pytestmark = pytest.mark.spark

_DELTA = "spark.databricks.delta."
SETTINGS = {
    "renamed": f"{_DELTA}streaming.unsafeReadOnIncompatibleColumnMappingSchemaChanges.enabled",
    "repartitioned": f"{_DELTA}streaming.unsafeReadOnPartitionColumnChanges.enabled",
    "at start": f"{_DELTA}streaming.unsafeReadOnIncompatibleSchemaChangesDuringStreamStart.enabled",
    "nullable": f"{_DELTA}streaming.unsafeReadOnNullabilityChange.enabled",
}
_WIDER = {
    f"{_DELTA}typeWidening.allowTypeChangeStreamingDeltaSource": False,
    f"{_DELTA}typeWidening.enableStreamingSchemaTracking": True,
}
_REFUSED = re.compile("DELTA_SCHEMA_CHANGED|DELTA_STREAMING_INCOMPATIBLE|DELTA_STREAMING_CHECK_COLUMN_MAPPING")
_COLUMNS = "id BIGINT, amount INT, inner STRUCT<a: INT, b: INT>, list ARRAY<INT>, map MAP<STRING, STRUCT<a: INT>>"


def everything(events: Any) -> Any:
    return events


class Change(NamedTuple):
    """What another writer has made of a table, with which settings Spark reads it all the same, and what is told."""

    make: Callable[[dict[str, Any], dict[str, dict[str, Any]]], None]
    """Changes an action of metadata, and its columns by name."""
    told: str
    passes: tuple[str, ...] = ()
    is_mapped: bool = False


def _called(column: dict[str, Any], name: str) -> None:
    column["name"] = name


def _without(columns: dict[str, dict[str, Any]], name: str) -> None:
    del columns[name]


def _fields(column: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = column["type"]["fields"]
    return found


CHANGES = {
    "other capitals": Change(
        lambda _, columns: _called(columns["amount"], "Amount"),
        "amount: called so in version 1, renamed to `Amount` since",
        ("at start",),
    ),
    "other capitals within": Change(
        lambda _, columns: _called(_fields(columns["inner"])[0], "A"),
        "inner.a: called so in version 1, renamed to `A` since",
        ("at start",),
    ),
    "other partitions": Change(
        lambda table, _: table.update(partitionColumns=["id"]),
        "partition columns: none in version 1, id now",
        ("at start", "repartitioned"),
    ),
    "null no longer": Change(
        lambda _, columns: columns["amount"].update(nullable=False),
        "amount: may be null in version 1, and not now",
        ("at start", "nullable"),
    ),
    "null no longer in an array": Change(
        lambda _, columns: columns["list"]["type"].update(containsNull=False),
        "list.element: may be null in version 1, and not now",
        ("at start", "nullable"),
    ),
    "null no longer in a map": Change(
        lambda _, columns: _fields({"type": columns["map"]["type"]["valueType"]})[0].update(nullable=False),
        "map.value.a: may be null in version 1, and not now",
        ("at start", "nullable"),
    ),
    "another type": Change(
        lambda _, columns: columns["amount"].update(type="string"),
        "amount: int in version 1, string now",
        ("at start",),
    ),
    "dropped": Change(
        lambda _, columns: _without(columns, "amount"), "amount: int in version 1, dropped since", ("at start",)
    ),
    "mapped, and renamed": Change(
        lambda _, columns: _called(columns["amount"], "sum"),
        "amount: called so in version 1, renamed to `sum` since",
        ("renamed",),
        is_mapped=True,
    ),
    "mapped, and renamed within": Change(
        lambda _, columns: _called(_fields(columns["inner"])[0], "c"),
        "inner.a: called so in version 1, renamed to `c` since",
        ("renamed",),
        is_mapped=True,
    ),
    "mapped, and dropped": Change(
        lambda _, columns: _without(columns, "amount"),
        "amount: int in version 1, dropped since",
        ("renamed",),
        is_mapped=True,
    ),
    "mapped, and other partitions": Change(
        lambda table, _: table.update(partitionColumns=["id"]),
        "partition columns: none in version 1, id now",
        ("renamed", "repartitioned"),
        is_mapped=True,
    ),
    "mapped, and another type": Change(
        lambda _, columns: columns["amount"].update(type="string"),
        "amount: int in version 1, string now",
        ("at start",),
        is_mapped=True,
    ),
    "mapped no longer": Change(
        lambda table, _: table["configuration"].pop("delta.columnMapping.mode"),
        "column mapping: `name` in version 1, none now",
        ("renamed",),
        is_mapped=True,
    ),
}
_NEXT_OF_KIN = ("other capitals within", "null no longer in a map", "mapped, and dropped")


def make(lab: Lab, *, is_mapped: bool = False, widens: bool = False) -> Path:
    """A table with rows in versions 1 and 2."""
    told = " TBLPROPERTIES ('delta.columnMapping.mode' = 'name')" if is_mapped else ""
    told = " TBLPROPERTIES ('delta.enableTypeWidening' = 'true')" if widens else told
    lab.spark.sql(f"CREATE TABLE delta.`{lab.root / 'events'}` ({_COLUMNS}) USING delta{told}")
    row = "named_struct('a', 1, 'b', 1), array(1), map('k', named_struct('a', 1))"
    for number in (1, 2):
        lab.spark.sql(f"INSERT INTO delta.`{lab.root / 'events'}` VALUES ({number}, {number}, {row})")
    return lab.root / "events"


def commit(table: Path, change: Callable[[dict[str, Any], dict[str, dict[str, Any]]], None]) -> None:
    """Commit other metadata."""
    found = next(json.loads(line)["metaData"] for line in _lines(table, 0) if "metaData" in line)
    columns = {column["name"]: column for column in json.loads(found["schemaString"])["fields"]}
    change(found, columns)
    found["schemaString"] = json.dumps({"type": "struct", "fields": list(columns.values())})
    version = DeltaTable(table).version() + 1
    Path(commit_file(str(table), version)).write_text(json.dumps({"metaData": found}) + "\n")


def _lines(table: Path, version: int) -> list[str]:
    return Path(commit_file(str(table), version)).read_text("utf-8").splitlines()


def asked(lab: Lab, setting: str | None, name: str = "events", version: int = 1) -> tuple[str | None, bool]:
    """What a plan says of a table from a version on, and whether Spark refuses it."""
    conf = {} if setting is None else {SETTINGS.get(setting, setting): _WIDER.get(setting, True)}
    source = sources.delta(name, starting_version=version)
    declared = Stream(
        name="s", sources={"events": source}, transform=f"{__name__}:everything", sink=sinks.delta("out"), conf=conf
    )
    plan = lab.plan(declared)
    assert plan.problem is None or plan.problem.code == "SOURCE_COLUMNS_CHANGED"
    for key, is_set in conf.items():
        lab.spark.conf.set(key, is_set)
    try:
        reader = lab.spark.readStream.format("delta").option("startingVersion", version)
        available_now(reader.load(str(lab.root / name)), lab.root / f"of_spark_{name}_{setting}")
    except StreamingQueryException as exc:
        is_refused = _REFUSED.search(str(exc)) is not None
    else:
        is_refused = False
    finally:
        for key in conf:
            lab.spark.conf.unset(key)
    return None if plan.problem is None else plan.problem.cause, is_refused


@pytest.mark.parametrize(
    "change", [*(change for change in CHANGES if change not in _NEXT_OF_KIN), *rarely(*_NEXT_OF_KIN)]
)
def test_what_spark_refuses(lab: Lab, change: str) -> None:
    """A plan refuses exactly that, with a line for what has changed."""
    make_it, told, passes, is_mapped = CHANGES[change]
    commit(make(lab, is_mapped=is_mapped), make_it)

    cause, is_refused = asked(lab, None)
    assert cause is not None
    assert is_refused
    assert cause.splitlines()[1:] == [f"  {told}"]
    for setting in (*passes, *rarely(*(found for found in SETTINGS if found not in passes))):
        cause, is_refused = asked(lab, setting)
        assert (cause is not None, is_refused) == (setting not in passes, setting not in passes), setting


def test_a_first_version_that_nobody_can_tell(lab: Lab) -> None:
    """Where columns are mapped, Spark asks for those of the first version, though nothing has changed since."""
    table = make(lab, is_mapped=True)
    lab.spark.sql(f"OPTIMIZE delta.`{table}`")
    lab.spark.sql(f"INSERT INTO delta.`{table}` SELECT * FROM delta.`{table}`")
    # A checkpoint of the newest version, and no commit before it but the one before.
    DeltaTable(table).create_checkpoint()
    newest = DeltaTable(table).version()
    shutil.copytree(table, lab.root / "cleaned")
    for version in range(newest):
        (lab.root / "cleaned" / "_delta_log" / f"{version:020d}.json").unlink()
    Path(commit_file(str(lab.root / "cleaned"), newest - 1)).write_text(
        Path(commit_file(str(table), newest - 1)).read_text("utf-8"), "utf-8"
    )

    assert asked(lab, None, version=newest - 1) == (None, False)
    cause, is_refused = asked(lab, None, "cleaned", newest - 1)
    assert is_refused
    assert f"which columns version {newest - 1} has" in str(cause)
    assert asked(lab, "renamed", "cleaned", newest - 1) == (None, False)


def test_a_wider_type(lab: Lab) -> None:
    """Spark reads narrower ones before it, unless a setting says that it does not, or wants to be asked."""
    table = make(lab, widens=True)
    lab.spark.sql(f"ALTER TABLE delta.`{table}` ALTER COLUMN amount TYPE BIGINT")

    assert asked(lab, None) == (None, False)
    for setting in _WIDER:
        cause, is_refused = asked(lab, setting)
        assert is_refused
        assert str(cause).splitlines()[1:] == ["  amount: int in version 1, bigint now"]
