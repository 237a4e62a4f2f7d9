"""A planned batch on disk: Spark's own bytes, in the engine's own order, over nobody else's."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from sluice.checkpoint.offsets import OffsetFile
from sluice.checkpoint.reader import read_checkpoint
from sluice.checkpoint.source_log import LogEntry, SourceLog
from sluice.checkpoint.writer import write_metadata, write_planned_batch
from sluice.errors import RefusedError, StorageError
from sluice.storage import Storage
from tests.builders import CONF, NOW_MS, QUERY_ID, log_bytes, make_checkpoint, make_entry, offsets_bytes, put

Entries = Mapping[str, tuple[int, tuple[LogEntry, ...]]]


def make_batch(batch_id: int, *offsets: str | None) -> OffsetFile:
    lines = offsets or (f'{{"logOffset":{batch_id}}}',)
    return OffsetFile(batch_id, 1, 0, NOW_MS, CONF, {str(index): line for index, line in enumerate(lines)})


def write(checkpoint: Path, batch: OffsetFile, entries: Entries, logs: Mapping[str, SourceLog] | None = None) -> None:
    write_planned_batch(str(checkpoint), batch, entries, logs or {}, storage=Storage())


def files(checkpoint: Path) -> list[str]:
    return sorted(str(path.relative_to(checkpoint)) for path in checkpoint.rglob("*") if path.is_file())


class TestMetadata:
    """The query id."""

    def test_bytes(self, tmp_path: Path, storage: Storage) -> None:
        """They are Spark's: one line without a newline."""
        write_metadata(str(tmp_path / "ckpt"), QUERY_ID, storage=storage)

        assert (tmp_path / "ckpt" / "metadata").read_bytes() == f'{{"id":"{QUERY_ID}"}}'.encode()
        assert json.loads((tmp_path / "ckpt" / "metadata").read_bytes()) == {"id": QUERY_ID}

    def test_an_old_id_stays(self, tmp_path: Path, storage: Storage) -> None:
        """The id of a checkpoint never changes, and who has another one in mind is refused."""
        for _ in range(2):
            write_metadata(str(tmp_path), QUERY_ID, storage=storage)
        with pytest.raises(RefusedError, match="two writers on one checkpoint"):
            write_metadata(str(tmp_path), "another", storage=storage)

        assert read_checkpoint(str(tmp_path), storage=storage).query_id == QUERY_ID


class TestBatch:
    """A planned batch."""

    def test_first_batch(self, tmp_path: Path) -> None:
        """The source's log and the offsets are Spark's, byte for byte, and nothing else is written."""
        entries = (make_entry("/in/a.json", 0), make_entry("/in/b.json", 0))
        write(tmp_path, make_batch(0), {"0": (0, entries)})

        assert files(tmp_path) == ["offsets/0", "sources/0/0"]
        assert (tmp_path / "sources/0/0").read_bytes() == log_bytes(entries)
        assert (tmp_path / "offsets/0").read_bytes() == offsets_bytes('{"logOffset":0}')

    def test_batch_without_files(self, tmp_path: Path) -> None:
        """A batch of sources that keep no log, or a no-data batch, is its offsets alone."""
        write(tmp_path, make_batch(0, '{"reservoirVersion":3}', None), {})

        assert files(tmp_path) == ["offsets/0"]
        assert (tmp_path / "offsets/0").read_bytes() == offsets_bytes('{"reservoirVersion":3}', "-")

    def test_two_sources(self, tmp_path: Path) -> None:
        """Every source has a log of its own, with its own count."""
        batch = make_batch(5, '{"logOffset":3}', '{"logOffset":0}')
        entries: Entries = {"0": (3, (make_entry("/a/x", 3),)), "1": (0, (make_entry("/b/y", 0),))}
        write(tmp_path, batch, entries)

        assert files(tmp_path) == ["offsets/5", "sources/0/3", "sources/1/0"]

    @pytest.mark.parametrize("planned", [8, 9, 10, 18, 19, 20])
    def test_next_batch(self, tmp_path: Path, planned: int) -> None:
        """Written after any batch, the next one makes the same files as if Spark had planned all of them."""
        checkpoint = make_checkpoint(tmp_path / "one" / "ckpt", planned=planned)
        state = read_checkpoint(str(checkpoint), storage=Storage())
        entry = make_entry(tmp_path / "one" / "landing" / f"part-{planned}.json", planned)
        entry = LogEntry(entry.path, NOW_MS + 1000 * planned, planned)
        write(checkpoint, make_batch(planned), {"0": (planned, (entry,))}, state.source_logs)

        expected = make_checkpoint(tmp_path / "two" / "ckpt", planned=planned + 1, committed=planned)
        compared = [file for file in files(expected) if file.startswith("sources/") or file == f"offsets/{planned}"]
        assert set(files(checkpoint)) == set(files(expected)) - {f"offsets/.{planned}.crc"}
        for file in compared:
            content = (expected / file).read_bytes().replace(b"/two/", b"/one/")
            assert (checkpoint / file).read_bytes() == content, file

    def test_compaction(self, tmp_path: Path) -> None:
        """The tenth entry is `9.compact` with all ten, each with its own batch id."""
        taken = [make_entry(f"/in/{log_id}.json", log_id) for log_id in range(9)]
        added = make_entry("/in/9.json", 9)
        write(tmp_path, make_batch(9), {"0": (9, (added,))}, {"0": SourceLog(8, taken)})

        assert files(tmp_path) == ["offsets/9", "sources/0/9.compact"]
        assert (tmp_path / "sources/0/9.compact").read_bytes() == log_bytes([*taken, added])

    def test_reads_back_as_pending(self, tmp_path: Path) -> None:
        """What was written is a checkpoint whose newest batch waits to be run."""
        checkpoint = make_checkpoint(tmp_path / "ckpt", planned=3)
        logs = read_checkpoint(str(checkpoint), storage=Storage()).source_logs
        write(checkpoint, make_batch(3), {"0": (3, (make_entry("/in/x.json", 3),))}, logs)
        state = read_checkpoint(str(checkpoint), storage=Storage())

        assert (state.is_pending, state.planned, state.problems) == (True, make_batch(3), ())
        assert len(state.source_logs["0"].entries) == 4


class TestOrder:
    """Crashes in between."""

    def test_logs_come_before_offsets(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Every source's log is durable before the offsets begin: a crash leaves an orphan entry at most."""
        named: list[str] = []
        link = os.link
        monkeypatch.setattr(os, "link", lambda old, new: (named.append(str(new)), link(old, new)))
        batch = make_batch(0, '{"logOffset":0}', '{"logOffset":0}')
        write(tmp_path, batch, {"0": (0, (make_entry("/a", 0),)), "1": (0, (make_entry("/b", 0),))})

        assert named == [f"{tmp_path}/sources/0/0", f"{tmp_path}/sources/1/0", f"{tmp_path}/offsets/0"]

    def test_full_disk(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """When the log can't be written, neither are the offsets."""

        def full(_old: str, new: str) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), new)

        monkeypatch.setattr(os, "link", full)
        with pytest.raises(StorageError, match="No space left"):
            write(tmp_path, make_batch(0), {"0": (0, (make_entry("/a", 0),))})

        assert files(tmp_path) == []

    def test_writing_again(self, tmp_path: Path) -> None:
        """A batch whose files are there already, the same ones, is written."""
        entries: Entries = {"0": (0, (make_entry("/in/a.json", 0),))}
        write(tmp_path, make_batch(0), entries)
        before = (tmp_path / "offsets/0").stat().st_ino
        write(tmp_path, make_batch(0), entries)

        assert (tmp_path / "offsets/0").stat().st_ino == before

    @pytest.mark.parametrize("file", ["sources/0/0", "offsets/0"])
    @pytest.mark.parametrize(
        "change", [lambda c: c[:-1], lambda c: c + b"x" * 1000, lambda c: c[:-1] + b"~", lambda _: b""]
    )
    def test_somebody_else_wrote(self, tmp_path: Path, file: str, change: object) -> None:
        """Something else in a file's place is another writer: refused by name, and left as it is."""
        entries: Entries = {"0": (0, (make_entry("/in/a.json", 0),))}
        write(tmp_path / "mine", make_batch(0), entries)
        assert callable(change)
        theirs = put(tmp_path / "ckpt" / file, change((tmp_path / "mine" / file).read_bytes()))
        content = theirs.read_bytes()

        with pytest.raises(RefusedError) as caught:
            write(tmp_path / "ckpt", make_batch(0), entries)

        assert (caught.value.finding.code, caught.value.finding.file) == ("CHECKPOINT_CHANGED", str(theirs))
        assert theirs.read_bytes() == content
        assert file == "offsets/0" or not (tmp_path / "ckpt" / "offsets").exists()
