"""Names of tables in a catalog of Spark's, and where a plan has these without asking it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from sluice import sinks, sources
from sluice.errors import DeclarationError
from sluice.project import Project, find_project
from sluice.surroundings import Surroundings
from sluice.table_names import TableName, read_tables, table_location

LAKE = {"spark.sql.warehouse.dir": "/lake"}


def named(text: str) -> TableName:
    return TableName.parse(text, place="here")


@pytest.mark.parametrize(
    ("text", "full"),
    [
        ("visits", "default.visits"),
        ("Shop.Visits", "shop.visits"),
        ("SPARK_CATALOG.shop.visits", "shop.visits"),
        ("lake.Shop.Visits", "lake.Shop.Visits"),
    ],
)
def test_names_in_full(text: str, full: str) -> None:
    """Spark's own catalog and its database `default` need not be written, and it has no capital letters."""
    assert str(named(text)) == full


@pytest.mark.parametrize("text", ["", ".", "a.", "a b", "a.b.c.d", "lake/visits", "`a`.b", "a.b-c", 3, ["a"], None])
def test_what_is_no_name(text: object) -> None:
    """It is refused: a path is no name."""
    with pytest.raises(DeclarationError, match="no name of a table"):
        TableName.parse(text, place="here")


def test_letters_that_spark_s_own_catalog_does_not_take() -> None:
    """Others may."""
    with pytest.raises(DeclarationError, match="has letters that Spark's own catalog does not take"):
        named("виз")
    assert str(named("lake.shop.виз")) == "lake.shop.виз"


@pytest.mark.parametrize(
    ("name", "conf", "place"),
    [
        ("visits", LAKE, "/lake/visits"),
        ("default.visits", LAKE, "/lake/visits"),
        ("shop.visits", LAKE, "/lake/shop.db/visits"),
        ("shop.visits", {"spark.sql.warehouse.dir": "file:/lake/"}, "/lake/shop.db/visits"),
        ("shop.visits", {"spark.sql.warehouse.dir": "s3a://bucket/lake"}, "s3a://bucket/lake/shop.db/visits"),
        ("shop.told", LAKE, "/elsewhere"),
        ("visits", {"spark.sql.warehouse.dir": "${WH_HERE}/b"}, "/a/b/visits"),
        ("lake.shop.told", {}, "s3://bucket/told"),
    ],
)
def test_where_a_table_is(name: str, conf: Mapping[str, str], place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the project says, else where Spark's own catalog would put it."""
    monkeypatch.setenv("WH_HERE", "/a")
    told = {named("Shop.told"): "/elsewhere", named("lake.shop.told"): "s3://bucket/told"}
    assert table_location(named(name), told, conf, place="here") == place


@pytest.mark.parametrize(
    ("name", "conf", "remedy"),
    [
        ("shop.tolt", {}, "did you mean `shop.told`"),
        ("shop.visits", {}, "or set `spark.sql.warehouse.dir`"),
        ("lake.shop.visits", LAKE, r'`"lake.shop.visits" = "PATH"`$'),
        ("shop.visits", {"spark.sql.warehouse.dir": "wh"}, "write it absolute"),
        ("shop.visits", {"spark.sql.warehouse.dir": "file:wh"}, "write it absolute"),
        ("shop.visits", {"spark.sql.warehouse.dir": "${WH_NOWHERE}/wh"}, "set it, or write the value"),
        ("lake.visits", {**LAKE, "spark.sql.catalog.lake": "x"}, "write the name in full: `lake.DATABASE.visits`"),
        ("spark_catalog.visits", LAKE, "write the name in full"),
    ],
)
def test_a_table_of_which_nobody_says_where_it_is(name: str, conf: Mapping[str, str], remedy: str) -> None:
    """It is refused, with what would say it."""
    with pytest.raises(DeclarationError) as raised:
        table_location(named(name), {named("shop.told"): "/elsewhere"}, conf, place="here")
    assert re.search(remedy, raised.value.remedy or "")


def project(root: Path, tables: str) -> Project:
    (root / "sluice.toml").write_text(tables)
    (root / "streams").mkdir()
    return find_project(str(root))


@pytest.mark.parametrize("name", ['"shop.visits"', "shop.visits"])
def test_tables_of_a_project(tmp_path: Path, name: str) -> None:
    """A dotted name may lack its quotes; paths are the project's."""
    around = project(tmp_path, f'[tables]\n{name} = "lake/visits"').surroundings
    source = sources.delta(table="Shop.visits", max_files_per_batch=2).resolved(around)
    sink = sinks.delta(table="shop.visits", partition_by="day").resolved(around)
    assert source.location == sink.location == f"{tmp_path}/lake/visits"
    assert (source.max_files_per_batch, sink.partition_columns) == (2, ("day",))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"shop.visits": "a", "Shop": {"visits": "b"}}, "two paths"),
        ({"shop.visits": 3}, "3 is not a path"),
        ({"shop.visits": "../a"}, "leaves the project"),
        ({"shop visits": "a"}, "no name of a table"),
    ],
)
def test_what_tables_can_not_say(tmp_path: Path, given: Mapping[str, object], said: str) -> None:
    """Each name has one path, which is one."""
    with pytest.raises(DeclarationError, match=said):
        read_tables(given, str(tmp_path), place="sluice.toml")


@pytest.mark.parametrize("declare", [sources.delta, sinks.delta])
def test_a_path_or_a_name(declare: type) -> None:
    """One of the two is given."""
    with pytest.raises(DeclarationError, match="`path` is missing"):
        declare()
    with pytest.raises(DeclarationError, match="both given"):
        declare("lake/visits", table="visits")
    with pytest.raises(DeclarationError, match="nobody says where the table"):
        declare(table="visits").resolved(Surroundings("/project"))
