"""Whatever files of a checkpoint are gone or damaged: Sluice goes on just where Spark loses and doubles nothing."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from hypothesis import example, given
from hypothesis import strategies as st

from tests.engine_model import EngineError, Log
from tests.unit.engine_lab import AppendingSink, Lab, leave_pending, make_lab, write_file

DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "garbage": lambda _: b"\xffgarbage",
    "unknown version": lambda content: content.replace(b"v1", b"v99", 1),
    "cut off": lambda content: content[:-2],
    "zeros": lambda content: bytes(len(content)),
}
LATER = 5
"""How many files arrive once the damage is done and survived."""
GONE = ("gone", "gone, but for its checksum")
folders = st.sampled_from(["offsets", "commits", "offsets", "commits", "sources/0", "."])
ages = st.sampled_from([0, 0, 0, 1, 1, 2, 3])
damages = st.lists(st.tuples(folders, ages, st.sampled_from(["gone"]) | st.sampled_from([*GONE, *DAMAGE])), max_size=4)
"""By folder, which file (counted from the newest) gets which damage."""


@example(
    batches=1,
    crash="before the sink",
    damages=[("offsets", 0, "gone, but for its checksum"), ("offsets", 0, "gone"), ("commits", 0, "gone")],
    new_files=0,
)
@given(
    batches=st.sampled_from([1, 2, 3, 8, 9, 10, 11]),
    crash=st.sampled_from([None, "before the offsets", "before the sink", "before the commit"]),
    damages=damages,
    new_files=st.integers(0, 2),
)
def test_verdict_follows_what_spark_would_do(
    batches: int, crash: str | None, damages: list[tuple[str, int, str]], new_files: int
) -> None:
    """The plan refuses, naming a file that is damaged, where Spark fails, loses or doubles; else its run is exact."""
    with tempfile.TemporaryDirectory() as folder:
        lab = make_lab(Path(folder), sink=AppendingSink, max_files_per_batch=1)
        make_history(lab, batches, crash)
        touched = {path for damage in damages for path in do_damage(lab.checkpoint, *damage)}
        make_sink_agree(lab)
        for _ in range(new_files):
            lab.arrive(lab.rows)
        is_safe, next_batch = what_spark_does(lab)
        plan = lab.plan()
        assert (plan.verdict != "refuse") == is_safe
        if plan.problem is not None:
            assert Path(plan.problem.file) in touched
        else:
            assert [batch.batch_id for batch in plan.batches[:1]] == next_batch
            lab.run()
            assert lab.sink.ids() == Counter(range(lab.rows))


def make_history(lab: Lab, batches: int, crash: str | None) -> None:
    """Let Spark run batches of one file each, and kill it in one more."""
    for _ in range(batches):
        lab.arrive(lab.rows)
    lab.engine().available_now()
    if crash is not None:
        leave_pending(lab, seconds=lab.rows, point=crash)


def do_damage(checkpoint: Path, folder: str, age: int, kind: str) -> list[Path]:
    """Damage the file that is the `age`-th from the newest; gives the files that a problem may name."""
    files = [path for path in (checkpoint / folder).iterdir() if path.is_file() and not path.name.startswith(".")]
    files.sort(key=lambda path: int(path.stem) if path.stem.isdigit() else 0, reverse=True)
    if age >= len(files):
        return []
    file, sidecar = files[age], files[age].with_name(f".{files[age].name}.crc")
    if kind in GONE:
        file.unlink()
        if kind == "gone":
            sidecar.unlink(missing_ok=True)
        return [file, sidecar]
    file.write_bytes(DAMAGE[kind](file.read_bytes()))
    return [file]


def make_sink_agree(lab: Lab) -> None:
    """Let the sink hold what the commits say: every batch up to the newest commit, and nothing after it."""
    newest = Log(lab.checkpoint / "commits").latest()
    for file in Path(lab.sink.path).glob("*/*.json"):
        if newest is None or int(file.stem.split("-")[0]) > newest:
            file.unlink()


def what_spark_does(lab: Lab) -> tuple[bool, list[int]]:
    """On a copy, whether Spark goes on without losing or doubling a row, and which batch it runs first, if any.

    It is safe if it goes on with later files, too: a checksum may wait for the batch after the next.
    """
    copy, sink = lab.root / "copy", AppendingSink(str(lab.root / "sink-copy"))
    shutil.copytree(lab.checkpoint, copy)
    shutil.copytree(lab.sink.path, sink.path)
    engine = lab.engine(str(copy))
    engine.sink = sink
    later = [Path(lab.stream.sources["landing"].location, f"later{number}.json") for number in range(LATER)]
    try:
        engine.available_now()
        is_exact = sink.ids() == Counter(range(lab.rows))
        for number, file in enumerate(later, lab.rows):
            write_file(file, [{"id": number, "at": 0}], number)
        then = lab.engine(str(copy))
        then.sink = sink
        then.available_now()
    except EngineError:
        return False, []
    finally:
        for file in later:
            file.unlink(missing_ok=True)
    return is_exact, engine.ran[:1]
