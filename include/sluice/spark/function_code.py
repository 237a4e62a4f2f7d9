"""What tells the functions in Python that a query calls from others: what they do, not where they stand."""

from __future__ import annotations

import hashlib
import sysconfig
from collections.abc import Collection, Iterable, Iterator
from functools import partial
from types import BuiltinFunctionType, CodeType, FunctionType, MethodDescriptorType, MethodType
from typing import Any

_OF_PYTHON = tuple(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))


def function_digests(functions: Iterable[tuple[str, bytes]]) -> dict[str, str]:
    """What tells the functions of each name from others: their code, and that of those of the project they call.

    Args:
        functions: Names, and what Spark sends to its workers: the function with its type, pickled by PySpark. Such
            bytes are others in each process.

    Raises:
        Exception: Whatever unpickling a user's function raises.
    """
    from pyspark.serializers import CloudPickleSerializer

    found: dict[str, set[str]] = {}
    for name, command in functions:
        function = CloudPickleSerializer().loads(command)[0]
        seen: set[int] = set()
        is_plain = isinstance(function, FunctionType)
        parts = repr(list(_of_function(function, seen) if is_plain else _parts(function, seen)))
        found.setdefault(name, set()).add(hashlib.sha256(parts.encode()).hexdigest()[:16])
    return {name: " ".join(sorted(digests)) for name, digests in found.items()}


def _parts(value: Any, seen: set[int]) -> Iterator[object]:
    """What a value is made of, as far as it says what a function does; what may have itself as a part, once."""
    match value:
        case FunctionType() if id(value) in seen or _is_of_python(value):
            yield value.__qualname__
        case FunctionType():
            yield from _of_function(value, seen)
        case BuiltinFunctionType() | MethodDescriptorType() | type():
            yield value.__qualname__
        case MethodType():
            yield from _parts((value.__self__, value.__func__), seen)
        case partial():
            yield from _parts((value.func, value.args, value.keywords), seen)
        case CodeType():
            yield value.co_code, value.co_names
            yield from _parts(value.co_consts, seen)
        case list() | tuple() | dict() | set() | frozenset():
            yield from _of_items(value, seen)
        case str() | bytes() | int() | float() | complex() | None:
            yield value
        case _:
            # What such an object does is not looked at.
            yield f"{type(value).__module__}.{type(value).__qualname__}"


def _of_items(found: Collection[Any], seen: set[int]) -> Iterator[object]:
    yield len(found)
    if isinstance(found, set | frozenset):
        yield sorted(repr(list(_parts(item, seen))) for item in found)
        return
    if not isinstance(found, tuple):
        if id(found) in seen:
            return
        seen.add(id(found))
    for item in found.items() if isinstance(found, dict) else found:
        yield from _parts(item, seen)


def _of_function(function: FunctionType, seen: set[int]) -> Iterator[object]:
    seen.add(id(function))
    yield from _parts(function.__code__, seen)
    yield from _parts((function.__defaults__, function.__kwdefaults__), seen)
    yield from _parts([cell.cell_contents for cell in function.__closure__ or ()], seen)
    for name in sorted(_names(function.__code__) & function.__globals__.keys()):
        yield name
        yield from _parts(function.__globals__[name], seen)


def _names(code: CodeType) -> set[str]:
    """The names that a function's code looks up, also in functions within it."""
    within = (_names(found) for found in code.co_consts if isinstance(found, CodeType))
    return set(code.co_names).union(*within)


def _is_of_python(function: FunctionType) -> bool:
    """Whether a function is Python's own, or of an installed package."""
    return function.__code__.co_filename.startswith(_OF_PYTHON)
