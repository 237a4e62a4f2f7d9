"""Where lineage is told, and as whose: OpenLineage's own variables and files, and what Airflow says in their place."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from sluice.extras import is_installed

_DISABLED = "OPENLINEAGE_DISABLED"
_NAMESPACE = "OPENLINEAGE_NAMESPACE"
_PARENT = "OPENLINEAGE_PARENT_ID"
_ROOT = "OPENLINEAGE_ROOT_PARENT_ID"
_FILE = "openlineage.yml"
_PREFIX = "OPENLINEAGE__"
"""What the variables begin with that say, part by part, what a file would."""


@dataclass(frozen=True)
class Parent:
    """A run of some other job, in which a run of ours takes place."""

    namespace: str
    job: str
    run_id: str
    """A UUID."""

    @classmethod
    def parse(cls, text: str | None) -> Parent | None:
        """Read `NAMESPACE/JOB/RUN_ID`, as Airflow's macros write it; None for what is none."""
        parts = (text or "").rsplit("/", 2)
        return cls(*parts) if len(parts) == 3 and all(parts) else None

    def __str__(self) -> str:
        return f"{self.namespace}/{self.job}/{self.run_id}"


@dataclass(frozen=True)
class LineageSettings:
    """Who is told, and as whose."""

    namespace: str | None = None
    """Of our jobs; the project's name where it is not given."""
    parent: Parent | None = None
    root: Parent | None = None
    """The outermost run: for a task of Airflow's, its DAG run."""
    config: Mapping[str, Any] | None = None
    """OpenLineage's configuration; None where its variables and files say it."""
    is_disabled: bool = False
    """Whether nothing is to be told, whatever else is said."""

    @property
    def environment(self) -> dict[str, str]:
        """The variables that say the same to another process; some may be secrets."""
        if self.is_disabled:
            return {_DISABLED: "true"}
        given = {_NAMESPACE: self.namespace, _PARENT: self.parent, _ROOT: self.root}
        said = {name: str(value) for name, value in given.items() if value}
        config = {f"{_PREFIX}{key.upper()}": json.dumps(value) for key, value in (self.config or {}).items()}
        return {**said, **config}


SILENT = LineageSettings(is_disabled=True)
"""Nobody is told: of runs that are no work of anybody's, such as those of tests."""
_given: ContextVar[LineageSettings | None] = ContextVar("lineage settings", default=None)


@contextmanager
def using(settings: LineageSettings | None) -> Iterator[None]:
    """While this lasts, let other settings count than those of this process's environment; None for these."""
    before = _given.set(settings)
    try:
        yield
    finally:
        _given.reset(before)


def given_environment() -> dict[str, str]:
    """What a process is to be told of lineage that is started now, beside this one's own environment."""
    settings = _given.get()
    return {} if settings is None else settings.environment


def lineage_settings() -> LineageSettings | None:
    """Who is told of lineage; None where nobody is: nothing is configured, or OpenLineage's client is not installed."""
    settings = _given.get() or LineageSettings(
        os.environ.get(_NAMESPACE) or None,
        Parent.parse(os.environ.get(_PARENT)),
        Parent.parse(os.environ.get(_ROOT)),
    )
    if settings.is_disabled or os.environ.get(_DISABLED, "").strip().lower() == "true":
        return None
    if settings.config is None and not _is_configured():
        return None
    return settings if is_installed("lineage") else None


def _is_configured() -> bool:
    """Whether one of the places says where events go in which OpenLineage's client looks."""
    named = os.environ.get("OPENLINEAGE_CONFIG")
    files = (named, _FILE, os.path.join(os.path.expanduser("~/.openlineage"), _FILE))
    return (
        bool(os.environ.get("OPENLINEAGE_URL"))
        or any(name.startswith(f"{_PREFIX}TRANSPORT") and value for name, value in os.environ.items())
        or any(file and os.path.isfile(file) for file in files)
    )
