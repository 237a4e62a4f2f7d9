"""What the home knows of the files that a source took, beside what is in the source's own log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sluice.documents import Document, encode_document, read_document
from sluice.locations import join
from sluice.storage import Storage


class _Taken(Document, frozen=True, kw_only=True):
    if_lost = "delete it: a file that it tells of, and that is renamed, is then only warned of"
    sizes: tuple[int | None, ...]


class _Unread(Document, frozen=True, kw_only=True):
    if_lost = (
        "delete it: a file that it tells of, and that is brought back, is then set aside as a renamed one: touch it"
    )
    paths: tuple[str, ...]


class _Times(Document, frozen=True, kw_only=True):
    if_lost = "delete it: of a file that it tells of, it is then said that another one has taken its name"
    times_ms: dict[str, int]


@dataclass(frozen=True)
class TakenNotes:
    """The notes on the files of one log, each in a document of its own.

    Every method raises `RefusedError` where a document is damaged, and `StorageError` where one can't be written.
    """

    location: str
    storage: Storage

    def sizes(self, log_id: int) -> tuple[int | None, ...]:
        """The bytes of the files that a log id took, in the log's order; none where nobody noted them.

        Of a file that was gone when they were noted, None.
        """
        taken = read_document(self.storage, self._file(log_id), _Taken)
        return () if taken is None else taken.sizes

    def keep_sizes(self, log_id: int, sizes: Sequence[int | None]) -> None:
        """Note the bytes of the files that a log id takes, in the log's order; None where they are not known."""
        self.storage.replace(self._file(log_id), encode_document(_Taken(sizes=tuple(sizes))))

    def unread(self) -> frozenset[str]:
        """The files that count as taken, and of which Spark has read nothing: they were away just then."""
        unread = read_document(self.storage, self._file("unread"), _Unread)
        return frozenset() if unread is None else frozenset(unread.paths)

    def keep_unread(self, paths: Iterable[str]) -> None:
        """Note that Spark has read nothing of some files that count as taken."""
        every = sorted(self.unread().union(paths))
        self.storage.replace(self._file("unread"), encode_document(_Unread(paths=tuple(every))))

    def times_ms(self) -> dict[str, int]:
        """The times that files had when they were read, in milliseconds, where that is not the one in the log."""
        known = read_document(self.storage, self._file("times"), _Times)
        return {} if known is None else known.times_ms

    def keep_times(self, times_ms: Mapping[str, int]) -> None:
        """Note the times that files had when they were read."""
        every = self.times_ms() | dict(times_ms)
        self.storage.replace(self._file("times"), encode_document(_Times(times_ms=every)))

    def _file(self, name: int | str) -> str:
        return join(self.location, f"{name}.json")
