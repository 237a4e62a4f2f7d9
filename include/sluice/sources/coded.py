"""What a source promises that is read by a class of the project's own: found by `isinstance`, as what others can do."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Self

from sluice.sources.contract import Source


class CodedSource(Source):
    """A source that a class of the project's code reads, in Spark's Python workers."""

    planning_method: ClassVar[str]
    """The method of the class that only decides batches, if it has one: whatever it says makes no row another one."""

    @property
    @abstractmethod
    def reference(self) -> str:
        """The class, as `module:Class`."""

    @abstractmethod
    def importing(self, import_roots: Sequence[str]) -> Self:
        """The same source, whose class is imported from these roots."""

    @abstractmethod
    def load(self) -> type:
        """Import the class, as it is now. Starts no JVM.

        Raises:
            DeclarationError: It does not import, or reads no stream.
        """
