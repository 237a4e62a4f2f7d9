"""What tells the functions in Python that a query calls from others: what they do, not where they stand."""

from __future__ import annotations

import functools
import hashlib
import re
import sys
import sysconfig
from collections.abc import Collection, Iterable, Iterator
from decimal import Decimal
from enum import Enum
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, MethodDescriptorType, MethodType, ModuleType
from typing import Any

_OF_PYTHON = tuple(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
_PROCESSOR = "_stateful_processor"
"""What holds a user's processor in the object whose method PySpark sends for it."""
_Cached = type(functools.lru_cache(len))


def function_digests(functions: Iterable[tuple[str, bytes]]) -> dict[str, str]:
    """What tells functions from others: their code, and that of those of the project they call.

    Args:
        functions: By what each is called in a plan, what Spark sends to its workers: the function with its type,
            pickled by PySpark. Such bytes are others in each process. Of several that are called alike, all count.

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
        case FunctionType() if id(value) in seen or _is_of_python(value.__code__.co_filename):
            yield value.__qualname__
        case FunctionType():
            yield from _of_function(value, seen)
        case _Cached():
            yield from _parts(value.__wrapped__, seen)
        case MethodType() if (processor := getattr(value.__self__, _PROCESSOR, None)) is not None:
            yield from _parts((processor, getattr(processor, "__dict__", {})), seen)
        case MethodType():
            yield from _parts((value.__self__, value.__func__), seen)
        case functools.partial():
            yield from _parts((value.func, value.args, value.keywords), seen)
        case BuiltinFunctionType() | MethodDescriptorType():
            yield value.__qualname__
        case type():
            yield from _of_class(value, seen)
        case list() | tuple() | dict() | set() | frozenset():
            yield from _of_items(value, seen)
        case _:
            yield from _of_constant(value, seen)


def _of_constant(value: Any, seen: set[int]) -> Iterator[object]:
    match value:
        case Enum():
            yield from _parts((type(value), value.value), seen)
        case str() | bytes() | int() | float() | complex() | Decimal() | None:
            yield value
        case re.Pattern():
            yield value.pattern, value.flags
        case _:
            # Of an object, what it has is not looked at: it may be another one at every start.
            yield from _of_class(type(value), seen)


def _of_items(found: Collection[Any], seen: set[int]) -> Iterator[object]:
    yield len(found)
    if not isinstance(found, tuple | set | frozenset):
        if id(found) in seen:
            return
        seen.add(id(found))
    if isinstance(found, list | tuple):
        for item in found:
            yield from _parts(item, seen)
        return
    # Of a dictionary, too, the order may come of a set, whose order is another one in each process.
    items = found.items() if isinstance(found, dict) else found
    yield sorted(repr(list(_parts(item, seen))) for item in items)


def _of_class(found: type, seen: set[int]) -> Iterator[object]:
    """The methods of a class of the project."""
    yield f"{found.__module__}.{found.__qualname__}"
    if id(found) in seen or _is_of_python(_file(sys.modules.get(found.__module__))):
        return
    seen.add(id(found))
    for name, member in sorted(vars(found).items()):
        method = getattr(member, "__func__", member)
        if isinstance(method, FunctionType):
            yield name
            yield from _parts(method, seen)


def _of_function(function: FunctionType, seen: set[int]) -> Iterator[object]:
    seen.add(id(function))
    code, doc = function.__code__, function.__doc__
    yield from _of_code(code, seen, doc)
    # A tuple, which is not known by its place in memory: a list that is gone leaves it to another one.
    yield from _parts((function.__defaults__, function.__kwdefaults__), seen)
    yield from _parts(tuple(map(_content, function.__closure__ or ())), seen)
    yield from _of_names(_names(code), function.__globals__, seen)


def _of_code(code: CodeType, seen: set[int], doc: str | None = None) -> Iterator[object]:
    yield code.co_code, code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _of_code(constant, seen)
        elif constant != doc:
            yield from _parts(constant, seen)


def _of_names(names: set[str], known: dict[str, Any], seen: set[int]) -> Iterator[object]:
    """What names stand for, in a module that is the function's own, or that it names."""
    for name in sorted(names & known.keys()):
        yield name
        if isinstance(module := known[name], ModuleType):
            if id(module) not in seen and not _is_of_python(_file(module)):
                seen.add(id(module))
                yield from _of_names(names, vars(module), seen)
        else:
            yield from _parts(known[name], seen)


def _names(code: CodeType) -> set[str]:
    """The names that a function's code looks up, also in functions within it."""
    within = (_names(found) for found in code.co_consts if isinstance(found, CodeType))
    return set(code.co_names).union(*within)


def _content(cell: CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:
        # It has none: the variable was never assigned.
        return None


def _file(module: ModuleType | None) -> str | None:
    return getattr(module, "__file__", None)


def _is_of_python(file: str | None) -> bool:
    """Whether a file is Python's own, or of an installed package; so is what has none."""
    return file is None or file.startswith(_OF_PYTHON)
