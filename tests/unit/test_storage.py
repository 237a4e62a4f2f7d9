"""Files by URL: listed, read with a cap, put if absent, replaced atomically and durably."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from obstore.store import MemoryStore

from sluice.delta_log.table import load_table
from sluice.errors import StorageError
from sluice.local_disk import FileStat
from sluice.locations import is_local, join, local_path, spark_location
from sluice.storage import Storage
from tests.builders import NOW_MS, put
from tests.fuzzing import short
from tests.unit.conftest import BUCKET

Write = Callable[[Storage, str, bytes], object]
WRITES = pytest.mark.parametrize("write", [Storage.put_if_absent, Storage.replace], ids=["put_if_absent", "replace"])


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths that are fsynced, in order; each is really fsynced, too."""
    paths: list[str] = []
    fsync = os.fsync

    def recorded(descriptor: int) -> None:
        paths.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", recorded)
    return paths


def no_space(*_args: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def size_and_time(found: FileStat | None) -> tuple[int, int] | None:
    return None if found is None else (found.size_bytes, found.mtime_ms)


class TestLocal:
    """A local disk."""

    def test_put_if_absent(self, tmp_path: Path, storage: Storage) -> None:
        """The first writer creates the file with the folders above it."""
        assert storage.put_if_absent(f"{tmp_path}/a/b/1.json", b"one") is True
        assert (tmp_path / "a/b/1.json").read_bytes() == b"one"

    def test_put_if_absent_leaves_what_is_there(self, tmp_path: Path, storage: Storage) -> None:
        """The second writer is told, and the file stays the first one's."""
        storage.put_if_absent(f"{tmp_path}/1.json", b"one")

        assert storage.put_if_absent(f"{tmp_path}/1.json", b"two") is False
        assert (tmp_path / "1.json").read_bytes() == b"one"
        assert os.listdir(tmp_path) == ["1.json"]

    def test_put_if_absent_has_one_winner(self, tmp_path: Path, storage: Storage) -> None:
        """Of eight writers at once exactly one is told that the file is its own, and it is."""
        start = threading.Barrier(8)
        won: list[bytes] = []

        def compete(content: bytes) -> None:
            start.wait()
            if storage.put_if_absent(f"{tmp_path}/1.json", content):
                won.append(content)

        threads = [threading.Thread(target=compete, args=(b"%d" % number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert won == [(tmp_path / "1.json").read_bytes()]

    def test_replace(self, tmp_path: Path, storage: Storage) -> None:
        """A file gets new content, or is created."""
        storage.replace(f"{tmp_path}/1.json", b"one")
        storage.replace(f"{tmp_path}/1.json", b"two")

        assert (tmp_path / "1.json").read_bytes() == b"two"
        assert os.listdir(tmp_path) == ["1.json"]

    def test_replace_is_atomic(self, tmp_path: Path, storage: Storage) -> None:
        """Whoever has the old file open reads the old content to its end: the new one is another file."""
        file = put(tmp_path / "1.json", b"old content")

        with file.open("rb") as reader:
            storage.replace(str(file), b"new")
            assert reader.read() == b"old content"

    @WRITES
    def test_content_is_durable_before_its_name(
        self, tmp_path: Path, storage: Storage, synced: list[str], write: Write
    ) -> None:
        """The file is fsynced under its temporary name, then its folder."""
        write(storage, f"{tmp_path}/1.json", b"one")

        file, folder = synced
        assert Path(file).name.startswith(".1.json.")
        assert Path(file).parent == tmp_path
        assert folder == str(tmp_path)

    @WRITES
    def test_new_folders_are_durable(self, tmp_path: Path, storage: Storage, synced: list[str], write: Write) -> None:
        """The entry of every new folder is fsynced in the folder above it, before the file is written."""
        write(storage, f"{tmp_path}/a/b/1.json", b"one")

        assert synced[:2] == [str(tmp_path), f"{tmp_path}/a"]
        assert synced[-1] == f"{tmp_path}/a/b"

    @WRITES
    def test_unsynced_file_gets_no_name(
        self, tmp_path: Path, storage: Storage, monkeypatch: pytest.MonkeyPatch, write: Write
    ) -> None:
        """When fsync fails, no file appears and no temporary one is left."""
        monkeypatch.setattr(os, "fsync", no_space)

        with pytest.raises(StorageError) as caught:
            write(storage, f"{tmp_path}/1.json", b"one")

        assert caught.value.problem == "could not write it: No space left on device"
        assert os.listdir(tmp_path) == []

    @pytest.mark.parametrize("step", ["rename", "link"])
    def test_full_disk_leaves_everything_as_it_was(
        self, tmp_path: Path, storage: Storage, monkeypatch: pytest.MonkeyPatch, step: str
    ) -> None:
        """When the last step fails, the old content stays and no temporary file is left."""
        old = put(tmp_path / "old.json", b"old")
        monkeypatch.setattr(os, step, no_space)
        write: Write = Storage.replace if step == "rename" else Storage.put_if_absent
        target = old if step == "rename" else tmp_path / "new.json"

        with pytest.raises(StorageError) as caught:
            write(storage, str(target), b"new")

        assert caught.value.where == str(target)
        assert os.listdir(tmp_path) == ["old.json"]
        assert old.read_bytes() == b"old"

    @WRITES
    def test_file_in_the_way_of_a_folder(self, tmp_path: Path, storage: Storage, write: Write) -> None:
        """A path through a file is an error that names what was to be written."""
        put(tmp_path / "a", b"a file")

        with pytest.raises(StorageError) as caught:
            write(storage, f"{tmp_path}/a/b/1.json", b"one")

        assert caught.value.where == f"{tmp_path}/a/b/1.json"

    def test_replace_of_a_folder_is_refused(self, tmp_path: Path, storage: Storage) -> None:
        """A folder is never replaced by a file."""
        (tmp_path / "1.json").mkdir()

        with pytest.raises(StorageError):
            storage.replace(f"{tmp_path}/1.json", b"one")

        assert os.listdir(tmp_path) == ["1.json"]

    def test_read(self, tmp_path: Path, storage: Storage) -> None:
        """A file is read whole, by path or by `file:` URL; an absent one is None."""
        file = put(tmp_path / "a b.json", b"content")

        assert storage.read(str(file)) == b"content"
        assert storage.read(f"file://{tmp_path}/a%20b.json") == b"content"
        assert storage.read(f"{tmp_path}/absent.json") is None
        assert storage.read(f"{file}/below") is None

    def test_read_cap(self, tmp_path: Path, storage: Storage) -> None:
        """A file of exactly the cap is read, one byte more is not."""
        file = put(tmp_path / "1.json", b"x" * 1000)

        assert storage.read(str(file), max_bytes=1000) == b"x" * 1000
        with pytest.raises(StorageError, match=r"1,000 bytes, more than the 999"):
            storage.read(str(file), max_bytes=999)

    def test_read_of_a_folder(self, tmp_path: Path, storage: Storage) -> None:
        """A folder where a file should be is an error that says so."""
        with pytest.raises(StorageError, match="Is a directory") as caught:
            storage.read(str(tmp_path))

        assert caught.value.where == str(tmp_path)

    def test_stat(self, tmp_path: Path, storage: Storage) -> None:
        """A stat has the size, and the time cut to milliseconds as Java cuts it."""
        file = put(tmp_path / "1.json", b"12345")
        os.utime(file, ns=(0, NOW_MS * 1_000_000 + 999_999))

        assert size_and_time(storage.stat(str(file))) == (5, NOW_MS)
        assert storage.stat(f"file://{file}") == storage.stat(str(file))
        assert storage.stat(f"{tmp_path}/absent") is None
        assert storage.stat(f"{file}/below") is None

    def test_list_folder(self, tmp_path: Path, storage: Storage) -> None:
        """A listing tells files from folders, and stats only what is asked for."""
        put(tmp_path / "a.json", b"12", mtime_ms=NOW_MS)
        put(tmp_path / "d=1" / "b.json")
        os.symlink("d=1", tmp_path / "link")
        folder = storage.list_folder(str(tmp_path))

        assert folder is not None
        assert folder.files == ["a.json"]
        assert sorted(folder.folders) == ["d=1", "link"]
        assert size_and_time(folder.stat("a.json")) == (2, NOW_MS)

    def test_list_absent_folder(self, tmp_path: Path, storage: Storage) -> None:
        """A folder that is not there, or is a file, is None; an empty one is a listing."""
        file = put(tmp_path / "a.json")

        assert storage.list_folder(f"{tmp_path}/absent") is None
        assert storage.list_folder(str(file)) is None
        (tmp_path / "empty").mkdir()
        empty = storage.list_folder(f"{tmp_path}/empty")
        assert empty is not None
        assert (empty.files, empty.folders) == ([], [])

    def test_file_that_goes_after_the_listing(self, tmp_path: Path, storage: Storage) -> None:
        """A file that was deleted since the listing has no stat."""
        file = put(tmp_path / "a.json")
        folder = storage.list_folder(str(tmp_path))
        file.unlink()

        assert folder is not None
        assert folder.stat("a.json") is None

    @pytest.mark.parametrize("target", ["nowhere", "link", "a.json/below", "x" * 300], ids=short)
    def test_link_that_leads_nowhere(self, tmp_path: Path, storage: Storage, target: str) -> None:
        """A broken link is listed as a file without a stat, and hides no other file."""
        put(tmp_path / "a.json", mtime_ms=NOW_MS)
        os.symlink(target, tmp_path / "link")
        folder = storage.list_folder(str(tmp_path))

        assert folder is not None
        assert sorted(folder.files) == ["a.json", "link"]
        assert folder.stat("link") is None
        assert size_and_time(folder.stat("a.json")) == (2, NOW_MS)

    def test_delete(self, tmp_path: Path, storage: Storage) -> None:
        """A file is deleted, and deleting it again is fine."""
        file = put(tmp_path / "1.json")
        storage.delete(str(file))
        storage.delete(str(file))

        assert not file.exists()

    def test_delete_of_a_folder(self, tmp_path: Path, storage: Storage) -> None:
        """A folder is never deleted."""
        with pytest.raises(StorageError, match="delete"):
            storage.delete(str(tmp_path))

        assert tmp_path.is_dir()

    @pytest.mark.parametrize("call", ["read", "stat", "list_folder", "delete"])
    def test_name_that_is_too_long(self, tmp_path: Path, storage: Storage, call: str) -> None:
        """What the system says of a name is an error that names it."""
        with pytest.raises(StorageError, match="File name too long") as caught:
            getattr(storage, call)(f"{tmp_path}/{'x' * 300}")

        assert caught.value.where == f"{tmp_path}/{'x' * 300}"

    @WRITES
    def test_folder_that_somebody_else_makes(
        self, tmp_path: Path, storage: Storage, monkeypatch: pytest.MonkeyPatch, write: Write
    ) -> None:
        """Two writers may make the same folder at the same moment."""
        mkdir = os.mkdir
        monkeypatch.setattr(os, "mkdir", lambda path, mode: (mkdir(path, mode), mkdir(path, mode)))
        write(storage, f"{tmp_path}/a/b/1.json", b"one")

        assert (tmp_path / "a/b/1.json").read_bytes() == b"one"

    @WRITES
    def test_folder_that_can_not_be_made(self, tmp_path: Path, storage: Storage, write: Write) -> None:
        """A folder that can't be made is an error that names what was to be written."""
        with pytest.raises(StorageError, match="could not make the folder of it: File name too long") as caught:
            write(storage, f"{tmp_path}/{'x' * 300}/1.json", b"one")

        assert caught.value.where == f"{tmp_path}/{'x' * 300}/1.json"

    @pytest.mark.parametrize("call", ["read", "stat", "list_folder", "delete"])
    def test_nul_in_a_name(self, storage: Storage, call: str) -> None:
        """A name that the system can't have is a storage error, not a ValueError: names come from files, too."""
        with pytest.raises(StorageError, match="null byte"):
            getattr(storage, call)("file:///data/a%00b")

    @WRITES
    def test_nul_in_a_new_name(self, storage: Storage, tmp_path: Path, write: Write) -> None:
        """Nor can such a file be written."""
        with pytest.raises(StorageError, match="null byte"):
            write(storage, f"{tmp_path}/a\0b", b"")


class TestObjectStore:
    """An object store, here one in memory."""

    def test_put_if_absent(self, object_storage: Storage) -> None:
        """The first writer creates the object, the second is told."""
        assert object_storage.put_if_absent(f"{BUCKET}/home/1.json", b"one") is True
        assert object_storage.put_if_absent(f"{BUCKET}/home/1.json", b"two") is False
        assert object_storage.read(f"{BUCKET}/home/1.json") == b"one"

    def test_replace_and_delete(self, object_storage: Storage) -> None:
        """An object gets new content, and goes; deleting it again is fine."""
        object_storage.replace(f"{BUCKET}/home/1.json", b"one")
        object_storage.replace(f"{BUCKET}/home/1.json", b"two")
        assert object_storage.read(f"{BUCKET}/home/1.json") == b"two"

        object_storage.delete(f"{BUCKET}/home/1.json")
        object_storage.delete(f"{BUCKET}/home/1.json")
        assert object_storage.read(f"{BUCKET}/home/1.json") is None

    def test_read_cap(self, object_storage: Storage) -> None:
        """An object of exactly the cap is read, one byte more is not."""
        object_storage.replace(f"{BUCKET}/1", b"x" * 100)

        assert object_storage.read(f"{BUCKET}/1", max_bytes=100) == b"x" * 100
        with pytest.raises(StorageError, match="100 bytes, more than the 99"):
            object_storage.read(f"{BUCKET}/1", max_bytes=99)

    def test_list_folder(self, object_storage: Storage) -> None:
        """A prefix lists like a folder, with stats that cost nothing more."""
        object_storage.replace(f"{BUCKET}/landing/a.json", b"123")
        object_storage.replace(f"{BUCKET}/landing/d=1/b.json", b"1")
        object_storage.replace(f"{BUCKET}/landing2/c.json", b"1")
        folder = object_storage.list_folder(f"{BUCKET}/landing")

        assert folder is not None
        assert (folder.files, folder.folders) == (["a.json"], ["d=1"])
        found = folder.stat("a.json")
        assert found is not None
        assert (found.size_bytes, found) == (3, object_storage.stat(f"{BUCKET}/landing/a.json"))
        assert folder.stat("absent") is None

    def test_list_absent_prefix(self, object_storage: Storage) -> None:
        """A prefix without objects is no folder; the bucket itself is one."""
        object_storage.replace(f"{BUCKET}/landing/a.json", b"1")
        root = object_storage.list_folder(BUCKET)

        assert object_storage.list_folder(f"{BUCKET}/absent") is None
        assert root is not None
        assert root.folders == ["landing"]

    @pytest.mark.parametrize("name", ["d=a%3Ab", "what#1", "who?", "a b", "ü"])
    def test_keys_are_taken_as_they_are(self, object_storage: Storage, name: str) -> None:
        """A listed folder can be listed again, whatever its name: `%3A` is what Spark writes for `:` in partitions."""
        object_storage.replace(f"{BUCKET}/x/{name}/a.json", b"1")
        top = object_storage.list_folder(f"{BUCKET}/x")

        assert top is not None
        assert top.folders == [name]
        inside = object_storage.list_folder(f"{BUCKET}/x/{name}")
        assert inside is not None
        assert inside.files == ["a.json"]

    def test_stat_by_uri(self, object_storage: Storage) -> None:
        """A URI from one of Spark's logs finds its object."""
        object_storage.replace(f"{BUCKET}/x/d=a%3Ab/a b.json", b"12")
        found = object_storage.stat(f"{BUCKET}/x/d=a%253Ab/a%20b.json")

        assert found is not None
        assert found.size_bytes == 2
        assert object_storage.stat(f"{BUCKET}/x/absent%20b.json") is None

    def test_replace_if(self, object_storage: Storage) -> None:
        """An object is replaced only if it is still the one that was looked at."""
        location, seen = f"{BUCKET}/runs/1.json", []

        def meddle(found: bytes | None) -> bool:
            seen.append(found)
            if len(seen) < 3:
                object_storage.replace(location, b"%d" % len(seen))
            return True

        assert object_storage.replace_if(location, b"mine", meddle)
        assert (seen, object_storage.read(location)) == ([None, b"1", b"2"], b"mine")
        assert not object_storage.replace_if(location, b"yours", lambda found: found != b"mine")
        assert object_storage.read(location) == b"mine"

    def test_buckets_are_told_apart(self, object_storage: Storage) -> None:
        """Every bucket has a store of its own."""
        object_storage._stores["memory://other"] = MemoryStore()
        object_storage.replace("memory://other/1", b"other")

        assert object_storage.read(f"{BUCKET}/1") is None
        assert object_storage.read("memory://other/1") == b"other"

    @pytest.mark.parametrize(
        ("call", "verb"),
        [
            (Storage.read, "read"),
            (Storage.stat, "look at"),
            (Storage.list_folder, "list"),
            (Storage.delete, "delete"),
            (lambda storage, location: storage.put_if_absent(location, b""), "create"),
            (lambda storage, location: storage.replace(location, b""), "write"),
            (lambda storage, location: storage.replace_if(location, b"", lambda _: True), "read"),
        ],
    )
    def test_key_that_the_store_refuses(self, object_storage: Storage, call: Callable[..., object], verb: str) -> None:
        """What a store says is an error of ours, which names the object."""
        with pytest.raises(StorageError, match=f"could not {verb} it") as caught:
            call(object_storage, f"{BUCKET}/a//b")

        assert caught.value.where == f"{BUCKET}/a//b"

    @pytest.mark.parametrize("location", ["gopher://host/a", "http://[half/a", "s3:/one-slash"])
    def test_location_of_no_store(self, storage: Storage, location: str) -> None:
        """A URL that no store has is an error that names it."""
        with pytest.raises(StorageError) as caught:
            storage.read(location)

        assert caught.value.where == location
        assert caught.value.retryable


@pytest.mark.parametrize(
    ("location", "is_on_disk"),
    [("/data/home", True), ("file:///data/home", True), ("data/x:y", True), ("s3://b/home", False), ("gs://b", False)],
)
def test_is_local(location: str, is_on_disk: bool) -> None:  # noqa: FBT001 - a value of the table above
    """Paths and `file:` URLs are local, other schemes are not, and a `:` after a `/` makes no scheme."""
    assert is_local(location) is is_on_disk


@pytest.mark.parametrize(
    ("location", "path"),
    [
        ("/data/a%20b", "/data/a%20b"),
        ("file:///data/a%20b", "/data/a b"),
        ("file:/data/x#y?z", "/data/x#y?z"),
        ("file://host/data", "/data"),
    ],
)
def test_local_path(location: str, path: str) -> None:
    """Only a `file:` URL is decoded."""
    assert local_path(location) == path


def test_join() -> None:
    """Parts are joined by one slash each."""
    assert join("s3://b/home/", "visits", "runs") == "s3://b/home/visits/runs"
    assert join("/", "data") == "/data"


def test_spark_location() -> None:
    """Hadoop's file system for S3 is s3a; all others keep their scheme."""
    assert spark_location("s3://bucket/key") == "s3a://bucket/key"
    assert spark_location("gs://bucket/key") == "gs://bucket/key"
    assert spark_location("/data") == "/data"


def test_what_an_object_store_says_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that refuses is an error with its reason, without the dump that the library adds."""

    class Denied(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = b"<Error><Code>AccessDenied</Code><Message>no</Message></Error>"
            self.send_response(403)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            """Say nothing."""

    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    with HTTPServer(("127.0.0.1", 0), Denied) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        endpoint = f"http://127.0.0.1:{server.server_port}"
        storage = Storage({"endpoint": endpoint, "access_key_id": "k", "secret_access_key": "s", "region": "eu-west-1"})
        with pytest.raises(StorageError) as caught:
            storage.list_folder("s3://bucket/landing")
        server.shutdown()

    assert caught.value.where == "s3://bucket/landing"
    assert "AccessDenied" in caught.value.problem
    assert "\n" not in str(caught.value)
    assert "Debug source" not in str(caught.value)
    assert len(str(caught.value)) < 600


class TestOptionsOfObjectStores:
    """`[storage]`: what obstore does not take is an error of ours, also where its Rust code panics."""

    @pytest.mark.parametrize(
        "options",
        [
            {"allow_http": "maybe"},
            {"timeout": "soon"},
            {"proxy_url": "http://me:c4nary@[bad"},
            {"connect_timeout": "x"},
            {"aws_timeout": "5s"},
            {"AWS_ALLOW_HTTP": "true"},
            {"client_options": "x"},
            {"nonsense": "c4nary"},
            {"secret_access_key": "c4nary", "skip_signature": "perhaps"},
        ],
    )
    @pytest.mark.parametrize("call", ["list_folder", "read", "stat", "delete"])
    def test_wrong_ones(self, options: dict[str, str], call: str) -> None:
        """Every way to use the store gives the same error, without a value that may be secret."""
        with pytest.raises(StorageError, match="could not open it") as caught:
            getattr(Storage(options), call)("s3://bucket/key")
        assert "c4nary" not in str(caught.value)
        assert "\n" not in str(caught.value)

    def test_those_of_the_client(self) -> None:
        """delta-rs takes them beside the store's own, so they stand there; obstore gets them where it wants them."""
        options = {"allow_http": "true", "timeout": "5s", "connect_timeout": "1s", "proxy_url": "http://127.0.0.1:9"}

        storage = Storage({**options, "region": "x", "access_key_id": "a", "secret_access_key": "b"})

        assert storage._object("s3://bucket/key")[1] == "key"

    def test_a_panic_of_delta_rs(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        """A panic is no `Exception`; whoever opens a table gets an error that names it."""
        kind = type("PanicException", (BaseException,), {"__module__": "pyo3_runtime"})

        def panic(*_: Any, **__: Any) -> None:
            raise kind("index out of bounds")

        monkeypatch.setattr("deltalake.DeltaTable", panic)
        with pytest.raises(StorageError, match="can't be read: PanicException: index out of bounds"):
            load_table(str(tmp_path), storage=Storage())
