"""A batch that was divided between several sinks, and the sinks that are declared by now."""

from __future__ import annotations

from sluice.errors import Problem
from sluice.gate.decided_batch import Division
from sluice.project import Project
from sluice.several_sinks import SeveralSinks
from sluice.sinks.contract import Sink


def moved_sink(project: Project, sink: Sink, division: Division) -> Problem | None:
    """Why a batch can't be finished with the sinks that are declared; None when it can.

    Args:
        project: Whose folder places are told from.
        sink: What the stream declares.
        division: What was decided of the batch.
    """
    parts = sink.parts if isinstance(sink, SeveralSinks) else {}
    now = {name: place_of(project, part) for name, part in parts.items()}
    then = {name: part.place for name, part in division.parts.items()}
    if [*now.items()] == [*then.items()]:
        return None
    if now == then:
        order = ", ".join(f"`{name}`" for name in then)
        return _changed(sink, f"batch {division.batch_id} was divided by run {division.run_id} in the order {order}")
    changed = next(name for name in {**then, **now} if then.get(name) != now.get(name))
    return _changed(
        sink,
        f"batch {division.batch_id} was divided by run {division.run_id} with sink `{changed}` at"
        f" {then.get(changed) or 'no place'}; declared is {now.get(changed) or 'none'}",
    )


def place_of(project: Project, part: Sink) -> str:
    """Where one of several sinks is: from the project's folder where it lies in it; of a topic, its name.

    One cluster has many names.
    """
    if part.is_idempotent or part.dataset is None:
        return project.place(part.location or "")
    return part.dataset.name


def _changed(sink: Sink, cause: str) -> Problem:
    return Problem(
        code="SINKS_CHANGED",
        file=sink.location or sink.kind,
        cause=cause,
        consequence="some of its sinks may have their part already, and another would never get its own",
        remedy="declare the sinks as they were, and run the stream once; a topic may be another one then",
    )
