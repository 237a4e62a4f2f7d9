"""What the text of a module holds is told to each who asks, however deep an earlier one stood."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from sluice.planning.module_words import ModuleWords
from tests.builders import put


def deep(frames: int, ask: Callable[[], tuple[str, ...]]) -> tuple[str, ...]:
    return ask() if frames == 0 else deep(frames - 1, ask)


def test_who_asks_first_from_far_down(tmp_path: Path) -> None:
    """He gets the first of the words, for Python walks no deeper; that is nobody else's answer."""
    text = "SUM = " + " + ".join(["'a'"] * 200) + "\nSALT = 'later-9-secret'\n"
    module = put(tmp_path / "m.py", text)

    def ask() -> tuple[str, ...]:
        words = ModuleWords()
        words.read(str(module))
        return words.secrets()

    assert deep(700, ask) == ()
    assert ask() == ("later-9-secret",)
