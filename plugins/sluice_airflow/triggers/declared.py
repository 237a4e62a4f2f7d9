"""The declared streams of a project, kept in mind by a process that looks at them all the time."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

from sluice.home import StreamHome
from sluice.project import FILE_NAME, Project
from sluice.stream import Stream
from sluice_airflow.projects import airflow_project

_FRESH_SECONDS = 30.0
"""How long it may take until a changed declaration is noticed."""


@dataclass(frozen=True)
class DeclaredStream:
    """A stream and its home."""

    stream: Stream
    home: StreamHome


@dataclass
class DeclaredStreams:
    """The streams of one project; declarations are imported again only after one has changed."""

    project: str | None
    """The folder of `sluice.toml`; None for Airflow's own project."""
    _loaded: tuple[Project, dict[str, DeclaredStream]] | None = None
    """The project, and its streams so far. Together: a thread that hung for a while finds others when it is back."""
    _files: tuple[tuple[str, int], ...] = ()
    _checked_at: float = 0.0

    def find(self, name: str) -> DeclaredStream:
        """One stream; the same object until a declaration changes.

        Raises:
            UnknownStreamError: No declaration has this name (any more).
            DeclarationError: The project or a declaration is not right.
        """
        project, streams = self._current()
        found = streams.get(name)
        if found is None:
            stream = project.stream(name)
            found = streams[name] = DeclaredStream(stream, project.stream_home(stream))
        return found

    def _current(self) -> tuple[Project, dict[str, DeclaredStream]]:
        now, loaded = time.monotonic(), self._loaded
        if loaded is not None and now - self._checked_at < _FRESH_SECONDS:
            return loaded
        project = airflow_project(self.project)
        if project.spec is not None:
            # Without a change of any file, a flow may be on another checkpoint by now.
            self._loaded, self._files, self._checked_at = (project, {}), (), now
            return project, self._loaded[1]
        files = [os.path.join(project.root, FILE_NAME), *project.declaration_files()]
        # Sizes and times together: an editor may keep one of them.
        stats = tuple((file, os.stat(file).st_mtime_ns ^ os.stat(file).st_size) for file in files)
        loaded = project, loaded[1] if loaded is not None and stats == self._files else {}
        self._loaded, self._files, self._checked_at = loaded, stats, now
        return loaded
