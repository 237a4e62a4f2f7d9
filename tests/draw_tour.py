"""Writes into `docs/engine-tour.md` what its commands print today: `python -m tests.draw_tour`.

A test says when it is due.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from tests.shown_code import played

PAGE = Path(__file__).parents[1] / "docs" / "engine-tour.md"


def main() -> None:
    """Play the page in a folder that is new, and keep what differs."""
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        PAGE.write_text(played(PAGE.read_text("utf-8"), Path(folder)), "utf-8")


if __name__ == "__main__":
    main()
