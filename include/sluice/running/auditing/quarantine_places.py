"""Every table that has ever taken rows of a stream: `quarantine=` may be moved, and its rows stay where they were put.

<home>/<stream>/quarantines/<digest>.json
"""

from __future__ import annotations

import hashlib

from sluice.delta_table import load_table, open_log
from sluice.documents import Document, encode_document, read_document
from sluice.errors import Problem
from sluice.home import StreamHome
from sluice.paths import resolve_path
from sluice.project import Project
from sluice.storage import Storage, join
from sluice.stream import Stream


class _Quarantine(Document, frozen=True, kw_only=True):
    place: str
    """From the project's folder where it lies in it."""


def note_quarantine(home: StreamHome, place: str) -> None:
    """Remember a table that rows go to; before the first one does.

    Raises:
        StorageError: It could not be written.
    """
    name = hashlib.sha256(place.encode()).hexdigest()[:16]
    home.storage.put_if_absent(
        join(home.quarantines_folder(), f"{name}.json"), encode_document(_Quarantine(place=place))
    )


def rows_elsewhere(project: Project, stream: Stream, home: StreamHome) -> Problem | None:
    """Why an interval can't be recomputed: rows of it may be in a quarantine that is declared no more.

    Raises:
        RefusedError: A file of the home is damaged.
        StorageError: A table can't be read.
    """
    declared = stream.quarantine_table if stream.quality is not None else None
    own = project.place(declared.location or "") if declared is not None else ""
    folder = home.storage.list_folder(home.quarantines_folder())
    for name in sorted(folder.files) if folder is not None else ():
        known = read_document(home.storage, join(home.quarantines_folder(), name), _Quarantine)
        if known is None or known.place == own:
            continue
        location = resolve_path(known.place, project.root, place=f"stream `{stream.name}`, quarantine")
        if _has_rows(location, home.storage):
            return Problem(
                code="QUARANTINE_LEFT",
                file=location,
                cause="a former quarantine of the stream still has rows",
                consequence="those of the interval would be recomputed, and be there a second time",
                remedy="declare it as `quarantine=` again, with `quality`, until its rows are released; or delete them",
            )
    return None


def _has_rows(location: str, storage: Storage) -> bool:
    return open_log(location, storage=storage) is not None and bool(load_table(location, storage=storage).file_uris())
