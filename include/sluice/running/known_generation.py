"""What is known of a generation while its run is at work: a drain reads a batch while the one before is recorded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock

from sluice.home import Generation, StreamHome


@dataclass
class KnownGeneration:
    """One generation, and its file in the home."""

    generation: Generation
    home: StreamHome
    _writing: Lock = field(default_factory=Lock)

    def keep(self, changed: Callable[[Generation], Generation]) -> None:
        """Change what is known, durably.

        Raises:
            LeaseLostError: Another run has taken over.
            StorageError: It could not be written.
        """
        with self._writing:
            found = changed(self.generation)
            if found != self.generation:
                self.home.keep_generation(found)
                self.generation = found
