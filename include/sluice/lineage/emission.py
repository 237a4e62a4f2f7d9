"""Gives one event to OpenLineage's client: with the code's place in git, under our name, and without a secret."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import attr
from openlineage.client import OpenLineageClient
from openlineage.client.event_v2 import BaseEvent, RunEvent
from openlineage.client.facet_v2 import BaseFacet, source_code_location_job
from openlineage.client.git import get_git_branch, get_git_repo_url, get_git_tag, get_git_version

from sluice.lineage.jobs import producer
from sluice.project import Project
from sluice.redaction import redacted


@contextmanager
def emitting(project: Project, config: Mapping[str, Any] | None) -> Iterator[Callable[[RunEvent], None]]:
    """What sends events of a project's streams; at the end, all are sent, also by a transport that does so later.

    Args:
        project: The project.
        config: OpenLineage's configuration; its own variables and files say it where there is none.

    Raises:
        Exception: Whatever the client raises: something could not be sent.
    """
    client = OpenLineageClient(config=None if config is None else dict(config))
    try:
        yield partial(_emit, client, project)
    finally:
        client.close()


def _emit(client: OpenLineageClient, project: Project, event: RunEvent) -> None:
    location = _source_code(project)
    if location is not None and not client.config.facets.source_code_location.disabled:
        event.job.facets = {**(event.job.facets or {}), "sourceCodeLocation": location}
    # What the client would add itself nobody would mask: the address of a repository may have a token in it.
    told = client.add_source_code_location_facet(event)
    name = producer()
    _sign(told, name)
    client.emit(told)


def _source_code(project: Project) -> source_code_location_job.SourceCodeLocationJobFacet | None:
    """Where the project's code is, if git tells."""
    root = Path(project.root)
    folder = next((git for at in (root, *root.parents) if (git := at / ".git").is_dir()), None)
    try:
        url = None if folder is None else get_git_repo_url(git_dir=folder)
        if folder is None or url is None:
            return None
        return source_code_location_job.SourceCodeLocationJobFacet(
            "git",
            url,
            repoUrl=url,
            version=get_git_version(folder),
            branch=get_git_branch(folder),
            tag=get_git_tag(folder),
        )
    except (OSError, ValueError):
        # It is told where it is easily known.
        return None


def _sign(value: Any, name: str) -> Any:
    """Put our name below an event and each of its facets, and mask the secrets in all of its texts."""
    if isinstance(value, str):
        return redacted(value)
    if isinstance(value, list):
        return [_sign(each, name) for each in value]
    if isinstance(value, dict):
        return {key: _sign(each, name) for key, each in value.items()}
    if attr.has(type(value)):
        for field in attr.fields(type(value)):
            setattr(value, field.name, _sign(getattr(value, field.name), name))
        if isinstance(value, BaseFacet):
            value._producer = name  # noqa: SLF001 - the name that the specification gives it
        if isinstance(value, BaseEvent):
            value.producer = name
    return value
