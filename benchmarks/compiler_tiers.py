"""Where Java's second compiler pays off: the same plans with the first tier alone, and with all of them."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from benchmarks.measure import ROUNDS, SCRIPTS, Cost, Figure, ratio, run
from benchmarks.workload import arrive, make_project

_MIB = 1024 * 1024
_ROWS = 50_000
_PLANS = {"16 MiB": (16, 1000), "64 MiB": (64, 1000), "192 MiB": (192, 1000), "40 batches": (1, 1)}
"""MiB to read, or the batches for a plan of small ones; and the files of a batch."""
_TIERS = {"first": "-XX:TieredStopAtLevel=1", "all": "-XX:TieredStopAtLevel=4"}


def measure() -> list[Figure]:
    """CPU and wall of the first tier alone, to all tiers: below 1, the second compiler works in vain."""
    figures = []
    for name, (size, files_per_batch) in _PLANS.items():
        with tempfile.TemporaryDirectory() as folder:
            roots = {
                tier: _project(Path(folder, tier), size, files_per_batch, option) for tier, option in _TIERS.items()
            }
            costs: dict[str, list[Cost]] = {tier: [] for tier in _TIERS}
            for _ in range(ROUNDS):
                for tier, root in roots.items():
                    costs[tier].append(run([str(SCRIPTS / "sluice"), "run", "events"], cwd=root))
                    for left in ("var", "out"):
                        shutil.rmtree(root / left)
        for unit in ("cpu_seconds", "wall_seconds"):
            first, both = ([getattr(cost, unit) for cost in costs[tier]] for tier in _TIERS)
            figures.append(ratio(f"first tier alone, {name}, {unit.partition('_')[0]}", first, both, None, "s"))
    return figures


def _project(root: Path, size: int, files_per_batch: int, option: str) -> Path:
    landing = make_project(root, files_per_batch=files_per_batch)
    with (root / "sluice.toml").open("a") as file:
        file.write(f'conf = {{ "spark.driver.extraJavaOptions" = "{option}" }}\n')
    if files_per_batch == 1:
        arrive(landing, 40, _ROWS // 10)
        return root
    arrive(landing, 1, _ROWS)
    first = landing / "f000000.json"
    for number in range(1, size * _MIB // first.stat().st_size):
        shutil.copy(first, landing / f"f{number:06d}.json")
    return root
