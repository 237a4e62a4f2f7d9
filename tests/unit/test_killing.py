"""How the demos kill a driver: in the middle of a batch, however fast it commits."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from demo.killing import kill_in_mid_batch
from sluice.documents import encode_document
from sluice.home import StreamHome
from sluice.project import Project
from sluice.runs.lease import LeaseFile
from sluice.runs.process import boot_id, machine, process
from tests.builders import NOW

_COMMITS = """\
import sys
from pathlib import Path

number = 0
while True:
    Path(sys.argv[1], "offsets", str(number)).touch()
    Path(sys.argv[1], "commits", str(number)).touch()
    for log in ("offsets", "commits"):
        Path(sys.argv[1], log, str(number - 1)).unlink(missing_ok=True)
    number += 1
"""
_RESTS = "import signal; signal.pause()"
_PATIENCE_SECONDS = 60


@contextmanager
def driver(home: StreamHome) -> Iterator[list[subprocess.Popen[bytes]]]:
    """A process that plans a batch and commits it, again and again, and one that is at rest; both have the lease."""
    checkpoint = Path(home.checkpoint_location(1))
    for log in ("offsets", "commits"):
        (checkpoint / log).mkdir(parents=True)
    with ExitStack() as ending:
        started = []
        for words in ([_COMMITS, str(checkpoint)], [_RESTS]):
            started.append(subprocess.Popen([sys.executable, "-c", *words]))
            ending.callback(started[-1].wait)
            ending.callback(started[-1].kill)
        lease = LeaseFile(
            token=1,
            run_id="r",
            host="h",
            machine=machine(),
            boot_id=boot_id(),
            processes=tuple(process(one.pid) for one in started),
            acquired_at=NOW,
            expires_at=NOW,
        )
        folder = Path(home.lease_folder(1))
        folder.mkdir(parents=True)
        (folder / "1.json").write_bytes(encode_document(lease))
        yield started


@pytest.mark.parametrize("number", range(5))
def test_a_batch_is_not_committed_by_then(tmp_path: Path, number: int) -> None:
    """What is told to be killed in the middle of a batch has not committed it since it was looked at."""
    home = Project(str(tmp_path), "p", str(tmp_path / "home"), stream_folders=(), import_roots=()).home_named("s")
    with driver(home) as processes:
        deadline, killed = time.monotonic() + _PATIENCE_SECONDS, None
        while killed is None and time.monotonic() < deadline:
            killed = kill_in_mid_batch(home)
        assert killed is not None
        for one in processes:
            assert one.wait(_PATIENCE_SECONDS) == -9
    newest = {
        # Nothing is committed where the first batch is killed.
        log: max((int(file.name) for file in (Path(home.checkpoint_location(1)) / log).iterdir()), default=-1)
        for log in ("offsets", "commits")
    }
    assert newest == {"offsets": killed, "commits": killed - 1}
