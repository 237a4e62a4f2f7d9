"""A real Spark Connect server: the one that the pyspark wheel ships, on loopback."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyspark

from sluice.spark import jars
from sluice.spark.java import Work, java_options
from sluice.spark.launch_profile import usable_profile

DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.driver.extraClassPath": ":".join(str(jar.path()) for jar in jars.manifest()),
}
_PATIENCE_SECONDS = 120


@dataclass(frozen=True)
class Server:
    """A server that runs."""

    port: int
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def url(self) -> str:
        return f"sc://127.0.0.1:{self.port}"


@contextmanager
def serving(folder: Path, conf: Mapping[str, str]) -> Iterator[Server]:
    """Run a server until the context ends; its working folder and its log are in `folder`."""
    port = free_port()
    home = Path(pyspark.__file__).parent
    settings = {
        "spark.master": "local[2]",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.log.level": "WARN",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        **conf,
    }
    arguments = [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
    arguments += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    arguments.append(str(home / "jars" / f"spark-connect_2.13-{pyspark.__version__}.jar"))
    profile = usable_profile(settings)
    assert profile is not None, "`make setup` builds it"
    command = profile.command(["-Xmx1g", *java_options("", tasks=2, work=Work(0)).split()], arguments)
    # It knows nothing of the tests' code.
    environment = {key: value for key, value in os.environ.items() if key not in {"PYTHONPATH", "SPARK_REMOTE"}}
    environment |= {"SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable, "LC_ALL": "C.UTF-8"}
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "server.log"
    with log.open("ab") as output:
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        _await(port, process, log)
        yield Server(port, process, log)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def free_port() -> int:
    """A port of loopback that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _await(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        assert process.poll() is None, log.read_text()[-3000:]
        assert time.monotonic() < deadline, log.read_text()[-3000:]
        with socket.socket() as client:
            client.settimeout(1)
            if client.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
