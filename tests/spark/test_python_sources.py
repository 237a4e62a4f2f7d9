"""Data sources in Python that a project brings: planned exactly, killed, edited, bounded, and drained."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from sluice import Stream, sinks, sources
from sluice.errors import BatchFailedError, DeclarationError, RefusedError
from sluice.planning.planner import Limits
from sluice.planning.verdict import Request
from sluice.project import find_project
from sluice.running.check import check_project
from sluice.running.runner import run_stream
from tests.builders import put
from tests.campaign import in_campaigns
from tests.spark.connect_server import DELTA, serving
from tests.spark.lab import FIRST_MTIME, Lab, bounded, ids, offset_lines, snapshot, touch, uncommit, write_numbers
from tests.spark.test_project_code import _spark_home
from tests.unit.test_docs import GUIDE, snippets

pytestmark = pytest.mark.spark

FEED = '''
import time
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql.datasource import (
    DataSource, DataSourceStreamReader, InputPartition, SimpleDataSourceStreamReader
)

from jobs.numbers import numbers_of


def parts(folder):
    return sorted(Path(folder).glob("*.txt"))


def read_parts(folder, first, last):
    """Each has two numbers; a reader that meets a file called `poison` fails, one that meets `slow` waits."""
    while (Path(folder) / "slow").exists():
        (Path(folder) / "seen").touch()
        time.sleep(0.05)
    for part in range(first, last):
        if (Path(folder) / "poison").exists():
            raise ValueError("there is poison in it")
        if not (Path(folder) / f"{part:04d}.txt").exists():
            raise FileNotFoundError(f"part {part} is gone")
        yield from numbers_of(part)


class Whole(SimpleDataSourceStreamReader):
    def __init__(self, folder):
        self.folder = folder

    def initialOffset(self):
        return {"parts": 0}

    def read(self, start):
        end = {"parts": len(parts(self.folder))}
        return self.readBetweenOffsets(start, end), end

    def readBetweenOffsets(self, start, end):
        return iter([(number,) for number in read_parts(self.folder, start["parts"], end["parts"])])


@dataclass
class Part(InputPartition):
    number: int


class Divided(DataSourceStreamReader):
    def __init__(self, folder):
        self.folder = folder

    def initialOffset(self):
        return {"parts": 0}

    def latestOffset(self):
        return {"parts": len(parts(self.folder))}

    def partitions(self, start, end):
        return [Part(number) for number in range(start["parts"], end["parts"])]

    def read(self, partition):
        yield from ((number,) for number in read_parts(self.folder, partition.number, partition.number + 1))


class DrainedWhole(DataSource):
    @classmethod
    def name(cls):
        return f"numbers_{cls.__name__.lower()}"

    def schema(self):
        return "id bigint"

    def simpleStreamReader(self, schema):
        return Whole(self.options["folder"])


class DrainedDivided(DataSource):
    def schema(self):
        return "id bigint"

    def streamReader(self, schema):
        return Divided(self.options["folder"])


def ends(options, position, bound):
    known = parts(options["folder"])
    first = 0 if position is None else position["parts"]
    last = sum(bound is None or part.stat().st_mtime < bound.timestamp() for part in known)
    step = int(options.get("per_batch", "2"))
    return [{"parts": min(end + step, last)} for end in range(first, last, step)]


class PlannedWhole(DrainedWhole):
    @staticmethod
    def available(options, position, bound):
        return ends(options, position, bound)


class PlannedDivided(DrainedDivided):
    @staticmethod
    def available(options, position, bound):
        return ends(options, position, bound)
'''
NUMBERS = "def numbers_of(part):\n    return [2 * part, 2 * part + 1]\n"
PLANS = "        return ends(options, position, bound)\n"
SAME = "def same(numbers):\n    return numbers\n\ndef once(numbers):\n    return numbers.dropDuplicates(['id'])\n"
KINDS = ["Whole", "Divided"]


@pytest.fixture
def lab(lab: Lab) -> Lab:
    """A project with the classes, and a folder for their parts."""
    put(lab.root / "jobs" / "feed.py", FEED)
    put(lab.root / "jobs" / "numbers.py", NUMBERS)
    put(lab.root / "jobs" / "same.py", SAME)
    (lab.root / "in").mkdir()
    return replace(lab, import_roots=(str(lab.root),))


def arrive(lab: Lab, count: int, *, first: int = 0) -> None:
    """Parts whose times of arrival are a second apart."""
    for part in range(first, first + count):
        touch(put(lab.root / "in" / f"{part:04d}.txt"), part)


def declared(lab: Lab, kind: str, *, name: str = "s", transform: str = "jobs.same:same", **options: Any) -> Stream:
    source = sources.python(f"jobs.feed:{kind}", folder=str(lab.root / "in"), **options)
    return Stream(name=name, sources={"numbers": source}, transform=transform, sink=sinks.delta(f"out/{name}"))


def edit(lab: Lab, old: str, new: str, module: str = "feed") -> None:
    file = lab.root / "jobs" / f"{module}.py"
    before, found, after = file.read_text().rpartition(old)
    assert found
    file.write_text(f"{before}{new}{after}")


def numbers(count: int) -> list[int]:
    return list(range(2 * count))


@pytest.mark.parametrize("kind", KINDS)
def test_planned_as_it_is_drained(lab: Lab, kind: str) -> None:
    """Spark runs exactly the planned batches, spells their offsets alike, and reads what a drained stream does."""
    planned, drained = declared(lab, f"Planned{kind}"), declared(lab, f"Drained{kind}", name="drained")
    for count, batches in ((5, 3), (8, 5)):
        arrive(lab, count)
        found = lab.plan(planned)
        record = lab.run(planned)
        assert (record.status, record.plan.strategy) == ("succeeded", "exact")
        assert sum(batch.input_rows or 0 for batch in record.batches) == 2 * (count if count == 5 else 3)
        assert [batch.batch_id for batch in record.batches] == [batch.batch_id for batch in found.batches]
        assert len(offset_lines(lab.checkpoint(planned))) == batches
        assert lab.run(drained).plan.strategy == "drain"
        assert ids(lab.table("out/s")) == ids(lab.table("out/drained")) == numbers(count)
    assert list(offset_lines(lab.checkpoint(planned)).values()) == [[{"parts": end}] for end in (2, 4, 5, 7, 8)]
    last = (lab.checkpoint(drained) / "offsets").joinpath(str(max(offset_lines(lab.checkpoint(drained)))))
    assert last.read_text().split("\n")[2] == '{"parts": 8}'
    assert (lab.checkpoint(planned) / "offsets" / "4").read_text().split("\n")[2] == '{"parts": 8}'
    assert lab.plan(planned).verdict == "skip"
    assert lab.plan(drained).verdict == "run"


@pytest.mark.parametrize("kind", KINDS)
def test_a_kill_between_plan_and_commit(lab: Lab, kind: str) -> None:
    """The batch that was planned is run as it was planned, whatever has come and been edited since, and counts once."""
    stream = declared(lab, f"Planned{kind}")
    arrive(lab, 3)
    put(lab.root / "in" / "poison")
    with pytest.raises(BatchFailedError, match=r"ValueError: \? at .*/jobs/feed.py:\d+"):
        lab.run(stream)
    assert offset_lines(lab.checkpoint(stream)) == {0: [{"parts": 2}]}

    (lab.root / "in" / "poison").unlink()
    arrive(lab, 4, first=3)
    edit(lab, 'per_batch", "2"', 'per_batch", "4"')
    assert lab.plan(stream).verdict == "resume"
    lab.run(stream)
    assert offset_lines(lab.checkpoint(stream)) == {0: [{"parts": 2}], 1: [{"parts": 6}], 2: [{"parts": 7}]}
    assert ids(lab.table("out/s")) == numbers(7)

    # The sink has it, and Spark has not noted it.
    uncommit(lab.checkpoint(stream), 2)
    lab.run(stream)
    assert ids(lab.table("out/s")) == numbers(7)


def test_edits_between_a_commit_of_the_sink_and_one_of_spark(lab: Lab) -> None:
    """What only plans may be edited; a reader by which state would come of other rows may not."""
    stream = declared(lab, "PlannedDivided", transform="jobs.same:once")
    arrive(lab, 2)
    lab.run(stream)
    uncommit(lab.checkpoint(stream), 0)
    edit(lab, PLANS, PLANS.replace("ends", "list(ends").replace("bound)", "bound))"))
    lab.run(stream)
    assert ids(lab.table("out/s")) == numbers(2)

    arrive(lab, 4)
    lab.run(stream)
    uncommit(lab.checkpoint(stream), 1)
    # By a module that the class's module imports.
    edit(lab, "2 * part + 1]", "2 * part + 1, -part]", "numbers")
    with pytest.raises(RefusedError, match="read by another code that reads source `numbers`") as refused:
        lab.run(stream)
    assert refused.value.finding.code == "READ_OTHERWISE"
    put(lab.root / "jobs" / "numbers.py", NUMBERS)
    lab.run(stream)
    assert ids(lab.table("out/s")) == numbers(4)


@pytest.mark.parametrize("kind", KINDS)
def test_a_bound(lab: Lab, kind: str) -> None:
    """Up to a time, and the rest later; a retry does the same."""
    stream = declared(lab, f"Planned{kind}")
    arrive(lab, 5)
    until = bounded(datetime.fromtimestamp(FIRST_MTIME + 3, UTC))
    lab.run(stream, until, run_key="k")
    assert ids(lab.table("out/s")) == numbers(3)
    assert lab.run(stream, until).status == "skipped"
    lab.run(stream, run_key="k")
    assert ids(lab.table("out/s")) == numbers(3)
    lab.run(stream)
    assert ids(lab.table("out/s")) == numbers(5)
    with pytest.raises(DeclarationError, match="AvailableNow keeps no bound"):
        lab.plan(declared(lab, f"Drained{kind}"), until)


def test_a_code_that_is_edited_between_runs(lab: Lab) -> None:
    """Neither the driver nor a worker goes on with what it imported before."""
    stream = declared(lab, "PlannedDivided")
    arrive(lab, 1)
    lab.run(stream)
    edit(lab, "2 * part + 1]", "100 * part]", "numbers")
    arrive(lab, 2)
    lab.run(stream)
    assert ids(lab.table("out/s")) == [0, 1, 2, 100]


def test_options_are_in_no_file(lab: Lab) -> None:
    """Neither of the home, nor of the checkpoint: they may be secret."""
    stream = declared(lab, "PlannedDivided", entry="zq-hidden-81")
    arrive(lab, 2)
    lab.run(stream)
    assert ids(lab.table("out/s")) == numbers(2)
    kept = snapshot(lab.root / "home")
    assert kept
    assert [name for name, content in kept.items() if b"zq-hidden-81" in content] == []


def test_two_classes_of_one_name(lab: Lab) -> None:
    """In one session: each stream is read by its own."""
    put(lab.root / "jobs" / "other.py", FEED.replace("jobs.numbers", "jobs.others"))
    put(lab.root / "jobs" / "others.py", NUMBERS.replace("2 * part, 2 * part + 1", "-1 - part"))
    one = declared(lab, "PlannedDivided", name="one")
    source = sources.python("jobs.other:PlannedDivided", folder=str(lab.root / "in"))
    two = replace(one, name="two", sources={"numbers": source}, sink=sinks.delta("out/two"))
    for count in (1, 3):
        arrive(lab, count)
        lab.run(one)
        lab.run(two)
    assert ids(lab.table("out/one")) == numbers(3)
    assert ids(lab.table("out/two")) == [-3, -2, -1]


def test_beside_another_source(lab: Lab) -> None:
    """One that has nothing in a batch keeps its place, also before its first offset, and while the other is killed."""
    numbered = declared(lab, "PlannedDivided").sources["numbers"]
    landed = sources.files("land", format="json", schema="id bigint", max_files_per_batch=1)
    put(lab.root / "jobs" / "both.py", "def both(numbers, landed):\n    return numbers.union(landed)\n")
    stream = Stream(
        name="s", sources={"numbers": numbered, "landed": landed}, transform="jobs.both:both", sink=sinks.delta("out/s")
    )
    write_numbers(lab.root / "land", 2, first=100)
    lab.run(stream)
    assert ids(lab.table("out/s")) == [100, 101]
    arrive(lab, 3)
    assert lab.plan(stream).reason == "`numbers`: 2 new batches"
    lab.run(stream)
    uncommit(lab.checkpoint(stream), 3)
    write_numbers(lab.root / "land", 1, first=102)
    lab.run(stream)
    assert ids(lab.table("out/s")) == [*numbers(3), 100, 101, 102]
    assert [line[0] for line in offset_lines(lab.checkpoint(stream)).values()] == [
        None,
        None,
        {"parts": 2},
        {"parts": 3},
        {"parts": 3},
    ]


def test_a_planned_end_that_the_reader_does_not_have(lab: Lab) -> None:
    """It fails in Spark, by the line of the reader, and stays planned; once it is there, it is read."""
    stream = declared(lab, "PlannedDivided")
    edit(lab, PLANS, "        return [{'parts': 2}]\n")
    arrive(lab, 1)
    with pytest.raises(BatchFailedError, match=r"FileNotFoundError: \? at .*/jobs/feed.py:\d+"):
        lab.run(stream)
    arrive(lab, 2)
    lab.run(stream)
    assert ids(lab.table("out/s")) == numbers(2)


def test_check(lab: Lab) -> None:
    """Spark analyses the query; what is wrong with the class is told before."""
    put(
        lab.root / "streams" / "s.py",
        "from sluice import Stream, sinks, sources\n"
        "s = Stream(name='s', sources={'numbers': sources.python('jobs.feed:PlannedDivided', folder='in')},\n"
        "           transform='jobs.same:same', sink=sinks.delta('out'))\n",
    )
    project = replace(lab.project, stream_folders=(str(lab.root / "streams"),))
    (found,) = check_project(project)
    assert found.error is None
    edit(lab, 'return "id bigint"', "return 5")
    (found,) = check_project(project)
    assert "source `numbers` can't be read" in str(found.error)


def test_the_example_of_the_guide(lab: Lab) -> None:
    """As it stands there: planned, bounded, and drained alike."""
    (text,) = (found for found in snippets(GUIDE, "python") if "class Readings(DataSource)" in found)
    put(lab.root / "jobs" / "readings.py", text)
    put(lab.root / "jobs" / "drained.py", text.partition("    @staticmethod")[0])
    lines = [f"2026-01-0{day}T09:30:00+00:00 {day}" for day in (1, 2, 3)]
    file = put(lab.root / "log.txt", "\n".join(lines))
    found = {}
    for name in ("readings", "drained"):
        source = sources.python(f"jobs.{name}:Readings", file=str(file))
        stream = Stream(
            name=name, sources={"numbers": source}, transform="jobs.same:same", sink=sinks.delta(f"out/{name}")
        )
        if name == "readings":
            lab.run(stream, bounded(datetime(2026, 1, 3, tzinfo=UTC)))
            assert offset_lines(lab.checkpoint(stream)) == {0: [{"lines": 2}]}
        lab.run(stream)
        found[name] = sorted(tuple(row) for row in lab.table(f"out/{name}").collect())
    assert found["readings"] == found["drained"]
    assert len(found["drained"]) == 3


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(tmp_path_factory.mktemp("server"), DELTA) as running:
        yield running.url


def make_project(lab: Lab, kind: str) -> Path:
    """The lab as a folder that the command line works on."""
    put(
        lab.root / "streams" / "s.py",
        "from sluice import Stream, sinks, sources\n"
        f"numbers = sources.python('jobs.feed:{kind}', folder={str(lab.root / 'in')!r})\n"
        "s = Stream(name='s', sources={'numbers': numbers}, transform='jobs.same:same', sink=sinks.delta('out/s'))\n",
    )
    put(lab.root / "sluice.toml", "")
    return lab.root


@pytest.mark.parametrize("kind", KINDS)
def test_over_spark_connect(lab: Lab, server: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server has no code of the project's: it gets the class, and what the class imports."""
    monkeypatch.setenv("SLUICE_SPARK_MASTER", server)
    project = find_project(str(make_project(lab, f"Planned{kind}")))
    for count in (3, 4):
        arrive(lab, count)
        record = run_stream(project, Request(project.stream("s"), Limits()))
        assert (record.status, record.plan.strategy) == ("succeeded", "exact")
        assert ids(lab.table("out/s")) == numbers(count)


def with_two_of_a_name(lab: Lab, schema: str | None) -> Path:
    """A project whose stream reads by two classes, both of which say that they are called alike."""
    root = make_project(lab, "PlannedWhole")
    put(root / "jobs" / "other.py", FEED)
    put(root / "jobs" / "same.py", "def same(numbers, others):\n    return numbers.union(others)\n")
    declared = (root / "streams" / "s.py").read_text()
    others = f"'others': sources.python('jobs.other:PlannedWhole', schema={schema!r}, folder={str(root / 'in')!r})"
    put(root / "streams" / "s.py", declared.replace("'numbers': numbers", f"'numbers': numbers, {others}"))
    arrive(lab, 1)
    return root


@pytest.mark.parametrize("schema", [None, "id bigint"])
def test_two_names(lab: Lab, schema: str | None) -> None:
    """Given a schema, Spark looks a class up by its name when the query starts, and finds the last one."""
    root = with_two_of_a_name(lab, schema)
    project = find_project(str(root))
    with pytest.raises(DeclarationError, match="have one name, `numbers_plannedwhole`"):
        run_stream(project, Request(project.stream("s"), Limits()), session=lab.spark)
    assert not list(root.rglob("offsets"))


def test_two_names_over_spark_connect(lab: Lab, server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server would read both sources by one of the classes: told before anything is planned."""
    monkeypatch.setenv("SLUICE_SPARK_MASTER", server)
    root = with_two_of_a_name(lab, None)
    project = find_project(str(root))
    with pytest.raises(DeclarationError, match="have one name, `numbers_plannedwhole`"):
        run_stream(project, Request(project.stream("s"), Limits()))
    assert not list(root.rglob("offsets"))


def sluice(elsewhere: Path, root: Path, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    inherited = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    return subprocess.Popen(
        [str(Path(sys.executable).with_name("sluice")), *arguments, "--project", str(root)],
        cwd=elsewhere,
        env=inherited | {"PYTHONPATH": package_path()} | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def package_path() -> str:
    import sluice as package

    return str(Path(package.__file__).parents[1])


def wait_for(is_so: Callable[[], bool], running: subprocess.Popen[str]) -> None:
    ends_at = time.monotonic() + 120
    while not is_so():
        assert running.poll() is None, running.communicate()[1][-3000:]
        assert time.monotonic() < ends_at
        time.sleep(0.05)


@in_campaigns
@pytest.mark.parametrize("master", ["local[2]", "local-cluster[1,1,1024]"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_driver_that_is_killed_in_another_folder(lab: Lab, kind: str, master: str, tmp_path: Path) -> None:
    """`sluice run --project`, where other modules have the same names; an idle run wants no Java."""
    elsewhere, root = tmp_path / "elsewhere", make_project(lab, f"Planned{kind}")
    put(elsewhere / "jobs" / "__init__.py", "raise ImportError('not this one')\n")
    environment = {"SLUICE_SPARK_MASTER": master}
    if master.startswith("local-cluster"):
        environment |= {"SPARK_HOME": str(_spark_home(tmp_path / "spark")), "SPARK_SCALA_VERSION": "2.13"}
    arrive(lab, 3)
    put(lab.root / "in" / "slow")
    killed = sluice(elsewhere, root, "run", "s", **environment)
    wait_for((lab.root / "in" / "seen").exists, killed)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.communicate()
    home = next(root.rglob("offsets")).parent
    assert offset_lines(home) == {0: [{"parts": 2}]}
    assert not list(home.glob("commits/0"))

    (lab.root / "in" / "slow").unlink()
    arrive(lab, 5)
    edit(lab, 'options.get("per_batch", "2")', 'options.get("per_batch", "9")')
    done = sluice(elsewhere, root, "run", "s", **environment)
    _, errors = done.communicate(timeout=300)
    assert done.returncode == 0, errors[-3000:]
    assert offset_lines(home) == {0: [{"parts": 2}], 1: [{"parts": 5}]}
    assert sorted(DeltaTable(str(root / "out" / "s")).to_pyarrow_table()["id"].to_pylist()) == numbers(5)

    environment["JAVA_HOME"] = str(tmp_path / "nowhere")
    idle = sluice(elsewhere, root, "run", "s", "--json", **environment)
    output, _ = idle.communicate(timeout=60)
    assert (idle.returncode, json.loads(output)["status"]) == (0, "skipped")
    arrive(lab, 6)
    busy = sluice(elsewhere, root, "run", "s", **environment)
    busy.communicate(timeout=60)
    assert busy.returncode != 0, "it would have found a Java"
