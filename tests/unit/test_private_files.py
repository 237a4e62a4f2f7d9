"""Files and folders of ours are their owner's only, whatever the umask says; nobody else's folder is trusted."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sluice.errors import RunError, StorageError
from sluice.home import StreamHome
from sluice.local_disk import make_folder
from sluice.runs.driver import Drivers, private_folder
from sluice.storage import Storage
from tests.builders import put

NOW = datetime(2026, 1, 31, tzinfo=UTC)
RUN = "20260131T120000000Z-00000001"


@pytest.fixture(autouse=True, params=[0o000, 0o022, 0o077])
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    """What the process would allow others."""
    before = os.umask(request.param)
    yield
    os.umask(before)


def modes(folder: Path) -> dict[str, int]:
    """Who may do what with everything below a folder."""
    return {str(path.relative_to(folder)): stat.S_IMODE(path.stat().st_mode) for path in folder.rglob("*")}


def test_files_of_the_home(tmp_path: Path) -> None:
    """Records, leases and logs of offsets: made, replaced, and the folders above them."""
    storage = Storage()
    storage.replace(str(tmp_path / "home" / "s" / "runs" / "1.json"), b"{}")
    storage.replace(str(tmp_path / "home" / "s" / "runs" / "1.json"), b"{} ")
    storage.put_if_absent(str(tmp_path / "home" / "s" / "leases" / "1.json"), b"{}")

    found = modes(tmp_path)

    assert {mode for name, mode in found.items() if name.endswith(".json")} == {0o600}
    assert {mode for name, mode in found.items() if not name.endswith(".json")} == {0o700}


def test_a_folder_that_is_there_is_left(tmp_path: Path) -> None:
    """Who made the home may have meant to share it."""
    (tmp_path / "home").mkdir()
    (tmp_path / "home").chmod(0o755)

    make_folder(str(tmp_path / "home" / "s"))

    assert modes(tmp_path) == {"home": 0o755, "home/s": 0o700}


@pytest.mark.parametrize("old", [None, 0o644])
def test_logs_of_drivers(tmp_path: Path, old: int | None) -> None:
    """What Spark writes in there is its own business; a log of before is closed, too."""
    home = StreamHome(str(tmp_path / "home" / "s"), Storage())
    log = tmp_path / "home" / "s" / "drivers" / f"{RUN}.log"
    if old is not None:
        put(log, "said\n").chmod(old)

    driver = Drivers(home).launch(RUN, [sys.executable, "-c", ""], {}, NOW)

    assert driver.log == str(log)
    assert stat.S_IMODE(log.stat().st_mode) == 0o600


def test_a_log_that_leads_elsewhere(tmp_path: Path) -> None:
    """A link in the place of a log is not followed."""
    home = StreamHome(str(tmp_path / "home" / "s"), Storage())
    target = put(tmp_path / "target", "")
    log = tmp_path / "home" / "s" / "drivers" / f"{RUN}.log"
    log.parent.mkdir(parents=True)
    log.symlink_to(target)

    with pytest.raises(RunError, match="could not be started"):
        Drivers(home).launch(RUN, [sys.executable, "-c", "print(1)"], {}, NOW)
    assert target.read_text() == ""


def test_a_temporary_folder_of_ones_own(tmp_path: Path) -> None:
    """It is made, and found again."""
    assert private_folder(tmp_path / "sluice-0") == private_folder(tmp_path / "sluice-0")
    assert modes(tmp_path) == {"sluice-0": 0o700}


def test_a_temporary_folder_that_others_may_write(tmp_path: Path) -> None:
    """Whatever is in it may be theirs."""
    (tmp_path / "sluice-0").mkdir()
    (tmp_path / "sluice-0").chmod(0o777)

    with pytest.raises(RunError, match="not this user's alone"):
        private_folder(tmp_path / "sluice-0")


def test_a_temporary_folder_that_leads_elsewhere(tmp_path: Path) -> None:
    """A link that somebody has put there beforehand is no folder."""
    (tmp_path / "theirs").mkdir(mode=0o700)
    (tmp_path / "sluice-0").symlink_to(tmp_path / "theirs")

    with pytest.raises(RunError, match="not this user's alone"):
        private_folder(tmp_path / "sluice-0")


def test_a_temporary_folder_of_somebody_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its owner could read what is written there."""
    (tmp_path / "sluice-0").mkdir(mode=0o700)
    monkeypatch.setattr(os, "getuid", lambda: (tmp_path / "sluice-0").stat().st_uid + 1)

    with pytest.raises(RunError, match="not this user's alone"):
        private_folder(tmp_path / "sluice-0")


def test_a_folder_that_can_not_be_made(tmp_path: Path) -> None:
    """The error names it."""
    put(tmp_path / "file", "")

    with pytest.raises(StorageError, match="could not make it"):
        make_folder(str(tmp_path / "file" / "home"))
