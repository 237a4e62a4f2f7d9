"""Launch profiles: which one is whose, and when none is used."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sluice.documents import encode_document
from sluice.errors import LaunchProfileError, RunError
from sluice.spark.launch_profile import (
    LaunchProfile,
    ProfileRecord,
    current_profile,
    profiles_folder,
    usable_profile,
)


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Java, and a Spark with two jars; no profile yet."""
    java, spark = tmp_path / "jdk" / "bin" / "java", tmp_path / "spark"
    for file in (java, spark / "bin" / "spark-submit", spark / "jars" / "a.jar", spark / "jars" / "slf4j-api-2.jar"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch(0o755)
    for variable in ("HADOOP_CONF_DIR", "PYSPARK_SUBMIT_ARGS", "SPARK_CONF_DIR", "SPARK_SUBMIT_OPTS"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("JAVA_HOME", str(java.parents[1]))
    monkeypatch.setenv("SPARK_HOME", str(spark))
    monkeypatch.setenv("SLUICE_JARS", str(tmp_path / "jars"))
    monkeypatch.setenv("SLUICE_PROFILES", str(tmp_path / "profiles"))
    return java


@pytest.fixture
def built(java: Path) -> LaunchProfile:
    """A profile as a build leaves it, as far as anybody looks before Java does."""
    profile = current_profile()
    profile.folder.mkdir(parents=True)
    profile.arguments.write_text("-cp x\n")
    profile.archive.write_bytes(b"classes")
    keep(profile)
    return profile


def keep(profile: LaunchProfile, failure: str | None = None) -> None:
    found = profile.archive.stat()
    record = ProfileRecord(
        java=profile.installation.java,
        spark_home=profile.installation.spark_home,
        built_at=datetime.now(UTC),
        archive_bytes=found.st_size,
        archive_mtime=int(found.st_mtime),
        failure=failure,
    )
    profile.record_file.write_bytes(encode_document(record))


class TestWhose:
    """Each Java and each set of jars has its own."""

    def test_spark_logging_comes_first(self, java: Path) -> None:
        """As Spark's launcher has it; the rest in a fixed order."""
        jars = [os.path.basename(jar) for jar in current_profile().installation.class_path]
        assert jars == ["slf4j-api-2.jar", "a.jar"]

    @pytest.mark.parametrize("changed", ["spark/jars/a.jar", "spark/jars/b.jar", "jdk/bin/java", "jdk/release"])
    def test_what_changes_the_key(self, changed: str, java: Path) -> None:
        """Another jar, or another Java, has another profile."""
        before = current_profile().folder
        java.parents[2].joinpath(changed).write_text("changed")
        assert current_profile().folder != before

    def test_where(self, java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """In the user's cache, unless said otherwise."""
        monkeypatch.delenv("SLUICE_PROFILES")
        monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
        assert profiles_folder() == Path("/cache/sluice/profiles")

    def test_no_home(self, java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """As under a number without a name, in a container: runs go on without."""
        for variable in ("SLUICE_PROFILES", "XDG_CACHE_HOME", "HOME"):
            monkeypatch.delenv(variable, raising=False)
        monkeypatch.setattr(os, "getuid", lambda: 4242424)
        with pytest.raises(RunError, match="set HOME, or SLUICE_PROFILES"):
            current_profile()
        assert usable_profile({}) is None

    def test_no_java(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """That is said, by whoever asks for the profile; a run says it itself."""
        monkeypatch.setenv("JAVA_HOME", str(tmp_path))
        with pytest.raises(LaunchProfileError, match="install Java 17"):
            current_profile()
        assert usable_profile({}) is None


class TestUse:
    """Whether a session is started with it."""

    def test_one_that_was_built(self, built: LaunchProfile) -> None:
        """It is taken, and its JVM has no launcher."""
        profile = usable_profile({"spark.master": "local[2]"})
        assert profile == built
        command = profile.command(["-Xmx1g"], ["pyspark-shell"])
        assert command[0] == built.installation.java
        assert command[-3:] == ["-Xmx1g", "org.apache.spark.deploy.SparkSubmit", "pyspark-shell"]

    def test_one_that_was_never_built(self, java: Path) -> None:
        """It is worth building."""
        assert usable_profile({}) is None
        assert current_profile().is_worth_building()

    @pytest.mark.parametrize(
        "conf",
        [
            {"spark.driver.extraClassPath": "/other.jar"},
            {"spark.driver.extraLibraryPath": "/native"},
            {"spark.driver.defaultJavaOptions": "-ea"},
        ],
    )
    def test_settings_that_only_the_launcher_follows(self, conf: Mapping[str, str], built: LaunchProfile) -> None:
        """They are left to it."""
        assert usable_profile(conf) is None

    @pytest.mark.parametrize("variable", ["SPARK_CONF_DIR", "HADOOP_CONF_DIR", "SPARK_SUBMIT_OPTS"])
    def test_variables_that_only_the_launcher_follows(
        self, variable: str, built: LaunchProfile, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """So are they."""
        monkeypatch.setenv(variable, "x")
        assert usable_profile({}) is None

    def test_a_folder_of_settings(self, built: LaunchProfile) -> None:
        """Spark's launcher puts it onto the class path."""
        Path(built.installation.spark_home, "conf").mkdir()
        assert usable_profile({}) is None

    @pytest.mark.parametrize("damage", ["short", "longer ago", "gone"])
    def test_a_changed_archive(self, damage: str, built: LaunchProfile) -> None:
        """It is not used, and is built anew."""
        if damage == "short":
            built.archive.write_bytes(b"")
        elif damage == "longer ago":
            os.utime(built.archive, (1, 1))
        else:
            built.archive.unlink()
        assert usable_profile({}) is None
        assert built.is_worth_building()

    def test_a_build_that_failed(self, built: LaunchProfile) -> None:
        """It is not tried again by itself, and its reason is told."""
        keep(built, failure="this Java shares no classes")
        assert usable_profile({}) is None
        assert not built.is_worth_building()
        assert built.why_unfit() == "it could not be built: this Java shares no classes"

    @pytest.mark.parametrize("content", [b"", b"{}", b"[" * 100_000, b'{"format": 99}', b"\xff"])
    def test_a_damaged_record(self, content: bytes, built: LaunchProfile) -> None:
        """It is as if there were no profile."""
        built.record_file.write_bytes(content)
        assert usable_profile({}) is None

    @pytest.mark.parametrize("file", ["folder", "archive", "arguments", "record_file"])
    def test_files_that_others_can_write(self, file: str, built: LaunchProfile) -> None:
        """A JVM runs what an archive says: nobody else may have a say in it."""
        getattr(built, file).chmod(0o777)
        assert usable_profile({}) is None
        assert not built.is_worth_building()

    def test_files_of_somebody_else(self, built: LaunchProfile, monkeypatch: pytest.MonkeyPatch) -> None:
        """Nor are theirs used; those of root are, as in an image."""
        owner = built.archive.stat().st_uid
        monkeypatch.setattr(os, "getuid", lambda: owner + 1)
        assert (usable_profile({}) is None) == (owner != 0)
