"""A table as it is kept in documents, from which it is made into a sink again."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from sluice import Project, sinks
from sluice.runs.kept_table import Table
from sluice.sinks.splitting import SplittingSink


def project_in(folder: Path) -> Project:
    return Project(str(folder), "p", str(folder / "home"), (), ())


def test_a_table_is_made_again_as_it_was_declared(tmp_path: Path) -> None:
    """With its place, also of a project that was moved since, its partitions, and its options."""
    declared = sinks.delta("lake", partition_by=["day"], optimize_write=True)
    assert isinstance(declared, SplittingSink)
    before, after = project_in(tmp_path / "before"), project_in(tmp_path / "after")

    kept = Table.of(declared.resolved(before.surroundings), before)
    again = msgspec.json.decode(msgspec.json.encode(kept), type=Table)
    assert again.sink(after) == declared.resolved(after.surroundings)


def test_a_document_that_does_not_tell_the_kind(tmp_path: Path) -> None:
    """Every table was a Delta table then."""
    kept = msgspec.json.decode(json.dumps({"location": "/lake"}), type=Table)

    assert kept.sink(project_in(tmp_path)) == sinks.delta("/lake")


@pytest.mark.parametrize("kind", ["memory", "delta ", ""])
def test_a_kind_that_takes_no_part_of_a_batch(kind: str) -> None:
    """Such a document is damaged, and nothing is written by it."""
    with pytest.raises(msgspec.ValidationError, match="no table of kind"):
        msgspec.json.decode(json.dumps({"location": "/lake", "kind": kind}), type=Table)
