"""Files of declarations: the streams that they declare, and what is wrong with others."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.util
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

from sluice.declaration_checks import missing_kind
from sluice.errors import DeclarationError, SluiceError
from sluice.foreign_code import described, error_line, foreign_code, is_failure
from sluice.locations import canonical_location, is_local, is_within
from sluice.made_streams import Lost, Makings, kept_streams
from sluice.paths import resolve_path
from sluice.sources.coded import CodedSource
from sluice.sources.contract import Source
from sluice.stream import Stream
from sluice.surroundings import Surroundings


@dataclass(frozen=True)
class DeclaredStream:
    """A stream with absolute locations, and the file that declares it."""

    stream: Stream
    file: str


@dataclass(frozen=True)
class Unusable:
    """Why a stream can't be used, and the file that declares it."""

    error: DeclarationError
    file: str


@dataclass(frozen=True)
class Declarations:
    """What the files of a project declare, in the order of files and lines."""

    streams: dict[str, DeclaredStream]
    """By name, those that can be used."""
    unusable: dict[str, Unusable]
    """By name, those that can't: declared twice, made and not kept, with the checkpoint of another one, at a place
    outside the project."""
    unreadable: dict[str, DeclarationError]
    """By file, why it does not load."""
    names: tuple[str, ...]
    """Of every stream that a file declares."""

    def usable(self) -> dict[str, Stream]:
        """The streams that can be used, by name."""
        return {name: declared.stream for name, declared in self.streams.items()}

    def errors(self) -> list[tuple[str, DeclarationError]]:
        """Everything that is wrong, with the file where it is."""
        return [*self.unreadable.items(), *((found.file, found.error) for found in self.unusable.values())]


def read_declarations(
    files: Iterable[str],
    around: Surroundings,
    *,
    wanted: str | None = None,
    load: Callable[[str], Sequence[Stream]] | None = None,
) -> Declarations:
    """Load files of declarations; what is wrong with one stream, or with one file, hides no other.

    Args:
        files: Where they are.
        around: What they are resolved by.
        wanted: The one stream whose locations are needed; when not given, those of all are.
        load: What loads a file, or raises a `DeclarationError`; `load_declarations` when not given.
    """
    declared: dict[str, tuple[Stream, str]] = {}
    unusable: dict[str, Unusable] = {}
    unreadable: dict[str, DeclarationError] = {}
    lost: list[tuple[Lost, str]] = []
    for file in files:
        try:
            found = _load(file) if load is None else Loaded(tuple(load(file)))
        except DeclarationError as exc:
            unreadable[file] = exc
            continue
        for stream in found.streams:
            first = declared.setdefault(stream.name, (stream, file))[0]
            # One that another module has made may be imported by several files.
            if first is not stream:
                unusable[stream.name] = Unusable(_declared_twice(first, stream), file)
        lost += [(making, file) for making in found.lost]
    for making, file in lost:
        name = making.stream.name
        twice = _declared_twice(declared[name][0], making.stream) if name in declared else _lost(making)
        unusable.setdefault(name, Unusable(twice, file))
    for name, error in _shared_checkpoints(declared, around.root).items():
        unusable.setdefault(name, Unusable(error, declared[name][1]))
    streams: dict[str, DeclaredStream] = {}
    for name, (stream, file) in declared.items():
        if name not in unusable and wanted in {None, name}:
            try:
                streams[name] = DeclaredStream(_resolve(stream, file, around), file)
            except DeclarationError as exc:
                unusable[name] = Unusable(exc, file)
    names = dict.fromkeys([*declared, *(making.stream.name for making, _ in lost)])
    return Declarations(streams, unusable, unreadable, tuple(names))


def _declared_twice(first: Stream, second: Stream) -> DeclarationError:
    where = " and ".join(dict.fromkeys(stream.declared_at or stream.place for stream in (first, second)))
    return DeclarationError(
        f"stream `{second.name}` is declared twice", where=where, remedy="give one of them another name"
    )


def _lost(making: Lost) -> DeclarationError:
    return DeclarationError(
        f"stream `{making.stream.name}` is made, and nothing at the top level of the file has it any more",
        where=making.place,
        remedy="give it a name of its own there, or keep it in a list, tuple or dict",
    )


@dataclass(frozen=True)
class Loaded:
    """What one file declares, in order."""

    streams: tuple[Stream, ...]
    lost: tuple[Lost, ...] = ()
    """Those that it has made and does not keep."""


def load_declarations(file: str) -> list[Stream]:
    """Import one declaration file under a private module name and return its streams, in order.

    They are at its top level: by names, or in lists, tuples and dicts.

    Raises:
        DeclarationError: The file does not import; the message names the line.
    """
    return list(_load(file).streams)


def _load(file: str) -> Loaded:
    """What a file declares. A process imports it once, and again when it has changed: a DAG file may name a hundred.

    Raises:
        DeclarationError: See `load_declarations`.
    """
    try:
        found = os.stat(file)
    except OSError as exc:
        raise DeclarationError(
            f"the declaration can't be read: {exc.strerror}", where=file, remedy="check that it exists"
        ) from exc
    return _imported(file, (found.st_mtime_ns, found.st_size, found.st_ino))


@functools.lru_cache(maxsize=4096)
def _imported(file: str, version: tuple[int, ...]) -> Loaded:  # noqa: ARG001 - the key
    with Makings.of(file) as makings:
        module = import_file(file, "declaration")
    return Loaded(makings.declared(module), makings.lost(kept_streams(module)))


def import_file(file: str, what: str) -> ModuleType:
    """Import a file under a private module name, for files may be called alike.

    Args:
        file: Where it is.
        what: What it is to have, for messages: `declaration`.

    Raises:
        DeclarationError: It does not import; the message names the line.
    """
    name = f"_sluice_{what}_{hashlib.sha256(file.encode()).hexdigest()[:16]}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise DeclarationError("the file can't be imported", where=file, remedy="give it the ending .py")
    module = importlib.util.module_from_spec(spec)
    # Where dataclasses and others look up what annotations name.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except SluiceError as exc:
        sys.modules.pop(name, None)
        found = DeclarationError(exc.problem, where=exc.where, remedy=exc.remedy)
        raise found.at(error_line(exc, file) or file) from exc
    except BaseException as exc:
        sys.modules.pop(name, None)
        if not is_failure(exc):
            raise
        found = missing_kind(exc) or DeclarationError(
            f"the {what} does not import: {' '.join(described(exc).split())}",
            remedy="correct it; `sluice check` shows every problem",
        )
        raise found.at(error_line(exc, file) or file) from exc
    return module


def resolve_stream(stream: Stream, around: Surroundings) -> Stream:
    """The same stream with every relative path made absolute, and its sources as they are read with its settings.

    Args:
        stream: As it was declared.
        around: What it is resolved by.

    Raises:
        DeclarationError: A path leaves the project, or a source or sink of somebody's own fails.
    """
    changes: dict[str, Any] = {}
    place = f"stream `{stream.name}`"
    around = replace(around, conf={**around.conf, **stream.settings})
    try:
        with foreign_code("a source or the sink fails", where=lambda exc: error_line(exc) or place):
            changes["sources"] = {name: _resolved_source(stream, name, around) for name in stream.sources}
            changes["sink"] = stream.sink.resolved(around)
            if stream.quarantine is not None:
                changes["quarantine"] = stream.quarantine.resolved(around)
        if stream.checkpoint is not None:
            changes["checkpoint"] = around.path(stream.checkpoint, place=place)
    except DeclarationError as exc:
        raise exc.at(stream.declared_at) from exc
    resolved = replace(stream, **changes)
    if around.moving_folder is not None:
        _check_lasting(resolved, around.moving_folder)
    return resolved


def _resolved_source(stream: Stream, name: str, around: Surroundings) -> Source:
    found = stream.sources[name].resolved(around).under(around.conf)
    return found.importing(around.import_roots) if isinstance(found, CodedSource) else found


_resolved: dict[tuple[str, str | None, str, str], tuple[Stream, Surroundings, Stream]] = {}
"""By project, file and name, a stream as it was declared, and with absolute locations: to follow every link of a
thousand streams takes longer than a page or a plan may."""


def _resolve(declared: Stream, file: str, around: Surroundings) -> Stream:
    key = around.root, around.moving_folder, file, declared.name
    known = _resolved.get(key)
    # A process loads a file once, and again when it has changed: then this is another stream.
    if known is None or known[0] is not declared or known[1] != around:
        known = _resolved[key] = declared, around, resolve_stream(declared, around)
    return known[2]


def _shared_checkpoints(declared: Mapping[str, tuple[Stream, str]], root: str) -> dict[str, DeclarationError]:
    """The streams that declare one checkpoint with another one, by name, and what is wrong with that."""
    by_place: dict[str, list[str]] = {}
    for name, (stream, _) in declared.items():
        if stream.checkpoint is not None:
            with contextlib.suppress(DeclarationError):
                place = resolve_path(stream.checkpoint, root, place=f"stream `{name}`")
                by_place.setdefault(canonical_location(place), []).append(name)
    return {
        name: DeclarationError(
            f"the streams {' and '.join(f'`{found}`' for found in names)} have one checkpoint",
            where=f"{' and '.join(dict.fromkeys(declared[found][1] for found in names))}: {place}",
            remedy="give each one a checkpoint of its own: each would read what the others do not",
        )
        for place, names in by_place.items()
        if len(names) > 1
        for name in names
    }


def _check_lasting(stream: Stream, moving: str) -> None:
    """Make sure that a stream neither reads nor writes where the next version has another folder.

    Raises:
        DeclarationError: It does.
    """
    places = {f"source `{name}`": source.location for name, source in stream.sources.items()}
    places |= {"the sink": stream.sink.location or "", "the checkpoint": stream.checkpoint or ""}
    places |= stream.sink.side_tables
    places |= {"the quarantine": stream.quarantine.location or ""} if stream.quarantine is not None else {}
    for what, location in places.items():
        if location and is_local(location) and is_within(re.split(r"[*?\[{]", location, maxsplit=1)[0], moving):
            raise DeclarationError(
                f"{what} of stream `{stream.name}` is `{location}`, in a folder that another version of its bundle has"
                " elsewhere, and that Airflow deletes in the end",
                where=stream.place,
                remedy="write an absolute path or a URL, with ${VARIABLE} if you like",
            )
