"""The stages of a run: what a plan says is what the runner does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sluice import Stream, sinks, sources
from sluice.planning.explain import named_stages
from sluice.planning.planner import Limits
from sluice.planning.verdict import Request, plan_stream
from sluice.project import Project
from sluice.running import runner
from tests.unit.engine_lab import Lab, leave_pending, make_lab

WRITES = "write it with the sink's own stream writer"


def taken(lab: Lab, monkeypatch: pytest.MonkeyPatch, limits: Limits, **others: Any) -> list[tuple[str, int | None]]:
    """The stages that a run has taken, in their order."""
    found = []
    take = runner._Run._take

    def spy(run: Any, stage: Any) -> None:
        found.append((stage.kind, stage.batch_id))
        take(run, stage)

    monkeypatch.setattr(runner._Run, "_take", spy)
    lab.run(limits, **others)
    return found


@pytest.mark.parametrize("strategy", ["exact", "drain"])
@pytest.mark.parametrize("is_pending", [False, True])
def test_the_runner_takes_what_the_plan_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, strategy: Any, *, is_pending: bool
) -> None:
    """Stage by stage, a batch that is resumed included."""
    lab = make_lab(tmp_path, max_files_per_batch=1)
    if is_pending:
        leave_pending(lab)
    lab.arrive(1)
    lab.arrive(2)
    limits = Limits(strategy=strategy)
    planned = [(stage.kind, stage.batch_id) for stage in lab.plan(limits).stages]

    assert taken(lab, monkeypatch, limits) == planned
    kinds = [kind for kind, _ in planned]
    batches = ["batch"] * (is_pending + 2) if strategy == "exact" else ["batch"] * is_pending + ["no_data", "drain"]
    assert kinds == ["lease", "session", "begin", *batches, "no_data", "record"]


def test_nothing_to_do_has_no_stages(tmp_path: Path) -> None:
    """Neither a skip nor a refusal."""
    lab = make_lab(tmp_path)
    assert lab.plan().stages == ()

    leave_pending(lab)
    (lab.checkpoint / "metadata").unlink()
    assert (lab.plan().verdict, lab.plan().stages) == ("refuse", ())


def test_alike_batches_are_told_together(tmp_path: Path) -> None:
    """A person reads one line for a hundred batches that are treated alike; a program gets each."""
    lab = make_lab(tmp_path, max_files_per_batch=1)
    leave_pending(lab)
    for number in range(1, 4):
        lab.arrive(number)
    plan = lab.plan()

    names = dict(named_stages(plan.stages))
    assert {name: text for name, text in names.items() if name.startswith("batch")} == {
        "batch 0": f"as it was logged: {WRITES}",
        "batches 1 to 3": WRITES,
    }
    assert [*named_stages(plan.document.stages or ())] == [*named_stages(plan.stages)]


def test_nothing_to_do_once_spark_is_there(tmp_path: Path) -> None:
    """Of a checkpoint that Spark made, the query tells the order of its sources: then all may turn out to be done."""
    lab = make_lab(tmp_path, names=("a", "b"), max_files_per_batch=1)
    lab.arrive(1, source="a")
    lab.engine().once()
    assert [stage.kind for stage in lab.plan().stages] == ["lease", "session"]

    record = lab.run()

    assert (record.status, record.plan.verdict, record.batches) == ("succeeded", "skip", ())
    assert record.ended_at is not None
    assert lab.plan().verdict == "skip"


@pytest.mark.parametrize("master", ["local[2]", "serve", "sc://h:1"])
def test_how_a_batch_is_written_is_told_for_either_spark(tmp_path: Path, master: str) -> None:
    """Whether a warm one takes a run is seen when it starts: a plan says what each of the two does."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0.json").write_text('{"id": 0}')
    landing = sources.files("in", format="json", schema="id bigint")
    stream = Stream(name="s", sources={"a": landing}, transform="tests.builders:anything", sink=sinks.delta("out"))
    home = str(tmp_path / "home")
    project = Project(str(tmp_path), "p", home, stream_folders=(), import_roots=(), spark_master=master)

    plan = plan_stream(project, Request(project.resolve(stream)))

    aside = "write it aside, publish it by one commit of metadata"
    texts = {"local[2]": aside, "serve": f"{aside}, or, on a warm Spark, {WRITES}", "sc://h:1": WRITES}
    assert [stage.text for stage in plan.stages if stage.kind == "batch"] == [texts[master]]
