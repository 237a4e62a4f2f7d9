"""A file of the home that is damaged: what is said to do about it is done, and the stream goes on, every row once."""

from __future__ import annotations

import ast
import json
import os
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sluice.auditing.table_audit import read_table_audit
from sluice.errors import RefusedError
from sluice.gate.decided_batch import read_decision
from sluice.gate.quarantine_places import note_quarantine
from sluice.gate.returned_rows import read_returns
from sluice.gate.state import GateState, keep_gate, read_audit, read_gate, release_gate
from sluice.runs.driver import Drivers
from sluice.runs.stop import request_stop, stop_request
from sluice.runs.told import read_told
from sluice.storage import Storage
from sluice.taken_file_notes import TakenNotes
from tests.builders import put
from tests.engine_model import HeldRows
from tests.remedies import read_remedy
from tests.unit.engine_lab import Lab, make_lab


@dataclass(frozen=True)
class Case:
    """A file of a stream that has run, and what is to be done about it."""

    file: str
    says: str
    mend: Callable[[Lab, Path], None] = lambda _lab, file: file.unlink()
    is_refused: bool = True
    """Whether a run is; else who needs the file is told, or nobody needs it."""
    is_elsewhere: bool = False
    """Whether the checkpoint is not in the home."""


def begin_anew(lab: Lab, _file: Path) -> None:
    """Declare a new stream with a sink of its own."""
    lab.stream = replace(lab.stream, name="anew", sink=type(lab.sink)(str(lab.root / "another sink")))


def give_up(_lab: Lab, file: Path) -> None:
    file.write_text('{"is_released": true}')


def rename(lab: Lab, file: Path) -> None:
    """Nobody knows the sizes of what was taken: a renamed file is warned of, and read."""
    file.unlink()
    landing = lab.root / "landing"
    (landing / "00001.json").rename(landing / "renamed.json")
    warned = lab.plan().warnings
    assert [problem.consequence for problem in warned] == ["its rows are read again"]
    (landing / "renamed.json").rename(landing / "00001.json")


CASES = {
    "current": Case("current.json", "delete it: a stream has one generation"),
    "generation": Case("generations/0001.json", "declare a new stream with a sink of its own", begin_anew),
    "started": Case("started.json", "delete it, if the stream has run a batch"),
    "taken": Case("taken/0001/0/1.json", "delete it: a file that it tells of", rename, is_refused=False),
    "lease": Case(
        "leases/0001/1.json",
        'make sure that no driver of the stream is at work, then write {"is_released": true}',
        give_up,
    ),
    "checked": Case("checked.json", "delete it: the next skip writes it anew"),
    "watermarks": Case("watermarks/0001.json", "delete it: watermarks are measured anew"),
    "summary": Case("summary.json", "", lambda _lab, _file: None, is_refused=False),
    "owner": Case("checkpoint/_sluice/owner.json", "delete it, if no other stream has", is_elsewhere=True),
    "record": Case("runs/{run}.json", "delete it, if the run is over: the stream goes on"),
}


def begun(root: Path, case: Case) -> Lab:
    """Two batches, and a skip after them."""
    lab = make_lab(root, max_files_per_batch=1, starting="2025-01-01", operator=HeldRows(delay_ms=0))
    if case.is_elsewhere:
        lab.stream = replace(lab.stream, checkpoint=str(root / "checkpoint"))
    for second in range(2):
        lab.arrive(second, at_ms=second * 100)
    lab.run(run_key="key")
    assert lab.run().status == "skipped"
    return lab


@pytest.mark.parametrize("name", CASES)
def test_what_to_do(tmp_path: Path, name: str) -> None:
    """Refused with a remedy, or of no use to a run; done as it says, a run takes what is new, and nothing twice."""
    case = CASES[name]
    lab = begun(tmp_path, case)
    (run,) = (file.stem for file in (lab.home / "runs").glob("*.json"))
    file = (lab.root if case.is_elsewhere else lab.home) / case.file.format(run=run)
    os.truncate(file, file.stat().st_size // 2)
    if name != "checked":
        # That one is read by a skip.
        lab.arrive(100, at_ms=10_000)

    if case.is_refused:
        # A record is asked for by whoever retries its run.
        with pytest.raises(RefusedError) as refused:
            lab.run(run_key="key" if name == "record" else None)
        says = re.escape(f"restore it from a backup; without one, {case.says}")
        assert read_remedy(refused.value, "DOCUMENT_DAMAGED", says).file == str(file)
    case.mend(lab, file)
    lab.run(run_key="key" if name == "record" else None)
    assert set(lab.sink.ids().values()) == {1}
    # The watermark has yet to pass the newest row.
    lab.arrive(200, at_ms=20_000, rows=1)
    lab.run()

    assert lab.sink.ids() == Counter(range(lab.rows - 1))
    assert (lab.plan().verdict, lab.plan().warnings) == ("skip", ())


RUN_ID = "20260101T000000000Z-01234567"
GATE = GateState(state="failed", run_id=RUN_ID, generation=1, since=datetime(2026, 1, 1, tzinfo=UTC))


def test_what_others_ask_for(tmp_path: Path) -> None:
    """Each says what to do, and is asked for anew once it is deleted."""
    lab = make_lab(tmp_path)
    home = lab.project.stream_home(lab.stream)
    keep_gate(home, GATE)
    request_stop(home, "r", requested_by="ada", now=lab.now)
    note_quarantine(lab.project, home, "q", None)
    for file in ("audits/0001.json", "staged/0001/0.json", "drivers/r.json", "table_audits/a.json"):
        put(lab.home / file, "{}")
    asked: dict[str, Callable[[], object]] = {
        "gate.json": lambda: read_gate(home),
        "stops/r.json": lambda: stop_request(home, "r"),
        "audits/0001.json": lambda: read_audit(home, 1, 0),
        "staged/0001/0.json": lambda: read_decision(home, 1, 0),
        "drivers/r.json": lambda: Drivers(home).find("r"),
        "table_audits/a.json": lambda: read_table_audit(home, "a"),
        "told.json": lambda: read_told(home),
    }
    for name, ask in asked.items():
        put(lab.home / name, '{"format": 1')
        with pytest.raises(RefusedError, match=r"restore it from a backup; without one, .*delete it"):
            ask()
        (lab.home / name).unlink()
        assert ask() is None
    assert release_gate(home, "ada", lab.now) is None


def test_a_release(tmp_path: Path) -> None:
    """Written as the refusal says, it is one that has begun, which the next release finishes."""
    lab = make_lab(tmp_path)
    home = lab.project.stream_home(lab.stream)
    file = put(lab.home / "releases" / "r1.json", '{"format": 1, "release_id": "r1", "state": "cla')
    with pytest.raises(RefusedError) as refused:
        read_returns(home)
    says = read_remedy(refused.value, "DOCUMENT_DAMAGED", "into it, and release rows again").remedy
    written = re.search(r"\{.*\}", says)
    assert written is not None
    file.write_text(written[0].replace("<the file's name, without .json>", file.stem))
    (found,) = read_returns(home)
    assert (found.return_id, found.state, found.is_over) == ("r1", "begun", False)


def test_files_that_were_away(tmp_path: Path) -> None:
    """Whoever needs the note says what to do; deleted, none of them counts as unread."""
    notes = TakenNotes(str(tmp_path), Storage())
    notes.keep_unread(["file:///a.json"])
    (tmp_path / "unread.json").write_text("{")
    with pytest.raises(RefusedError) as refused:
        notes.unread()
    read_remedy(refused.value, "DOCUMENT_DAMAGED", "delete it: a file that it tells of, and that is brought back")
    (tmp_path / "unread.json").unlink()
    assert notes.unread() == frozenset()


def test_every_kind_says_what_to_do() -> None:
    """No file of ours is left without a remedy."""
    kinds = [
        kind
        for package in ("include/sluice", "plugins/sluice_airflow")
        for file in (Path(__file__).parents[3] / package).rglob("*.py")
        for kind in ast.walk(ast.parse(file.read_text()))
        if isinstance(kind, ast.ClassDef)
        and [base.id for base in kind.bases if isinstance(base, ast.Name)] == ["Document"]
    ]
    assert len(kinds) > 15
    for kind in kinds:
        assigned = [target for node in kind.body if isinstance(node, ast.Assign) for target in node.targets]
        assert "if_lost" in {target.id for target in assigned if isinstance(target, ast.Name)} | {
            "if_lost" if kind.name == "_GivenUp" else ""
        }, kind.name


def test_a_lease_that_somebody_has_given_up(tmp_path: Path) -> None:
    """Its number is given to nobody else."""
    lab = begun(tmp_path, CASES["lease"])
    folder = lab.home / "leases" / "0001"
    (folder / "1.json").write_text('{"is_released": true}')
    lab.arrive(100, at_ms=10_000)
    lab.run()
    assert sorted(file.name for file in folder.iterdir() if file.name[0] != ".") == ["1.json", "2.json"]
    assert json.loads((folder / "1.json").read_bytes()) == {"is_released": True}
    (folder / "3.json").write_text('{"is_released": false}')
    lab.arrive(200, at_ms=20_000)
    with pytest.raises(RefusedError, match="make sure that no driver of the stream is at work"):
        lab.run()
