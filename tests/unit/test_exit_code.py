"""The exit code of a process is that of its work, whatever happens while it ends."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sluice.running import submit
from tests.builders import put

ABORTS = "import ctypes; libc = ctypes.CDLL(None); libc.__cxa_atexit(libc.abort, None, None)\n"
"""From now on the process aborts when it ends, as it does by threads of C++ that outlive Python."""
LEAVES = f"{ABORTS}import atexit, sys, threading, time\nfrom sluice.exit_code import leave_with\n"


def call(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-c", program, *arguments]
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)


def test_what_it_is_about() -> None:
    """Python's own end is the library's end, too: a run that was done would look as if it had failed."""
    assert call(f"{ABORTS}raise SystemExit(0)").returncode == -signal.SIGABRT


@pytest.mark.parametrize(
    ("work", "code"),
    [
        ("None", 0),
        ("4", 4),
        ("sys.exit()", 0),
        ("sys.exit(3)", 3),
        ("sys.exit('words')", 1),
        ("1 / 0", 1),
    ],
)
def test_codes(work: str, code: int) -> None:
    """What the work gives or exits with; an error that nobody foresaw is 1, with its trace."""
    done = call(f"{LEAVES}leave_with(lambda: {work})")
    assert done.returncode == code
    assert done.stderr.splitlines()[-1:] == {
        "sys.exit('words')": ["words"],
        "1 / 0": ["ZeroDivisionError: division by zero"],
    }.get(work, [])


def test_python_cleans_up() -> None:
    """Threads are waited for, exit functions called, and what was printed is written."""
    done = call(
        f"{LEAVES}"
        "def late(): time.sleep(0.2); print('thread')\n"
        "atexit.register(lambda: print('exit function'))\n"
        "threading.Thread(target=late).start()\n"
        "threading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n"
        "leave_with(lambda: print('work'))"
    )
    assert (done.returncode, done.stdout.split("\n")) == (0, ["work", "thread", "exit function", ""])


def test_a_pool_that_nobody_has_closed() -> None:
    """As Spark Connect's client leaves one: its threads wait for work until they are told to end."""
    pool = "from concurrent.futures import ThreadPoolExecutor\npool = ThreadPoolExecutor(1)\n"
    done = call(f"{LEAVES}{pool}leave_with(lambda: pool.submit(int, '4').result())")
    assert done.returncode == 4


def test_commands_and_drivers(tmp_path: Path) -> None:
    """Both end so."""
    put(tmp_path / "sluice.toml", "")
    (tmp_path / "streams").mkdir()
    arguments = ("plan", "none", "--project", str(tmp_path))
    command = call(f"{ABORTS}import sluice.cli.app; sluice.cli.app.main()", *arguments)
    assert (command.returncode, "there is no stream `none`" in command.stderr) == (2, True)
    driver = call(
        f"{ABORTS}import runpy; runpy.run_path({submit.__file__!r}, run_name='__main__')",
        *("--project", str(tmp_path), "--stream", "none"),
    )
    assert (driver.returncode, "there is no stream `none`" in driver.stderr) == (2, True)
