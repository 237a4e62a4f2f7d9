"""What the text of a stream's SQL tells, without Spark: what it reads, what it does, and what is no query."""

from __future__ import annotations

from pathlib import Path

import pytest

from sluice import Stream, sinks, sources
from sluice.errors import DeclarationError
from sluice.planning.declared_sql import DeclaredSql, declared_sql
from sluice.planning.transform_text import transform_digest, words_of_transform
from sluice.project import Project, find_project
from tests.builders import put


def declared(sql: str, *names: str) -> Stream:
    found = {name: sources.delta(name) for name in names or ("visits",)}
    return Stream(name="s", sources=found, sql=sql, sink=sinks.delta("out"))


def sql(text: str) -> DeclaredSql:
    return DeclaredSql(text, "s.sql", is_file=True)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    put(tmp_path / "sluice.toml", "")
    return find_project(str(tmp_path))


@pytest.mark.parametrize(
    ("text", "batch"),
    [
        ("select * from stream(visits)", "select * from visits"),
        ("SELECT * FROM STREAM ( visits ) v", "SELECT * FROM visits v"),
        ("from stream visits |> where id > 1", "from visits |> where id > 1"),
        ("select * from stream(`visits`)", "select * from `visits`"),
        ("select 1 from a join stream visits on true", "select 1 from a join visits on true"),
        ("select 'stream(visits)', stream from stream(visits)", "select 'stream(visits)', stream from visits"),
        ("select 1 -- stream(other)\nfrom stream(visits)", "select 1 -- stream(other)\nfrom visits"),
        ("select r'\\' from stream(visits) where a = ''", "select r'\\' from visits where a = ''"),
        ("select upstream(visits) from stream(visits)", "select upstream(visits) from visits"),
        (
            "select 1 /* /* old */ stream(other) */ from stream(visits)",
            "select 1 /* /* old */ stream(other) */ from visits",
        ),
        ("select 1 /* /*+ no hint */ from stream(visits)", "select 1 /* /*+ no hint */ from visits"),
        ("select 'it''s', 'stream(other)' from stream(visits)", "select 'it''s', 'stream(other)' from visits"),
        ("select 1 -- it's\r from stream(visits)", "select 1 -- it's\r from visits"),
        (
            "select 1 -- up to \\\nstream(other)\n from stream(visits)",
            "select 1 -- up to \\\nstream(other)\n from visits",
        ),
        (
            "with v as (select * from stream(visits)) select * from v;",
            "with v as (select * from visits) select * from v;",
        ),
    ],
)
def test_what_it_reads(text: str, batch: str) -> None:
    """`stream(visits)` wherever it is code, and nothing else; a backfill reads the same as a table."""
    sql(text).check(declared(text))

    assert sql(text).for_batch == batch


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("select a\n  from stream(v) -- of today", "select a from stream(v)", True),
        ("select /* why */ a from stream(v)", "select a from stream(v)", True),
        ("select /*+ broadcast(b) */ a from stream(v)", "select a from stream(v)", False),
        ("select 'a  b' from stream(v)", "select 'a b' from stream(v)", False),
        ("select '--a' from stream(v)", "select '--b' from stream(v)", False),
        ("select `a  b` from stream(v)", "select `a b` from stream(v)", False),
        ("select 'it''s' from stream(v)", "select 'it' 's' from stream(v)", False),
        ("select 'it' 's' from stream(v)", "select 'it'/* and */'s' from stream(v)", True),
        ('select "a""b" from stream(v)', 'select "a" "b" from stream(v)', False),
        ("select `a``b` from stream(v)", "select `a` `b` from stream(v)", False),
        ("select a from stream(v) -- all\r where a > 1", "select a from stream(v) -- all\r where a > 2", False),
        ("select a from stream(v) -- all\r where a > 1", "select a from stream(v) where a > 1", True),
        ("select a /* /* b */ , c */ from stream(v)", "select a from stream(v)", True),
        ("select a /* x */ -- y\n  /* z */ from stream(v)", "select a from stream(v) ", True),
    ],
)
def test_what_is_no_edit(one: str, other: str, *, same: bool) -> None:
    """Comments, and how lines are broken, do nothing; hints and what is quoted do."""
    assert (sql(one).code == sql(other).code) is same


@pytest.mark.parametrize(
    "text",
    [
        "with visits as (select * from stream(visits)) select * from visits, visits as w",
        "select extract(day from visits), trim(both from visits), trim('x' from visits) from stream(visits)",
        "select n is distinct from visits, n is not  distinct from visits from stream(visits)",
        "from stream(visits) |> aggregate count(*) as n, visits group by d |> drop a, visits",
        "select * from stream(visits) lateral view explode(m) t as k, visits",
        "select * from stream(visits) distribute by n, visits",
        "select * from stream(visits) v join visits_(n) join stream visits join lake.visits",
    ],
)
def test_columns_called_as_a_source(project: Project, text: str) -> None:
    """They are none of a table's names, nor is that of a query within, of a function or of a database's table."""
    sql(text).check(declared("q.sql"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("drop table lake.visits", "it has `drop`"),
        ("with v as (select * from stream(visits)) insert into t select * from v", "it has `insert into`"),
        ("-- nothing yet", "the SQL is empty"),
        ("select * from stream(visits) join Visits using (n)", "reads `visits` without `stream`"),
        ("select * from stream(visits) v, visits w where v.n = w.n", "reads `visits` without `stream`"),
        ("select * from stream(visits) where n in (select n from visits)", "reads `visits` without `stream`"),
        ("select * from stream(visits) v join (select distinct * from visits) w using (n)", "reads `visits` without"),
        ("select * from stream(visits) a, (select 1 from t cross join visits) b", "reads `visits` without `stream`"),
        ("select * from stream(visits); select 1", "several statements"),
        ("select * from visits", r"write `stream\(visits\)`"),
        ("select * from stream(vists)", "did you mean `visits`"),
        ("select * from stream(visits) join stream(lake.orders) using (id)", "or read it as a table, without `stream`"),
    ],
)
def test_what_is_no_query_of_the_sources(project: Project, text: str, said: str) -> None:
    """It is told where it is written, without Spark."""
    put(Path(project.root, "q.sql"), text)
    stream = declared("q.sql")
    found = declared_sql(project, stream)
    assert found is not None

    with pytest.raises(DeclarationError, match=said) as caught:
        found.check(stream)
    assert caught.value.where == str(Path(project.root, "q.sql"))


def test_names_that_sql_takes_for_one(project: Project) -> None:
    """Names of views have no case."""
    stream = declared("select * from stream(a) union select * from stream(A)", "a", "A")
    found = declared_sql(project, stream)
    assert found is not None

    with pytest.raises(DeclarationError, match="by their case alone"):
        found.check(stream)


@pytest.mark.parametrize(
    ("content", "said"),
    [(None, "No such file"), (b"\xff\xfe", "no text in UTF-8"), (b"select 1 " * 200_000, "more than 1,000,000 bytes")],
)
def test_a_file_that_can_not_be_read(project: Project, content: bytes | None, said: str) -> None:
    """The error names the file."""
    if content is not None:
        put(Path(project.root, "q.sql"), content)

    with pytest.raises(DeclarationError, match=said) as caught:
        declared_sql(project, declared("q.sql"))
    assert str(caught.value.where).endswith("q.sql")


def test_the_digest_is_of_what_it_does(project: Project) -> None:
    """By it a run knows whether a batch that a driver died behind is read as it was planned."""
    file = Path(project.root, "q.sql")
    stream = declared("q.sql")
    digests = []
    for text in (
        "select a from stream(visits)",
        "select a\nfrom stream(visits) -- all",
        "select b from stream(visits)",
    ):
        put(file, text)
        digests.append(transform_digest(project, stream))

    assert digests[0] == digests[1] != digests[2]


def test_what_may_be_a_secret(project: Project) -> None:
    """A salt in quotes is one, the name of a column is none."""
    assert sql("select 'it''s' from stream(visits)").literals == {"it''s", "it's"}
    words = words_of_transform(
        project, declared("select sha2(concat(id, 'pepper-4711'), 256) as `key-of-id` from stream(visits)")
    )

    assert words.secrets() == ("pepper-4711",)
    assert "pepper-4711" not in repr(declared("select 'pepper-4711' from stream(visits)"))
