"""`python -m sluice`: the command line."""

from __future__ import annotations

from sluice.cli.app import main

if __name__ == "__main__":
    main()
