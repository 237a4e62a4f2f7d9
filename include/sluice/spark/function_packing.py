"""How a project's functions travel to Spark's Python workers: by their names, or as a whole.

By its name, a function costs nothing to send, and the worker imports its module. Two kinds can't go so: those of a
package that only this machine has, and those of modules that can't be imported without Spark, which no worker has. A
user-defined function at the top of a module, with its type in words, makes a module one of these.
"""

from __future__ import annotations

import copyreg
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any

from sluice.errors import DeclarationError
from sluice.project import Project
from sluice.project_code import own_modules
from sluice.sources.coded import CodedSource
from sluice.spark.connect_session import is_connected
from sluice.spark.session import is_local_master
from sluice.spark.transform import SqlTransform
from sluice.stream import Stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def pack_functions(project: Project, function: Any, session: SparkSession) -> None:
    """Decide how the functions travel that a project has imported, before the first of them is called.

    Args:
        project: The project.
        function: The transform, or a function of the sink.
        session: Where they travel to.
    """
    own = own_modules(project.import_roots)
    whole = set(own) if any(_has_udf(sys.modules[name]) for name in own) else set()
    if is_connected(session) and function.__module__ not in own and not isinstance(function, SqlTransform):
        package = str(function.__module__).partition(".")[0]
        whole |= {package, function.__module__} & set(sys.modules)
    _register(set(own), whole)
    if whole:
        from pyspark.sql.udf import UserDefinedFunction

        # pyspark keeps the JVM's part of it in there once it was used, and that travels nowhere.
        copyreg.pickle(UserDefinedFunction, _parts)


def pack_readers(project: Project, stream: Stream, session: SparkSession) -> None:
    """The same for the classes of the project that read a stream's sources, until the next function is packed.

    On a server or a cluster, the Python that decides their batches gets none of the files that were sent: all of the
    project's code that they need travels with them.

    Raises:
        DeclarationError: One does not import, or reads no stream; or Spark would take one for another.
    """
    known: dict[str, str] = {}
    for name, source in stream.sources.items():
        if not isinstance(source, CodedSource):
            continue
        try:
            loaded: Any = source.load()
            pack_functions(project, loaded, session)
            other = known.setdefault(loaded.name().lower(), source.reference)
            # A server looks each up by its name when the query starts, and so does any Spark that is given a schema: it
            # takes the last one that was registered.
            if other != source.reference:
                raise DeclarationError(
                    f"`{other}` and `{source.reference}` have one name, `{loaded.name()}`",
                    remedy="let `name()` of one of them give another",
                )
        except DeclarationError as exc:
            raise exc.at(f"{stream.place}, source `{name}`") from exc
    if known and (is_connected(session) or not is_local_master(str(session.sparkContext.master))):
        own = set(own_modules(project.import_roots))
        _register(own, own)


def _register(own: set[str], whole: set[str]) -> None:
    from pyspark import cloudpickle

    registry: Any = cloudpickle
    for name in (own - whole) & registry.list_registry_pickle_by_value():
        registry.unregister_pickle_by_value(sys.modules[name])
    for name in whole:
        registry.register_pickle_by_value(sys.modules[name])


def _has_udf(module: ModuleType) -> bool:
    return any(hasattr(value, "_unwrapped") for value in _values(module))


def _values(module: ModuleType) -> Iterator[Any]:
    for value in vars(module).values():
        yield value
        if isinstance(value, dict):
            yield from value.values()
        elif isinstance(value, list | tuple):
            yield from value


def _parts(udf: Any) -> tuple[Any, ...]:
    return (type(udf), (udf.func, udf.returnType, udf._name, udf.evalType, udf.deterministic))
