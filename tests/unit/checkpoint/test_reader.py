"""A whole checkpoint: what it says, and every kind of damage with the file that is damaged."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.checkpoint.reader import CheckpointState, read_checkpoint
from sluice.checkpoint.source_log import SourceLog
from sluice.errors import StorageError
from sluice.storage import Storage
from tests.builders import NOW_MS, QUERY_ID, commit_bytes, log_bytes, make_checkpoint, make_entry, offsets_bytes, put
from tests.fuzzing import DEEP, damaged, outcome, short
from tests.unit.conftest import BUCKET


def read(checkpoint: Path, **options: object) -> CheckpointState:
    return read_checkpoint(str(checkpoint), storage=Storage(), **options)


def found(state: CheckpointState) -> list[tuple[str, str]]:
    """Code and file, relative to the checkpoint, of every problem."""
    return [(problem.code, problem.file.removeprefix(f"{state.location}/")) for problem in state.problems]


def make_stateful(checkpoint: Path) -> Path:
    """Give a checkpoint of three batches an operator with state."""
    operator = checkpoint / "state" / "0"
    info = '{"operatorInfo":{"operatorId":0,"operatorName":"dedupe"}'
    stores = '"stateStoreInfo":[{"storeName":"default","numColsPrefixKey":0,"numPartitions":1}]}'
    put(operator / "_metadata" / "metadata", f"v1\n{info},{stores}")
    for version in (1, 2, 3):
        put(operator / "0" / f"{version}.delta")
    return checkpoint


class TestWhatItSays:
    """A checkpoint without damage."""

    def test_clean(self, tmp_path: Path) -> None:
        """Everything committed: the newest batch, the one before it, the query, the files taken."""
        state = read(make_checkpoint(tmp_path / "ckpt", planned=3, watermark_ms=5))

        assert (state.query_id, state.planned_id, state.committed_id) == (QUERY_ID, 2, 2)
        assert state.planned is not None
        assert (state.planned.timestamp_ms, state.planned.offsets) == (NOW_MS, {"0": '{"logOffset":2}'})
        assert state.previous is not None
        assert state.previous.batch_id == 1
        assert [entry.batch_id for entry in state.source_logs["0"].entries] == [0, 1, 2]
        assert (state.is_new, state.is_pending, state.watermark_ms, state.problems) == (False, False, 5, ())

    def test_pending(self, tmp_path: Path) -> None:
        """One batch planned and not committed will run again as logged."""
        state = read(make_checkpoint(tmp_path / "ckpt", planned=3, committed=2))

        assert state.is_pending
        assert (state.planned_id, state.committed_id, state.problems) == (2, 1, ())

    def test_first_batch_pending(self, tmp_path: Path) -> None:
        """The very first batch may be pending, too."""
        state = read(make_checkpoint(tmp_path / "ckpt", planned=1, committed=0))

        assert state.is_pending
        assert (state.planned_id, state.committed_id, state.previous, state.problems) == (0, None, None, ())

    @pytest.mark.parametrize("folders", [[], ["offsets", "commits"]])
    def test_new(self, tmp_path: Path, folders: list[str]) -> None:
        """A folder that is not there, or was only just made, is a new checkpoint."""
        for folder in folders:
            (tmp_path / "ckpt" / folder).mkdir(parents=True)
        state = read(tmp_path / "ckpt")

        assert state.is_new
        assert not state.is_pending
        assert (state.query_id, state.planned_id, state.committed_id, state.problems) == (None, None, None, ())
        assert (state.watermark_ms, state.next_watermark_ms) == (0, 0)

    def test_metadata_alone(self, tmp_path: Path) -> None:
        """A query that was created and planned nothing has its id."""
        put(tmp_path / "ckpt" / "metadata", f'{{"id":"{QUERY_ID}"}}')

        assert (read(tmp_path / "ckpt").query_id, read(tmp_path / "ckpt").problems) == (QUERY_ID, ())

    def test_next_watermark(self, tmp_path: Path) -> None:
        """The next batch runs with the newest committed watermark, and never below the newest batch's own."""
        checkpoint = make_checkpoint(tmp_path / "ckpt", watermark_ms=50)
        assert read(checkpoint).next_watermark_ms == 50
        put(checkpoint / "commits" / "2", commit_bytes(70))
        assert read(checkpoint).next_watermark_ms == 70
        put(checkpoint / "commits" / "2", commit_bytes(0))
        assert (read(checkpoint).watermark_ms, read(checkpoint).next_watermark_ms) == (0, 50)

    def test_compacted_source_log(self, tmp_path: Path) -> None:
        """A checkpoint of 25 batches has two compactions and all of its files."""
        log = read(make_checkpoint(tmp_path / "ckpt", planned=25)).source_logs["0"]

        assert (log.latest_id, len(log.entries), log.compact_ids) == (24, 25, (9, 19))

    def test_state(self, tmp_path: Path) -> None:
        """Stateful operators are listed; the version that the next batch loads is the number of commits."""
        state = read(make_stateful(make_checkpoint(tmp_path / "ckpt", planned=3)))

        assert [(operator.name, operator.latest_version) for operator in state.operators] == [("dedupe", 3)]
        assert state.problems == ()

    def test_state_of_a_pending_batch(self, tmp_path: Path) -> None:
        """A pending batch loads the version that the batch before it left."""
        checkpoint = make_stateful(make_checkpoint(tmp_path / "ckpt", planned=3, committed=2))
        (checkpoint / "state" / "0" / "0" / "3.delta").unlink()

        assert read(checkpoint).problems == ()

    def test_named_sources(self, tmp_path: Path) -> None:
        """In format v2, logs are found by the sources' names."""
        checkpoint = make_checkpoint(tmp_path / "ckpt", planned=1)
        put(checkpoint / "offsets" / "0", offsets_bytes('flights:{"logOffset":0}', version="v2"))
        (checkpoint / "sources" / "0").rename(checkpoint / "sources" / "flights")
        state = read(checkpoint)

        assert (list(state.source_logs), state.problems) == (["flights"], ())

    @pytest.mark.parametrize(
        ("content", "logs"),
        [
            (b"v1\n1769860800000", {}),
            (b"\0v2\n{}", {}),
            (b'\0v1\n{"topic":{"0":5}}', {"0": SourceLog(start='{"topic":{"0":5}}')}),
        ],
        ids=["rate", "unknown", "kafka"],
    )
    def test_logs_of_other_kinds(self, tmp_path: Path, content: bytes, logs: dict[str, SourceLog]) -> None:
        """The start time of a rate source, and the offsets at which a Kafka source began, are no file logs."""
        put(tmp_path / "ckpt" / "sources" / "0" / "0", content)
        put(tmp_path / "ckpt" / "sources" / "1" / ".keep")

        assert (dict(read(tmp_path / "ckpt").source_logs), read(tmp_path / "ckpt").problems) == (logs, ())

    def test_large_first_batch(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A first batch may log more than other files may hold: half a million files take 64 MB."""
        monkeypatch.setitem(Storage.read.__kwdefaults__, "max_bytes", 1000)
        put(tmp_path / "ckpt" / "sources" / "0" / "0", log_bytes([make_entry("/in/" + "a" * 2000, 0)]))

        assert read(tmp_path / "ckpt").source_logs["0"].latest_id == 0

    def test_object_store(self, object_storage: Storage) -> None:
        """A checkpoint in an object store reads the same."""
        for name, content in (
            ("metadata", f'{{"id":"{QUERY_ID}"}}'.encode()),
            ("offsets/0", offsets_bytes('{"logOffset":0}')),
            ("commits/0", commit_bytes(5)),
            ("sources/0/0", log_bytes([make_entry("/in/a.json", 0)])),
        ):
            object_storage.replace(f"{BUCKET}/ckpt/{name}", content)
        state = read_checkpoint(f"{BUCKET}/ckpt", storage=object_storage)

        assert (state.query_id, state.planned_id, state.committed_id, state.watermark_ms) == (QUERY_ID, 0, 0, 5)
        assert (state.source_logs["0"].latest_id, state.problems) == (0, ())


CONTENTS = {
    "zero bytes": b"",
    "zeros": b"\0" * 64,
    "version only": b"v1",
    "unknown version": b"v99\n{}\n{}",
    "garbage": b"garbage\n\xff\xfe",
    "deep": b"v1\n" + DEEP,
}
BROKEN = pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS)


class TestDamage:
    """Every damage gives a blocking problem that names the damaged file."""

    def assert_blocked(self, checkpoint: Path, code: str, file: str) -> CheckpointState:
        state = read(checkpoint)
        assert (code, file) in found(state)
        assert state.blocking is not None
        assert all(problem.cause and problem.consequence and problem.remedy for problem in state.problems)
        return state

    @BROKEN
    @pytest.mark.parametrize("committed", [12, 11])
    @pytest.mark.parametrize("file", ["offsets/11", "offsets/10", "commits/11"])
    def test_broken_log_file(self, tmp_path: Path, file: str, content: bytes, committed: int) -> None:
        """The two newest offsets and the newest commit must be whole."""
        if file == "commits/11" and committed == 11:
            file = "commits/10"
        checkpoint = make_checkpoint(tmp_path / "ckpt", planned=12, committed=committed)
        put(checkpoint / file, content)
        state = read(checkpoint)

        assert [name for _, name in found(state)] == [file]
        assert state.blocking is not None
        assert state.blocking.code == ("LOG_VERSION_UNKNOWN" if content.startswith(b"v99") else "FILE_DAMAGED")

    @pytest.mark.parametrize("file", ["offsets/11", "commits/11", "sources/0/11", "sources/0/9.compact"])
    def test_truncated(self, tmp_path: Path, file: str) -> None:
        """A file that lost its end is found, wherever in a line it was cut."""
        checkpoint = make_checkpoint(tmp_path / "ckpt", planned=12)
        whole = (checkpoint / file).read_bytes()
        for length in range(len(whole) - 1, 0, -7):
            if b"\n" in whole[length - 1 : length + 1]:
                continue
            put(checkpoint / file, whole[:length])
            state = read(checkpoint)
            assert state.blocking is not None
            assert {name for _, name in found(state)} == {file}

    def test_newest_offsets_gone(self, tmp_path: Path) -> None:
        """A commit without its offsets is ahead of the log; the missing file is named."""
        checkpoint = make_checkpoint(tmp_path / "ckpt", planned=12)
        (checkpoint / "offsets" / "11").unlink()

        self.assert_blocked(checkpoint, "COMMIT_WITHOUT_OFFSETS", "offsets/11")

    def test_all_offsets_gone(self, tmp_path: Path) -> None:
        """So is every commit when the whole folder is gone."""
        checkpoint = make_checkpoint(tmp_path / "ckpt", planned=12)
        shutil.rmtree(checkpoint / "offsets")

        state = self.assert_blocked(checkpoint, "COMMIT_WITHOUT_OFFSETS", "offsets/11")
        assert state.planned is None

    def test_gap_in_front_of_the_newest(self, tmp_path: Path) -> None:
        """Spark needs the two newest offsets."""
        checkpoint = make_checkpoint(tmp_path / "ckpt", planned=12)
        (checkpoint / "offsets" / "10").unlink()

        state = self.assert_blocked(checkpoint, "OFFSETS_GAP", "offsets/10")
        assert state.blocking is not None
        assert state.blocking.cause == "batch 10 is missing in front of the newest planned batch 11"

    def test_gap_at_the_beginning(self, tmp_path: Path) -> None:
        """The second batch needs the first one's offsets."""
        checkpoint = make_checkpoint(tmp_path / "ckpt", planned=2)
        (checkpoint / "offsets" / "0").unlink()

        self.assert_blocked(checkpoint, "OFFSETS_GAP", "offsets/0")

    @pytest.mark.parametrize("committed", [0, 5, 10])
    def test_commits_missing(self, tmp_path: Path, committed: int) -> None:
        """More than one batch without a commit: Spark would run the last one only."""
        state = self.assert_blocked(
            make_checkpoint(tmp_path / "ckpt", planned=12, committed=committed), "COMMITS_MISSING", "commits/10"
        )

        assert state.blocking is not None
        assert f"batches {committed} to 10" in state.blocking.cause

    @pytest.mark.parametrize(("planned", "committed"), [(2, 2), (2, 1), (1, 0)])
    def test_metadata_missing(self, tmp_path: Path, planned: int, committed: int) -> None:
        """Without the query id Spark refuses, or sinks double rows."""
        checkpoint = make_checkpoint(tmp_path / "ckpt", planned=planned, committed=committed)
        (checkpoint / "metadata").unlink()

        assert self.assert_blocked(checkpoint, "METADATA_MISSING", "metadata").query_id is None

    @pytest.mark.parametrize(
        "content", [b"", b"garbage", b"{}", b'{"id":5}', b'{"id":"\xff"}', b'{"id":', DEEP, b"null"], ids=short
    )
    def test_metadata_damaged(self, tmp_path: Path, content: bytes) -> None:
        """A query id that does not parse is as bad, also before the first batch."""
        checkpoint = make_checkpoint(tmp_path / "ckpt", planned=1)
        put(checkpoint / "metadata", content)
        put(tmp_path / "new" / "metadata", content)

        assert self.assert_blocked(checkpoint, "METADATA_DAMAGED", "metadata").query_id is None
        self.assert_blocked(tmp_path / "new", "METADATA_DAMAGED", "metadata")

    @pytest.mark.parametrize("log", ["offsets", "commits", "sources/0"])
    def test_sidecar_without_its_file(self, tmp_path: Path, log: str) -> None:
        """A checksum beyond the newest file fails Spark's next write of that id."""
        checkpoint = make_checkpoint(tmp_path / "ckpt", planned=3)
        put(checkpoint / log / ".3.crc")

        self.assert_blocked(checkpoint, "SIDECAR_WITHOUT_FILE", f"{log}/.3.crc")

    def test_sidecar_in_an_empty_log(self, tmp_path: Path) -> None:
        """Also where no file was written yet."""
        checkpoint = make_checkpoint(tmp_path / "ckpt", planned=1, committed=0)
        put(checkpoint / "commits" / ".0.crc")

        self.assert_blocked(checkpoint, "SIDECAR_WITHOUT_FILE", "commits/.0.crc")

    def test_commit_deleted_without_its_sidecar(self, tmp_path: Path) -> None:
        """The usual hand-made replay leaves the checksum behind."""
        checkpoint = make_checkpoint(tmp_path / "ckpt", planned=3)
        (checkpoint / "commits" / "2").unlink()

        self.assert_blocked(checkpoint, "SIDECAR_WITHOUT_FILE", "commits/.2.crc")

    @BROKEN
    @pytest.mark.parametrize("file", ["11", "10", "9.compact"])
    def test_broken_source_log(self, tmp_path: Path, file: str, content: bytes) -> None:
        """The source's log must be whole from the newest compaction on."""
        checkpoint = make_checkpoint(tmp_path / "ckpt", planned=12)
        put(checkpoint / "sources" / "0" / file, content)
        state = read(checkpoint)

        assert [name for _, name in found(state)] == [f"sources/0/{file}"]
        assert state.blocking is not None

    @pytest.mark.parametrize(
        ("lost", "code"),
        [("11", "SOURCE_LOG_BEHIND"), ("10", "SOURCE_LOG_GAP"), ("9.compact", "SOURCE_LOG_GAP")],
    )
    def test_source_log_file_gone(self, tmp_path: Path, lost: str, code: str) -> None:
        """A lost file of the source's log is named, also the newest one, which only the offsets tell of."""
        checkpoint = make_checkpoint(tmp_path / "ckpt", planned=12)
        (checkpoint / "sources" / "0" / lost).unlink()

        self.assert_blocked(checkpoint, code, f"sources/0/{lost}")

    def test_newest_compaction_gone(self, tmp_path: Path) -> None:
        """A lost compaction at the very end is named as one."""
        checkpoint = make_checkpoint(tmp_path / "ckpt", planned=10)
        (checkpoint / "sources" / "0" / "9.compact").unlink()

        self.assert_blocked(checkpoint, "SOURCE_LOG_BEHIND", "sources/0/9.compact")

    def test_newest_compaction_of_another_interval_gone(self, tmp_path: Path) -> None:
        """Its name follows the compactions that are there, not the default."""
        checkpoint = make_checkpoint(tmp_path / "ckpt", planned=12)
        shutil.rmtree(checkpoint / "sources")
        entries = [make_entry(f"/in/{log_id}", log_id) for log_id in range(11)]
        for log_id in (5, 8):
            put(checkpoint / "sources/0" / f"{log_id}.compact", log_bytes(entries[: log_id + 1]))
        for log_id in (9, 10):
            put(checkpoint / "sources/0" / str(log_id), log_bytes([entries[log_id]]))

        self.assert_blocked(checkpoint, "SOURCE_LOG_BEHIND", "sources/0/11.compact")

    @pytest.mark.parametrize("lost", ["sources", "sources/0"])
    def test_whole_source_log_gone(self, tmp_path: Path, lost: str) -> None:
        """Without the log Spark would read every file again."""
        checkpoint = make_checkpoint(tmp_path / "ckpt", planned=12)
        shutil.rmtree(checkpoint / lost)

        self.assert_blocked(checkpoint, "SOURCE_LOG_BEHIND", "sources/0/11")

    def test_one_of_two_source_logs_gone(self, tmp_path: Path) -> None:
        """With several sources, what is known of their order tells which log is lost."""
        checkpoint = make_checkpoint(tmp_path / "ckpt", planned=1)
        put(checkpoint / "offsets" / "0", offsets_bytes('{"logOffset":0}', '{"logOffset":0}'))
        state = read(checkpoint, log_keys={"0": "0", "1": "1"})

        assert found(state) == [("SOURCE_LOG_BEHIND", "sources/1/0")]

    def test_state_version_lost(self, tmp_path: Path) -> None:
        """State that can't be loaded blocks, and names the partition."""
        checkpoint = make_stateful(make_checkpoint(tmp_path / "ckpt", planned=3))
        (checkpoint / "state" / "0" / "0" / "3.delta").unlink()

        self.assert_blocked(checkpoint, "STATE_VERSION_LOST", "state/0/0")

    def test_everything_at_once(self, tmp_path: Path) -> None:
        """All damage is listed, not only the first."""
        checkpoint = make_checkpoint(tmp_path / "ckpt", planned=12)
        for file in ("metadata", "offsets/11", "commits/11", "sources/0/9.compact"):
            put(checkpoint / file, b"")
        put(checkpoint / "commits" / ".12.crc")

        assert {name for _, name in found(read(checkpoint))} == {
            "metadata",
            "offsets/11",
            "commits/11",
            "sources/0/9.compact",
            "commits/.12.crc",
        }

    def test_folder_in_place_of_the_metadata(self, tmp_path: Path) -> None:
        """What can't be read at all is an error of the storage."""
        (tmp_path / "ckpt" / "metadata").mkdir(parents=True)

        with pytest.raises(StorageError):
            read(tmp_path / "ckpt")


def remove(*files: str) -> Callable[[Path], None]:
    return lambda checkpoint: [(checkpoint / file).unlink() for file in files] and None


def add(file: str, content: bytes = b"x") -> Callable[[Path], None]:
    return lambda checkpoint: put(checkpoint / file, content) and None


class TestTolerated:
    """What Spark bears, planning bears, too."""

    @pytest.mark.parametrize(
        "change",
        [
            remove("offsets/3", "offsets/.3.crc"),
            remove("offsets/3"),
            remove("commits/3", "commits/7"),
            remove("sources/0/4"),
            remove("offsets/.11.crc", "commits/.11.crc"),
            add("offsets/.12.0f1e2d3c.tmp"),
            add("commits/.12.0f1e2d3c.tmp"),
            add("sources/0/.12.0f1e2d3c.tmp"),
            add("offsets/12.tmp"),
            add("offsets/notes.txt"),
            add("offsets/_12"),
            add("offsets/3", b""),
            add("commits/3", b"garbage"),
            add("sources/0/3", b""),
            add("sluice.json"),
            add("receivedBlockMetadata/0"),
        ],
        ids=range(16),
    )
    def test_no_problem(self, tmp_path: Path, change: Callable[[Path], None]) -> None:
        """Old gaps, strangers, temporary files and missing checksums change nothing."""
        checkpoint = make_checkpoint(tmp_path / "ckpt", planned=12)
        expected = read(checkpoint)
        change(checkpoint)

        assert read(checkpoint) == expected

    def test_purged_logs(self, tmp_path: Path) -> None:
        """Spark keeps the newest 100 batches; older files are gone together."""
        checkpoint = make_checkpoint(tmp_path / "ckpt", planned=12)
        for batch_id in range(10):
            for file in (f"offsets/{batch_id}", f"commits/{batch_id}"):
                (checkpoint / file).unlink()

        state = read(checkpoint)
        assert (state.planned_id, state.committed_id, state.problems) == (11, 11, ())

    def test_two_lines_of_one_source(self, tmp_path: Path) -> None:
        """A source that the plan uses twice has two lines and one log: the second is not taken for a lost log."""
        checkpoint = make_checkpoint(tmp_path / "ckpt", planned=1)
        put(checkpoint / "offsets" / "0", offsets_bytes('{"logOffset":0}', '{"logOffset":0}'))

        assert read(checkpoint).problems == ()
        assert read(checkpoint, log_keys={"0": "0", "1": "0"}).problems == ()

    def test_source_without_an_offset(self, tmp_path: Path) -> None:
        """A source that had no data yet has a `-` and an empty log."""
        checkpoint = make_checkpoint(tmp_path / "ckpt", planned=1)
        put(checkpoint / "offsets" / "0", offsets_bytes('{"logOffset":0}', "-", '{"logOffset":-1}'))
        (checkpoint / "sources" / "1").mkdir()

        assert read(checkpoint, log_keys={"0": "0", "1": "1", "2": "2"}).problems == ()

    def test_orphan_entry(self, tmp_path: Path) -> None:
        """A source log that is ahead of the offsets is a crash between the two; the next plan adopts it."""
        checkpoint = make_checkpoint(tmp_path / "ckpt", planned=3)
        put(checkpoint / "sources" / "0" / "3", log_bytes([make_entry("/in/x.json", 3)]))
        state = read(checkpoint)

        assert (state.source_logs["0"].latest_id, state.problems) == (3, ())


def test_reading_writes_nothing(tmp_path: Path) -> None:
    """Not a byte of a checkpoint changes by being read, damaged or not."""
    checkpoint = make_checkpoint(tmp_path / "ckpt", planned=12)
    put(checkpoint / "offsets" / "11", b"")

    def snapshot() -> dict[str, tuple[bytes, int]]:
        return {
            str(file): (file.read_bytes(), file.stat().st_mtime_ns) for file in checkpoint.rglob("*") if file.is_file()
        }

    before = snapshot()
    read(checkpoint)
    assert snapshot() == before


VALID = {
    "metadata": f'{{"id":"{QUERY_ID}"}}'.encode(),
    "offsets/0": offsets_bytes('{"logOffset":0}'),
    "offsets/1": offsets_bytes('{"logOffset":1}'),
    "commits/0": commit_bytes(),
    "commits/1": commit_bytes(5),
    "sources/0/0": log_bytes([make_entry("/in/a.json", 0), make_entry("/in/b.json", 0)]),
    "sources/0/1": log_bytes([make_entry("/in/c.json", 1)]),
    "state/0/_metadata/metadata": (
        b'v1\n{"operatorInfo":{"operatorId":0,"operatorName":"dedupe"},'
        b'"stateStoreInfo":[{"storeName":"default","numColsPrefixKey":0,"numPartitions":1}]}'
    ),
    "state/0/0/1.delta": b"x",
    "state/0/0/2.delta": b"x",
}


def test_valid_files_are_valid(tmp_path: Path) -> None:
    """What the next test damages has no problem by itself."""
    for file, content in VALID.items():
        put(tmp_path / file, content)

    assert read(tmp_path).problems == ()


@given(
    broken=st.lists(
        st.sampled_from(sorted(VALID)).flatmap(lambda file: st.tuples(st.just(file), damaged(VALID[file]))),
        min_size=1,
        max_size=3,
    ),
    log_keys=st.sampled_from([None, {"0": "0"}, {"0": "9"}]),
)
def test_any_damage(
    tmp_path_factory: pytest.TempPathFactory, broken: list[tuple[str, bytes]], log_keys: dict[str, str] | None
) -> None:
    """Whatever happens to up to three files, reading gives a state whose problems lie in the damaged files."""
    checkpoint = tmp_path_factory.getbasetemp() / "any_damage"
    for file, content in [*VALID.items(), *broken]:
        put(checkpoint / file, content)
    state = outcome(lambda: read(checkpoint, log_keys=log_keys))

    assert isinstance(state, CheckpointState)
    damaged_files = {file for file, _ in broken}
    # An offset may be damaged into another one, also of as many sources as it has lines then, and a store into one that
    # is not there.
    lines = max((content.count(b"\n") for file, content in broken if file.startswith("offsets/")), default=0)
    further = (f"sources/{number}/" for number in range(1, lines))
    others = ("sources/0/", "sources/9/", "state/0/", *further)
    assert all(file in damaged_files or file.startswith(others) for _, file in found(state))
