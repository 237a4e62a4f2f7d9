"""What the streams of one bench share: a folder, the user's project, a clock, and what was done."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from sluice.project import Project, find_project
from sluice.testing.clock import BenchClock
from sluice.testing.crash import Watch
from sluice.testing.opened import OpenedStream


@dataclass
class BenchFolder:
    """The folder of a bench, and everything that happened there."""

    folder: Path
    given: Project | str | None
    """The user's project, or a folder in it."""
    clock: BenchClock = field(default_factory=BenchClock)
    watch: Watch = field(default_factory=Watch)
    history: list[str] = field(default_factory=list)
    inputs: int = 0
    """How many times a source was given something."""
    opened: list[OpenedStream] = field(default_factory=list)

    @cached_property
    def user_project(self) -> Project | None:
        """The user's project; None where there is none.

        Raises:
            DeclarationError: It is not right.
        """
        return self.given if isinstance(self.given, Project) or self.given is None else find_project(self.given)

    def told(self) -> str:
        """Everything that was done, numbered."""
        return "\n".join(["what was done:", *(f"  {number}. {text}" for number, text in enumerate(self.history, 1))])

    def close(self) -> None:
        """Let go of what the streams have left in the memory of this process."""
        while self.opened:
            self.opened.pop().close()
