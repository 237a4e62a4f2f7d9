"""The kinds of sources: one module per kind, each with everything about it."""

from sluice.sources.delta.source import delta
from sluice.sources.files.source import files

__all__ = ["delta", "files"]
