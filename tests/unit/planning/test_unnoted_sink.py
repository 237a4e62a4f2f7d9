"""Sinks of which the home notes nothing, though a batch is committed: the cells of the table of what is done then."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from sluice import Stream, sinks, sources
from sluice.home import BegunRun, BegunWith, Generation, SourceLine
from sluice.planning.survey import survey
from sluice.planning.verdict import plan_stream
from sluice.running.known_generation import as_in_sink
from sluice.sources.contract import Bound
from tests.builders import NOW_MS, QUERY_ID, make_checkpoint, make_delta, put_files
from tests.unit.engine_lab import Lab, make_lab

APPEND, MERGE, SEVERAL = "append", "merge", "several"


class Bed:
    """A checkpoint with one batch, which went into `lake`, and a home that has noted nothing of that."""

    def __init__(self, root: Path, form: str, *, adopted: bool = False, committed: int = 1) -> None:
        self.root, self.form = root, form
        self.lab: Lab = make_lab(root)
        checkpoint = root / "spark" / "checkpoint" if adopted else self.lab.checkpoint
        self.adopted = str(checkpoint) if adopted else None
        make_checkpoint(Path(checkpoint), planned=1, committed=committed)
        landing = Path(checkpoint).parent / "landing"
        put_files(landing, ["new.json"], first_ms=NOW_MS + 9000)
        source = sources.files(str(landing), format="json", schema="id bigint")
        self.lab.stream = replace(self.lab.stream, sources={"landing": source}, checkpoint=self.adopted)

    def declared(self, place: str, *, other: str | None = None, **more: Any) -> Stream:
        path = str(self.root / place)
        if self.form == SEVERAL:
            both = {"good": sinks.delta(path), "rest": sinks.delta(str(self.root / (other or f"{place}_rest")))}
            return self.lab.project.resolve(replace(self.lab.stream, sink=None, sinks=both, **more))
        sink = sinks.delta(path, merge_on="id") if self.form == MERGE else sinks.delta(path)
        return self.lab.project.resolve(replace(self.lab.stream, sink=sink, **more))

    def note(self, begun: Mapping[str, str], *, behind: int = -1, **more: Any) -> Generation:
        kind = {"kind of sink": self.declared("lake").sink.form, "output mode": "append"}
        generation = Generation(
            generation=1,
            query_id=QUERY_ID,
            created_at="2026-01-31T12:00:00.000000Z",
            lines=(SourceLine("landing", "0"),),
            declared=("landing",),
            begun_with=(BegunWith(0, {**kind, **begun}),),
            runs=(BegunRun("r1", behind),),
            checkpoint=self.adopted,
            **more,
        )
        self.lab.project.stream_home(self.declared("lake")).keep_generation(generation)
        return generation

    def said(self, stream: Stream) -> str | list[str]:
        """The code of the refusal, or those of the warnings."""
        self.lab.stream = stream
        plan = plan_stream(self.lab.project, self.lab.request(), clock=self.lab.clock)
        return plan.problem.code if plan.problem is not None else [found.code for found in plan.warnings]


BEGUN = {"sink": "lake", "sink `rest`": "lake_rest"}
CELLS: list[tuple[str, str, str, str | list[str]]] = [
    # at what place, what is there: with the batch, another table, none
    (APPEND, "lake", "own", []),
    (APPEND, "lake", "another", "SINK_REPLACED"),
    (APPEND, "lake", "none", "SINK_REPLACED"),
    (APPEND, "moved", "own", []),
    (APPEND, "moved", "another", "SINK_MOVED"),
    (APPEND, "moved", "none", "SINK_MOVED"),
    (MERGE, "lake", "own", []),
    # A batch without rows leaves nothing in a table that is there; what is merged notes its table by itself.
    (MERGE, "lake", "another", []),
    (MERGE, "lake", "none", "SINK_REPLACED"),
    (MERGE, "moved", "own", []),
    (MERGE, "moved", "another", "SINK_MOVED"),
    (MERGE, "moved", "none", "SINK_MOVED"),
    (SEVERAL, "lake", "own", []),
    (SEVERAL, "lake", "another", []),
    (SEVERAL, "lake", "none", "SINK_REPLACED"),
    (SEVERAL, "moved", "own", []),
    (SEVERAL, "moved", "another", "SINK_MOVED"),
    (SEVERAL, "moved", "none", "SINK_MOVED"),
]


def fill(bed: Bed, place: str, what: str) -> None:
    for ending in ("", "_rest") if bed.form == SEVERAL else ("",):
        if what != "none":
            make_delta(bed.root / f"{place}{ending}", [1], app_id=QUERY_ID if what == "own" else None)


@pytest.mark.parametrize(("form", "place", "what", "expected"), CELLS)
def test_own_batches(tmp_path: Path, form: str, place: str, what: str, expected: str | list[str]) -> None:
    bed = Bed(tmp_path, form)
    fill(bed, place, what)
    bed.note(BEGUN)
    assert bed.said(bed.declared(place)) == expected


def test_a_home_that_does_not_know_the_place(tmp_path: Path) -> None:
    """A home from before it was noted is asked for no more than it has."""
    bed = Bed(tmp_path, SEVERAL)
    fill(bed, "lake", "own")
    bed.note({"sink": "lake"})
    make_delta(tmp_path / "elsewhere", [1])
    assert bed.said(bed.declared("lake", other="elsewhere")) == []


def test_one_of_several(tmp_path: Path) -> None:
    """The others count as the first does."""
    bed = Bed(tmp_path, SEVERAL)
    fill(bed, "lake", "own")
    bed.note(BEGUN)
    assert bed.said(bed.declared("lake", other="elsewhere")) == "SINK_MOVED"


@pytest.mark.parametrize("form", [APPEND, MERGE, SEVERAL])
def test_nothing_is_committed(tmp_path: Path, form: str) -> None:
    """A batch that is planned alone is in no table: what is declared where it was may be made anew."""
    bed = Bed(tmp_path, form, committed=0)
    bed.note(BEGUN)
    assert bed.said(bed.declared("lake")) == []
    assert bed.said(bed.declared("moved")) == "SINK_MOVED"


def test_a_table_that_forgets(tmp_path: Path) -> None:
    """It may have forgotten the batch: that is said, and nothing more."""
    bed = Bed(tmp_path, APPEND)
    make_delta(tmp_path / "lake", [1])
    DeltaTable(tmp_path / "lake").alter.set_table_properties(
        {"delta.setTransactionRetentionDuration": "interval 1 days"}
    )
    bed.note(BEGUN)
    assert bed.said(bed.declared("lake")) == ["TRANSACTIONS_EXPIRE"]


@pytest.mark.parametrize("begun", [False, True], ids=["unknown", "begun by a run that died"])
@pytest.mark.parametrize(
    ("mode", "what", "expected"),
    [
        ("append", "own", []),
        ("append", "another", ["SINK_LACKS_BATCHES"]),
        ("append", "none", "SINK_LACKS_BATCHES"),
        ("complete", "own", []),
        ("complete", "another", ["SINK_LACKS_BATCHES"]),
        # Its next batch writes all rows.
        ("complete", "none", []),
    ],
)
def test_batches_of_another_writer(
    tmp_path: Path, mode: Any, what: str, expected: str | list[str], *, begun: bool
) -> None:
    bed = Bed(tmp_path, APPEND, adopted=True)
    fill(bed, "lake", what)
    if begun:
        bed.note({"output mode": mode}, behind=0)
    assert bed.said(bed.declared("lake", output_mode=mode)) == expected


def test_an_adopted_checkpoint_with_own_batches(tmp_path: Path) -> None:
    """Once a run has committed one, what it wrote is known as of any other."""
    bed = Bed(tmp_path, APPEND, adopted=True)
    bed.note(BEGUN, behind=-1)
    assert bed.said(bed.declared("lake")) == "SINK_REPLACED"
    assert bed.said(bed.declared("moved")) == "SINK_MOVED"


@pytest.mark.parametrize("form", [APPEND, MERGE, SEVERAL])
def test_what_is_noted_afterwards(tmp_path: Path, form: str) -> None:
    """The identity of the table, and its newest batch, by its own log."""
    bed = Bed(tmp_path, form)
    fill(bed, "lake", "own")
    known, stream = bed.note(BEGUN), bed.declared("lake")
    home = bed.lab.project.stream_home(stream)
    seen = survey(stream, home, Bound(), bed.lab.clock())

    found = as_in_sink(known, seen, storage=home.storage)

    assert found.sink_identity == stream.sink.state(None, storage=home.storage).identity
    assert found.written is not None
    assert (found.written.batch_id, found.written.version) == (0, 0)
    assert {name: part.batch_id for name, part in found.written_parts.items()} == (
        {"good": 0, "rest": 0} if form == SEVERAL else {}
    )
    assert as_in_sink(found, seen, storage=home.storage) == found


def test_nothing_is_noted_of_another_table(tmp_path: Path) -> None:
    bed = Bed(tmp_path, MERGE)
    fill(bed, "lake", "another")
    known, stream = bed.note(BEGUN), bed.declared("lake")
    home = bed.lab.project.stream_home(stream)
    assert as_in_sink(known, survey(stream, home, Bound(), bed.lab.clock()), storage=home.storage) == known
