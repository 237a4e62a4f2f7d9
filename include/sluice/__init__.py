"""Streaming semantics on a batch schedule: plan in Python, run in Spark, audit, publish."""

from sluice import sinks, sources
from sluice.errors import Problem, SluiceError
from sluice.project import Project, find_project
from sluice.stream import Stream

__all__ = ["Problem", "Project", "SluiceError", "Stream", "find_project", "sinks", "sources"]
