"""An Airflow of one's own, before its components run."""

from __future__ import annotations

import subprocess
from configparser import ConfigParser
from pathlib import Path

import pytest
from cryptography.fernet import Fernet

from demo.standalone import Standalone


def test_components_find_their_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them the same, each time; the first that found no file would write one, and the next read half of it."""
    found, popen = [], subprocess.Popen

    def start(command: list[str], **how: object) -> subprocess.Popen[bytes]:
        found.append((tmp_path / "home" / "airflow.cfg").read_text())
        return popen(["true"], start_new_session=True)  # ends at once

    monkeypatch.setattr("demo.standalone.subprocess.Popen", start)
    for _ in range(2):
        Standalone(tmp_path / "home", tmp_path, tmp_path).start().stop()

    assert len(found) == 10
    assert len(set(found)) == 1
    assert (tmp_path / "home" / "airflow.cfg").stat().st_mode & 0o777 == 0o600
    written = ConfigParser()
    written.read_string(found[0])
    Fernet(written["core"]["fernet_key"])
    assert written["api"]["secret_key"]
