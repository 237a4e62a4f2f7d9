"""Sessions on a Spark Connect server: opened for one run, checked before anything is written, and ended with it.

A query outlives the client that started it. So a run's lease names its session, and whoever takes the lease over from
a run that is gone ends that session first: from then on nothing of the dead run can write any more.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from sluice.errors import BatchFailedError, DeclarationError
from sluice.locations import spark_location
from sluice.runs.lease import RemoteSession
from sluice.spark.delta_extension import DELTA_EXTENSION, EXTENSIONS, has_delta

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

CONNECT_PATIENCE_SECONDS = 10.0
"""How long a server may take to answer at all."""
_RETRIES = 5
"""Of a call to a server that does not answer, 15 seconds in all; pyspark's own 15 take more than ten minutes."""
_CONNECT_MODE = "SPARK_CONNECT_MODE_ENABLED"
"""The variable that pyspark sets with the first session on a server: from then on, its functions are made for one."""
_open: set[str] = set()
"""The sessions on servers that this process has open."""
_mode_before: list[str] = []
"""What the variable was before the first of them; empty where it was not set."""
_LOOPBACK, _NO_TLS = "127.0.0.1", "false"
"""The address and the word by which a URL says that its token goes to this machine alone."""
_HOST = re.compile(r"[\w.-]+|\[[0-9A-Fa-f:.%]+\]")
"""Else it may be parameters that were taken for a host."""
_FIXED = {
    # A source that a plan names twice is then analysed twice in every run, and not only once its entry is evicted.
    "spark.connect.session.planCache.enabled": "false",
    # The whole plan is read, however long it is.
    "spark.sql.maxPlanStringLength": "2147483632b",
}


def server_name(url: str) -> str:
    """The server of a URL, without its parameters, which may be secret: `sc://HOST:PORT`.

    Raises:
        DeclarationError: It is no such URL.
    """
    return f"sc://{_builder(url).endpoint}"


def is_connected(session: SparkSession) -> bool:
    """Whether this is a session on a server."""
    return type(session).__module__.startswith("pyspark.sql.connect.")


def open_remote(url: str, settings: Mapping[str, str], declared: Mapping[str, str], *, needs_delta: bool) -> Any:
    """Open a session of its own on a server, and make sure that the server can do what planned batches need.

    Args:
        url: `sc://HOST:PORT/;token=...`, with further parameters of Spark's.
        settings: What every session of Sluice has.
        declared: What the project sets: settings of a session are set, others must be the server's own.
        needs_delta: Whether a source or the sink is a Delta table.

    Raises:
        DeclarationError: The URL is no such URL, or the server lacks something.
        BatchFailedError: The server can't be reached, or refuses this client.
    """
    session = _connect(url, str(uuid4()), _user(url))
    try:
        _check_version(session, url)
        for key, value in settings.items():
            session.conf.set(key, value)
        _apply(session, url, declared)
        for key, value in _FIXED.items():
            session.conf.set(key, value)
        if needs_delta:
            _check_delta(session, url)
        _check_encoding(session, url)
    except BaseException as exc:
        close_remote(session)
        if isinstance(exc, Exception) and not isinstance(exc, DeclarationError):
            raise _refused(url, exc) from exc
        raise
    return session


def open_known(url: str, settings: Mapping[str, str], *, reads_tables: bool) -> Any:
    """Open a session of its own on a server that was started as it must be.

    Args:
        url: As for `open_remote`.
        settings: What the session has.
        reads_tables: Whether a source or the sink is a Delta table.

    Raises:
        BatchFailedError: The server can't be reached, or refuses this client, or a setting.
    """
    session = _connect(url, str(uuid4()), _user(url))
    try:
        # In one call: one for each takes a tenth of a second.
        session.conf._set_all({**settings, **_FIXED}, silent=False)  # noqa: SLF001
        # What others have let it keep may be of files that are others by now. Who runs beside computes it anew.
        session.catalog.clearCache()
        if reads_tables:
            # What it knows of tables may be of such that were at their places before.
            session.sql("SELECT java_method('org.apache.spark.sql.delta.DeltaLog', 'clearCache')").collect()
    except BaseException as exc:
        close_remote(session)
        if isinstance(exc, Exception):
            raise _refused(url, exc) from exc
        raise
    return session


def close_remote(session: Any) -> None:
    """End a session with all that still runs in it; a process with an open one hangs at its end."""
    _give_up_after(session, retries=1)
    session.stop()
    _open.discard(str(session.session_id))
    _restore_mode()


def _restore_mode() -> None:
    """Else pyspark would start no Spark in this process any more, where nobody else has a session on a server."""
    if not _open:
        os.environ.pop(_CONNECT_MODE, None)
        os.environ.update((_CONNECT_MODE, value) for value in _mode_before)


def remote_session(session: Any, url: str) -> RemoteSession:
    """What names a session for those who come later."""
    return RemoteSession(server_name(url), _user(url), str(session.session_id))


def end_remote(url: str, remote: RemoteSession) -> bool:
    """End the session of a run that is gone, with the query that may still run in it.

    Args:
        url: The server as this project knows it.
        remote: The session.

    Returns:
        Whether that session provably runs nothing any more.
    """
    if server_name(url) != remote.server:
        logger.warning("a session on %s can't be ended: this project runs on %s", remote.server, server_name(url))
        return False
    try:
        session = _connect(url, remote.session_id, remote.user_id)
        try:
            for query in session.streams.active:
                logger.warning("ending query %s, which its run has left on %s", query.id, remote.server)
                query.stop()
            is_ended = not session.streams.active
        finally:
            close_remote(session)
    except Exception as exc:
        # A session that was ended before is refused for good.
        if "INVALID_HANDLE.SESSION_CLOSED" in str(exc):
            return True
        logger.warning("a session on %s can't be ended: %s", remote.server, str(exc).partition("\n")[0])
        return False
    return is_ended


def sees(session: Any, location: str) -> bool:
    """Whether the server sees a file that this process has written."""
    try:
        return bool(session.read.format("binaryFile").load(spark_location(location)).select("length").count())
    except Exception:
        logger.debug("the server does not see %s", location, exc_info=True)
        return False


def _builder(url: str) -> Any:
    from pyspark.sql.connect.client import DefaultChannelBuilder

    try:
        builder = DefaultChannelBuilder(url)
        is_right = _HOST.fullmatch(builder.host) is not None
        if builder.host == _LOOPBACK and builder.getDefault(builder.PARAM_USE_SSL, "") == _NO_TLS:
            builder = _to_this_machine(url)
    except Exception:
        # What pyspark says quotes the URL, and in it the token: neither its words nor its cause may go on.
        is_right = False
    if not is_right:
        raise DeclarationError(
            "the URL of the Spark Connect server is not right",
            where="[spark] master, SLUICE_SPARK_MASTER or SPARK_REMOTE",
            remedy="write it as sc://HOST:PORT, or sc://HOST:PORT/;name=value;name=value",
        )
    return builder


def _to_this_machine(url: str) -> Any:
    """Bears a token to an address of this machine, without TLS.

    pyspark does so for the name `localhost` only, which may be another address as well, where anybody may listen.
    """
    import grpc
    from pyspark.sql.connect.client import DefaultChannelBuilder

    class ThisMachine(DefaultChannelBuilder):
        def toChannel(self) -> Any:  # noqa: N802 - pyspark's own
            token = grpc.access_token_call_credentials(self.token)
            return self._secure_channel(
                self.endpoint, grpc.composite_channel_credentials(grpc.local_channel_credentials(), token)
            )

    return ThisMachine(url)


def _user(url: str) -> str:
    return str(_builder(url).userId or os.environ.get("SPARK_USER") or os.environ.get("USER") or "sluice")


def _connect(url: str, session_id: str, user_id: str) -> Any:
    """Open a session by its id, or anew; fails within seconds where nobody answers."""
    import grpc

    channel = _builder(url).toChannel()
    try:
        grpc.channel_ready_future(channel).result(timeout=CONNECT_PATIENCE_SECONDS)
    except grpc.FutureTimeoutError:
        raise BatchFailedError(
            f"no Spark Connect server answers within {CONNECT_PATIENCE_SECONDS:g} seconds",
            where=server_name(url),
            remedy="check that it runs, its host and port, and whether it wants TLS (use_ssl=true) or none",
        ) from None
    finally:
        channel.close()
    # Of parameters that are given twice, Spark takes the last.
    ours = f"session_id={session_id};user_id={user_id}"
    whole = f"{url.rstrip(';')};{ours}" if ";" in url else f"{url.rstrip('/')}/;{ours}"
    if not _open:
        _mode_before[:] = [os.environ[_CONNECT_MODE]] if _CONNECT_MODE in os.environ else []
    try:
        session = _session(whole)
    except Exception as exc:
        _restore_mode()
        raise _refused(url, exc) from exc
    _open.add(session_id)
    _give_up_after(session, retries=_RETRIES)
    return session


def _session(url: str) -> Any:
    from pyspark.sql import SparkSession
    from pyspark.sql.connect.client import DefaultChannelBuilder
    from pyspark.sql.connect.session import SparkSession as RemoteSession

    builder = _builder(url)
    if type(builder) is DefaultChannelBuilder:
        return SparkSession.builder.remote(url).create()
    os.environ[_CONNECT_MODE] = "1"
    return RemoteSession.builder.channelBuilder(builder).create()


def _give_up_after(session: Any, *, retries: int) -> None:
    from pyspark.sql.connect.client.retries import DefaultPolicy

    session.client.set_retry_policies([DefaultPolicy(max_retries=retries, max_backoff=10_000)])


def _refused(url: str, exc: Exception) -> BatchFailedError:
    words = " ".join(str(exc).partition("\n\nJVM stacktrace")[0].split())
    return BatchFailedError(
        f"the Spark Connect server refuses this client: {words[:500]}",
        where=server_name(url),
        remedy="check the token and the other parameters of its URL, and that it is a Spark 4.2",
    )


def _check_version(session: Any, url: str) -> None:
    import pyspark

    ours, theirs = pyspark.__version__, str(session.version)
    if ours.split(".")[:2] != theirs.split(".")[:2]:
        raise DeclarationError(
            f"the server is Spark {theirs}, this client is {ours}",
            where=server_name(url),
            remedy="run a server of the client's version: planned batches rely on what it writes",
        )


def _apply(session: Any, url: str, declared: Mapping[str, str]) -> None:
    lacking = {}
    for key, value in declared.items():
        if session.conf.isModifiable(key):
            session.conf.set(key, value)
        elif session.conf.get(key, None) != value:
            lacking[key] = value
    if lacking:
        raise DeclarationError(
            f"only the server itself can have these settings: {', '.join(f'`{key}`' for key in sorted(lacking))}",
            where=f"[spark] conf, {server_name(url)}",
            remedy="start the server with them, or remove them from the project",
        )


def _check_delta(session: Any, url: str) -> None:
    if not has_delta(session):
        raise _without_delta(url, f"its `{EXTENSIONS}` is {session.conf.get(EXTENSIONS, None) or ''!r}")
    try:
        _ = session.read.format("delta").load("/sluice/asks/whether/delta/is/there").schema
    except Exception as exc:
        if "DATA_SOURCE_NOT_FOUND" in str(exc) or "NoClassDefFoundError" in str(exc):
            raise _without_delta(url, "Delta's jars are not on its class path") from exc


def _without_delta(url: str, reason: str) -> DeclarationError:
    return DeclarationError(
        f"the Spark Connect server can't read or write Delta tables: {reason}",
        where=server_name(url),
        remedy=f"start it with Delta's jars (delta-spark_4.2_2.13 4.4.0) and {EXTENSIONS}={DELTA_EXTENSION}",
    )


def _check_encoding(session: Any, url: str) -> None:
    asked = "SELECT java_method('java.lang.System', 'getProperty', 'sun.jnu.encoding')"
    encoding = session.sql(asked).collect()[0][0]
    if encoding != "UTF-8":
        raise DeclarationError(
            f"the server's JVM was started with file names in {encoding}",
            where=server_name(url),
            remedy="start it with LC_ALL=C.UTF-8: files with other letters in their names would be read as missing",
        )
