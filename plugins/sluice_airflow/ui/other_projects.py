"""Which tasks run streams of another project than the one that the pages show: of the same names, perhaps."""

from __future__ import annotations

import time
from collections.abc import Iterable
from functools import lru_cache

from sluice.errors import SluiceError
from sluice.project import Project, find_project
from sluice_airflow.ui.dag_tasks import StreamTask

_KEEP_SECONDS = 30.0
_MOST_FOLDERS = 4096


def other_projects(tasks: Iterable[StreamTask], shown: Project) -> dict[StreamTask, Project]:
    """The tasks of other projects, with these. A project is told by its name and its home, wherever its code lies.

    A task whose project is not to be found from here (another machine, another version of a bundle) may be of this one.

    Args:
        tasks: Tasks that run streams.
        shown: The project of the pages.
    """
    found = {task: _project_in(task.project_folder, time.monotonic() // _KEEP_SECONDS) for task in tasks}
    own = (shown.name, shown.home)
    return {task: project for task, project in found.items() if project and (project.name, project.home) != own}


@lru_cache(_MOST_FOLDERS)
def _project_in(folder: str, _at: float) -> Project | None:
    try:
        return find_project(folder) if folder else None
    except SluiceError:
        return None
