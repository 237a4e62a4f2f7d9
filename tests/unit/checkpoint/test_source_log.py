"""The log of a file source: one JSON line per file, compacted at every tenth id."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.checkpoint import log
from sluice.checkpoint.log import list_log
from sluice.checkpoint.source_log import (
    LogEntry,
    SourceLog,
    encode_source_log,
    log_file_name,
    read_source_entries,
    read_source_log,
)
from sluice.errors import RefusedError, StorageError
from sluice.free_memory import available_bytes
from sluice.storage import Storage
from tests.builders import log_bytes, make_source_log, put
from tests.fuzzing import DEEP, damaged, outcome, short

ENTRIES = [LogEntry(f"file:///in/{log_id:02d}.json", 1000 + log_id, log_id) for log_id in range(40)]


def read(folder: Path) -> SourceLog:
    found = list_log(str(folder), storage=Storage())
    assert found is not None
    return read_source_log(found, storage=Storage())


def clean_up(folder: Path, compact_id: int) -> None:
    """Remove what Spark removes some minutes after a compaction."""
    for file in list(folder.iterdir()):
        if int(file.name.removesuffix(".compact")) < compact_id or file.name == str(compact_id):
            file.unlink()


class TestReading:
    """What a source has taken."""

    @pytest.mark.parametrize("count", [1, 9, 10, 11, 20, 25])
    @pytest.mark.parametrize("is_clean", [False, True])
    def test_every_entry_once(self, tmp_path: Path, count: int, is_clean: bool) -> None:  # noqa: FBT001 - a parameter
        """All entries are read once, in their order, before and after compactions and Spark's clean-up."""
        folder = make_source_log(tmp_path, ENTRIES[:count])
        if is_clean and count >= 10:
            clean_up(folder, count // 10 * 10 - 1)
        log = read(folder)

        assert list(log.entries) == ENTRIES[:count]
        assert log.latest_id == count - 1

    def test_empty(self, tmp_path: Path) -> None:
        """A source that never had data has an empty log."""
        assert read(tmp_path) == SourceLog()

    def test_several_files_in_one_entry(self, tmp_path: Path) -> None:
        """One id may take many files."""
        entries = [LogEntry(f"file:///{name}", 5, 0) for name in "abc"]
        put(tmp_path / "0", log_bytes(entries))

        assert read(tmp_path) == SourceLog(0, entries)

    def test_missing_plain_file(self, tmp_path: Path) -> None:
        """A gap after the newest compaction is refused with the name of the missing file."""
        folder = make_source_log(tmp_path, ENTRIES[:14])
        (folder / "11").unlink()

        with pytest.raises(RefusedError) as caught:
            read(folder)

        assert (caught.value.finding.code, caught.value.finding.file) == ("SOURCE_LOG_GAP", f"{tmp_path}/11")

    @pytest.mark.parametrize(("count", "lost"), [(12, "9.compact"), (23, "19.compact")])
    def test_missing_compacted_file(self, tmp_path: Path, count: int, lost: str) -> None:
        """A lost compaction is named as Spark names it."""
        folder = make_source_log(tmp_path, ENTRIES[:count])
        (folder / lost).unlink()

        with pytest.raises(RefusedError) as caught:
            read(folder)

        assert caught.value.finding.file == f"{tmp_path}/{lost}"

    def test_missing_compacted_file_after_clean_up(self, tmp_path: Path) -> None:
        """The newest missing id is the one to restore: it holds the older ones."""
        folder = make_source_log(tmp_path, ENTRIES[:12])
        clean_up(folder, 9)
        (folder / "9.compact").unlink()

        with pytest.raises(RefusedError) as caught:
            read(folder)

        assert caught.value.finding.file == f"{tmp_path}/9.compact"

    def test_gap_before_the_compaction(self, tmp_path: Path) -> None:
        """What a compacted file holds may be gone in part."""
        folder = make_source_log(tmp_path, ENTRIES[:12])
        (folder / "4").unlink()

        assert list(read(folder).entries) == ENTRIES[:12]

    @pytest.mark.timeout(20)
    @pytest.mark.parametrize("name", ["999999999999999999", "999999999999999998.compact"])
    def test_huge_id(self, tmp_path: Path, name: str) -> None:
        """A stray name with a huge number is refused or read, at once and in little memory."""
        put(tmp_path / "0", log_bytes(ENTRIES[:1]))
        put(tmp_path / name, log_bytes(ENTRIES[:1]))
        found = outcome(lambda: read(tmp_path))

        assert isinstance(found, SourceLog) if name.endswith("compact") else isinstance(found, RefusedError)

    @pytest.mark.parametrize(
        "content",
        [
            b"",
            b"v1",
            b"v1\n\n",
            log_bytes(ENTRIES[:1]).replace(b"v1", b"v2"),
            b"garbage",
            log_bytes(ENTRIES[:1])[:-5],
            b"v1\n{}",
            b'v1\n{"path":"a","timestamp":"1","batchId":0}',
            b'v1\n{"path":null,"timestamp":1,"batchId":0}',
            b'v1\n{"path":"a","timestamp":1}',
            b'v1\n{"path":"\xff","timestamp":1,"batchId":0}',
            b"v1\n[]",
            b"v1\n" + DEEP,
            b'v1\n{"path":"a","timestamp":1,"batchId":0,"x":' + DEEP,
        ],
        ids=short,
    )
    @pytest.mark.parametrize("name", ["2", "9.compact"])
    def test_damage(self, tmp_path: Path, content: bytes, name: str) -> None:
        """A damaged file is refused by name."""
        folder = make_source_log(tmp_path, ENTRIES[: 3 if name == "2" else 12])
        put(folder / name, content)

        with pytest.raises(RefusedError) as caught:
            read(folder)

        assert caught.value.finding.file == f"{tmp_path}/{name}"

    @given(content=damaged(log_bytes(ENTRIES[:3])))
    def test_any_bytes(self, tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
        """Any bytes are entries, or a refusal that names the file."""
        file = put(tmp_path_factory.getbasetemp() / "fuzzed_source_log" / "0", content)
        found = outcome(lambda: read(file.parent))

        assert isinstance(found, SourceLog) or (isinstance(found, RefusedError) and found.where == str(file))


class TestWriting:
    """The file that takes a batch's files."""

    def test_plain_entry(self) -> None:
        """Most ids are a plain file with the batch's own entries."""
        log = SourceLog(7, ENTRIES[:8])

        assert encode_source_log(log, 8, (ENTRIES[8],)) == ("8", log_bytes([ENTRIES[8]]))

    def test_bytes(self) -> None:
        """The bytes are Spark's: three keys in order, no spaces, letters as they are, no newline at the end."""
        entry = LogEntry("file:///in/d=x%253Ay/ü%20é.json", 1_769_860_800_123, 0)

        assert encode_source_log(SourceLog(), 0, (entry,)) == (
            "0",
            'v1\n{"path":"file:///in/d=x%253Ay/ü%20é.json","timestamp":1769860800123,"batchId":0}'.encode(),
        )

    def test_compaction(self) -> None:
        """Id 9 is `9.compact` with all entries, each with its own batch id."""
        log = SourceLog(8, ENTRIES[:9])
        name, content = encode_source_log(log, 9, (ENTRIES[9],))

        assert (name, content) == ("9.compact", log_bytes(ENTRIES[:10]))

    def test_second_compaction(self) -> None:
        """Id 19 repeats what 9 held."""
        log = SourceLog(18, ENTRIES[:19], compact_ids=(9,))

        assert encode_source_log(log, 19, (ENTRIES[19],)) == ("19.compact", log_bytes(ENTRIES[:20]))

    @pytest.mark.parametrize(
        ("compact_ids", "compacted"),
        [
            ((), [9, 19, 29]),
            ((2,), [2, 5, 8, 11, 14, 17, 20, 23, 26, 29]),
            ((2, 5), [2, 5, 8, 11, 14, 17, 20, 23, 26, 29]),
        ],
    )
    def test_interval_of_the_checkpoint(self, compact_ids: tuple[int, ...], compacted: list[int]) -> None:
        """The files that are there tell the interval; a session's setting is not known here."""
        names = {log_id: log_file_name(log_id, compact_ids) for log_id in range(30)}

        assert [log_id for log_id, name in names.items() if name == f"{log_id}.compact"] == compacted
        assert all(name in (str(log_id), f"{log_id}.compact") for log_id, name in names.items())

    @given(st.lists(st.integers(1, 3), min_size=1, max_size=25))
    def test_written_logs_read_back(self, tmp_path_factory: pytest.TempPathFactory, sizes: list[int]) -> None:
        """Batches written one after the other read back whole, whatever they took."""
        folder = tmp_path_factory.mktemp("written")
        log = SourceLog()
        for log_id, size in enumerate(sizes):
            added = tuple(LogEntry(f"file:///{log_id}/{number}", number, log_id) for number in range(size))
            name, content = encode_source_log(log, log_id, added)
            put(folder / name, content)
            log = read(folder)
            assert log.taken(log_id, log_id) == added

        assert len(log.entries) == sum(sizes)
        assert sorted(path.name for path in folder.iterdir() if ".compact" in path.name) == sorted(
            f"{log_id}.compact" for log_id in range(9, len(sizes), 10)
        )


class TestLargeLogs:
    """A log of millions of files is read as long as memory allows."""

    def test_in_pieces(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Where the pieces end changes nothing, not even with empty lines between entries."""
        content = log_bytes(ENTRIES).replace(b"\n", b"\n\n", 3).replace(b"v1\n\n", b"v1\n") + b"\n\n"
        put(tmp_path / "0", content)
        for size in range(1, 400, 7):
            monkeypatch.setattr(log, "_PIECE_BYTES", size)
            assert read_source_entries(str(tmp_path / "0"), storage=Storage()) == list(ENTRIES)

    def test_more_than_memory_holds(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """What can't be read for want of memory is said so; nobody is told to move the file away."""
        large = tmp_path / "9.compact"
        with large.open("wb") as file:
            file.truncate(1_300_000_000)
        monkeypatch.setattr(log, "available_bytes", lambda: 2_000_000_000)

        with pytest.raises(StorageError) as caught:
            read_source_entries(str(large), storage=Storage())

        assert caught.value.problem == (
            "the log of files has 1,300,000,000 bytes: reading it takes 3.9 GB of memory, 2.0 GB are free"
        )
        assert caught.value.where == str(large)
        assert "leave the file as it is" in (caught.value.remedy or "")

    def test_memory_suffices_for_what_is_read(self, tmp_path: Path) -> None:
        """Reading takes no more memory than is counted with: measured in a process of its own."""
        path = "s3a://lake/landing/date=2026-01-31/part-{0:08d}-{0:032x}.json"
        entries = (LogEntry(path.format(number), number, 0) for number in range(150_000))
        put(tmp_path / "0", log_bytes(entries))
        code = """
import resource, sys
from sluice.checkpoint.source_log import read_source_entries
from sluice.storage import Storage
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
entries = read_source_entries(sys.argv[1], storage=Storage())
print(len(entries), (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
"""
        called = [sys.executable, "-c", code, str(tmp_path / "0")]
        ran = subprocess.run(called, capture_output=True, text=True, check=True, timeout=120)
        count, taken = map(int, ran.stdout.split())

        assert count == 150_000
        # One piece is apart at a time, whatever the size of the log.
        assert taken < log._BYTES_PER_BYTE * (tmp_path / "0").stat().st_size + 8 * log._PIECE_BYTES


def test_available_memory() -> None:
    """The machine tells, and no more than it has."""
    found = available_bytes()
    assert found is not None
    assert 0 < found <= os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
