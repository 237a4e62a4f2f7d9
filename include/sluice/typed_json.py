"""JSON read into types, also by several threads: what msgspec knows of a type is made once, before anybody uses it.

msgspec makes it at the type's first use, and shows it to other threads while it is half made. A second one that reads
then ends the process (a segmentation fault, msgspec 0.22): a triggerer, say, that has tasks of other people, too.
"""

from __future__ import annotations

import threading
from typing import Any, TypeVar, cast

import msgspec

T = TypeVar("T")

_lock = threading.Lock()
_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}


def decode_as(content: bytes | str, kind: type[T]) -> T:
    """A JSON text as a type, read strictly.

    Raises:
        msgspec.DecodeError: It is no JSON, or says something else.
        UnicodeDecodeError: It is no UTF-8.
        RecursionError: It is nested too deep.
    """
    found = _decoders.get(kind)
    if found is None:
        with _lock:
            found = _decoders.setdefault(kind, msgspec.json.Decoder(kind))
    return cast("T", found.decode(content))
