"""Where the sinks of a stream were when a batch was begun: from the project's folder where they lie in it.

A project may be moved with what it has.
"""

from __future__ import annotations

from sluice.project import Project
from sluice.several_sinks import SeveralSinks
from sluice.sinks.contract import Sink

SINK_PLACE = "sink"
"""What the place of the sink is noted as, among what batches are begun with; of several, that of the first."""
_OTHER = "sink `"


def place_name(part: str) -> str:
    """What the place of a sink is noted as: of another one of several, with its name."""
    return f"{_OTHER}{part}`" if part else SINK_PLACE


def is_place_name(name: str) -> bool:
    """Whether it is the place of a sink that is noted by a name."""
    return name == SINK_PLACE or name.startswith(_OTHER)


def sink_places(project: Project, sink: Sink) -> dict[str, str]:
    """The places of a sink, or of several, by what they are noted as."""
    others = sink.others if isinstance(sink, SeveralSinks) else {}
    found = {"": sink, **others}
    return {place_name(name): project.place(part.location or "") for name, part in found.items()}
