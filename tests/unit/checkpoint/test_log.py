"""Spark's numbered logs: names, versions, compaction."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.checkpoint.log import LogFile, LogFolder, compact_interval, list_log, read_log_file
from sluice.errors import RefusedError, StorageError
from sluice.storage import Storage
from tests.builders import put
from tests.fuzzing import damaged, outcome
from tests.remedies import read_remedy


def make_log(folder: Path, *names: str) -> LogFolder:
    folder.mkdir(exist_ok=True)
    for name in names:
        put(folder / name, "v1\n{}")
    found = list_log(str(folder), storage=Storage())
    assert found is not None
    return found


def read(file: Path, max_version: int = 1, max_bytes: int = 1000) -> LogFile | None:
    return read_log_file(str(file), storage=Storage(), max_version=max_version, max_bytes=max_bytes)


class TestListing:
    """The names in a log."""

    def test_kinds_of_names(self, tmp_path: Path) -> None:
        """Ids come in the order of numbers; compacted files and checksums are told apart."""
        log = make_log(tmp_path, "10", "9", "0", "19.compact", "9.compact", ".9.crc", ".9.compact.crc", ".11.crc")

        assert log.ids == (0, 9, 10)
        assert log.compact_ids == (9, 19)
        assert set(log.sidecars) == {9, 11}
        assert log.latest == 19

    @pytest.mark.parametrize(
        "name",
        [
            "01",
            "-1",
            "1.tmp",
            "a",
            "1 ",
            "1.compact.x",
            ".compact",
            "x.compact",
            "²",
            "٣",
            ".5.0f-1e.tmp",
            "5.crc",
            ".",
        ],
    )
    def test_other_names_are_ignored(self, tmp_path: Path, name: str) -> None:
        """Temporary files and strangers are no part of a log, as Spark sees it."""
        log = make_log(tmp_path / "log", *([name] if name != "." else []), "3")

        assert (log.ids, log.compact_ids, log.sidecars) == ((3,), (), {})

    def test_folder_with_a_number(self, tmp_path: Path) -> None:
        """A folder is no entry."""
        put(tmp_path / "7" / "0")

        assert make_log(tmp_path, "3").latest == 3

    def test_no_folder(self, tmp_path: Path, storage: Storage) -> None:
        """A log that is not there is None, an empty one has no newest id."""
        assert list_log(str(tmp_path / "absent"), storage=storage) is None
        assert make_log(tmp_path).latest is None

    def test_file_prefers_the_compacted_one(self, tmp_path: Path) -> None:
        """An id with both files is read from the compacted one."""
        log = make_log(tmp_path, "8", "9", "9.compact")

        assert log.file(8) == f"{tmp_path}/8"
        assert log.file(9) == f"{tmp_path}/9.compact"


class TestGap:
    """Whether all that Spark needs is there."""

    @pytest.mark.parametrize(
        ("names", "gap"),
        [
            ([], None),
            (["0"], None),
            (["0", "1", "2"], None),
            (["1", "2"], 0),
            (["0", "3"], 2),
            (["9.compact"], None),
            (["3", "9.compact", "10"], None),
            (["9.compact", "11"], 10),
            (["8", "9", "9.compact", "10", "13"], 12),
            (["9", "9.compact", "10"], None),
            (["9.compact", "18", "19.compact", "20"], None),
            (["999999999999999999"], 999999999999999998),
        ],
    )
    def test_newest_gap(self, tmp_path: Path, names: list[str], gap: int | None) -> None:
        """Every id after the newest compaction must be there; the newest missing one is told."""
        assert make_log(tmp_path, *names).gap == gap


class TestReading:
    """The version line and the lines after it."""

    def test_lines(self, tmp_path: Path) -> None:
        """The lines after the version are given as bytes; a newline at the end is no line."""
        file = put(tmp_path / "5", b"v1\n{}\n-\n")

        found = read(file)

        assert (found.location, found.version, found.lines) == (str(file), 1, (b"{}", b"-"))

    def test_only_newlines_end_lines(self, tmp_path: Path) -> None:
        """A path in a line may hold any other character at which Python would split."""
        line = '{"path":"file:///a\u2028b\x0c\x1d\x85\r"}'.encode()

        assert read(put(tmp_path / "0", b"v1\n" + line + b"\n" + line)).lines == (line, line)

    def test_empty_lines_stay(self, tmp_path: Path) -> None:
        """A continuous query leaves its metadata line empty."""
        assert read(put(tmp_path / "0", b"v1\n\n-1")).lines == (b"", b"-1")

    def test_no_file(self, tmp_path: Path) -> None:
        """A file that is not there is None."""
        assert read(tmp_path / "5") is None

    @pytest.mark.parametrize("content", [b"", b"\n", b" \n\n", b"\t"])
    def test_empty(self, tmp_path: Path, content: bytes) -> None:
        """An empty file is damage, and is named."""
        file = put(tmp_path / "5", content)

        with pytest.raises(RefusedError, match="the file is empty") as caught:
            read(file)

        assert (caught.value.finding.code, caught.value.finding.file) == ("FILE_DAMAGED", str(file))
        assert caught.value.finding.is_blocking

    @pytest.mark.parametrize(
        "header",
        [b"garbage", b"1", b"v", b"V1", b"v1 ", b"v-1", b"v1.0", b"\0\0\0", b"v\xc2\xb2", b"{}", b"v1\r", b"v" * 99],
    )
    def test_no_version(self, tmp_path: Path, header: bytes) -> None:
        """A file that does not begin with a version is damage."""
        with pytest.raises(RefusedError, match="the first line is no version") as caught:
            read(put(tmp_path / "5", header + b"\n{}"))

        assert caught.value.finding.file == f"{tmp_path}/5"

    @pytest.mark.parametrize("version", [0, 3, 99, 999_999_999])
    def test_unknown_version(self, tmp_path: Path, version: int) -> None:
        """A version that Spark 4.2 does not write is refused, with the advice to upgrade."""
        file = put(tmp_path / "5", f"v{version}\n{{}}")
        with pytest.raises(RefusedError) as caught:
            read(file, max_version=2)

        says = "upgrade Spark and Sluice; never edit the version"
        assert read_remedy(caught.value, "LOG_VERSION_UNKNOWN", says).file == f"{tmp_path}/5"
        if version:
            assert read(file, max_version=version).version == version

    def test_known_versions(self, tmp_path: Path) -> None:
        """Every version up to the given one is read."""
        assert [read(put(tmp_path / "5", f"v{n}\n"), max_version=2).version for n in (1, 2)] == [1, 2]

    def test_size_is_capped(self, tmp_path: Path) -> None:
        """A file beyond the cap is a storage error."""
        with pytest.raises(StorageError):
            read(put(tmp_path / "5", b"v1\n" + b"x" * 1000), max_bytes=1000)

    @given(content=damaged(b"v1\n{}\n-"))
    def test_any_bytes(self, tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
        """Any bytes are lines, or a refusal that names the file."""
        file = put(tmp_path_factory.getbasetemp() / "fuzzed" / "5", content)
        found = outcome(lambda: read(file, max_bytes=10**7))

        assert isinstance(found, LogFile) or (isinstance(found, RefusedError) and found.where == str(file))


class TestCompactInterval:
    """At which ids Spark compacts, given the compacted files that are there."""

    @pytest.mark.parametrize(
        ("compact_ids", "default", "interval"),
        [
            ((), 10, 10),
            ((), 3, 3),
            ((9, 19), 10, 10),
            ((2, 5, 8), 10, 3),
            ((19, 29), 10, 10),
            ((19, 23, 29), 10, 6),
            ((9,), 10, 10),
            ((4,), 10, 5),
            ((2,), 10, 3),
            ((19,), 10, 20),
            ((29,), 10, 10),
            ((34,), 10, 35),
            ((59,), 10, 10),
            ((65,), 10, 11),
            ((120,), 10, 11),
            ((96,), 10, 97),
        ],
    )
    def test_rules(self, compact_ids: tuple[int, ...], default: int, interval: int) -> None:
        """Two files tell it by their distance; one allows the smallest divisor that is not below the default."""
        assert compact_interval(compact_ids, default) == interval

    @given(st.integers(0, 3000), st.integers(1, 20))
    def test_like_spark(self, compact_id: int, default: int) -> None:
        """A single compacted file gives what `CompactibleFileStreamLog.deriveCompactInterval` gives."""
        length = compact_id + 1
        expected = length
        if length > default and default < length // 2:
            expected = next(n for n in [*range(default, length // 2 + 1), length] if length % n == 0)

        assert compact_interval((compact_id,), default) == expected

    @pytest.mark.timeout(20)
    @pytest.mark.parametrize("compact_id", [10**9 + 6, 10**18 - 12, 10**18 - 1])
    def test_huge_ids_cost_no_time(self, compact_id: int) -> None:
        """A file name can hold any number; it must not cost minutes."""
        assert compact_interval((compact_id,)) >= 10
