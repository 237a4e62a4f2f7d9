"""The kinds of sources: one module per kind, each with everything about it."""

from sluice.sources.delta import delta
from sluice.sources.files import files

__all__ = ["delta", "files"]
