"""Runs commands of Sluice as a user does, each a process of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class Drivers:
    """What runs commands in the folder of a project.

    Args:
        project: The folder; what the commands print is kept in it.
    """

    def __init__(self, project: Path) -> None:
        self._project = project
        self.log = project / "drivers.log"

    def run(self, *words: str) -> None:
        """Run a command to its end.

        Raises:
            RuntimeError: It has failed.
        """
        with self.started(*words) as driver:
            if driver.wait() != 0:
                raise RuntimeError(f"`sluice {' '.join(words)}` ended with {driver.returncode}; see {self.log}")

    @contextmanager
    def started(self, *words: str) -> Iterator[subprocess.Popen[bytes]]:
        """A command that runs, and that ends with the context at the latest."""
        with self.log.open("ab") as log:
            driver = subprocess.Popen(
                [sys.executable, "-m", "sluice", *words],
                cwd=self._project,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        try:
            yield driver
        finally:
            if driver.poll() is None:
                driver.terminate()
            driver.wait()
