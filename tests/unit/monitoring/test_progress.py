"""How far a stream has come: what is read, what is refused, and how little is read while nothing happens."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from sluice.documents import encode_document
from sluice.errors import RefusedError, StorageError
from sluice.home import StreamHome
from sluice.local_disk import FileStat
from sluice.monitoring import progress
from sluice.monitoring.progress import Progress, ProgressReader, read_progress
from sluice.sinks.contract import OutputMode
from sluice.storage import Folder, Storage
from sluice.watermarks import InputWatermark, Watermarks
from tests.builders import NOW_MS, QUERY_ID, commit_bytes, make_checkpoint, put


class CountingStorage(Storage):
    """Counts what is asked of it."""

    def __init__(self) -> None:
        super().__init__()
        self.stats = self.reads = self.lists = 0

    def stat(self, location: str) -> FileStat | None:
        self.stats += 1
        return super().stat(location)

    def read(self, location: str, **options: Any) -> bytes | None:
        self.reads += 1
        return super().read(location, **options)

    def list_folder(self, location: str) -> Folder | None:
        self.lists += 1
        return super().list_folder(location)


@pytest.fixture
def home(tmp_path: Path) -> StreamHome:
    return StreamHome(str(tmp_path / "home" / "visits"), CountingStorage())


def checkpoint(home: StreamHome, generation: int = 1) -> Path:
    return Path(home.checkpoint_location(generation))


def commit(home: StreamHome, batch_id: int, watermark_ms: int = 0, generation: int = 1) -> Path:
    return put(checkpoint(home, generation) / "commits" / str(batch_id), commit_bytes(watermark_ms))


class TestReadProgress:
    def test_a_missing_home_is_a_stream_that_has_not_begun(self, home: StreamHome) -> None:
        """Nothing was committed, and that is no error."""
        assert read_progress(home) == Progress(1)

    def test_the_newest_commit_counts(self, home: StreamHome) -> None:
        """Its id, its watermark, and the checkpoint's query id; sidecars and temporary files do not."""
        make_checkpoint(checkpoint(home), planned=12, committed=11, watermark_ms=NOW_MS)
        put(checkpoint(home) / "commits" / ".11.8d1c.tmp", b"")
        put(checkpoint(home) / "commits" / "notes.txt", b"")

        assert read_progress(home) == Progress(1, QUERY_ID, 10, NOW_MS)

    def test_no_watermark_is_none(self, home: StreamHome) -> None:
        """Spark writes 0 where a query has no watermark, which is not 1970."""
        commit(home, 0)

        assert read_progress(home).watermark_ms is None

    def test_the_live_generation_counts(self, home: StreamHome) -> None:
        """What another one committed is not looked at."""
        commit(home, 7)
        commit(home, 2, generation=3)
        put(Path(home.location, "current.json"), b'{"format": 1, "generation": 3}')

        assert (read_progress(home).generation, read_progress(home).batch_id) == (3, 2)

    def test_a_checkpoint_elsewhere(self, tmp_path: Path) -> None:
        """Any Spark checkpoint can be watched, whoever runs it."""
        make_checkpoint(tmp_path / "theirs", planned=2)
        home = StreamHome(str(tmp_path / "home" / "visits"), Storage(), str(tmp_path / "theirs"))

        assert read_progress(home).batch_id == 1

    @pytest.mark.parametrize(
        ("content", "code"),
        [
            (b"", "FILE_DAMAGED"),
            (b"v1\n{", "FILE_DAMAGED"),
            (b"v9\n{}", "LOG_VERSION_UNKNOWN"),
            (b"\0\xff", "FILE_DAMAGED"),
        ],
    )
    def test_a_damaged_commit_is_refused_by_name(self, home: StreamHome, content: bytes, code: str) -> None:
        """A torn file, and one of a newer Spark, are never taken for a commit."""
        file = commit(home, 0)
        file.write_bytes(content)

        with pytest.raises(RefusedError) as caught:
            read_progress(home)
        assert (caught.value.finding.code, caught.value.finding.file) == (code, str(file))

    def test_a_home_of_a_newer_sluice_is_refused(self, home: StreamHome) -> None:
        """What it says could mean something else by then."""
        put(Path(home.location, "current.json"), encode_document({"format": 99, "generation": 1}))

        with pytest.raises(RefusedError) as caught:
            read_progress(home)
        assert caught.value.finding.code == "DOCUMENT_TOO_NEW"

    @pytest.mark.parametrize("content", [b"", b"[]", b'{"id": 7}', b"\xff"])
    def test_a_damaged_query_id_is_none(self, home: StreamHome, content: bytes) -> None:
        """How far the stream came is known all the same; planning tells of the damage."""
        commit(home, 4)
        put(checkpoint(home) / "metadata", content)

        assert read_progress(home) == Progress(1, None, 4)

    @pytest.mark.parametrize("is_counted", [False, True])
    def test_what_was_measured_overrules_the_log(self, home: StreamHome, *, is_counted: bool) -> None:
        """A batch was read again as another one: rows of an hour that Spark's log calls complete are yet to come."""
        make_checkpoint(checkpoint(home), planned=3, watermark_ms=NOW_MS - 9000)
        commit(home, 2, watermark_ms=NOW_MS)
        clicks = InputWatermark(input="clicks.at", delay_ms=1000, event_ms=NOW_MS - 9000)
        known = Watermarks(query_id=QUERY_ID, measured=1, inputs=(clicks,))
        known = known.publishing(2, {"clicks.at": NOW_MS - 5000})
        if is_counted:
            known = known.after_published(known.published[0])
        home.keep_watermarks(1, known)

        assert read_progress(home) == Progress(1, QUERY_ID, 2, NOW_MS - 6000)

    def test_every_input_counts(self, home: StreamHome) -> None:
        """Spark forgets at every start how far each of several inputs was."""
        make_checkpoint(checkpoint(home), planned=3, watermark_ms=NOW_MS - 9000)
        inputs = tuple(InputWatermark(input=name, delay_ms=0, event_ms=NOW_MS) for name in ("clicks.at", "shows.at"))
        home.keep_watermarks(1, Watermarks(query_id=QUERY_ID, measured=2, inputs=inputs))

        assert read_progress(home).watermark_ms == NOW_MS

    @pytest.mark.parametrize("changes", [{"query_id": "of another"}, {"measured": 7}])
    def test_what_was_measured_elsewhere_does_not_count(self, home: StreamHome, changes: dict[str, Any]) -> None:
        """Of another checkpoint, or of a newer state of this one."""
        make_checkpoint(checkpoint(home), planned=3, watermark_ms=NOW_MS)
        clicks = InputWatermark(input="clicks.at", delay_ms=0, event_ms=NOW_MS + 9000)
        kept = {"query_id": QUERY_ID, "measured": 2, **changes}
        home.keep_watermarks(1, Watermarks(**kept, inputs=(clicks,)))

        assert read_progress(home).watermark_ms == NOW_MS

    @pytest.mark.parametrize(
        ("output_mode", "ran_with", "has_state", "has_passed"),
        [
            ("append", NOW_MS - 1, True, False),
            ("update", NOW_MS - 1, True, False),
            ("append", NOW_MS, True, True),
            ("append", NOW_MS - 1, False, True),
            ("complete", NOW_MS - 1, True, True),
        ],
    )
    def test_what_the_watermark_has_made_due_is_waited_for(
        self, home: StreamHome, output_mode: OutputMode, ran_with: int, *, has_state: bool, has_passed: bool
    ) -> None:
        """The batch that moves the watermark does not have the rows that it closes: the next one brings them."""
        make_checkpoint(checkpoint(home), planned=3, watermark_ms=ran_with)
        commit(home, 2, watermark_ms=NOW_MS)
        if has_state:
            (checkpoint(home) / "state" / "0").mkdir(parents=True)

        seen = read_progress(home, output_mode)
        assert seen.watermark_ms == NOW_MS
        assert (seen.has_passed(NOW_MS), seen.has_passed(ran_with)) == (has_passed, True)
        assert not seen.has_passed(NOW_MS + 1)

    def test_commits_that_vanish_are_an_error_that_passes(self, home: StreamHome) -> None:
        """Somebody deletes the checkpoint while it is read: the next look sees what is there."""
        commit(home, 0)
        (checkpoint(home) / "commits" / "1").symlink_to("nowhere")

        with pytest.raises(StorageError) as caught:
            read_progress(home)
        assert caught.value.retryable


class TestProgressReader:
    def test_three_stats_while_nothing_happens(self, home: StreamHome, monkeypatch: pytest.MonkeyPatch) -> None:
        """Once the folder's time is old enough to be trusted, no file is opened and no folder listed."""
        monkeypatch.setattr(progress, "_QUIET_SECONDS", 0.0)
        make_checkpoint(checkpoint(home))
        reader, storage = ProgressReader(home), home.storage
        first, _ = reader.read(), reader.read()
        storage.stats = storage.reads = storage.lists = 0

        assert reader.read() == first
        assert (storage.stats, storage.reads, storage.lists) == (3, 0, 0)

    def test_every_commit_is_seen(self, home: StreamHome) -> None:
        """Also those that come within one tick of the file system's clock, as most of these do."""
        reader = ProgressReader(home)
        seen = []
        for batch_id in range(5):
            commit(home, batch_id)
            seen += [reader.read().batch_id, reader.read().batch_id]

        assert seen == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]

    def test_a_commit_within_one_tick_of_the_clock_is_seen(self, home: StreamHome) -> None:
        """The folder's time is the same before and after: it is not trusted until it is old."""
        reader = ProgressReader(home)
        folder = commit(home, 0).parent
        os.utime(folder, (1, 1))
        assert reader.read().batch_id == 0
        commit(home, 1)
        os.utime(folder, (1, 1))

        assert reader.read().batch_id == 1

    def test_a_switch_of_generations_is_seen(self, home: StreamHome, monkeypatch: pytest.MonkeyPatch) -> None:
        """The commits of the earlier one do not change any more."""
        monkeypatch.setattr(progress, "_QUIET_SECONDS", 0.0)
        commit(home, 9)
        reader = ProgressReader(home)
        reader.read(), reader.read()
        commit(home, 3, generation=2)
        put(Path(home.location, "current.json"), b'{"format": 1, "generation": 2}')

        assert (reader.read().generation, reader.read().batch_id) == (2, 3)

    def test_object_stores_are_listed_each_time(self, object_storage: Storage) -> None:
        """Their prefixes have no time."""
        home = StreamHome("memory://bucket/home/visits", object_storage)
        reader = ProgressReader(home)
        assert reader.read().batch_id is None
        for batch_id in range(3):
            object_storage.replace(f"{home.checkpoint_location(1)}/commits/{batch_id}", commit_bytes())
            assert reader.read().batch_id == batch_id
