"""The jars that Spark needs beside its own: pinned in `jars.toml`, fetched once, shared by every project."""

from __future__ import annotations

import hashlib
import importlib.resources
import os
import stat
import subprocess
import tempfile
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sluice.errors import JarsError
from sluice.spark.java import find_java
from sluice.spark.user_cache import user_cache

_TIMEOUT_SECONDS = 600


@dataclass(frozen=True)
class Jar:
    """One jar of the manifest."""

    group: str
    artifact: str
    version: str
    sha256: str
    size_bytes: int

    @property
    def file_name(self) -> str:
        """The name of its file in the cache."""
        return f"{self.artifact}-{self.version}.jar"

    def path(self) -> Path:
        """Where it is in the cache, whether or not it was fetched."""
        return cache_folder() / self.file_name

    def is_cached(self) -> bool:
        """Whether the cache has it, with the right hash."""
        return self.is_whole() and _sha256(self.path()) == self.sha256

    def is_whole(self) -> bool:
        """Whether the cache has a file of its size: what was cut off, or is empty, is none. To hash it takes longer."""
        try:
            found = self.path().stat()
        except OSError:
            return False
        return stat.S_ISREG(found.st_mode) and found.st_size == self.size_bytes


def cache_folder() -> Path:
    """The cache that all projects share: `$SLUICE_JARS`, else a folder of the user's cache."""
    return user_cache("jars", "SLUICE_JARS")


def manifest() -> tuple[Jar, ...]:
    """Every jar that is pinned."""
    text = importlib.resources.files("sluice").joinpath("jars.toml").read_text("utf-8")
    return tuple(Jar(**entry) for entry in tomllib.loads(text)["jar"])


def class_path() -> list[str]:
    """The paths of the pinned jars, for Spark's class path.

    Raises:
        JarsError: One is not in the cache, or not as a whole.
    """
    missing = [jar.file_name for jar in manifest() if not jar.is_whole()]
    if missing:
        raise JarsError(
            f"jars are missing, or are no whole files: {', '.join(missing)}",
            where=str(cache_folder()),
            remedy="run `sluice jars fetch`",
        )
    return [str(jar.path()) for jar in manifest()]


def fetch() -> Iterator[Jar]:
    """Bring every jar that is missing into the cache; yields each one as it is fetched.

    The Ivy that pyspark ships does it, with a cache of its own and without following dependencies.

    Raises:
        JarsError: A jar could not be fetched, or has another hash than the manifest says.
    """
    cache_folder().mkdir(parents=True, exist_ok=True)
    for jar in manifest():
        if not jar.is_cached():
            _fetch_one(jar)
            yield jar


def _fetch_one(jar: Jar) -> None:
    with tempfile.TemporaryDirectory(dir=cache_folder(), prefix=".fetch-") as folder:
        command = [
            _java(),
            f"-Duser.home={folder}",
            "-jar",
            str(_ivy()),
            *("-cache", f"{folder}/ivy", "-notransitive", "-confs", "default", "-types", "jar"),
            *("-dependency", jar.group, jar.artifact, jar.version),
            *("-retrieve", f"{folder}/[artifact]-[revision].[ext]"),
        ]
        try:
            result = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS, check=False)
        except (OSError, subprocess.TimeoutExpired) as exc:
            raise _not_fetched(jar, str(exc)) from exc
        fetched = Path(folder, jar.file_name)
        if result.returncode != 0 or not fetched.is_file():
            raise _not_fetched(jar, (result.stdout + result.stderr).strip()[-500:])
        if (found := _sha256(fetched)) != jar.sha256:
            raise JarsError(
                f"{jar.file_name} has SHA-256 {found}, the manifest says {jar.sha256}",
                where=f"{jar.group}:{jar.artifact}:{jar.version}",
                remedy="do not use it; check the repository that your machine fetches from",
            )
        os.replace(fetched, jar.path())


def _java() -> str:
    found = find_java()
    if found is None:
        raise JarsError("there is no `java`", where="JAVA_HOME, PATH", remedy="install Java 17")
    return found


def _ivy() -> Path:
    import pyspark

    found = sorted(Path(pyspark.__file__).parent.glob("jars/ivy-*.jar"))
    if not found:
        raise JarsError(
            "pyspark ships no Ivy", where=pyspark.__file__, remedy="install pyspark 4.2.0, not only its client"
        )
    return found[0]


def _not_fetched(jar: Jar, reason: str) -> JarsError:
    return JarsError(
        f"{jar.file_name} could not be fetched: {reason}",
        where=f"{jar.group}:{jar.artifact}:{jar.version}",
        remedy=f"check the network, or put the file into {cache_folder()}",
    )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
