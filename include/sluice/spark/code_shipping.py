"""Lets Spark's Python workers import the project's own code, wherever they run, and as it is when a run begins.

A worker is another Python than the driver, often on another machine. A worker on this machine looks in the project's
import roots; others get the code sent as an archive. Spark keeps its workers for later queries: those of a session that
outlives a change of the code are left alone, and new ones are started.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sluice.locations import is_local, local_path
from sluice.project import Project
from sluice.project_code import ProjectCode, forget_modules, own_modules, read_code
from sluice.sources.coded import CodedSource
from sluice.spark.connect_session import is_connected
from sluice.spark.session import is_local_master
from sluice.stream import Stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PATH = "PYTHONPATH"
_NOT_HERE = "PYTHONSAFEPATH"
"""Else a worker looks in the folder that Spark was started in first, which may have modules of the same names."""
_VERSION = "SLUICE_CODE_VERSION"
"""Spark keeps workers apart that were started with different environments."""

_BatchFunction = Callable[["DataFrame", int], Any]


def ship_code(project: Project, stream: Stream, session: SparkSession) -> None:
    """Let the workers of a session import what the project's import roots hold now.

    Args:
        project: The project.
        stream: The stream whose transform is called next; its data folders are not searched for code.
        session: Spark, in this process or on a server.
    """
    code = _code(project, stream)
    if not code.files:
        return
    # What was imported before may hold functions that are packed for other workers, or for another kind of session.
    forget_modules()
    if is_connected(session):
        with tempfile.TemporaryDirectory(prefix="sluice-code-") as folder:
            session.addArtifacts(_write_archive(code, folder), pyfile=True)
        return
    context: Any = session.sparkContext
    context.environment[_VERSION] = code.version
    if any(isinstance(source, CodedSource) for source in stream.sources.values()):
        # The Python that decides its batches runs beside the driver, on a cluster, too.
        context.environment[_NOT_HERE] = "1"
    if is_local_master(context.master):
        _look_in_roots(project, context)
    elif _archive_name(code) not in context._python_includes:
        # It is served from here for as long as the session lasts.
        context.addPyFile(_write_archive(code, context._temp_dir))


def carrying_code(project: Project, stream: Stream, function: _BatchFunction) -> _BatchFunction:
    """A function that brings the code that it needs along: a server calls it in a Python that gets none sent."""
    if function.__module__ not in own_modules(project.import_roots):
        return function
    archive, module_name, name = _code(project, stream).archive(), function.__module__, function.__qualname__
    own = own_modules(project.import_roots)
    folders: list[Any] = []

    def call(frame: DataFrame, batch_id: int) -> None:
        # Nothing of Sluice is there; a project's code must be found at one place for as long as that Python lives.
        import importlib
        import sys
        import tempfile

        from pyspark import cloudpickle

        if not folders:
            folders.append(tempfile.TemporaryDirectory(prefix="sluice-code-"))
            place = f"{folders[0].name}/code.zip"
            with open(place, "wb") as file:
                file.write(archive)
            sys.path.insert(0, place)
        module = importlib.import_module(module_name)
        for found in set(own) & set(sys.modules):
            # That Python's workers have what was sent to the session, and can't import what needs Spark.
            cloudpickle.register_pickle_by_value(sys.modules[found])
        getattr(module, name)(frame, batch_id)

    return call


def _code(project: Project, stream: Stream) -> ProjectCode:
    places = [project.home, stream.sink.location, *(source.location for source in stream.sources.values())]
    folders = [local_path(place) for place in places if place is not None and is_local(place)]
    return read_code(project.import_roots, folders)


def _look_in_roots(project: Project, context: Any) -> None:
    declared = context.getConf().get(f"spark.executorEnv.{_PATH}")
    context.environment[_PATH] = os.pathsep.join([*project.import_roots, *([declared] if declared else [])])
    context.environment[_NOT_HERE] = "1"


def _archive_name(code: ProjectCode) -> str:
    return f"sluice-code-{code.version}.zip"


def _write_archive(code: ProjectCode, folder: str) -> str:
    file = Path(folder, _archive_name(code))
    file.write_bytes(code.archive())
    return str(file)
