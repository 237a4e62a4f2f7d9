"""Makes the project of the examples of operators, with days of real flights and weather: `python -m demo.operators`."""

from __future__ import annotations

from pathlib import Path

from demo.landing import land_days
from demo.project_file import write_project
from demo.standalone import REPOSITORY

DAYS = 3


def make_project(folder: Path) -> None:
    """Write the project's file, and let the first days of the year arrive; what is there stays."""
    landing = folder / "data" / "landing"
    land_days(landing / "flights", landing / "weather", DAYS)
    write_project(folder, "operators", Path(__file__).parent / "streams")


def main() -> None:
    """Make it below `var`, and tell what to do with it."""
    folder = REPOSITORY / "var" / "operators"
    make_project(folder)
    print(f"""\
The examples of operators are in {folder}, with {DAYS} days of flights and weather:
  sluice list --project {folder}
  sluice run tumbling_window --project {folder}
  sluice state tumbling_window --project {folder}""")


if __name__ == "__main__":
    main()
