"""The jars: pinned, cached, checked by hash. A program in place of Java stands for the network."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from xml.etree import ElementTree as ET

import pyspark
import pytest

from sluice.errors import JarsError
from sluice.spark import jars
from sluice.spark.jars import Jar

CONTENT = b"a jar"
SHA256 = hashlib.sha256(CONTENT).hexdigest()
PINNED = (
    Jar("io.delta", "delta-core", "1.0", SHA256, len(CONTENT)),
    Jar("io.delta", "delta-store", "2.0", SHA256, len(CONTENT)),
)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and two jars that are pinned."""
    monkeypatch.setenv("SLUICE_JARS", str(tmp_path / "user" / "cache"))
    monkeypatch.setattr(jars, "manifest", lambda: PINNED)
    return tmp_path / "user" / "cache"


# Of its arguments, `-ivy FILE` says which jars, `-retrieve FOLDER/[artifact]-[revision].[ext]` where they are to be.
FIND = """\
while [ $# -gt 0 ]; do
  case "$1" in -ivy) module="$2";; -retrieve) folder=$(dirname "$2");; esac
  echo "$1" >> "$0.arguments"; shift
done
cat "$module" >> "$0.modules"
names=$(sed 's/<dependency /\\n&/g' "$module" | sed -n 's/.* name="\\([^"]*\\)" rev="\\([^"]*\\)".*/\\1-\\2.jar/p')
"""


def put_java(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """A `java` that runs a shell script; `$names` are the jars' and `$folder` is where they are to be."""
    java = folder / "java_home" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\n{FIND}{script}\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(folder / "java_home"))


def fetching(content: str) -> str:
    """A script that fetches every jar that is asked for, with one content."""
    return f'for name in $names; do printf "{content}" > "$folder/$name"; done'


def asked_for(folder: Path) -> list[dict[str, str]]:
    """What the calls of that `java` were to resolve."""
    modules = (folder / "java_home/bin/java.modules").read_bytes()
    return [entry.attrib for entry in ET.fromstring(b"<all>" + modules + b"</all>").iter("dependency")]


class TestManifest:
    """`jars.toml`."""

    def test_pins(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Every jar has exact coordinates and a hash, and a file name of its own."""
        monkeypatch.undo()
        pinned = jars.manifest()

        assert {jar.group for jar in pinned} == {
            "io.delta",
            "org.apache.commons",
            "org.apache.kafka",
            "org.apache.spark",
        }
        assert all(len(jar.sha256) == 64 and int(jar.sha256, 16) for jar in pinned)
        assert len({jar.file_name for jar in pinned}) == len(pinned) >= 9
        names = {jar.file_name for jar in pinned}
        assert {"delta-spark_4.2_2.13-4.4.0.jar", "spark-sql-kafka-0-10_2.13-4.2.0.jar"} <= names

    def test_fits_spark(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """What Spark itself releases is of the version that is installed."""
        monkeypatch.undo()

        assert {jar.version for jar in jars.manifest() if jar.group == "org.apache.spark"} == {pyspark.__version__}


class TestCache:
    """Where jars are kept."""

    def test_folder(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        """`$SLUICE_JARS` counts, then the user's cache."""
        assert jars.cache_folder() == tmp_path / "user" / "cache"
        monkeypatch.delenv("SLUICE_JARS")
        monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
        assert jars.cache_folder() == Path("/caches/sluice/jars")
        monkeypatch.delenv("XDG_CACHE_HOME")
        monkeypatch.setenv("HOME", "/home/somebody")
        assert jars.cache_folder() == Path("/home/somebody/.cache/sluice/jars")

    def test_is_cached(self, cache: Path) -> None:
        """A jar counts as cached with the right hash only."""
        jar = PINNED[0]
        assert not jar.is_cached()
        cache.mkdir(parents=True)
        for content in (b"", b"half a j"):
            jar.path().write_bytes(content)
            assert not jar.is_cached()
        jar.path().write_bytes(CONTENT)
        assert jar.is_cached()

    def test_class_path(self, cache: Path) -> None:
        """The class path names every jar, and what is missing is told with the command that brings it."""
        cache.mkdir(parents=True)
        PINNED[0].path().write_bytes(CONTENT)
        missing = r"jars are missing, or are no whole files: delta-store-2\.0\.jar .*sluice jars fetch"
        with pytest.raises(JarsError, match=missing):
            jars.class_path()

        for cut in (b"", CONTENT[:-1]):
            PINNED[1].path().write_bytes(cut)
            with pytest.raises(JarsError, match=missing):
                jars.class_path()
        PINNED[1].path().write_bytes(CONTENT)
        assert jars.class_path() == [f"{cache}/delta-core-1.0.jar", f"{cache}/delta-store-2.0.jar"]


class TestFetch:
    """Bringing jars into the cache."""

    def test_fetch(self, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Missing jars are fetched without following dependencies, and nothing else is left in the cache."""
        put_java(tmp_path, monkeypatch, fetching("a jar"))

        assert list(jars.fetch()) == list(PINNED)
        assert sorted(os.listdir(cache)) == ["delta-core-1.0.jar", "delta-store-2.0.jar"]
        arguments = (tmp_path / "java_home/bin/java.arguments").read_text().splitlines()
        assert Path(arguments[arguments.index("-jar") + 1]).name.startswith("ivy-")
        assert asked_for(tmp_path) == [
            {"org": "io.delta", "name": "delta-core", "rev": "1.0", "transitive": "false"},
            {"org": "io.delta", "name": "delta-store", "rev": "2.0", "transitive": "false"},
        ]
        assert arguments.count("-ivy") == 1

    def test_another_folder(self, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Other jars are fetched into a folder of their own."""
        put_java(tmp_path, monkeypatch, fetching("a jar"))

        assert list(jars.fetch_into(tmp_path / "other", PINNED[:1])) == [PINNED[0]]
        assert os.listdir(tmp_path / "other") == ["delta-core-1.0.jar"]
        assert not cache.exists()

    def test_nothing_to_fetch(self, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A full cache needs neither Java nor a network."""
        cache.mkdir(parents=True)
        monkeypatch.setenv("JAVA_HOME", "/nowhere")
        for jar in PINNED:
            jar.path().write_bytes(CONTENT)

        assert list(jars.fetch()) == []

    def test_damaged_jar_is_fetched_again(self, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A jar in the cache with another hash is replaced."""
        put_java(tmp_path, monkeypatch, fetching("a jar"))
        cache.mkdir(parents=True)
        PINNED[0].path().write_bytes(b"half a j")
        PINNED[1].path().write_bytes(CONTENT)

        assert list(jars.fetch()) == [PINNED[0]]
        assert PINNED[0].path().read_bytes() == CONTENT
        assert [entry["name"] for entry in asked_for(tmp_path)] == ["delta-core"]

    def test_wrong_hash(self, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A jar with another hash than the manifest's never enters the cache."""
        put_java(tmp_path, monkeypatch, fetching("evil"))

        with pytest.raises(JarsError, match="the manifest says") as caught:
            list(jars.fetch())

        assert caught.value.where == "io.delta:delta-core:1.0"
        assert hashlib.sha256(b"evil").hexdigest() in caught.value.problem
        assert os.listdir(cache) == []

    @pytest.mark.parametrize("script", ['echo "no route to host" >&2; exit 1', 'echo "no route to host"'])
    def test_not_fetched(self, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
        """A failure, or a success without a jar, has Ivy's last words and leaves nothing behind."""
        put_java(tmp_path, monkeypatch, script)

        with pytest.raises(JarsError, match="no route to host") as caught:
            list(jars.fetch())

        assert caught.value.where == "io.delta:delta-core:1.0, io.delta:delta-store:2.0"
        assert caught.value.retryable
        assert os.listdir(cache) == []

    def test_not_all_fetched(self, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A jar that did not come is the one that is named."""
        put_java(tmp_path, monkeypatch, 'printf "a jar" > "$folder/delta-core-1.0.jar"')

        with pytest.raises(JarsError, match=r"^delta-store-2\.0\.jar could not be fetched") as caught:
            list(jars.fetch())

        assert caught.value.where == "io.delta:delta-store:2.0"
        assert os.listdir(cache) == []

    def test_hanging_java(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A fetch that does not end is ended."""
        monkeypatch.setattr(jars, "_TIMEOUT_SECONDS", 0.2)
        put_java(tmp_path, monkeypatch, "exec sleep 600")

        with pytest.raises(JarsError, match="timed out"):
            list(jars.fetch())

    def test_java_on_the_path(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Without JAVA_HOME the Java of the path is taken."""
        put_java(tmp_path, monkeypatch, fetching("a jar"))
        monkeypatch.delenv("JAVA_HOME")
        monkeypatch.setenv("PATH", f"{tmp_path}/java_home/bin:{os.environ['PATH']}")

        assert list(jars.fetch()) == list(PINNED)

    def test_no_ivy(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The client alone, without Spark's jars, can't fetch; the message says what to install."""
        put_java(tmp_path, monkeypatch, "exit 0")
        monkeypatch.setattr(pyspark, "__file__", str(tmp_path / "__init__.py"))

        with pytest.raises(JarsError, match="ships no Ivy"):
            list(jars.fetch())

    def test_no_java(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Without Java the message says what to install."""
        monkeypatch.setenv("JAVA_HOME", "/nowhere")

        with pytest.raises(JarsError, match="there is no `java`"):
            list(jars.fetch())
