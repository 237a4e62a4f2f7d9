"""The jars that Spark needs beside its own: pinned in `jars.toml`, fetched once, shared by every project."""

from __future__ import annotations

import hashlib
import importlib.resources
import os
import stat
import subprocess
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as ET

from sluice.errors import JarsError
from sluice.spark.java import find_java
from sluice.spark.user_cache import user_cache

_TIMEOUT_SECONDS = 1800


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
        """The name of its file in a cache."""
        return f"{self.artifact}-{self.version}.jar"

    @property
    def coordinates(self) -> str:
        """What a repository knows it by."""
        return f"{self.group}:{self.artifact}:{self.version}"

    def path(self) -> Path:
        """Where it is in the cache, whether or not it was fetched."""
        return cache_folder() / self.file_name

    def is_cached(self) -> bool:
        """Whether the cache has it, with the right hash."""
        return self.is_in(cache_folder())

    def is_whole(self) -> bool:
        """Whether the cache has a file of its size: what was cut off, or is empty, is none. To hash it takes longer."""
        return self._has_size_of(self.path())

    def is_in(self, folder: Path) -> bool:
        """Whether a folder has it, with the right hash."""
        file = folder / self.file_name
        return self._has_size_of(file) and _sha256(file) == self.sha256

    def _has_size_of(self, file: Path) -> bool:
        try:
            found = file.stat()
        except OSError:
            return False
        return stat.S_ISREG(found.st_mode) and found.st_size == self.size_bytes


def cache_folder() -> Path:
    """The cache that all projects share: `$SLUICE_JARS`, else a folder of the user's cache."""
    return user_cache("jars", "SLUICE_JARS")


def manifest() -> tuple[Jar, ...]:
    """Every jar that is pinned."""
    return read_manifest(importlib.resources.files("sluice").joinpath("jars.toml").read_text("utf-8"))


def read_manifest(text: str) -> tuple[Jar, ...]:
    """The jars that a text in the form of `jars.toml` pins."""
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
    """Bring every jar that is missing into the cache; yields each one as it is put there.

    Raises:
        JarsError: A jar could not be fetched, or has another hash than the manifest says.
    """
    yield from fetch_into(cache_folder(), manifest())


def fetch_into(folder: Path, pinned: Sequence[Jar]) -> Iterator[Jar]:
    """Bring those of some pinned jars into a folder that are missing there; yields each one as it is put there.

    The Ivy that pyspark ships does it, in one call, with a cache of its own and without following dependencies.

    Raises:
        JarsError: A jar could not be fetched, or has another hash than its pin.
    """
    folder.mkdir(parents=True, exist_ok=True)
    missing = [jar for jar in pinned if not jar.is_in(folder)]
    if not missing:
        return
    with tempfile.TemporaryDirectory(dir=folder, prefix=".fetch-") as aside:
        _retrieve(missing, Path(aside), folder)
        for jar in missing:
            fetched = Path(aside, jar.file_name)
            if (found := _sha256(fetched)) != jar.sha256:
                raise JarsError(
                    f"{jar.file_name} has SHA-256 {found}, the manifest says {jar.sha256}",
                    where=jar.coordinates,
                    remedy="do not use it; check the repository that your machine fetches from",
                )
            os.replace(fetched, folder / jar.file_name)
            yield jar


def _retrieve(missing: Sequence[Jar], aside: Path, folder: Path) -> None:
    """Let Ivy put the missing jars of a folder into one beside it."""
    module = aside / "ivy.xml"
    module.write_bytes(_ivy_module(missing))
    command = [
        _java(),
        f"-Duser.home={aside}",
        "-jar",
        str(_ivy()),
        *("-ivy", str(module), "-cache", f"{aside}/ivy", "-confs", "default"),
        *("-retrieve", f"{aside}/[artifact]-[revision].[ext]"),
    ]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise _not_fetched(missing, folder, str(exc)) from exc
    # It copies none as long as it lacks one.
    absent = [jar for jar in missing if not Path(aside, jar.file_name).is_file()]
    if result.returncode != 0 or absent:
        raise _not_fetched(absent or missing, folder, (result.stdout + result.stderr).strip()[-500:])


def _ivy_module(jars: Sequence[Jar]) -> bytes:
    """What Ivy is to resolve: of each artifact its jar, whatever its POM calls it, and nothing that it depends on."""
    module = ET.Element("ivy-module", version="2.0")
    ET.SubElement(module, "info", organisation="sluice", module="jars")
    ET.SubElement(ET.SubElement(module, "configurations"), "conf", name="default")
    dependencies = ET.SubElement(module, "dependencies")
    for jar in jars:
        coordinates = {"org": jar.group, "name": jar.artifact, "rev": jar.version}
        dependency = ET.SubElement(dependencies, "dependency", coordinates, transitive="false")
        ET.SubElement(dependency, "artifact", name=jar.artifact, type="jar", ext="jar")
    return ET.tostring(module)


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


def _not_fetched(missing: Sequence[Jar], folder: Path, reason: str) -> JarsError:
    return JarsError(
        f"{', '.join(jar.file_name for jar in missing)} could not be fetched: {reason}",
        where=", ".join(jar.coordinates for jar in missing),
        remedy=f"check the network, or put the files into {folder}",
    )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
