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


NOWHERE = {"full": "/dev/full", "closed": "-"}
"""Where standard error may go: to a disk that is full, or nowhere."""


COMMAND = f"{ABORTS}import sluice.cli.app; sluice.cli.app.main()"
DRIVER = f"{ABORTS}import runpy; runpy.run_path({submit.__file__!r}, run_name='__main__')"


def call(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-c", program, *arguments]
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)


def call_unheard(nowhere: str, program: str, *arguments: str) -> int:
    """The exit code of a process whose standard error goes nowhere."""
    to = f'exec "$@" 2>{"&" if nowhere == "closed" else ""}{NOWHERE[nowhere]}'
    words = ["/bin/sh", "-c", to, "sh", sys.executable, "-c", program, *arguments]
    return subprocess.run(words, stdout=subprocess.DEVNULL, check=False, timeout=120).returncode


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
        "def late(): threading.main_thread().join(); print('thread')\n"
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


@pytest.fixture
def project(tmp_path: Path) -> str:
    put(tmp_path / "sluice.toml", "")
    (tmp_path / "streams").mkdir()
    return str(tmp_path)


def test_commands_and_drivers(project: str) -> None:
    """Both end so."""
    command = call(COMMAND, "plan", "none", "--project", project)
    assert (command.returncode, "there is no stream `none`" in command.stderr) == (2, True)
    driver = call(DRIVER, "--project", project, "--stream", "none")
    assert (driver.returncode, "there is no stream `none`" in driver.stderr) == (2, True)


@pytest.mark.parametrize("nowhere", NOWHERE)
@pytest.mark.parametrize(
    ("program", "words"),
    [
        (COMMAND, ("plan", "none", "--project", "PROJECT")),
        (COMMAND, ("run", "none", "--project", "PROJECT")),
        (COMMAND, ("no-command",)),
        (DRIVER, ("--project", "PROJECT", "--stream", "none")),
        (DRIVER, ("--no-option",)),
    ],
    ids=["plan", "run", "a typing error", "a driver", "a driver's typing error"],
)
def test_an_error_that_nobody_hears(project: str, nowhere: str, program: str, words: tuple[str, ...]) -> None:
    """It keeps its code where its words can't be written."""
    assert call_unheard(nowhere, program, *(project if word == "PROJECT" else word for word in words)) == 2


@pytest.mark.parametrize("nowhere", NOWHERE)
@pytest.mark.parametrize(("work", "code"), [("4", 4), ("sys.exit('words')", 1), ("1 / 0", 1), ("sys.exit(259)", 3)])
def test_work_that_nobody_hears(nowhere: str, work: str, code: int) -> None:
    """It is done to its end, however much it says, and ends the process as ever."""
    said = "[print('x' * 10**5, file=sys.stderr, flush=True) for _ in range(9)]"
    assert call_unheard(nowhere, f"{LEAVES}leave_with(lambda: ({said}, {work})[1])") == code


def test_words_to_a_closed_error_stay_out_of_the_answer() -> None:
    """Python prints to standard output what it is told to print to none."""
    words = ["/bin/sh", "-c", 'exec "$@" 2>&-', "sh", sys.executable, "-c"]
    program = f"{LEAVES}leave_with(lambda: print('words', file=sys.stderr))"
    assert subprocess.run([*words, program], stdout=subprocess.PIPE, check=False, timeout=120).stdout == b""


ENDLESS = {
    "thread": "threading.Thread(target=lambda: (interrupt(), threading.Event().wait())).start()\n",
    "function": "atexit.register(threading.Event().wait)\nthreading.Thread(target=interrupt, daemon=True).start()\n",
}
INTERRUPTED = """
import os, signal
ends, heard = threading.Event(), threading.Event()
def hear(*_):
    heard.set()
    raise KeyboardInterrupt
signal.signal(signal.SIGINT, hear)
def interrupt():
    ends.wait()
    # A signal that comes just before a lock is waited for is heard by the next one.
    while not heard.wait(0.1):
        os.kill(os.getpid(), signal.SIGINT)
"""


@pytest.mark.parametrize("waits", ENDLESS)
def test_ctrl_c_at_the_end(waits: str) -> None:
    """Who waits no longer for what others still do has the work's code all the same; what was printed is written."""
    begins = {"thread": "threading._register_atexit(ends.set)\n", "function": "atexit.register(ends.set)\n"}[waits]
    # Exit functions are called in reverse order: `ends` is set, then the other one waits.
    done = call(f"{LEAVES}{INTERRUPTED}{ENDLESS[waits]}{begins}leave_with(lambda: (print('done'), 4)[1])")
    assert (done.returncode, done.stdout) == (4, "done\n")
