"""Where a stream reads and writes in a bench: below the bench's own folder, whatever it declares.

A relative path stays the same below that folder, so that a stream which reads what another one writes does so here,
too. Any other gets a folder of its own by its text.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace

from sluice.errors import DeclarationError
from sluice.locations import is_within, join, local_path
from sluice.sinks.bench import BenchSink
from sluice.sinks.contract import Sink
from sluice.sources.bench import BenchSource
from sluice.sources.contract import Source
from sluice.storage import Storage
from sluice.stream import Stream

_PATTERN = re.compile(r"[*?]+|\[[^\]]*\]|(?<!\$)\{[^}]*\}")
_ANY = "any"
"""What stands for a part of a pattern that may be anything."""
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_OUTSIDE = "elsewhere"


@dataclass(frozen=True)
class Places:
    """The bench's folder, and the user's project whose streams are brought into it."""

    folder: str
    project_root: str
    project_home: str

    @property
    def home(self) -> str:
        """The home of the bench."""
        return join(self.folder, "home")

    def of(self, location: str) -> str:
        """The place of a declared location in the bench; a pattern has a folder of its own."""
        path = _PATTERN.sub(_ANY, local_path(location) if location.startswith("file:") else location)
        if path.startswith("/"):
            for root, own in ((self.project_home, self.home), (self.project_root, self.folder)):
                if root.startswith("/") and is_within(path, root):
                    return os.path.normpath(join(own, os.path.relpath(path, root)))
        elif not _SCHEME.match(path) and "$" not in path and not os.path.normpath(path).startswith(".."):
            return os.path.normpath(join(self.folder, path))
        # No name begins as those do that Spark takes for hidden.
        parts = re.sub(r"[^\w./=-]+", "-", path).split("/")
        return join(self.folder, _OUTSIDE, *(part for part in parts if part not in {"", ".", ".."}))

    def stream(self, stream: Stream, given_sink: Sink | None) -> Stream:
        """A stream that reads and writes in the bench alone.

        Args:
            stream: As it is declared, with what the test says otherwise.
            given_sink: The sink, where the test names one: it is written as it is where it is no place.

        Raises:
            DeclarationError: A source can't be given rows, or nobody knows where the sink would write.
        """
        sources = {name: self._source(source, name, stream) for name, source in stream.sources.items()}
        quarantine = stream.quarantine
        return replace(
            stream,
            sources=sources,
            sink=self._sink(stream.sink, stream, is_given=given_sink is not None),
            quarantine=None if quarantine is None else self._sink(quarantine, stream, is_given=False),
            checkpoint=None,
        )

    def _source(self, source: Source, name: str, stream: Stream) -> Source:
        if isinstance(source, BenchSource):
            return source.placed(self.of)
        columns = source.columns(None, storage=Storage())
        told = columns if isinstance(columns, str) else "..."
        raise DeclarationError(
            f"source `{name}` is one of {source.kind}, which a bench can't give rows",
            where=stream.place,
            remedy="give it files in its place, with its columns: bench.open(..., sources="
            f'{{"{name}": sources.files("{name}", format="parquet", schema="{told}")}})',
        )

    def _sink(self, sink: Sink, stream: Stream, *, is_given: bool) -> Sink:
        if isinstance(sink, BenchSink):
            return sink.placed(self.of, stream.name)
        if not is_given:
            raise DeclarationError(
                f"the sink is one of {sink.kind}, and a bench does not know where it writes",
                where=stream.place,
                remedy="keep the rows: bench.open(..., sink=sinks.memory()); or let it write as it does:"
                " bench.open(..., sink=STREAM.sink)",
            )
        return sink
