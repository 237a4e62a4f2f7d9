"""Every table that has ever taken rows of a stream: `quarantine=` may be moved, and its rows stay where they were put.

<home>/<stream>/quarantines/<digest>.json
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import msgspec

from sluice.delta_log.table import find_table
from sluice.documents import Document, encode_document, read_document
from sluice.errors import Problem
from sluice.home import StreamHome
from sluice.locations import join
from sluice.paths import resolve_path
from sluice.project import Project
from sluice.storage import Storage
from sluice.stream import Stream


class _Quarantine(Document, frozen=True, kw_only=True):
    if_lost = (
        "delete it, if no earlier quarantine of the stream has rows: backfills would not know of them. That of today is"
        " noted anew with the next batch"
    )
    place: str
    """From the project's folder where it lies in it."""
    interval_column: str | msgspec.UnsetType | None = msgspec.UNSET
    """What its rows' intervals were computed from; None for nothing. Unset where that was not noted."""


def note_quarantine(project: Project, home: StreamHome, location: str, interval_column: str | None) -> None:
    """Remember a table that rows go to, and what their intervals are computed from; before the first one does.

    What was noted of another column is forgotten once no row is left.

    Raises:
        RefusedError: A file of the home is damaged.
        StorageError: It could not be written, or the table can't be read.
    """
    place = project.place(location)
    own = _file(home, place, interval_column)
    home.storage.put_if_absent(own, encode_document(_Quarantine(place=place, interval_column=interval_column)))
    others = [file for file, known in _known(home, but=own) if known.place == place]
    if others and not _has_rows(location, home.storage):
        for file in others:
            home.storage.delete(file)


def _file(home: StreamHome, place: str, interval_column: str | None) -> str:
    name = hashlib.sha256(f"{place}\n{interval_column or ''}".encode()).hexdigest()[:16]
    return home.quarantine_file(name)


def _known(home: StreamHome, *, but: str = "") -> Iterator[tuple[str, _Quarantine]]:
    """What was noted, with the file of each note; one file may be left unread."""
    folder = home.storage.list_folder(home.quarantines_folder())
    # What a killed driver has half written has another ending.
    for name in sorted(name for name in (folder.files if folder is not None else ()) if name.endswith(".json")):
        file = join(home.quarantines_folder(), name)
        known = read_document(home.storage, file, _Quarantine) if file != but else None
        if known is not None:
            yield file, known


def known_places(project: Project, stream: Stream, home: StreamHome) -> list[str]:
    """Where every table is that has ever taken rows of a stream, as far as that was noted.

    Raises:
        RefusedError: A file of the home is damaged.
        StorageError: The home can't be read.
    """
    return list(dict.fromkeys(_location(known, project, stream) for _, known in _known(home)))


def noted_columns(project: Project, home: StreamHome, location: str) -> set[str | None]:
    """By what the rows of a quarantine may count: each `interval_column` that was declared when some went there.

    Raises:
        RefusedError: A file of the home is damaged.
        StorageError: The home can't be read.
    """
    place = project.place(location)
    noted = [known.interval_column for _, known in _known(home) if known.place == place]
    return {column for column in noted if column is not msgspec.UNSET}


def _location(known: _Quarantine, project: Project, stream: Stream) -> str:
    return resolve_path(known.place, project.root, place=f"stream `{stream.name}`, quarantine")


def rows_elsewhere(project: Project, stream: Stream, home: StreamHome) -> Problem | None:
    """Why an interval can't be recomputed: rows of it may be in a quarantine that is declared no more.

    Raises:
        RefusedError: A file of the home is damaged.
        StorageError: A table can't be read.
    """
    declared = stream.quarantine_table if stream.quality is not None else None
    own = project.place(declared.location or "") if declared is not None else ""
    for _, known in _known(home):
        is_declared = known.place == own
        if is_declared and known.interval_column in {stream.interval_column, msgspec.UNSET}:
            continue
        location = _location(known, project, stream)
        if not _has_rows(location, home.storage):
            continue
        if is_declared:
            return Problem(
                code="QUARANTINE_LEFT",
                file=location,
                cause=f"rows were put into the quarantine while {_told(known.interval_column)}",
                consequence=f"whether their `{stream.interval_column}` was edited since can't be told: a row could end"
                " up in two tables, or in none",
                remedy="release or delete the rows of the quarantine first, or declare it as it was",
            )
        return Problem(
            code="QUARANTINE_LEFT",
            file=location,
            cause="an earlier quarantine of the stream still has rows",
            consequence="those of the interval would be recomputed, and be there a second time",
            remedy="declare it as `quarantine=` again, with `quality`, until its rows are released; or delete them",
        )
    return None


def _told(interval_column: str | msgspec.UnsetType | None) -> str:
    return (
        "no `interval_column` was declared" if interval_column is None else f"`interval_column` was `{interval_column}`"
    )


def _has_rows(location: str, storage: Storage) -> bool:
    table = find_table(location, storage=storage)
    return table is not None and bool(table.file_uris())
