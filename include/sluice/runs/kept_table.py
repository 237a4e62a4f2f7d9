"""A table as it was declared when something began to write to it: whoever finishes that writes to the table of then."""

from __future__ import annotations

import msgspec

from sluice.project import Project
from sluice.sinks.splitting import SplittingSink


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """A table as it was declared: one that takes a part of a batch."""

    location: str
    """From the project's folder where it lies in it: a project may be moved before the work is finished."""
    partition_by: tuple[str, ...] = ()
    options: dict[str, str] = {}
    kind: str = "delta"
    """The kind of sink, which older documents do not tell."""

    def __post_init__(self) -> None:
        """A document that names another kind does not parse.

        Raises:
            ValueError: There is no such kind of table.
        """
        if self.kind not in _kinds():
            raise ValueError(f"no table of kind {self.kind!r} takes a part of a batch")

    @classmethod
    def of(cls, sink: SplittingSink, project: Project) -> Table:
        """What is kept of a declared table."""
        return cls(
            location=project.place(sink.location or ""),
            partition_by=sink.partition_columns,
            options=dict(sink.writer_options),
            kind=sink.kind,
        )

    def sink(self, project: Project) -> SplittingSink:
        """The table to write to.

        Raises:
            DeclarationError: The table was in the project's folder, and would not be any more.
        """
        made = _kinds()[self.kind].at(self.location, self.partition_by, self.options)
        return made.resolved(project.surroundings)


def _kinds() -> dict[str, type[SplittingSink]]:
    """By their kind, the sinks that can be kept; `sluice` itself imports every kind that there is."""
    return {found.kind: found for found in SplittingSink.__subclasses__()}
