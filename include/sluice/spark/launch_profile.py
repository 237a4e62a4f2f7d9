"""The launch profile: what lets a run start in half the time.

    <folder>/<key>/profile.json    what was built, when, for which Java and which Spark; or why nothing could be
    <folder>/<key>/launch.args     the class path and Spark's own options, as `java @launch.args` takes them
    <folder>/<key>/classes.jsa     the classes that runs load, parsed and linked (Java's class-data sharing)

The key is a hash of the Java and of the jars, so that another Java or another jar never meets an archive that does not
fit; the JVM checks both again. Whatever is wrong with a profile, a run goes on without it, as if there were none.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated

import msgspec

from sluice.documents import Document, read_document
from sluice.errors import LaunchProfileError, RunError, SluiceError
from sluice.spark import jars
from sluice.spark.java import find_java
from sluice.spark.user_cache import user_cache
from sluice.storage import Storage

MAIN_CLASS = "org.apache.spark.deploy.SparkSubmit"
_LAUNCHERS_BUSINESS = (
    "HADOOP_CONF_DIR",
    "PYSPARK_SUBMIT_ARGS",
    "SPARK_CLASSPATH",
    "SPARK_CONF_DIR",
    "SPARK_DIST_CLASSPATH",
    "SPARK_DRIVER_MEMORY",
    "SPARK_MEM",
    "SPARK_PREPEND_CLASSES",
    "SPARK_SUBMIT_OPTS",
    "SPARK_TESTING",
    "YARN_CONF_DIR",
)
"""Variables that only Spark's own launcher knows how to follow."""


class ProfileRecord(Document, frozen=True, kw_only=True):
    """`profile.json`."""

    if_lost = "run `sluice profile build`"
    java: str
    spark_home: str
    built_at: Annotated[datetime, msgspec.Meta(tz=True)]
    archive_bytes: int = 0
    archive_mtime: int = 0
    """In whole seconds: copies, as in images of containers, keep no more of it."""
    failure: str | None = None
    """Why nothing could be built here, which is not tried again by itself."""


@dataclass(frozen=True)
class Installation:
    """The Java and the jars of this environment, which a profile is made for."""

    java: str
    spark_home: str
    class_path: tuple[str, ...]
    """The pinned jars that are in the cache, then Spark's own, in a fixed order: an archive holds for one order."""

    @property
    def key(self) -> str:
        """What tells this Java and these jars from others."""
        found = hashlib.sha256()
        for file in (self.java, *self.class_path):
            details = os.stat(file)
            found.update(f"{file}\0{details.st_size}\0{int(details.st_mtime)}\0".encode())
        # The `java` of two builds may be the same small program.
        with contextlib.suppress(OSError):
            found.update(Path(self.java).parents[1].joinpath("release").read_bytes())
        return found.hexdigest()[:16]


@dataclass(frozen=True)
class LaunchProfile:
    """The place of an installation's profile, whether or not it was built."""

    installation: Installation
    folder: Path

    @property
    def archive(self) -> Path:
        """The archive of classes."""
        return self.folder / "classes.jsa"

    @property
    def arguments(self) -> Path:
        """The class path and Spark's own options."""
        return self.folder / "launch.args"

    @property
    def record_file(self) -> Path:
        """What is known of the profile."""
        return self.folder / "profile.json"

    def record(self) -> ProfileRecord | None:
        """What is known of the profile; None when it was never built.

        Raises:
            LaunchProfileError: Its file is damaged, or somebody else can change it.
        """
        if not self.folder.exists():
            return None
        for file in (self.folder, self.record_file, self.arguments, self.archive):
            _check_owner(file)
        try:
            return read_document(Storage(), str(self.record_file), ProfileRecord)
        except SluiceError as exc:
            raise LaunchProfileError(exc.problem, where=exc.where, remedy="run `sluice profile build`") from exc

    def is_worth_building(self) -> bool:
        """Whether nobody has tried to build it, or what was built is gone or changed."""
        try:
            record = self.record()
            return record is None or (record.failure is None and self.why_unfit() is not None)
        except LaunchProfileError:
            return False

    def why_unfit(self) -> str | None:
        """Why no driver can be started with the profile; None when one can.

        Raises:
            LaunchProfileError: Its files are damaged, or somebody else can change them.
        """
        record = self.record()
        if record is None:
            return "it was not built yet"
        if record.failure is not None:
            return f"it could not be built: {record.failure}"
        try:
            found = self.archive.stat()
        except OSError as exc:
            return f"its archive can't be read: {exc.strerror}"
        if (found.st_size, int(found.st_mtime)) != (record.archive_bytes, record.archive_mtime):
            return "its archive was changed since it was built"
        return None

    def command(self, options: Sequence[str], arguments: Sequence[str]) -> list[str]:
        """The command of Spark's JVM, without the launcher, which is a JVM of its own.

        Args:
            options: Java's options for this run.
            arguments: What `spark-submit` would be called with.
        """
        return [
            self.installation.java,
            f"@{self.arguments}",
            f"-XX:SharedArchiveFile={self.archive}",
            # A third of a second of CPU: with an archive that is damaged, and not known to be, a JVM may do anything.
            "-XX:+VerifySharedSpaces",
            # One that does not fit after all is no news for whoever reads the log of a run.
            *("-Xlog:disable", "-Xlog:all=error:stderr"),
            *options,
            MAIN_CLASS,
            *arguments,
        ]


def profiles_folder() -> Path:
    """Where profiles are kept: `$SLUICE_PROFILES`, else a folder of the user's cache."""
    return user_cache("profiles", "SLUICE_PROFILES")


def current_profile() -> LaunchProfile:
    """The place of this environment's profile.

    Raises:
        LaunchProfileError: There is no Java, or no Spark.
        RunError: There is no home folder.
    """
    from pyspark.find_spark_home import _find_spark_home

    java = find_java()
    if java is None:
        raise LaunchProfileError("there is no `java`", where="JAVA_HOME, PATH", remedy="install Java 17")
    home = str(_find_spark_home())
    spark_jars = sorted(str(jar) for jar in Path(home, "jars").glob("*.jar"))
    # As Spark's launcher does: its own logging comes first.
    spark_jars.sort(key=lambda jar: not os.path.basename(jar).startswith("slf4j-api-"))
    pinned = [str(jar.path()) for jar in jars.manifest() if jar.is_whole()]
    installation = Installation(os.path.realpath(java), home, (*pinned, *spark_jars))
    try:
        return LaunchProfile(installation, profiles_folder() / installation.key)
    except OSError as exc:
        raise LaunchProfileError(
            f"a jar can't be read: {exc.strerror}", where=str(exc.filename), remedy="install pyspark anew"
        ) from exc


def usable_profile(conf: Mapping[str, str]) -> LaunchProfile | None:
    """The profile that a session with these settings is started with; None when there is none that fits.

    Args:
        conf: The settings of the session, with its class path.
    """
    if any(os.environ.get(name) for name in _LAUNCHERS_BUSINESS) or "spark.driver.defaultJavaOptions" in conf:
        return None
    try:
        profile = current_profile()
        return profile if _fits(profile, conf) and profile.why_unfit() is None else None
    except RunError:
        return None


def _fits(profile: LaunchProfile, conf: Mapping[str, str]) -> bool:
    """Whether the class path is the profile's: what would come before it is found first, and voids the archive."""
    installation = profile.installation
    pinned = ":".join(jar for jar in installation.class_path if not jar.startswith(installation.spark_home))
    return (
        conf.get("spark.driver.extraClassPath", pinned) == pinned
        and "spark.driver.extraLibraryPath" not in conf
        and not os.path.exists(os.path.join(installation.spark_home, "conf"))
    )


def _check_owner(file: Path) -> None:
    """Make sure that nobody else can change a file: a JVM runs what an archive says.

    Raises:
        LaunchProfileError: Somebody else can.
    """
    try:
        found = file.stat()
    except OSError:
        return
    if found.st_uid not in {0, os.getuid()} or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise LaunchProfileError(
            "the launch profile could be changed by other users, so it is not used",
            where=str(file),
            remedy="remove it, and run `sluice profile build`",
        )
