"""Finds the project of an Airflow, or of one of its DAG bundles."""

from __future__ import annotations

import inspect
import os
from dataclasses import replace
from pathlib import Path

from airflow.configuration import conf
from airflow.dag_processing.bundles.base import get_bundle_storage_root_path
from airflow.sdk import get_current_context

from sluice.errors import DeclarationError
from sluice.locations import is_local, is_within, local_path
from sluice.project import Project, find_project, project_above
from sluice.redaction import known_secrets

_DAG_MODULE = "unusual_prefix_"
"""What the names of the modules begin with that Airflow makes of DAG files."""


def airflow_project(folder: str | None = None) -> Project:
    """The project in `folder`, else in `$SLUICE_PROJECT`, else of the DAG, else in or above the DAGs folder.

    The project of a DAG is in a folder above its file, in its bundle. A DAG is known while its file is parsed, and in
    its tasks; not in the triggerer, the scheduler and the api-server.

    Raises:
        DeclarationError: There is none, or it is not right; or it lies where Airflow keeps the versions of bundles, and
            its home would lie there, too.
    """
    given = folder or os.environ.get("SLUICE_PROJECT")
    project = find_project(given) if given else _project_of_dag() or _project_of_dags_folder()
    bundles = str(get_bundle_storage_root_path())  # type: ignore[no-untyped-call]
    return _anchored(project, bundles) if is_within(project.root, bundles) else project


def _project_of_dags_folder() -> Project:
    return project_above(Path(conf.get("core", "dags_folder")).resolve())


def task_project(folder: str | None = None) -> Project:
    """The same, in a task: Airflow masks the project's secrets in the task's log from then on, also in tracebacks.

    Raises:
        DeclarationError: There is none, or it is not right.
    """
    from airflow.sdk.log import mask_secret

    project = airflow_project(folder)
    for secret in known_secrets():
        mask_secret(secret)
    return project


def project_for_others(folder: str | None = None) -> str | None:
    """How a process that knows no DAG is told the project of this one: None for the one that it finds by itself.

    Raises:
        DeclarationError: There is no project, or it is not right.
    """
    if folder or os.environ.get("SLUICE_PROJECT"):
        return folder
    own = _project_of_dag()
    if own is None:
        return None
    try:
        return None if _project_of_dags_folder().root == own.root else own.root
    except DeclarationError:
        return own.root


def _project_of_dag() -> Project | None:
    """The project above the file of the DAG that is parsed, or whose task is at work; None where there is none."""
    file = _parsed_file() or _file_of_task()
    if file is None:
        return None
    try:
        return find_project(str(Path(file).parent))
    except DeclarationError as exc:
        if exc.where == str(Path(file).parent.resolve()):
            return None
        raise


def _parsed_file() -> str | None:
    """The DAG file that is being imported in this thread."""
    frame = inspect.currentframe()
    while frame is not None:
        if str(frame.f_globals.get("__name__")).startswith(_DAG_MODULE):
            return frame.f_code.co_filename
        frame = frame.f_back
    return None


def _file_of_task() -> str | None:
    try:
        return str(get_current_context()["dag"].fileloc)
    except (RuntimeError, KeyError):
        return None


def _anchored(project: Project, bundles: str) -> Project:
    """A project whose folder is another one with each version of its bundle, and is deleted in the end.

    Raises:
        DeclarationError: Its home is in there, or its name is that of the folder.
    """
    place = f"{project.root}/sluice.toml"
    if is_local(project.home) and is_within(local_path(project.home), bundles):
        raise DeclarationError(
            f"the home `{project.home}` lies where Airflow keeps the versions of bundles: with the next version every"
            " stream would begin anew",
            where=place,
            remedy="write `home` as an absolute path or a URL, with ${VARIABLE} if you like, or set SLUICE_HOME",
        )
    if project.name == Path(project.root).name:
        raise DeclarationError(
            "the project has no name of its own: that of its folder is another one in another version of its bundle",
            where=place,
            remedy="write `name` in [project], or set SLUICE_NAME",
        )
    return replace(project, moving_folder=bundles)
