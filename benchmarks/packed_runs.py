"""Twenty small streams: one packed run against a `sluice run` each, and a hand-written `spark-submit` each."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from itertools import count, islice
from pathlib import Path

from benchmarks.measure import SCRIPTS, Cost, Figure, ratio, run
from benchmarks.workload import SCHEMA, arrive, make_project
from sluice.spark import jars

STREAMS = 20
SAMPLE = 4
"""How many of the streams are run one by one in a round: they are alike, and each is a process of its own."""
ROUNDS = 3
FILES_PER_ROUND = 2
ROWS = 2_000
_DECLARATIONS = f"""
from sluice import Stream, sinks, sources
for number in range({STREAMS}):
    globals()[f"s{{number:02}}"] = Stream(
        name=f"s{{number:02}}",
        sources={{"events": sources.files(f"in/{{number:02}}", format="json", schema="{SCHEMA}")}},
        transform="transform:events",
        sink=sinks.delta(f"out/{{number:02}}"),
    )
"""


def measure() -> list[Figure]:
    """Every round, the same few files arrive for each stream; the sides take them in turn, each into its own tables."""
    with tempfile.TemporaryDirectory() as folder:
        found = list(islice(packed_rounds(Path(folder), singly=SAMPLE, by_hand=SAMPLE), ROUNDS + 1))[1:]
    together, singly, by_hand = ([costs[side] for costs in found] for side in range(3))
    name = f"{STREAMS} small streams packed"
    return [
        packed_figure(together, by_hand),
        ratio(f"{name}, against as many runs, CPU", together, singly, None, "s"),
    ]


def packed_rounds(folder: Path, *, singly: int, by_hand: int) -> Iterator[tuple[float, float, float]]:
    """CPU seconds of one packed run, of as many runs, and of as many submits, round by round; the first reads more.

    Args:
        folder: Where the sides are made.
        singly: How many of the streams are run one by one.
        by_hand: How many are submitted.
    """
    packed, alone = (_make_project(folder / side) for side in ("packed", "alone"))
    for number in count():
        for root in (packed, alone):
            for stream in range(STREAMS):
                arrive(root / "in" / f"{stream:02}", FILES_PER_ROUND, ROWS, prefix=f"round{number}-")
        yield (
            run([str(SCRIPTS / "sluice"), "run", "--all"], cwd=packed).cpu_seconds,
            _of_all([run([str(SCRIPTS / "sluice"), "run", f"s{stream:02}"], cwd=alone) for stream in range(singly)]),
            _of_all([_by_hand(alone, stream) for stream in range(by_hand)]),
        )


def packed_figure(together: Sequence[float], by_hand: Sequence[float]) -> Figure:
    """The figure of some rounds, in CPU seconds of all streams."""
    name = f"{STREAMS} small streams packed, against as many spark-submits, CPU"
    return ratio(name, together, by_hand, 0.1, "s")


def _make_project(root: Path) -> Path:
    make_project(root, files_per_batch=1000)
    (root / "streams" / "events.py").write_text(_DECLARATIONS)
    script = (root / "by_hand.py").read_text().replace("files = sys.argv[1:]", "files, stream = sys.argv[1:]")
    for place in ("in", "checkpoint", "by_hand"):
        script = script.replace(f'"{place}"', f'"{place}/" + stream')
    (root / "by_hand.py").write_text(script)
    for stream in range(STREAMS):
        (root / "in" / f"{stream:02}").mkdir()
    return root


def _by_hand(root: Path, stream: int) -> Cost:
    submit = [str(SCRIPTS / "spark-submit"), "--driver-class-path", ":".join(jars.class_path())]
    return run([*submit, "by_hand.py", ":".join(jars.class_path()), "1000", f"{stream:02}"], cwd=root)


def _of_all(sample: list[Cost]) -> float:
    """CPU seconds of all streams, by those of some."""
    return sum(cost.cpu_seconds for cost in sample) / max(len(sample), 1) * STREAMS
