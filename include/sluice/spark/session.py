"""Spark's session: its settings, and what of them a checkpoint pins for life."""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from sluice.amounts import Amount, least_in
from sluice.checkpoint.log import DEFAULT_COMPACT_INTERVAL
from sluice.declared_settings import DRIVER_MEMORY
from sluice.errors import BatchFailedError, DeclarationError
from sluice.locations import is_local
from sluice.project import Project
from sluice.spark import jars
from sluice.spark.connect_session import close_remote, is_connected, open_known, open_remote
from sluice.spark.delta_extension import DELTA_EXTENSION, EXTENSIONS
from sluice.spark.driver_jvm import start_jvm
from sluice.spark.java import EXTRA_JAVA_OPTIONS, Work, java_options
from sluice.spark.left_behind import forget_servers_modules
from sluice.spark.python_zone import PYTHON_ZONE, TIME_ZONE, set_python_zone, system_zone
from sluice.spark.served import NotServed, fitting_server, is_served, note_server, warm_failure
from sluice.spark.shown_error import spark_message
from sluice.spark.start_settings import of_session, of_start
from sluice.spark.warm_session import noted, set_back
from sluice.spark_master import SERVE, is_submitted
from sluice.stream import Stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")
logger = logging.getLogger(__name__)

PINNED = (
    "spark.sql.streaming.stateStore.providerClass",
    "spark.sql.streaming.stateStore.rocksdb.mergeOperatorVersion",
    "spark.sql.streaming.stateStore.rocksdb.formatVersion",
    "spark.sql.streaming.queryEvolution.enableSourceEvolution",
    "spark.sql.streaming.stateStore.encodingFormat",
    "spark.sql.streaming.statefulOperator.useStrictDistribution",
    "spark.sql.streaming.flatMapGroupsWithState.stateFormatVersion",
    "spark.sql.streaming.multipleWatermarkPolicy",
    "spark.sql.streaming.stateStore.rowChecksum.enabled",
    "spark.sql.streaming.aggregation.stateFormatVersion",
    "spark.sql.function.protobufExtensions.enabled",
    "spark.sql.shuffle.partitions",
    "spark.sql.streaming.join.stateFormatVersion",
    "spark.sql.streaming.stateStore.compression.codec",
    "spark.sql.optimizer.pruneFiltersCanPruneStreamingSubplan",
)
"""The settings that Spark 4.2 writes into every `offsets/N`, in its order; they hold for the checkpoint's life."""

SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"

_DEFAULTS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # As pyspark's own; spark-submit's is INFO, hundreds of lines a batch.
    "spark.log.level": "WARN",
    # A stream into Delta has some forty pieces of generated code; with room for 100, a warm session compiles for ever.
    "spark.sql.codegen.cache.maxEntries": "2000",
}
_SESSION = {
    TIME_ZONE: "UTC",
    # Without it, state is never snapshotted in runs shorter than a minute, and every run replays a longer log.
    "spark.sql.streaming.stateStore.unloadOnCommit": "true",
    # Spark 4.2.0 hangs for ever where a Python function reads cached rows as columns (SPARK-58241), and audits cache.
    "spark.sql.inMemoryColumnarStorage.enableVectorizedReader": "false",
}
_FIXED = {
    # Planned entries of a source's log are compacted where Spark would compact them.
    "spark.sql.streaming.fileSource.log.compactInterval": str(DEFAULT_COMPACT_INTERVAL),
}
_LOCAL = {
    # Nobody but this machine has business with a local driver.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
CHECKPOINT_FILES = {
    # Spark's default asks Hadoop for links in every path, for which Hadoop starts a process each: 60 of them a batch.
    # And it lets a file take the place of another: state that counts, of a batch that is done again.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}
_DELTA_SESSION = {
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # 50 tasks per snapshot by default, for tables of millions of files.
    "spark.databricks.delta.snapshotPartitions": "2",
}
_SMALL_DELTA = {
    # Each task of a snapshot writes its code anew, which a small run pays more for than for the rows.
    "spark.databricks.delta.snapshotPartitions": "1",
}
_DELTA = {EXTENSIONS: DELTA_EXTENSION} | _DELTA_SESSION
SERVED_MASTER = "local[*]"
"""Of the Spark that `sluice serve` keeps warm, and of one that takes its place."""
_BYTES_PER_PARTITION = 64 * 1024 * 1024
_MOST_PARTITIONS = 200


def spark_conf(project: Project, stream: Stream | None, master: str, work: Work | None = None) -> dict[str, str]:
    """The settings of a stream's Spark session; the project's `[spark] conf` wins over the defaults.

    Args:
        project: The project of the stream.
        stream: The stream; None for a Spark that is there for any of them.
        master: Spark's master: a local one finds the jars on its class path, a cluster gets them sent.
        work: What the session is opened for; None when nobody knows.

    Raises:
        DeclarationError: The project sets what planning relies on.
        JarsError: The stream needs jars that are not in the cache.
    """
    has_local_tasks, declared = is_local_master(master), _declared_conf(project, stream)
    conf = _DEFAULTS | _of_session(project) | _FIXED
    conf |= _LOCAL if has_local_tasks else {}
    conf |= _checkpoint_files(project, stream)
    if (stream is not None and _needs_jars(stream)) or all(jar.is_whole() for jar in jars.manifest()):
        paths = jars.class_path()
        conf |= _DELTA | (_SMALL_DELTA if work is not None and work.is_small else {})
        conf |= {"spark.driver.extraClassPath": ":".join(paths)} if has_local_tasks else {"spark.jars": ",".join(paths)}
    options = java_options(declared.get(EXTRA_JAVA_OPTIONS, ""), tasks=_threads(master), work=work)
    zone = declared.get(TIME_ZONE, conf.get(TIME_ZONE))
    conf |= {} if zone is None else _python_zone(zone)
    return conf | _told_plans({**conf, **declared}) | declared | {EXTRA_JAVA_OPTIONS: options}


def _told_plans(conf: Mapping[str, str]) -> dict[str, str]:
    """Let Spark tell each plan at no length where nobody reads it: it makes the text of every query, read or not."""
    is_read = any(conf.get(key, "").lower() == "true" for key in ("spark.ui.enabled", "spark.eventLog.enabled"))
    return {} if is_read else {"spark.sql.ui.explainMode": "simple"}


def _of_session(project: Project) -> dict[str, str]:
    """What sessions have by default; a pipeline's have its machine's zone, as `spark-pipelines` runs it."""
    return _SESSION if project.spec is None else {key: _SESSION[key] for key in _SESSION if key != TIME_ZONE}


def _needs_jars(stream: Stream) -> bool:
    return stream.sink.needs_jars or any(source.needs_jars for source in stream.sources.values())


def _checkpoint_files(project: Project, stream: Stream | None) -> dict[str, str]:
    """How Spark writes a checkpoint that lies in a folder, whether of this machine or of all of a cluster's."""
    elsewhere = None if stream is None else stream.checkpoint
    return CHECKPOINT_FILES if is_local(elsewhere or project.home) else {}


def _python_zone(zone: str) -> dict[str, str]:
    """Let Python functions see times in the session's zone, as Spark's functions do; else it is their machine's."""
    found = system_zone(zone)
    return {} if found is None else {PYTHON_ZONE: found}


def _declared_conf(project: Project, stream: Stream | None) -> dict[str, str]:
    declared = dict(project.spark_conf if stream is None else project.conf_of(stream))
    for key, value in _FIXED.items():
        if key in declared:
            where = "[spark] conf" if stream is None or key in project.spark_conf else f"{stream.place}, conf"
            raise DeclarationError(
                f"`{key}` can't be set", where=where, remedy=f"remove it; planning relies on {value}"
            )
    return declared


def _threads(master: str) -> int:
    """How many tasks a local master runs at once: `local` is 1, `local[*]` all cores; 0 where others run them."""
    if not is_local_master(master):
        return 0
    given = re.match(r"local\[(\d+|\*)", master)
    if given is None:
        return 1
    return (os.cpu_count() or 1) if given[1] == "*" else int(given[1])


def uses_delta(stream: Stream) -> bool:
    """Whether a stream reads or writes a Delta table by its declaration."""
    return stream.sink.needs_delta or any(source.needs_delta for source in stream.sources.values())


class SessionOpener(Protocol):
    """Opens a session for a stream, as `open_session` does."""

    def __call__(self, project: Project, stream: Stream, *, work: Work | None) -> SparkSession:
        """See `open_session`."""


def open_session(project: Project, stream: Stream, *, work: Work | None = None) -> SparkSession:
    """Start Spark, or take the session that runs already (a warm one, or that of `spark-submit`).

    On a Spark Connect server, it is a session of its own, which `close_session` must end.

    Args:
        project: The project of the stream.
        stream: The stream.
        work: What it is opened for, by which the JVM's options are chosen; None when nobody knows.

    Raises:
        DeclarationError: The configured master is not one that Sluice drives, or a server lacks something.
        BatchFailedError: Spark could not be started, or the server does not answer.
        JarsError: The stream needs jars that are not in the cache.
    """
    if project.is_remote:
        declared, needs_delta = _declared_conf(project, stream), uses_delta(stream)
        if stream.memory is not None:
            # The driver's memory is the server's.
            declared.pop(DRIVER_MEMORY)
        settings = (
            _of_session(project) | _FIXED | (_DELTA_SESSION if needs_delta else {}) | _checkpoint_files(project, stream)
        )
        opened: SparkSession = open_remote(project.spark_master, settings, declared, needs_delta=needs_delta)
        return opened
    return _open_classic(project, stream, work)


def open_served(project: Project, stream: Stream, *, work: Work | None = None) -> SparkSession:
    """Open a session on the Spark that `sluice serve` keeps warm, which `close_session` must end.

    Args:
        project: The project of the stream.
        stream: The stream.
        work: What it is opened for; None when nobody knows.

    Raises:
        NotServed: There is none, it is not as the stream needs it, or it does not answer.
        DeclarationError: See `spark_conf`.
        JarsError: The stream needs jars that are not in the cache.
    """
    if not is_served(project):
        raise NotServed("the project has no warm Spark")
    conf = spark_conf(project, stream, SERVED_MASTER, work)
    server = fitting_server(project, start_settings(conf, project.conf_of(stream)))
    try:
        opened: SparkSession = open_known(server.url, of_session(conf), reads_tables=uses_delta(stream))
    except BatchFailedError as exc:
        raise NotServed(exc.problem) from exc
    note_server(opened, server)
    return opened


def start_settings(conf: Mapping[str, str], declared: Mapping[str, str]) -> dict[str, str]:
    """What of a stream's, or a project's, settings a server must have been started with.

    Args:
        conf: All of them; see `spark_conf`.
        declared: What was declared; what is chosen for Java by a run's size is no part of it.
    """
    chosen = {key: value for key, value in of_start(conf).items() if key != EXTRA_JAVA_OPTIONS}
    return chosen | {key: declared[key] for key in (EXTRA_JAVA_OPTIONS,) if key in declared}


def close_session(session: SparkSession) -> None:
    """End a session that `open_session` opened on a server. A Spark in this process stays warm."""
    if is_connected(session):
        close_remote(session)


@contextmanager
def opened_session(
    project: Project, stream: Stream, given: SparkSession | None = None, *, work: Work | None = None
) -> Iterator[SparkSession]:
    """A session for as long as this lasts, as `open_session` opens it; one that is given is taken, and left open."""
    session = given or open_session(project, stream, work=work)
    try:
        yield session
    finally:
        if given is None:
            close_session(session)


def found_with_spark(
    project: Project,
    stream: Stream,
    find: Callable[[SparkSession], T],
    given: SparkSession | None = None,
    *,
    work: Work | None = None,
) -> T:
    """What is found out in a session: on a warm Spark, where the project has one, and else on one of its own.

    Args:
        project: The project of the stream.
        stream: The stream.
        find: Finds it, and writes nothing: what a warm Spark can't find, one of its own is asked for again.
        given: A session to use in place of any other.
        work: What it is opened for; None when nobody knows.

    Raises:
        Exception: See `open_session`; or what `find` raises.
    """
    if given is None and is_served(project):
        try:
            warm = open_served(project, stream, work=work)
            try:
                return find(warm)
            finally:
                close_session(warm)
        except NotServed as exc:
            reason = str(exc)
        except Exception as exc:
            # A server that dies in this moment, too, and whatever else gRPC has to say of it.
            reason = warm_failure(exc)
        logger.warning("`%s`: a Spark of its own is started: %s", stream.name, reason)
    with opened_session(project, stream, given, work=work) as session:
        return find(session)


def _open_classic(project: Project, stream: Stream, work: Work | None) -> SparkSession:
    master = chosen_master(project)
    return start_spark(master, spark_conf(project, stream, master, work), name=f"sluice {stream.name}", stream=stream)


def start_spark(master: str, conf: Mapping[str, str], *, name: str, stream: Stream | None = None) -> SparkSession:
    """Start Spark in this process, or take the one that runs already.

    Args:
        master: Spark's master.
        conf: The settings of the session; see `spark_conf`.
        name: What Spark calls the application.
        stream: Whose settings are among them, for messages; None for those of a project alone.

    Raises:
        DeclarationError: Spark does not take a setting.
        BatchFailedError: Spark could not be started.
    """
    from pyspark.logger import PySparkLogger
    from pyspark.sql import SparkSession

    os.environ.update(driver_environment())
    builder = SparkSession.builder.appName(name)
    if not is_submitted():
        builder = builder.master(master)
        start_jvm({"spark.master": master, **conf})
    for key, value in conf.items():
        builder = builder.config(key, value)
    set_back()
    forget_servers_modules()
    try:
        with noted(conf):
            session = builder.getOrCreate()
    except Exception as exc:
        if _refused_setting(exc) is not None:
            raise _not_taken(exc, stream) from exc
        raise BatchFailedError(
            f"Spark could not be started: {exc}",
            where=f"master {master}",
            remedy="check that Java 17 is installed, and the settings in [spark]",
        ) from exc
    if is_local_master(master):
        set_python_zone(session, conf.get(PYTHON_ZONE))
    try:
        check_taken(session, stream)
    except DeclarationError:
        # Whatever this one is asked, by whichever stream, it says the same; and its JVM was started with the settings.
        jvm: Any = session._jvm
        for key in of_session(conf):
            jvm.System.clearProperty(key)
        session.stop()
        raise
    # It logs what the error says that is raised, with the whole stack of the JVM.
    for logger in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        PySparkLogger.getLogger(logger).setLevel("CRITICAL")
    encoding = session._jvm.System.getProperty("sun.jnu.encoding") if session._jvm else "UTF-8"
    if encoding != "UTF-8":
        raise DeclarationError(
            f"Spark's JVM was started with file names in {encoding}",
            where="LC_ALL, LANG",
            remedy="set LC_ALL=C.UTF-8: files with other letters in their names would be read as missing",
        )
    return session


def check_taken(session: SparkSession, stream: Stream | None = None) -> None:
    """Make sure that Spark takes the settings of SQL: it looks at their values when it is first asked for one.

    Raises:
        DeclarationError: It does not take one.
    """
    from pyspark.errors import IllegalArgumentException

    try:
        session.conf.get(TIME_ZONE)
    except IllegalArgumentException as exc:
        raise _not_taken(exc, stream) from exc


def _not_taken(exc: Exception, stream: Stream | None) -> DeclarationError:
    key = _refused_setting(exc)
    return DeclarationError(
        f"Spark does not take a setting: {spark_message(exc)}",
        where="[spark.conf], or `conf` of the stream" if key is None else setting_place(stream, [key]),
        remedy="correct its value, or leave it out",
    )


def _refused_setting(exc: Exception) -> str | None:
    """The setting whose value Spark does not take; None where it says something else."""
    from pyspark.errors import PySparkException

    condition = exc.getCondition() if isinstance(exc, PySparkException) else None
    if condition is None or not condition.startswith("INVALID_CONF_VALUE"):
        return None
    parameters = cast("PySparkException", exc).getMessageParameters() or {}
    return parameters.get("confName", "").strip('"`') or None


def setting_place(stream: Stream | None, keys: Iterable[str]) -> str:
    """Where settings are declared, for messages: those of a stream win over the project's."""
    is_own = stream is not None and any(key in stream.settings for key in keys)
    return f"{stream.place}, conf" if stream is not None and is_own else "[spark.conf]"


def driver_environment() -> dict[str, str]:
    """What a driver's environment must say: workers run this Python, and file names are UTF-8."""
    environment = {"PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable)}
    # Java takes its file names' encoding from the first of these that is set.
    locale = next((value for name in ("LC_ALL", "LC_CTYPE", "LANG") if (value := os.environ.get(name))), "C")
    if "utf" not in locale.lower():
        environment["LC_ALL"] = "C.UTF-8"
    return environment


def is_local_master(master: str) -> bool:
    """Whether Spark's tasks run in the driver's own JVM; those of a `local-cluster` do not."""
    return master == "local" or master.startswith("local[")


def chosen_master(project: Project) -> str:
    """The master of this process's driver: `spark-submit` may have been told of another one than the project is."""
    ours = SERVED_MASTER if project.spark_master == SERVE else project.spark_master
    if not is_submitted():
        return ours
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()  # before, SparkConf asks no JVM
    return str(SparkConf().get("spark.master", ours))


def jvm_pid(session: SparkSession) -> int | None:
    """The process id of the driver's JVM; None where it can't be told."""
    if is_connected(session):
        return None
    if is_submitted():
        return os.getppid()
    process = getattr(session.sparkContext._gateway, "proc", None)
    return None if process is None else int(process.pid)


def pinned_conf(session: SparkSession) -> dict[str, str]:
    """The pinned settings as this session has them, in Spark's order."""
    return {key: str(session.conf.get(key)) for key in PINNED}


def choose_shuffle_partitions(
    session: SparkSession, conf: Mapping[str, str], batches: Iterable[Iterable[Amount]]
) -> None:
    """Set the number of shuffle partitions of a first run from cores and bytes, unless the project sets it.

    Spark's default of 200 would be frozen into the checkpoint: 200 tasks and 200 state files for every batch.

    Args:
        session: Spark.
        conf: The settings of the stream.
        batches: What each planned batch reads of its sources.
    """
    if SHUFFLE_PARTITIONS not in conf:
        # What nobody knows the size of can't make the number smaller than what is known does.
        largest = max((least_in(amounts, "bytes") for amounts in batches), default=0)
        by_size = -(-largest // _BYTES_PER_PARTITION)
        cores = _remote_cores(session) if is_connected(session) else session.sparkContext.defaultParallelism
        session.conf.set(SHUFFLE_PARTITIONS, str(max(cores, min(_MOST_PARTITIONS, by_size))))


def _remote_cores(session: SparkSession) -> int:
    """How many tasks a server runs at once: so many parts it gives to a range."""
    plan: Any = session.range(1)
    splits = re.search(r"splits=(\d+)", plan._explain_string())
    return int(splits[1]) if splits else 1
