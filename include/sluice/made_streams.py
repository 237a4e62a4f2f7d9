"""The streams that are made while a file of declarations is imported: those that it keeps, and those that it loses."""

from __future__ import annotations

import dataclasses
import inspect
import os
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import ModuleType

from sluice.stream import Stream, noticed_by

_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_MODULE = "<module>"


@dataclass(frozen=True)
class Lost:
    """A stream that was made, and that no name of its file has any more."""

    stream: Stream
    place: str
    """`file:line` of what has made it, in the file of declarations."""


@dataclass
class Makings:
    """What was made while a file was imported; nothing that other modules make while they are imported for it."""

    file: str
    made: list[Lost] = field(default_factory=list)
    models: dict[int, Stream] = field(default_factory=dict)
    """Streams that others were made from by `dataclasses.replace`, by what tells each from its equals."""

    @classmethod
    @contextmanager
    def of(cls, file: str) -> Iterator[Makings]:
        """Notice what this thread makes meanwhile."""
        found = cls(file)
        before = noticed_by.set(found._notice)
        try:
            yield found
        finally:
            noticed_by.reset(before)

    def lost(self, kept: Iterable[Stream]) -> tuple[Lost, ...]:
        """Those that are not among the ones that were kept, nor models of others."""
        known = {id(stream) for stream in kept} | self.models.keys()
        return tuple(making for making in self.made if id(making.stream) not in known)

    def declared(self, module: ModuleType) -> tuple[Stream, ...]:
        """Of the streams that the module keeps, those that it declares: not what it finds in a list of another one."""
        kept, names = kept_streams(module), {id(value) for value in vars(module).values()}
        if all(id(stream) in names for stream in kept):
            return kept
        own = {id(stream) for stream in kept_streams(module, without=_of_others(module))}
        own |= {id(making.stream) for making in self.made}
        return tuple(stream for stream in kept if id(stream) in own)

    def _notice(self, stream: Stream) -> None:
        frame, model = inspect.currentframe(), None
        frame = None if frame is None else frame.f_back
        # What makes it: Python's and its own.
        while frame is not None and frame.f_locals.get("self") is stream:
            frame = frame.f_back
        while frame is not None and frame.f_code.co_filename == dataclasses.__file__:
            model = frame.f_locals.get("obj", frame.f_locals.get("self"))
            frame = frame.f_back
        if frame is None or frame.f_code.co_filename.startswith(_PACKAGE):
            return
        if isinstance(model, Stream):
            self.models[id(model)] = model
        line = frame.f_lineno if frame.f_code.co_filename == self.file else None
        while frame is not None and frame.f_code.co_name != _MODULE:
            frame = frame.f_back
        if frame is not None and frame.f_code.co_filename == self.file:
            self.made.append(Lost(stream, f"{self.file}:{line or frame.f_lineno}"))


def _of_others(module: ModuleType) -> set[int]:
    """The ids of what a module has by a name, and other modules have by one, too."""
    values = {id(value) for name, value in vars(module).items() if not _is_of_python(name)}
    others = (vars(other) for other in [*sys.modules.values()] if other is not module and hasattr(other, "__dict__"))
    return {one for names in others for one in map(id, [*names.values()]) if one in values}


def kept_streams(module: ModuleType, *, without: Collection[int] = ()) -> tuple[Stream, ...]:
    """The streams that a module has at its top level: by names, or in lists, tuples, sets and dicts; each once.

    Args:
        module: The module.
        without: The ids of lists and such that are left out.
    """
    found: dict[int, Stream] = {}
    seen: set[int] = set(without)
    waiting: list[object] = [value for name, value in reversed(vars(module).items()) if not _is_of_python(name)]
    while waiting:
        value = waiting.pop()
        if isinstance(value, Stream):
            found.setdefault(id(value), value)
        elif isinstance(value, list | tuple | set | frozenset | Mapping) and id(value) not in seen:
            seen.add(id(value))
            waiting += reversed([*value.values()] if isinstance(value, Mapping) else [*value])
    return tuple(found.values())


def _is_of_python(name: str) -> bool:
    """Whether Python has put a name into the module, as it does with its own functions."""
    return name.startswith("__") and name.endswith("__")
