"""A stream that would read what it writes: each run the rows of the one before, and so on for ever."""

from __future__ import annotations

from sluice.errors import DeclarationError
from sluice.stream import Stream
from sluice.table_writers import written_tables


def check_own_output(stream: Stream, home: str) -> None:
    """Make sure that no source reads from where the stream, or its home, is written.

    Args:
        stream: The declaration, with absolute locations.
        home: The project's home, as a location.

    Raises:
        DeclarationError: One does.
    """
    places = {f"the {table}": place for table, place in written_tables(stream).items()}
    places |= {"the checkpoint": stream.checkpoint} if stream.checkpoint else {}
    for name, source in stream.sources.items():
        for what, place in {**places, "the project's home": home}.items():
            if source.reads_from(place):
                raise DeclarationError(
                    f"source `{name}` reads from where {what} is written: every run would read what came before it",
                    where=f"{stream.place}, {place}",
                    remedy=f"let {what} lie elsewhere",
                )
