"""The Spark that `sluice serve` keeps warm for a project: its file, how it is found, and whether it fits.

    <folder>/<key>.json    which process serves, where it listens, and what whoever wants a session must show
    <folder>/<key>.lock    locked for as long as a server is there

The folder is of the user and of this machine, not of the home: a home may be on a shared disk or in an object store,
and a server is of one machine, its token of one user. The key is a hash of the machine and the project's folder, so no
two projects share a server.
"""

from __future__ import annotations

import hashlib
import os
import stat
import sys
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Annotated
from weakref import WeakKeyDictionary

import msgspec

from sluice.documents import FORMAT, Document
from sluice.errors import RunError, SluiceError
from sluice.foreign_code import described
from sluice.project import Project
from sluice.redaction import remember_secrets
from sluice.runs.lease import RemoteSession
from sluice.runs.process import Process, boot_id, is_alive, machine
from sluice.spark.connect_session import end_remote, remote_session
from sluice.spark.user_cache import user_cache
from sluice.spark_master import SERVE, is_submitted
from sluice.typed_json import decode_as

_MAX_BYTES = 256 * 1024
_NOBODY_ELSE = 0o077


class NotServed(Exception):  # noqa: N818 - a reason, not an error: a Spark of its own does the same
    """Why a project's warm Spark is not taken; its text goes on after "a Spark of its own is started: "."""


class ServerFile(Document, frozen=True, kw_only=True):
    """A server that runs, or has run."""

    if_lost = "end the server by its process, and start another one"
    project: str
    """The project's folder."""
    watcher: Process
    """`sluice serve`."""
    jvm: Process
    machine: str
    boot_id: str
    spark: str
    """Its version."""
    python: str
    """The environment of its Python, which runs the project's functions."""
    port: int
    token: str
    settings: dict[str, str]
    """The settings that only a start of Spark can set: by name, what tells their values apart."""
    idle: str
    """How long nothing has to happen before it ends by itself."""
    started_at: Annotated[datetime, msgspec.Meta(tz=True)]

    def __repr__(self) -> str:
        """Without the token."""
        return f"ServerFile({self.project!r}, port={self.port})"

    @property
    def url(self) -> str:
        """Where it is, with its token, which goes to this one address: `localhost` may be others, too."""
        return f"sc://127.0.0.1:{self.port}/;use_ssl=false;token={self.token}"

    def is_at_work(self) -> bool:
        """Whether its processes are there: of this machine, and of this boot."""
        is_here = (self.machine, self.boot_id) == (machine(), boot_id())
        return is_here and is_alive(self.watcher) and is_alive(self.jvm)

    def differing(self, start: Mapping[str, str]) -> list[str]:
        """The settings of a start that it was not started with."""
        wanted = told_apart(start, self.token)
        return sorted(key for key in {*wanted, *self.settings} if wanted.get(key) != self.settings.get(key))


_opened: WeakKeyDictionary[object, ServerFile] = WeakKeyDictionary()
"""By session, the server that it is on."""


def is_served(project: Project) -> bool:
    """Whether a project's runs take a warm Spark where one is there; what `spark-submit` has started never does."""
    # A flow of a pipeline runs in its machine's time zone, which a server may have another one of.
    return project.spark_master == SERVE and project.spec is None and not is_submitted()


def server_path(project: Project) -> Path:
    """The file of a project's server, whether or not there is one.

    Raises:
        RunError: Nothing tells where the user's files are.
    """
    # A home folder may be that of several machines.
    key = hashlib.sha256(os.fsencode(f"{machine()}\0{os.path.realpath(project.root)}")).hexdigest()[:16]
    return user_cache("servers", "SLUICE_SERVERS") / f"{key}.json"


def told_apart(start: Mapping[str, str], token: str) -> dict[str, str]:
    """By the name of a setting, what tells its value from others and does not show it, for it may be a secret."""
    return {key: hashlib.sha256(f"{token}\0{key}\0{value}".encode()).hexdigest()[:16] for key, value in start.items()}


def running_server(project: Project) -> ServerFile:
    """The server that runs for a project; it is not asked for anything.

    Raises:
        NotServed: None does, or its file can't be relied on.
    """
    try:
        file = server_path(project)
    except RunError as exc:
        raise NotServed(exc.problem) from exc
    server = _read(file)
    if server.project != os.path.realpath(project.root):
        raise NotServed(f"{file} is another project's")
    if not server.is_at_work():
        raise NotServed(f"process {server.watcher.pid}, which was `sluice serve`, is gone")
    remember_secrets([server.token])
    return server


def fitting_server(project: Project, start: Mapping[str, str]) -> ServerFile:
    """The server that runs for a project, if it is what a run needs.

    Args:
        project: The project.
        start: The settings that only a start of Spark can set, as the run needs them.

    Raises:
        NotServed: None runs, or it is of another version, or was started with other settings.
    """
    import pyspark

    server = running_server(project)
    if server.spark != pyspark.__version__:
        raise NotServed(f"`sluice serve` is Spark {server.spark}, this is {pyspark.__version__}")
    if server.python != sys.prefix:
        raise NotServed(f"`sluice serve` has another Python, that of {server.python}")
    if differing := server.differing(start):
        raise NotServed(f"`sluice serve` was started with other settings: {', '.join(differing)}")
    return server


def note_server(session: object, server: ServerFile) -> None:
    """Remember which server a session is on."""
    _opened[session] = server


def served_session(session: object) -> RemoteSession | None:
    """What names a session for those who come later, if it is on a server of `sluice serve`."""
    server = _opened.get(session)
    return None if server is None else msgspec.structs.replace(remote_session(session, server.url), process=server.jvm)


def warm_failure(exc: Exception) -> str:
    """What a warm Spark has failed with before anything was written: what is really wrong, one of its own says."""
    return f"the warm one fails: {exc.problem if isinstance(exc, SluiceError) else described(exc)}"


def end_served(project: Project, remote: RemoteSession) -> str | None:
    """End the session of a run that is gone, on the server that runs for the project.

    Returns:
        Why it can't be ended; None when that session provably runs nothing any more.
    """
    try:
        server = running_server(project)
    except NotServed as exc:
        return str(exc)
    if server.jvm != remote.process:
        return f"it is on another server, process {remote.process.pid if remote.process else '?'}"
    return None if end_remote(server.url, remote) else "the server could not end it"


def _read(file: Path) -> ServerFile:
    """A server's file, if it is of this user alone: it says where code is sent, and what token goes with it."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise NotServed("no `sluice serve` runs for this project") from None
    except OSError as exc:
        raise NotServed(f"{file} can't be read: {exc.strerror}") from exc
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & _NOBODY_ELSE:
            raise NotServed(f"{file} is not this user's alone (mode 0600)")
        content = os.read(descriptor, _MAX_BYTES)
    except OSError as exc:
        raise NotServed(f"{file} can't be read: {exc.strerror}") from exc
    finally:
        os.close(descriptor)
    try:
        if decode_as(content, Document).format > FORMAT:
            raise NotServed(f"{file} is of a newer Sluice")
        return decode_as(content, ServerFile)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise NotServed(f"{file} does not parse: {exc}") from exc
