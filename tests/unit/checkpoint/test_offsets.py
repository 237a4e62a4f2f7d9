"""`offsets/N` and `commits/N`: what a batch was planned to read, and that it was done."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.checkpoint.offsets import (
    CommitFile,
    OffsetFile,
    encode_offset_file,
    logged_offset,
    read_commit_file,
    read_offset_file,
)
from sluice.errors import RefusedError
from sluice.storage import Storage
from tests.builders import CONF, NOW_MS, commit_bytes, offsets_bytes, put
from tests.fuzzing import DEEP, damaged, outcome, short

DELTA_OFFSET = (
    '{"sourceVersion":1,"reservoirId":"a25586c2-b72b-42b9-98cb-4a563c7ae8c3","reservoirVersion":3,"index":-1,'
    '"isStartingVersion":false}'
)


def read_offsets(file: Path) -> OffsetFile | None:
    return read_offset_file(str(file), 7, storage=Storage())


def read_commit(file: Path) -> CommitFile | None:
    return read_commit_file(str(file), 7, storage=Storage())


def refusal(read: object, file: Path) -> RefusedError:
    assert callable(read)
    with pytest.raises(RefusedError) as caught:
        read(file)
    assert caught.value.finding.file == str(file)
    return caught.value


class TestOffsets:
    """`offsets/N`."""

    def test_version_1(self, tmp_path: Path) -> None:
        """Sources are numbered; a source without an offset has a `-`."""
        file = put(tmp_path / "7", offsets_bytes('{"logOffset":3}', "-", DELTA_OFFSET, watermark_ms=5))

        assert read_offsets(file) == OffsetFile(
            batch_id=7,
            version=1,
            watermark_ms=5,
            timestamp_ms=NOW_MS,
            conf=CONF,
            offsets={"0": '{"logOffset":3}', "1": None, "2": DELTA_OFFSET},
        )

    def test_version_2(self, tmp_path: Path) -> None:
        """Sources have names, whose offsets may hold colons."""
        lines = ('0:{"logOffset":0}', "flights:-", f"b:{DELTA_OFFSET}")
        found = read_offsets(put(tmp_path / "7", offsets_bytes(*lines, version="v2")))

        assert found is not None
        assert found.version == 2
        assert found.offsets == {"0": '{"logOffset":0}', "flights": None, "b": DELTA_OFFSET}

    def test_more_metadata(self, tmp_path: Path) -> None:
        """What version 2 adds to the metadata is ignored."""
        metadata = '{"batchWatermarkMs":1,"batchTimestampMs":2,"conf":{},"sourceMetadataInfo":{}}'
        found = read_offsets(put(tmp_path / "7", f"v2\n{metadata}\na:-"))

        assert found is not None
        assert (found.watermark_ms, found.timestamp_ms) == (1, 2)

    def test_continuous_mode(self, tmp_path: Path) -> None:
        """A continuous query leaves the metadata line empty."""
        found = read_offsets(put(tmp_path / "7", b'v1\n\n{"0":{"value":10}}'))

        assert found is not None
        assert (found.watermark_ms, found.timestamp_ms, found.conf) == (0, 0, {})
        assert found.offsets == {"0": '{"0":{"value":10}}'}

    @pytest.mark.parametrize("offset", ["-1", "2", '{"a":{"0":5}}', '{"offset":5,"timestamp":1000}', '"x"', '{"ü":1}'])
    def test_any_json_is_an_offset(self, tmp_path: Path, offset: str) -> None:
        """What an offset means is its source's business; its text is kept byte for byte."""
        found = read_offsets(put(tmp_path / "7", offsets_bytes(offset)))

        assert found is not None
        assert found.offsets == {"0": offset}

    def test_newline_at_the_end(self, tmp_path: Path) -> None:
        """Spark writes none, and accepts one."""
        assert read_offsets(put(tmp_path / "7", offsets_bytes("-") + b"\n")).offsets == {"0": None}

    def test_absent(self, tmp_path: Path) -> None:
        """A file that is not there is None."""
        assert read_offsets(tmp_path / "7") is None

    @pytest.mark.parametrize(
        "content",
        [
            b"",
            b"v1",
            b"v1\n",
            b'v1\n{"batchWatermarkMs":0}',
            offsets_bytes(),
            offsets_bytes('{"logOffset":12}')[:-3],
            offsets_bytes("{}")[:60],
            b'v1\n{"batchWatermarkMs":"0"}\n-',
            b"v1\n[]\n-",
            b"v1\nnull\n-",
            b"v1\n{}\n\n-",
            b'v1\n{}\n{"a":"\xff"}',
            b'v1\n{"conf":{"a":"\xff"}}\n-',
            b"v1\n{}\n" + DEEP,
            b'v1\n{"conf":' + DEEP + b"}\n-",
            b"v2\n{}\n-",
            b'v2\n{}\n{"logOffset":0}'[:9] + b"x",
            b"v2\n{}\n:-",
            b"v2\n{}\na:",
        ],
        ids=short,
    )
    def test_damage(self, tmp_path: Path, content: bytes) -> None:
        """A file that ends too early or does not parse is refused by name."""
        assert refusal(read_offsets, put(tmp_path / "7", content)).finding.code == "FILE_DAMAGED"

    @pytest.mark.parametrize(
        ("lines", "version", "place"),
        [
            (("-", "{"), "v1", "line 4"),
            (("{",), "v1", "line 3"),
            (("a:-", "b"), "v2", "line 4"),
            (("a:{",), "v2", "line 3"),
        ],
    )
    def test_damaged_line(self, tmp_path: Path, lines: tuple[str, ...], version: str, place: str) -> None:
        """The refusal tells the line, as an editor counts them."""
        file = put(tmp_path / "7", offsets_bytes(*lines, version=version))

        assert place in refusal(read_offsets, file).finding.cause

    def test_unknown_version(self, tmp_path: Path) -> None:
        """A version of a later Spark is refused by name."""
        file = put(tmp_path / "7", offsets_bytes("-", version="v3"))

        assert refusal(read_offsets, file).finding.code == "LOG_VERSION_UNKNOWN"

    @given(
        content=damaged(offsets_bytes('{"logOffset":3}', "-", DELTA_OFFSET))
        | damaged(offsets_bytes('a:{"logOffset":3}', "b:-", version="v2"))
    )
    def test_any_bytes(self, tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
        """Any bytes are offsets that JSON can show, or a refusal that names the file."""
        file = put(tmp_path_factory.getbasetemp() / "fuzzed" / "7", content)
        found = outcome(lambda: read_offsets(file))

        if isinstance(found, OffsetFile):
            assert all(offset is None or json.loads(offset) is not ... for offset in found.offsets.values())
        else:
            assert isinstance(found, RefusedError)
            assert found.where == str(file)


class TestEncoding:
    """The bytes of a planned batch."""

    def test_bytes(self) -> None:
        """They are Spark's: no spaces, no newline at the end, `-` for a source without an offset."""
        planned = OffsetFile(7, 1, 5, NOW_MS, CONF, {"0": '{"logOffset":3}', "1": None})

        assert encode_offset_file(planned) == offsets_bytes('{"logOffset":3}', "-", watermark_ms=5)

    @given(
        st.integers(0, 2**62),
        st.dictionaries(st.text(max_size=8), st.text(max_size=8), max_size=3),
        st.lists(
            st.none() | st.dictionaries(st.text(max_size=4), st.integers(-5, 5), max_size=2).map(json.dumps), min_size=1
        ),
    )
    def test_round_trip(
        self, tmp_path_factory: pytest.TempPathFactory, time: int, conf: dict[str, str], offsets: list[str | None]
    ) -> None:
        """Whatever is planned reads back as it was."""
        planned = OffsetFile(7, 1, time, time + 1, conf, {str(index): offset for index, offset in enumerate(offsets)})
        file = put(tmp_path_factory.getbasetemp() / "round_trip" / "7", encode_offset_file(planned))

        assert read_offsets(file) == planned


class TestCommits:
    """`commits/N`."""

    @pytest.mark.parametrize(
        ("content", "expected"),
        [
            (commit_bytes(1_704_068_340_000), CommitFile(7, 1, 1_704_068_340_000)),
            (b'v1\n{"nextBatchWatermarkMs": 0}', CommitFile(7, 1, 0)),
            (b"v1\n{}", CommitFile(7, 1, 0)),
            (b'v2\n{"nextBatchWatermarkMs":9,"stateUniqueIds":{"0":[["0f1e"]]}}', CommitFile(7, 2, 9)),
            (b'v2\n{"nextBatchWatermarkMs":9,"stateUniqueIds":null}', CommitFile(7, 2, 9)),
            (b'v1\n{"nextBatchWatermarkMs":1}\n', CommitFile(7, 1, 1)),
        ],
    )
    def test_versions(self, tmp_path: Path, content: bytes, expected: CommitFile) -> None:
        """Both versions give the watermark for the next batch; without one it is 0."""
        assert read_commit(put(tmp_path / "7", content)) == expected

    def test_absent(self, tmp_path: Path) -> None:
        """A file that is not there is None."""
        assert read_commit(tmp_path / "7") is None

    @pytest.mark.parametrize(
        "content",
        [
            b"",
            b"v1",
            b"v1\n",
            b"v1\n\n{}",
            b"v1\n{",
            b"v1\n[]",
            b'v1\n{"nextBatchWatermarkMs":"0"}',
            b'v1\n{"nextBatchWatermarkMs":null}',
            b'v2\n{"stateUniqueIds":[]}',
            b"{}",
            b'v1\n{"stateUniqueIds":{"\xff":1}}',
            b"v1\n" + DEEP,
            b'v1\n{"a":' + DEEP,
        ],
        ids=short,
    )
    def test_damage(self, tmp_path: Path, content: bytes) -> None:
        """A file that ends too early or does not parse is refused by name."""
        assert refusal(read_commit, put(tmp_path / "7", content)).finding.code == "FILE_DAMAGED"

    def test_unknown_version(self, tmp_path: Path) -> None:
        """A version of a later Spark is refused by name."""
        assert refusal(read_commit, put(tmp_path / "7", b"v3\n{}")).finding.code == "LOG_VERSION_UNKNOWN"

    @given(content=damaged(b'v2\n{"nextBatchWatermarkMs":9,"stateUniqueIds":{"0":[["0f1e"]]}}'))
    def test_any_bytes(self, tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
        """Any bytes are a commit, or a refusal that names the file."""
        file = put(tmp_path_factory.getbasetemp() / "fuzzed" / "7", content)
        found = outcome(lambda: read_commit(file))

        assert isinstance(found, CommitFile) or (isinstance(found, RefusedError) and found.where == str(file))


@pytest.mark.parametrize(
    ("offset", "expected"),
    [
        ('{"logOffset":12}', 12),
        ('{"logOffset":-1}', -1),
        (DELTA_OFFSET, None),
        ('{"logOffset":"12"}', None),
        ("2", None),
        ("[]", None),
        ("null", None),
        (None, None),
    ],
)
def test_logged_offset(offset: str | None, expected: int | None) -> None:
    """Only a file source's offset counts entries of a log."""
    assert logged_offset(offset) == expected
