"""Building a launch profile: Spark's own launcher tells how a JVM is started, a training run which classes it loads."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from sluice.documents import encode_document
from sluice.errors import LaunchProfileError, SluiceError
from sluice.lineage.settings import SILENT, using
from sluice.spark.driver_jvm import Gateway, attach, launch_jvm
from sluice.spark.launch_profile import MAIN_CLASS, LaunchProfile, ProfileRecord, current_profile, profiles_folder
from sluice.storage import Storage
from sluice.typed_json import decode_as

_LAUNCHER_SECONDS = 60
_ARCHIVE_SECONDS = 300
_REMEDY = "use an OpenJDK 17 with class-data sharing, or do without: runs go on all the same"
_SCALA = "2.13"
"""What Spark's `load-spark-env.sh` tells the launcher."""
_OF_THIS_MACHINE = ("SLUICE_JARS", "SLUICE_PROFILES")
_OF_OTHER_RUNS = ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET", "SPARK_REMOTE")
_GENTLE = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


def build_profile(train: Callable[[], None]) -> LaunchProfile:
    """Build the profile of this environment, in place of one that is there.

    Args:
        train: Runs what is worth being remembered, on the JVM that pyspark finds in this process, and ends its session.

    Raises:
        LaunchProfileError: It could not be built; unless the disk is at fault, that is noted, and not tried again by
            itself.
    """
    _forget_surroundings()
    profile = current_profile()
    try:
        with _building(profile) as folder:
            _build(profile, folder, train)
    except OSError as exc:
        raise LaunchProfileError(
            f"the launch profile can't be written: {exc.strerror}",
            where=str(exc.filename or profile.folder),
            remedy="free some space (200 MB), or set SLUICE_PROFILES to another folder",
        ) from exc
    return profile


def build_in_background() -> None:
    """Let another process build the profile of this environment, if there is none; never raises."""
    with contextlib.suppress(SluiceError, OSError):
        profile = current_profile()
        if profile.is_worth_building():
            subprocess.Popen(
                # Whatever else runs on the machine comes first.
                ["nice", "-n", "19", sys.executable, "-m", "sluice", "profile", "build"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )


@contextlib.contextmanager
def _building(profile: LaunchProfile) -> Iterator[Path]:
    """A folder to build in, for one process at a time; a failure is noted.

    Raises:
        LaunchProfileError: Another process builds the same profile.
    """
    profile.folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    with profile.folder.joinpath("build.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as exc:
            raise LaunchProfileError(
                "the launch profile is being built by another process", where=str(profile.folder), remedy="wait for it"
            ) from exc
        with tempfile.TemporaryDirectory(dir=profile.folder, prefix=".build-") as folder:
            try:
                yield Path(folder)
            except SluiceError as exc:
                if profile.why_unfit() is not None:
                    _keep(profile, failure=exc.problem)
                raise LaunchProfileError(exc.problem, where=exc.where, remedy=exc.remedy) from exc


def _forget_surroundings() -> None:
    """Let the training run on nothing but its own project: whoever starts a build may have been told of another one.

    A home, a master or a JVM in the environment would be taken for the training's.
    """
    for name in list(os.environ):
        if name in _OF_OTHER_RUNS or (name.startswith("SLUICE_") and name not in _OF_THIS_MACHINE):
            del os.environ[name]


def _build(profile: LaunchProfile, folder: Path, train: Callable[[], None]) -> None:
    installation = profile.installation
    arguments, archive = folder / profile.arguments.name, folder / profile.archive.name
    class_path = ["-cp", ":".join(installation.class_path)]
    arguments.write_text("\n".join(map(_quoted, [*class_path, *_spark_options(profile)])) + "\n", "utf-8")
    java = [installation.java, f"@{arguments}"]
    with (folder / "training.log").open("w+b") as log:
        gateway = launch_jvm(
            [*java, *_GENTLE, f"-XX:ArchiveClassesAtExit={archive}", MAIN_CLASS, "pyspark-shell"], log=log
        )
        attach(gateway)
        with using(SILENT):
            train()
        _end(gateway)
        if not archive.exists():
            log.seek(0)
            told = log.read().decode("utf-8", "replace").strip()[-500:]
            raise LaunchProfileError(f"the JVM wrote no archive: {told}", where=installation.java, remedy=_REMEDY)
    _prove([*java, f"-XX:SharedArchiveFile={archive}", "-Xshare:on", "-XX:+VerifySharedSpaces", "-version"])
    archive.chmod(0o644)
    for made, kept in ((arguments, profile.arguments), (archive, profile.archive)):
        _sync(made)
        os.replace(made, kept)
    _keep(profile)
    _remove_orphans(profile)


def _spark_options(profile: LaunchProfile) -> list[str]:
    """What Spark's launcher tells a JVM of its own accord."""
    java, home = profile.installation.java, profile.installation.spark_home
    command = [java, "-cp", f"{home}/jars/*", "org.apache.spark.launcher.Main", MAIN_CLASS, "pyspark-shell"]
    told = _run(command, {**os.environ, "SPARK_HOME": home, "SPARK_SCALA_VERSION": _SCALA})
    words = told.strip("\0\n").split("\0")
    try:
        return [word for word in words[words.index("-cp") + 2 : words.index(MAIN_CLASS)] if not word.startswith("-Xm")]
    except ValueError as exc:
        raise LaunchProfileError(f"Spark's launcher says {told[-200:]!r}", where=home) from exc


def _prove(command: Sequence[str]) -> None:
    """Make sure that a JVM takes the archive, whole."""
    _run(command, dict(os.environ))


def _run(command: Sequence[str], environment: dict[str, str]) -> str:
    try:
        done = subprocess.run(
            list(command), env=environment, capture_output=True, text=True, timeout=_LAUNCHER_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as exc:
        raise LaunchProfileError(f"a JVM did not end in {_LAUNCHER_SECONDS} s", where=command[0]) from exc
    if done.returncode != 0:
        raise LaunchProfileError(
            f"a JVM ended with exit code {done.returncode}: {(done.stdout + done.stderr).strip()[-500:]}",
            where=command[0],
            remedy=_REMEDY,
        )
    return done.stdout


def _end(gateway: Gateway) -> None:
    """End the JVM, which writes its archive then."""
    from pyspark import SparkContext

    context_gateway = SparkContext._gateway
    if context_gateway is not None:
        context_gateway.shutdown()
    SparkContext._gateway = SparkContext._jvm = None
    if gateway.process.stdin is not None:
        gateway.process.stdin.close()
    try:
        gateway.process.wait(_ARCHIVE_SECONDS)
    except subprocess.TimeoutExpired as exc:
        gateway.process.kill()
        raise LaunchProfileError(f"the JVM wrote no archive in {_ARCHIVE_SECONDS} s") from exc


def _keep(profile: LaunchProfile, *, failure: str | None = None) -> None:
    """Write down what came of a build, once its files are in their place."""
    found = None if failure else profile.archive.stat()
    record = ProfileRecord(
        java=profile.installation.java,
        spark_home=profile.installation.spark_home,
        built_at=datetime.now(UTC),
        archive_bytes=found.st_size if found else 0,
        archive_mtime=int(found.st_mtime) if found else 0,
        failure=failure,
    )
    Storage().replace(str(profile.record_file), encode_document(record))
    # An image builds it as root, and its drivers run as somebody else.
    profile.record_file.chmod(0o644)


def _remove_orphans(built: LaunchProfile) -> None:
    """Remove the profiles of Sparks and Javas that are gone, or that this Spark had with other jars: 200 MB each."""
    for file in profiles_folder().glob("*/profile.json"):
        with contextlib.suppress(OSError, msgspec.DecodeError):
            known = decode_as(file.read_bytes(), ProfileRecord)
            is_replaced = known.spark_home == built.installation.spark_home and file != built.record_file
            if is_replaced or not (os.path.exists(known.java) and os.path.exists(known.spark_home)):
                shutil.rmtree(file.parent)


def _sync(file: Path) -> None:
    with file.open("rb") as opened:
        os.fsync(opened.fileno())


def _quoted(word: str) -> str:
    """A word as `java @file` reads it."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
