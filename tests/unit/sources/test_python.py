"""Data sources in Python: what `available` plans, what of it is refused, and what is said of a wrong reference."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from textwrap import indent
from typing import Any

import pytest

from sluice import Stream, sinks, sources
from sluice.errors import DeclarationError, RefusedError, StorageError
from sluice.monitoring.inspection import stream_lag
from sluice.plan import Plan
from sluice.planning.explain import explain
from sluice.planning.planner import Limits
from sluice.planning.transform_text import reader_digests, transform_digest
from sluice.planning.verdict import Request, plan_stream
from sluice.project import Project, load_project
from sluice.running.check import check_project
from sluice.sources.contract import Bound
from sluice.stream import Stream as Declared
from tests.builders import commit_bytes, offsets_bytes, put

UNTIL = datetime(2026, 1, 2, tzinfo=UTC)
FEED = """\
import json, os, sys
from pathlib import Path
from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader

class Reader(SimpleDataSourceStreamReader):
    def read(self, start):
        return iter([]), start

class Feed(DataSource):
    def schema(self):
        return "id bigint"
    def simpleStreamReader(self, schema):
        return Reader()
"""
TWO = """
from sluice import Stream, sinks, sources
s = Stream(
    name="s",
    sources={name: sources.python("jobs.feed:Feed", of=name) for name in ("a", "b")},
    transform="jobs.feed:same",
    sink=sinks.noop(),
)
"""
PLANNED = FEED + "    @staticmethod\n    def available(options, position, bound):\n"
STREAM = """\
from sluice import Stream, sinks, sources
s = Stream(
    name="s", sources={"feed": sources.python("jobs.feed:Feed", folder="${FOLDER}", sasl_password="hush-hush")},
    transform="jobs.feed:same", sink=sinks.noop(),
)
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clean_environment: None) -> Iterator[Project]:
    """A project whose one stream reads `jobs.feed:Feed`."""
    monkeypatch.setenv("FOLDER", "landing")
    put(tmp_path / "streams" / "s.py", STREAM)
    yield load_project(put(tmp_path / "sluice.toml", ""))
    for name in ("jobs", "jobs.feed"):
        sys.modules.pop(name, None)


def write(project: Project, body: str, *, text: str = PLANNED) -> None:
    """Write the module, with the lines of `available`."""
    lines = indent(body, " " * 8)
    put(Path(project.root, "jobs", "feed.py"), f"{text}{lines}\n\ndef same(feed):\n    return feed\n")


def plan(project: Project, **limits: Any) -> Plan:
    return plan_stream(project, Request(project.stream("s"), Limits(**limits)))


def ends(found: Plan) -> list[str | None]:
    return [batch.sources["feed"].end for batch in found.batches]


def begin(project: Project, offset: str) -> None:
    """Leave a checkpoint whose newest batch has ended at an offset, and is done."""
    checkpoint = Path(project.home, "s", "generations", "0001")
    put(checkpoint / "metadata", '{"id":"0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0"}')
    put(checkpoint / "offsets" / "0", offsets_bytes(offset))
    put(checkpoint / "commits" / "0", commit_bytes())


def go_on(project: Project, *offsets: str) -> None:
    """Batches behind that one, done as well."""
    checkpoint = Path(project.home, "s", "generations", "0001")
    for batch_id, offset in enumerate(offsets, 1):
        put(checkpoint / "offsets" / str(batch_id), offsets_bytes(offset))
        put(checkpoint / "commits" / str(batch_id), commit_bytes())


def refused(project: Project, body: str) -> DeclarationError:
    write(project, body)
    with pytest.raises(DeclarationError) as caught:
        plan(project)
    assert caught.value.exit_code == 2
    return caught.value


class TestPlanning:
    """What `available` says is what a run does."""

    def test_a_batch_for_each_offset(self, project: Project) -> None:
        """Spelled as pyspark spells those of a reader; and in words, as nobody counts what is in them."""
        write(project, "return [{'b': 1, 'a': 'é'}, {'a': None, 'b': [1.5, True]}]")
        found = plan(project)

        assert (found.verdict, found.strategy, found.reason) == ("run", "exact", "`feed`: 2 new batches")
        assert ends(found) == [json.dumps({"b": 1, "a": "é"}), '{"a": null, "b": [1.5, true]}']
        assert [line for line in explain(found) if line.startswith("    feed:")] == [
            '    feed: start -> {"b": 1, "a": "\\u00e9"}',
            '    feed: {"b": 1, "a": "\\u00e9"} -> {"a": null, "b": [1.5, true]}',
        ]

    def test_what_it_is_told(self, project: Project) -> None:
        """Its options with the environment's values, the newest offset decoded, the bound as a time with a zone."""
        write(project, "return [{'told': [options, position, bound and bound.isoformat()]}]")
        options = {"folder": "landing", "sasl_password": "hush-hush"}
        assert json.loads(str(ends(plan(project))[0])) == {"told": [options, None, None]}

        begin(project, '{"n": 3}')
        found = plan(project, bound=Bound(UNTIL))
        told = [options, {"n": 3}, "2026-01-02T00:00:00+00:00"]
        assert json.loads(str(ends(found)[0])) == {"told": told}
        assert found.reason == "`feed`: 1 new batch before 2026-01-02T00:00:00+00:00"

    def test_it_can_change_nothing_of_ours(self, project: Project) -> None:
        """What it is given is its own."""
        write(project, "options.clear()\nposition.clear()\nreturn [{'n': 1}]")
        begin(project, '{"n": 0}')
        stream = project.stream("s")
        plan(project)
        assert project.stream("s") is stream
        assert dict(stream.sources["feed"].options) == {"folder": "landing", "sasl_password": "hush-hush"}  # type: ignore[attr-defined]

    @pytest.mark.parametrize(
        "body",
        [
            "return []",
            "return None",
            "return iter(())",
            "return [position]",
            "return ({'m': 0, 'n': 3} for _ in range(5))",
        ],
    )
    def test_nothing_new(self, project: Project, body: str) -> None:
        """Also where it says the offset that is there, whatever the order of its keys."""
        write(project, body)
        begin(project, '{"n": 3, "m": 0}')
        found = plan(project)
        assert (found.verdict, found.reason) == ("skip", "nothing new")

    def test_an_offset_that_stays_is_no_batch(self, project: Project) -> None:
        write(project, "return [{'n': 3}, {'n': 4}, {'n': 4}, {'n': 5}]")
        begin(project, '{"n": 3}')
        assert ends(plan(project)) == ['{"n": 4}', '{"n": 5}']

    def test_a_class_method_and_a_base(self, project: Project) -> None:
        """It may be inherited, and know its class."""
        text = PLANNED.replace("class Feed", "class Base").replace("@staticmethod", "@classmethod")
        text = text.replace("def available(", "def available(cls, ")
        write(project, "return [{'of': cls.__name__}]", text=text)
        file = Path(project.root, "jobs", "feed.py")
        file.write_text(f"{file.read_text()}\nclass Feed(Base):\n    pass\n")
        assert ends(plan(project)) == ['{"of": "Feed"}']

    def test_the_most_batches(self, project: Project) -> None:
        write(project, "return [{'n': n} for n in range(10_000)]")
        assert len(ends(plan(project))) == 10_000
        assert len(ends(plan(project, max_batches=3))) == 3

    def test_an_edit_counts_at_once(self, project: Project) -> None:
        """Also in a process that lives on."""
        for last in (1, 22):
            write(project, f"return [{{'n': {last}}}]")
            assert ends(plan(project)) == [f'{{"n": {last}}}']

    def test_what_waits(self, project: Project) -> None:
        """In batches, for nobody counts it; nothing where nothing waits, and nothing is claimed where Spark decides."""
        now = datetime(2026, 1, 1, tzinfo=UTC)

        def lag() -> tuple[dict[str, int], int | None]:
            stream = project.stream("s")
            found = stream_lag(stream, project.stream_home(stream), now)["feed"]
            return dict(found.amount), found.batches

        write(project, "return [{'n': n} for n in range(3)]")
        assert lag() == ({}, 3)
        write(project, "return []")
        assert lag() == ({"rows": 0, "bytes": 0}, 0)
        write(project, "", text=FEED)
        assert lag() == ({}, None)

    def test_without_it(self, project: Project) -> None:
        """Spark decides the batches, no bound is kept, and the reason says why."""
        write(project, "", text=FEED)
        found = plan(project)
        assert (found.verdict, found.strategy) == ("run", "drain")
        assert found.reason.startswith("`jobs.feed:Feed` has no `available`, so that Spark alone knows its offsets: ")
        with pytest.raises(DeclarationError, match="can't be drained: AvailableNow keeps no bound"):
            plan(project, bound=Bound(UNTIL))

    def test_a_version_is_no_bound(self, project: Project) -> None:
        write(project, "return []")
        with pytest.raises(DeclarationError, match="no source is a Delta table"):
            plan(project, bound=Bound(to_version=1))

    def test_an_offset_of_another_kind(self, project: Project) -> None:
        write(project, "return []")
        begin(project, "17")
        problem = plan(project).problem
        assert problem is not None
        assert problem.code == "OFFSET_OF_ANOTHER_KIND"


ENDLESS = "import itertools\nreturn ({'n': n} for n in itertools.count())"
STAYING = "import itertools\nreturn itertools.repeat({'n': 1})"
BAD: dict[str, tuple[str, str]] = {
    "return 5": ("gives 5", "give a list of offsets"),
    "return 'abc'": ("gives 'abc'", "give a list of offsets"),
    "return {'n': 1}": ("gives one offset, {'n': 1}", "give a list of them"),
    "return [5]": ("gives 5 as an offset", "give dicts"),
    "return ['{}']": ("gives '{}' as an offset", "give dicts"),
    "return [None]": ("gives None as an offset", "give dicts"),
    "return [{'n': float('nan')}]": (
        "gives the offset {'n': nan}, which is no JSON: ValueError",
        "give dicts of texts",
    ),
    "return [{'n': float('inf')}]": ("which is no JSON", "give dicts of texts"),
    "return [{'n': {1}}]": ("which is no JSON: TypeError", "give dicts of texts"),
    "return [{(1, 2): 3}]": ("which is no JSON: TypeError", "give dicts of texts"),
    "return [{'n': '\\ud800'}]": ("which is no JSON", "give dicts of texts"),
    "return [{1: 2, '1': 3}]": ("which has a key twice in JSON", "give dicts of texts"),
    "found = {}\nfound['n'] = found\nreturn [found]": ("which is no JSON: ValueError: Circular", "give dicts of texts"),
    "found = {}\nfor _ in range(5000):\n    found = {'n': found}\nreturn [found]": (
        "gives the offset a dict, which is no JSON: RecursionError",
        "",
    ),
    "return [{'n': 'x' * 2_000_000}]": ("gives an offset of 2,000,009 characters", "tell in few words"),
    "return [{'n': 1}, {'n': 2}, {'n': 1}]": ("goes back to the offset {'n': 1}", "give each offset once"),
    ENDLESS: ("gives more than 10,000 offsets", "let it end"),
    STAYING: ("gives more than 10,000 offsets", "let it end"),
    "raise ValueError('no such page')": ("fails: ValueError: no such page", "correct it"),
    "sys.exit('done')": ("fails: SystemExit: done", "correct it"),
    "yield {'n': 1}\nraise KeyError('later')": ("fails: KeyError: 'later'", "correct it"),
    "raise ValueError(f'wrong: {options}')": ("***", "correct it"),
    "async def later():\n    return []\nreturn later()": ("gives <coroutine object", "give a list of offsets"),
    "class Hostile(dict):\n    def items(self):\n        raise RuntimeError('no')\nreturn [Hostile(n=1)]": ("no", ""),
    "class Silent:\n    def __repr__(self):\n        raise SystemExit(3)\nreturn [Silent()]": ("SystemExit: 3", ""),
}


@pytest.mark.parametrize("given", ["[{'n': 3}]", "[{'n': 9}, {'n': 5}]", "[{'n': 5}]"])
def test_going_back_behind_its_position(project: Project, given: str) -> None:
    """A feed that was reset would give its rows twice; what earlier batches ended at is in the checkpoint."""
    begin(project, '{"n": 3}')
    go_on(project, '{"n": 5}', '{"n": 7}')
    error = refused(project, f"return {given}")
    assert "goes back behind its position, to the offset {'n': " in error.problem
    assert "give what is beyond `position`" in str(error.remedy)

    write(project, "return [{'n': 7}, {'n': 8}]")
    assert ends(plan(project)) == ['{"n": 8}']


def test_an_earlier_offset_that_cannot_be_read(project: Project) -> None:
    """Spark reads it no more, either: the run goes on."""
    begin(project, '{"n": 3}')
    go_on(project, '{"n": 5}', '{"n": 7}')
    put(Path(project.home, "s", "generations", "0001", "offsets", "0"), b"torn")
    write(project, "return [{'n': 9}]")
    assert ends(plan(project)) == ['{"n": 9}']


@pytest.mark.parametrize("first", [['b:{"n":6}', 'a:{"n":4}'], ['b:{"n":6}']])
def test_offsets_by_their_keys(project: Project, first: list[str]) -> None:
    """Spark's second format has a key in each line: what another source has read before says nothing of this one."""
    put(Path(project.root, "streams", "s.py"), TWO)
    text = "return {'a': [{'n': 6}], 'b': []}[options['of']]"
    write(project, text)
    module = Path(project.root, "jobs", "feed.py")
    module.write_text(module.read_text().replace("def same(feed):\n    return feed", "def same(a, b):\n    return a"))
    checkpoint = Path(project.home, "s", "generations", "0001")
    put(checkpoint / "metadata", '{"id":"0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0"}')
    for batch_id, lines in enumerate([first, ['a:{"n":5}', 'b:{"n":7}']]):
        head = ["v2", '{"batchWatermarkMs":0,"batchTimestampMs":0,"conf":{}}']
        put(checkpoint / "offsets" / str(batch_id), "\n".join([*head, *lines]))
        put(checkpoint / "commits" / str(batch_id), commit_bytes())
    assert plan(project).verdict == "run"


@pytest.mark.parametrize("body", BAD)
def test_what_available_may_not_give(project: Project, body: str) -> None:
    """One error, which names the stream, the class and its line, and says what to do; nothing is planned."""
    error = refused(project, body)
    words, remedy = BAD[body]
    assert error.problem.startswith("`jobs.feed:Feed.available` ")
    assert words in error.problem
    assert remedy in str(error.remedy)
    assert str(error.where).startswith(f"{project.root}/streams/s.py:2: stream `s`, source `feed`: ")
    assert f"{project.root}/jobs/feed.py:" in str(error.where)
    assert "hush-hush" not in str(error)
    assert not Path(project.home, "s", "generations").exists()


def test_the_line_that_fails(project: Project) -> None:
    """The innermost one of the project's module, also where a library raises."""
    error = refused(project, "position = 1\njson.loads('{')")
    assert str(error.where).endswith(f"{project.root}/jobs/feed.py:17")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("    def available(options, position, bound):\n", "is no static method"),
        ("    available = 5\n    def other(self):\n", "is no static method"),
        ("    @staticmethod\n    def available(options, position):\n", "has the parameters (options, position)"),
        (
            "    @staticmethod\n    def available(self, options, position, bound):\n",
            "has the parameters (self, options",
        ),
        ("    @staticmethod\n    async def available(options, position, bound):\n", "is `async`"),
    ],
)
def test_a_method_that_can_not_be_called(project: Project, text: str, words: str) -> None:
    write(project, "return []", text=FEED + text)
    with pytest.raises(DeclarationError) as caught:
        plan(project)
    assert words in caught.value.problem
    assert f"{project.root}/jobs/feed.py" in str(caught.value.where)


def test_a_service_that_is_away(project: Project) -> None:
    """It may be there again for the next try; a draining run need not ask it."""
    write(project, "raise ConnectionRefusedError('the feed is away')")
    with pytest.raises(StorageError, match="the feed is away") as caught:
        plan(project)
    assert caught.value.retryable
    assert plan(project, strategy="drain").strategy == "drain"


@pytest.mark.parametrize(
    ("reference", "text", "words"),
    [
        ("jobs.fed:Feed", FEED, "`jobs.fed` does not import"),
        ("jobs.feed:Fed", FEED, "has no class `Fed` | did you mean `Feed`?"),
        ("jobs.feed:PLACE", f"PLACE = 5\n{FEED}", "has no class `PLACE`"),
        ("jobs.feed:Reader", FEED, "`jobs.feed:Reader` is no `DataSource`"),
        ("jobs.feed:Feed", FEED.replace("simpleStreamReader", "reader"), "`jobs.feed:Feed` reads no stream"),
        ("jobs.feed:Feed", f"1 / 0\n{FEED}", "does not import: ZeroDivisionError"),
        ("jobs.feed:Feed", f"def (\n{FEED}", "does not import: SyntaxError"),
        (
            "jobs.feed:Feed",
            f"{FEED}    @classmethod\n    def name(cls):\n        return 'json'\n",
            "has the name `json`, which is one of Spark's own sources",
        ),
        (
            "jobs.feed:Feed",
            f"{FEED}    @classmethod\n    def name(cls):\n        raise OSError('x')\n",
            "name` fails: OSErr",
        ),
        ("jobs.feed:Feed", f"{FEED}    @classmethod\n    def name(cls):\n        return 5\n", "name()` gives 5"),
    ],
)
def test_a_wrong_reference(project: Project, reference: str, text: str, words: str) -> None:
    """Plan and check say the same, with the declaration's line, and no JVM is needed."""
    put(Path(project.root, "streams", "s.py"), STREAM.replace("jobs.feed:Feed", reference))
    put(Path(project.root, "jobs", "feed.py"), f"{text}\ndef same(feed):\n    return feed\n")
    with pytest.raises(DeclarationError) as caught:
        plan(project)
    (found,) = check_project(project, analyse=False)
    told = f"{caught.value.problem} | {caught.value.remedy}"

    for part in words.split(" | "):
        assert part in told
    if "does not import: Syntax" not in told and "ZeroDivision" not in told:
        # The transform's module is looked at first.
        assert str(caught.value.where).startswith(f"{project.root}/streams/s.py:2: stream `s`, source `feed`")
        assert str(found.error) == str(caught.value)


class TestDeclaring:
    """Cheap: no module of the project is imported."""

    def test_nothing_is_imported(self, project: Project) -> None:
        """Neither by declaring, nor by what a DAG file asks: its kind, its backfills, its places."""
        write(project, "return []")
        code = (
            "import sys\nfrom sluice import find_project\n"
            f"stream = find_project({project.root!r}).stream('s')\n"
            "source = stream.sources['feed']\n"
            "stream.backfill_obstacle, source.location, source.reading, source.live_kinds, source.datasets(None)\n"
            "assert not {'jobs', 'jobs.feed', 'pyspark'} & set(sys.modules), 'imported'\n"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stderr) == (0, "")

    def test_no_secret_is_shown(self, project: Project) -> None:
        """Its options are in no text, and tell it from another one all the same."""
        source = project.stream("s").sources["feed"]
        assert "hush-hush" not in repr(source)
        other = sources.python("jobs.feed:Feed", folder="landing", sasl_password="other")
        assert other.reading != source.reading

    def test_a_variable_that_is_not_set(self, project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("FOLDER")
        with pytest.raises(DeclarationError, match="FOLDER is not set"):
            project.stream("s")

    def test_no_backfill(self) -> None:
        """What Spark has committed may be gone: rows would be replaced by nothing."""
        source = sources.python("jobs.feed:Feed")
        with pytest.raises(DeclarationError, match="may let go of what Spark has committed"):
            Stream(
                name="s",
                sources={"feed": source},
                transform="jobs.feed:same",
                sink=sinks.delta("t"),
                interval_column="day",
            )

    def test_a_python_without_pyspark(self, project: Project) -> None:
        """One message, which says what to install."""
        from tests.unit.test_extras import call

        write(project, "return []")
        for command in (["plan", "s"], ["lag", "s"], ["check", "--no-spark"]):
            done = call(Path(project.root), *command)
            assert done.returncode == 2
            told = done.stdout + done.stderr
            assert "sources.python('jobs.feed:Feed') needs `pyspark`, which is not installed" in told
            assert "pip install 'sluice-streaming[spark]'" in told


class TestFingerprints:
    """What an edit makes another one: the reader's code, and never what only plans."""

    def digests(self, project: Project) -> tuple[str | None, str]:
        stream: Declared = project.stream("s")
        return transform_digest(project, stream), reader_digests(project, stream)["feed"]

    def edited(self, project: Project, change: Callable[[str], str], name: str = "feed") -> tuple[bool, bool]:
        """Whether the code of the transform, and of the reader, is another one after an edit."""
        before, file = self.digests(project), Path(project.root, "jobs", f"{name}.py")
        file.write_text(change(file.read_text()))
        after = self.digests(project)
        return before[0] != after[0], before[1] != after[1]

    def test_an_edit_of_what_plans(self, project: Project) -> None:
        write(project, "return [{'n': 1}]")
        assert self.edited(project, lambda text: text.replace("'n': 1", "'n': 2")) == (False, False)
        # Also one that is added, or taken away.
        assert self.edited(project, lambda text: text.replace("def available", "def later")) == (True, True)
        write(project, "", text=FEED)
        added = f"{PLANNED}        return []\n"
        assert self.edited(project, lambda text: text.replace(FEED, added)) == (False, False)

    def test_an_edit_of_the_reader(self, project: Project) -> None:
        """It is in the module of the transform here; a comment is no edit."""
        write(project, "return []")
        assert self.edited(project, lambda text: text.replace("iter([])", "iter([(1,)])")) == (True, True)
        assert self.edited(project, lambda text: f"# Noted.\n{text}") == (False, False)

    def test_a_module_of_its_own(self, project: Project) -> None:
        """What plans may be in a base of the class, in another module."""
        write(project, "return []")
        put(Path(project.root, "streams", "s.py"), STREAM.replace("jobs.feed:Feed", "jobs.own:Own"))
        own = "from jobs import feed\nclass Own(feed.Feed):\n"
        put(
            Path(project.root, "jobs", "own.py"),
            f"{own}    @staticmethod\n    def available(a, b, c):\n        return 1\n",
        )
        assert self.edited(project, lambda text: text.replace("return 1", "return 2"), "own") == (False, False)
        assert self.edited(project, lambda text: f"{text}    more = 1\n", "own") == (False, True)
        before = self.digests(project)[1]
        write(project, "return [1]")
        assert self.digests(project)[1] == before


def test_offsets_of_a_class_that_is_drained(project: Project) -> None:
    """They are Spark's own business."""
    write(project, "", text=FEED)
    begin(project, "17")
    assert plan(project).strategy == "drain"


def test_a_refusal_is_no_declaration_error(project: Project) -> None:
    """An error of ours that `available` raises stays what it is."""
    write(
        project,
        "from sluice.errors import RefusedError, Problem\n"
        "raise RefusedError(Problem(code='X', file='f', cause='gone', consequence='c', remedy='r'))",
    )
    found = plan(project)
    assert found.problem is not None
    assert (found.verdict, found.problem.cause) == ("refuse", "gone")
    stream = project.stream("s")
    with pytest.raises(RefusedError):
        stream_lag(stream, project.stream_home(stream), UNTIL)
