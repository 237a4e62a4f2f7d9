"""Gives commits of a Delta table on this machine the time of a test bench, by which `until` and `starting` go."""

from __future__ import annotations

import json
import os
from datetime import datetime
from pathlib import Path

_COMMITS = "[0-9]*.json"


def newest_version(table: str) -> int:
    """The newest version of a Delta table; -1 where there is none.

    Args:
        table: Its folder.
    """
    commits = (file.stem for file in Path(table, "_delta_log").glob(_COMMITS))
    return max((int(name) for name in commits if name.isdigit()), default=-1)


def stamp_commits(table: str, now: datetime, *, after: int) -> None:
    """Give commits of a Delta table another time.

    Args:
        table: Its folder.
        now: The time.
        after: The newest version that keeps its own; -1 for none.
    """
    for commit in Path(table, "_delta_log").glob(_COMMITS):
        if not commit.stem.isdigit() or int(commit.stem) <= after:
            continue
        actions = [json.loads(line) for line in commit.read_text("utf-8").splitlines()]
        found = commit.stat()
        for action in actions:
            if "commitInfo" in action:
                action["commitInfo"]["timestamp"] = int(now.timestamp() * 1000)
        commit.write_text("".join(f"{json.dumps(action, separators=(',', ':'))}\n" for action in actions), "utf-8")
        # Delta deletes what is old by the time of the file, which stays.
        os.utime(commit, ns=(found.st_atime_ns, found.st_mtime_ns))
        commit.with_name(f".{commit.name}.crc").unlink(missing_ok=True)
