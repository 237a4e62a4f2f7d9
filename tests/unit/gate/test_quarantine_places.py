"""Where rows were put that no table of the stream has, and by which column their intervals count."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from sluice import sinks
from sluice.gate.quarantine_places import note_quarantine, rows_elsewhere
from sluice.project import Project
from sluice.stream import Stream
from tests.builders import make_stream
from tests.remedies import read_remedy


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(str(tmp_path), "p", str(tmp_path / "home"), (), (str(tmp_path),))


def declared(project: Project, column: str | None, quarantine: str = "refused") -> Stream:
    sink = sinks.delta(f"{project.root}/out")
    table = sinks.delta(f"{project.root}/{quarantine}")
    return make_stream(sink=sink, quality="suite.json", quarantine=table, interval_column=column)


def put_rows(project: Project, stream: Stream, rows: Sequence[int] = (1,)) -> None:
    """Rows go into the quarantine of a stream, as a batch puts them there."""
    home, location = project.stream_home(stream), (stream.quarantine.location if stream.quarantine else "") or ""
    note_quarantine(project, home, location, stream.interval_column)
    if rows:
        write_deltalake(location, pa.table({"n": list(rows)}), mode="append")


def refusal(project: Project, stream: Stream) -> str:
    problem = rows_elsewhere(project, stream, project.stream_home(stream))
    assert problem is None or problem.code == "QUARANTINE_LEFT"
    return "" if problem is None else problem.cause


@pytest.mark.parametrize(
    ("was", "then", "told"),
    [("d1", "d2", "was `d1`"), (None, "d2", "no `interval_column` was declared"), ("d1", "d1", "")],
)
def test_another_interval_column(project: Project, was: str | None, then: str, told: str) -> None:
    """Rows count by the column of their day; where none was declared, nobody knows whether it was edited."""
    put_rows(project, declared(project, was))

    assert refusal(project, declared(project, then)).endswith(told)
    assert bool(refusal(project, declared(project, then))) is bool(told)


def test_once_they_are_gone(project: Project) -> None:
    """Without rows there is no doubt; rows that come then count by the new column for good."""
    put_rows(project, declared(project, "d1"))
    DeltaTable(f"{project.root}/refused").delete()
    later = declared(project, "d2")
    assert refusal(project, later) == ""

    put_rows(project, later)
    assert refusal(project, later) == ""
    assert "was `d2`" in refusal(project, declared(project, "d1"))


def test_both_kinds_of_rows(project: Project) -> None:
    """As long as one row is left of those that count otherwise."""
    put_rows(project, declared(project, "d1"))
    put_rows(project, declared(project, "d2"))

    assert "was `d1`" in refusal(project, declared(project, "d2"))
    assert "was `d2`" in refusal(project, declared(project, "d1"))


def test_an_earlier_quarantine(project: Project) -> None:
    """Another table, or no suite any more: as long as there are rows in it."""
    put_rows(project, declared(project, "d1"))

    moved = declared(project, "d1", "elsewhere")
    problem = rows_elsewhere(project, moved, project.stream_home(moved))
    says = "declare it as `quarantine=` again, with `quality`, until its rows are released; or delete them"
    assert "earlier quarantine" in read_remedy(problem, "QUARANTINE_LEFT", says).cause
    assert "earlier quarantine" in refusal(project, replace(declared(project, "d1"), quality=None, quarantine=None))
    assert refusal(project, declared(project, "d1")) == ""
    DeltaTable(f"{project.root}/refused").delete()
    assert refusal(project, declared(project, "d1", "elsewhere")) == ""
    DeltaTable(f"{project.root}/refused").delete()
    assert refusal(project, declared(project, "d1", "elsewhere")) == ""


def test_a_home_of_before(project: Project) -> None:
    """Where nobody noted the column, it is taken for the one that is declared."""
    stream = declared(project, "d2")
    put_rows(project, stream, [1])
    (noted,) = Path(project.stream_home(stream).quarantines_folder()).iterdir()
    document = json.loads(noted.read_text())
    del document["interval_column"]
    noted.write_text(json.dumps(document))

    assert refusal(project, declared(project, "d1")) == ""


def test_half_of_a_note(project: Project) -> None:
    """A driver that is killed while it writes one leaves it under another name, where it counts for nothing."""
    stream = declared(project, "d1")
    put_rows(project, stream)
    (note,) = Path(project.stream_home(stream).quarantines_folder()).iterdir()
    content = note.read_bytes()
    note.with_name(f".{note.name}.0123.tmp").write_bytes(content[: len(content) // 2])

    assert refusal(project, stream) == ""
    put_rows(project, declared(project, "d2"))
    assert "was `d1`" in refusal(project, declared(project, "d2"))
