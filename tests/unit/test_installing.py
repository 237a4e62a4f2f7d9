"""What is installed is what was looked at: every package by its hash."""

from __future__ import annotations

import re
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]


def test_every_package_has_hashes() -> None:
    """pip and uv take packages from an index by their hashes only; the project itself needs none."""
    for name in ("Makefile", "Dockerfile"):
        text = (REPOSITORY / name).read_text("utf-8").replace("\\\n", " ")
        commands = re.findall(r"pip (?:install|sync)[^;&\n]*", text)
        assert commands
        for command in commands:
            is_project = re.search(r"--no-deps --no-build-isolation (--editable )?\.", command)
            assert is_project or "--require-hashes" in command, command


def test_uv_is_pinned() -> None:
    """The uv that the Makefile names is the one with the hashes."""
    version = re.search(r"^UV_VERSION := (\S+)$", (REPOSITORY / "Makefile").read_text("utf-8"), re.MULTILINE)
    pinned = (REPOSITORY / "requirements-uv.txt").read_text("utf-8")

    assert version is not None
    assert re.findall(r"^([a-z-]+==\S+)", pinned, re.MULTILINE) == [f"uv=={version[1]}"]
    assert len(re.findall(r"--hash=sha256:[0-9a-f]{64}", pinned)) > 1
