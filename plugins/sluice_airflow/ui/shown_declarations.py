"""The declarations that the pages show: a file that hangs while it is imported costs its own streams only."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from sluice.declarations import Declarations, load_declarations, read_declarations
from sluice.errors import DeclarationError
from sluice.project import Project
from sluice.stream import Stream
from sluice_airflow.ui.backstage import Backstage

_PATIENCE_SECONDS = 2.0
"""How long a page waits for files that are imported for the first time."""
_DEADLINE_SECONDS = 3.0
"""How long an import may take until no page waits for it any more."""

Loaded = list[Stream] | DeclarationError
"""The streams of a file, or why it does not load."""


def _hanging(seconds: float) -> Loaded:
    return DeclarationError(
        f"the declaration is being imported, and has not come back for {seconds:.0f} s",
        remedy="let it declare and nothing else: no waiting, no network; where that does not help, restart the"
        " api-server",
    )


def _hanging_pipeline(seconds: float) -> Declarations:
    error = DeclarationError(
        f"the pipeline's Python files are being run, and have not come back for {seconds:.0f} s",
        remedy="look again in a moment; if it stays so, let them define tables and flows, and wait for nothing",
    )
    return Declarations({}, {}, {"the pipeline": error}, ())


_files: Backstage[Loaded] = Backstage(0, deadline_seconds=_DEADLINE_SECONDS, overdue=_hanging)


_pipelines: Backstage[Declarations] = Backstage(0, deadline_seconds=_DEADLINE_SECONDS, overdue=_hanging_pipeline)
"""By the spec's file: a Python of their own runs all files of a pipeline at once."""


def shown_declarations(project: Project) -> Declarations:
    """Load every declaration of a project, as far as that is done in time.

    Raises:
        DeclarationError: A folder of declarations does not exist, or the files of a pipeline can't be run.
    """
    if project.spec is not None:
        file = project.spec.file
        known = _pipelines.get({file: project.declarations}, _PATIENCE_SECONDS)
        return known.get(file) or _hanging_pipeline(_PATIENCE_SECONDS)
    files = project.declaration_files()
    loaded = _files.get({file: partial(_load, file) for file in files}, _PATIENCE_SECONDS)
    return read_declarations(files, project.surroundings, load=partial(_found, loaded))


def _load(file: str) -> Loaded:
    try:
        return load_declarations(file)
    except DeclarationError as exc:
        return exc


def _found(loaded: Mapping[str, Loaded], file: str) -> list[Stream]:
    found = loaded[file] if file in loaded else _hanging(_PATIENCE_SECONDS)
    if isinstance(found, DeclarationError):
        raise found.at(file)
    return found
