"""A table as it was declared when something began to write to it: whoever finishes that writes to the table of then."""

from __future__ import annotations

import msgspec

from sluice.errors import DeclarationError
from sluice.project import Project
from sluice.sinks.contract import SplittingSink
from sluice.sinks.delta.sink import DeltaSink


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """A Delta table as it was declared."""

    location: str
    """From the project's folder where it lies in it: a project may be moved before the work is finished."""
    partition_by: tuple[str, ...] = ()
    options: dict[str, str] = {}

    @classmethod
    def of(cls, sink: SplittingSink, project: Project) -> Table:
        """What is kept of a declared table.

        Raises:
            DeclarationError: It is no Delta table.
        """
        if not isinstance(sink, DeltaSink):
            raise DeclarationError(f"a {sink.kind} sink can't take a part of a batch", remedy="use a Delta sink")
        return cls(location=project.place(sink.path), partition_by=sink.partition_by, options=dict(sink.options))

    def sink(self, project: Project) -> DeltaSink:
        """The table to write to."""
        return DeltaSink(self.location, self.partition_by, self.options).resolved(project.root)
