"""Spark's JVM in a driver of ours: started with the launch profile where there is one, else by Spark's own launcher."""

from __future__ import annotations

import logging
import os
import shlex
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from sluice.errors import BatchFailedError
from sluice.spark.launch_profile import usable_profile
from sluice.spark.numpy_values import spare_numpy
from sluice.spark.settings_file import launch_settings, options_argument, settings_path

logger = logging.getLogger(__name__)

_DEFAULT_MEMORY = "1g"
_SHELL = "pyspark-shell"
"""What spark-submit calls a JVM that a Python drives."""
_POLL_SECONDS = 0.02
_END_SECONDS = 20
"""How long a JVM may take to end by itself."""
_IGNORING_INTERRUPTS = ("sh", "-c", "trap '' INT; exec \"$@\"", "sh")
"""Ctrl-C is for Python, which ends the run in good order."""


@dataclass(frozen=True)
class Gateway:
    """Where a JVM listens to Python."""

    process: subprocess.Popen[bytes]
    port: int
    secret: str = field(repr=False)


def start_jvm(conf: Mapping[str, str]) -> None:
    """Start the JVM of this process, for pyspark to find; does nothing where there is one.

    Args:
        conf: Every setting of the session, its master included.

    Raises:
        BatchFailedError: It could not be started.
    """
    from pyspark import SparkContext

    if SparkContext._gateway is None:
        attach(_launch_with_profile(conf) or _launch_with_launcher(conf))


def launch_jvm(command: Sequence[str], *, inherited: Sequence[int] = (), log: IO[bytes] | None = None) -> Gateway:
    """Start a JVM with Spark's gateway for Python, and wait until it tells where it listens.

    It ends when this process does: its standard input is a pipe from here.

    Args:
        command: What starts it.
        inherited: Descriptors that it is to have.
        log: Where its output goes; where this process's goes, if not given.

    Raises:
        BatchFailedError: It ended before it could tell.
    """
    from pyspark.serializers import UTF8Deserializer, read_int

    with tempfile.TemporaryDirectory(prefix="sluice-jvm-") as folder:
        told = Path(folder, "gateway")
        environment = {
            **os.environ,
            "_PYSPARK_DRIVER_CONN_INFO_PATH": str(told),
            "SPARK_CONNECT_MODE": "0",
            "PYTHONHASHSEED": "0",
        }
        try:
            process = subprocess.Popen(
                [*_IGNORING_INTERRUPTS, *command],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=environment,
                pass_fds=inherited,
            )
        except OSError as exc:
            raise _not_started(f"{exc.filename}: {exc.strerror}") from exc
        while not told.exists():
            if process.poll() is not None:
                raise _not_started(f"its JVM ended with exit code {process.returncode}")
            time.sleep(_POLL_SECONDS)
        with told.open("rb") as file:
            return Gateway(process, read_int(file), UTF8Deserializer().loads(file))


def attach(gateway: Gateway) -> None:
    """Let pyspark use a JVM that is there."""
    from pyspark import SparkContext
    from pyspark.java_gateway import launch_gateway

    spare_numpy()
    # In pyspark's own words, for as long as it takes: what stays in the environment would say who started this process.
    words = {"PYSPARK_GATEWAY_PORT": str(gateway.port), "PYSPARK_GATEWAY_SECRET": gateway.secret}
    os.environ.update(words)
    try:
        attached = launch_gateway()
    finally:
        for word in words:
            del os.environ[word]
    attached.proc = gateway.process
    SparkContext._ensure_initialized(gateway=attached)


def is_gone(session: Any) -> bool:
    """Whether the Spark of a session of this process has ended: its JVM, or what somebody has stopped."""
    from py4j.protocol import Py4JError

    context: Any = session.sparkContext
    process = getattr(getattr(context, "_gateway", None), "proc", None)
    if context._jsc is None or (process is not None and process.poll() is not None):
        return True
    try:
        return bool(context._jsc.sc().isStopped())
    except (Py4JError, OSError):
        return True


def end_jvm() -> None:
    """End the JVM of this process, which may be gone already, so that another one can be started."""
    from py4j.protocol import Py4JError
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    gateway, context = SparkContext._gateway, SparkContext._active_spark_context
    try:
        if context is not None:
            context.stop()
        if gateway is not None:
            gateway.shutdown()
    except (Py4JError, OSError):
        logger.debug("Spark is gone already", exc_info=True)
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = SparkSession._activeSession = None
    process = getattr(gateway, "proc", None)
    if process is not None:
        process.stdin.close()
        try:
            process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _launch_with_profile(conf: Mapping[str, str]) -> Gateway | None:
    """Start the JVM with the launch profile; None when there is none that is right, or the JVM does not take it."""
    profile = usable_profile(conf)
    if profile is None:
        return None
    memory = f"-Xmx{conf.get('spark.driver.memory', _DEFAULT_MEMORY)}"
    try:
        with launch_settings(conf) as (settings, options):
            arguments = ["--properties-file", settings_path(settings), _SHELL]
            command = profile.command([memory, options_argument(options)], arguments)
            return launch_jvm(command, inherited=[settings, options])
    except BatchFailedError as exc:
        logger.warning("Spark is started without its launch profile: %s", exc.problem)
        return None


def _launch_with_launcher(conf: Mapping[str, str]) -> Gateway:
    """Start the JVM as pyspark does, by Spark's launcher; only the settings take another way."""
    from pyspark.find_spark_home import _find_spark_home

    submit = os.path.join(_find_spark_home(), "bin", "spark-submit")
    with launch_settings(conf) as inherited:
        given = shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", _SHELL))
        command = [submit, "--properties-file", settings_path(inherited[0]), "--load-spark-defaults", *given]
        return launch_jvm(command, inherited=inherited)


def _not_started(reason: str) -> BatchFailedError:
    return BatchFailedError(
        f"Spark could not be started: {reason}", remedy="check that Java 17 is installed, and the settings in [spark]"
    )
