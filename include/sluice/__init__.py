"""Streaming semantics on a batch schedule: plan in Python, run in Spark, audit, publish.

What a declaration needs is imported at once; what plans and runs a stream, when it is asked for: DAG files import this
package at every parse.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sluice import sinks, sources
from sluice.errors import Problem, SluiceError
from sluice.project import Project, find_project
from sluice.sources.contract import Bound
from sluice.stream import Stream

if TYPE_CHECKING:
    from sluice.planning.planner import Limits
    from sluice.planning.verdict import Request, plan_stream
    from sluice.running.runner import run_stream
    from sluice.sinks.idempotent_write import idempotent

__all__ = [
    "Bound",
    "Limits",
    "Problem",
    "Project",
    "Request",
    "SluiceError",
    "Stream",
    "find_project",
    "idempotent",
    "plan_stream",
    "run_stream",
    "sinks",
    "sources",
]

_LATER = {
    "Limits": "sluice.planning.planner",
    "Request": "sluice.planning.verdict",
    "idempotent": "sluice.sinks.idempotent_write",
    "plan_stream": "sluice.planning.verdict",
    "run_stream": "sluice.running.runner",
}


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(import_module(_LATER[name]), name)
    if name in import_module("sluice.other_names").KIND_WORDS["sluice"]:
        # Not an AttributeError, of which `from sluice import ...` would leave nothing but that there is no such name.
        raise import_module("sluice.declaration_checks").no_such_kind("sluice", name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
