"""Checks what somebody types into a declaration, and answers what is not there: names of other tools, and typos."""

from __future__ import annotations

import difflib
import functools
import inspect
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn, ParamSpec, TypeVar

from sluice.errors import DeclarationError
from sluice.other_names import KIND_WORDS
from sluice.paths import check_credentials

P = ParamSpec("P")
R = TypeVar("R")

_REFERENCE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep


def refuse_name(name: str, known: Iterable[str], *, what: str, place: str, words: Mapping[str, str]) -> NoReturn:
    """Refuse a name that is not known, with what to write in its place.

    Args:
        name: What was typed.
        known: What could have been typed.
        what: What it is to name, for the message: `option`.
        place: Where it was typed.
        words: Names of other tools, in snake_case, and what to do about each.

    Raises:
        DeclarationError: Always.
    """
    raise DeclarationError(f"unknown {what} `{name}`", where=place, remedy=_advice(name, list(known), words))


def _advice(name: str, known: list[str], words: Mapping[str, str]) -> str:
    # Databricks puts the name of its loader in front.
    ours = snake_case(name).removeprefix("cloud_files_")
    if ours in known:
        return f"write it as `{ours}`"
    if ours in words or name in words:
        return words[name if name in words else ours]
    near = difflib.get_close_matches(ours, known, n=1, cutoff=0.7)
    return f"did you mean `{near[0]}`?" if near else f"valid are: {', '.join(sorted(known))}"


def snake_case(name: str) -> str:
    """The name that a declaration uses for one of Spark's: `timestampNTZFormat` is `timestamp_ntz_format`."""
    words = re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", name.replace(".", "_"))
    return re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", words).lower()


def declares(place: str, words: Mapping[str, str]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let a function that declares something refuse names that it does not take as every other mistake is refused.

    Args:
        place: The function as declarations write it, for messages: `sources.files()`.
        words: See `refuse_name`.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        parameters = inspect.signature(function).parameters

        @functools.wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            check_call(parameters.values(), args, kwargs, place=place, words=words)
            return function(*args, **kwargs)

        return checked

    return decorate


def check_call(
    parameters: Iterable[inspect.Parameter],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    *,
    place: str,
    words: Mapping[str, str],
) -> None:
    """Refuse arguments that Python would refuse, in our words.

    Raises:
        DeclarationError: One is unknown, missing, or given without its name.
    """
    named = [found for found in parameters if found.kind is not inspect.Parameter.VAR_KEYWORD]
    by_position = [found.name for found in named if found.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
    known = [found.name for found in named]
    takes_any = len(known) < len(list(parameters))
    if len(args) > len(by_position):
        too_many = args[len(by_position)]
        name = next((name for name in known if name not in by_position and name not in kwargs), None)
        raise DeclarationError(
            f"{too_many!r} is given without a name",
            where=place,
            remedy="name it, as in " + (f"`{name}=...`" if name else f"`{place}`"),
        )
    for name in kwargs:
        if name not in known and not takes_any:
            refuse_name(name, known, what="argument", place=place, words=words)
    given = {*by_position[: len(args)], *kwargs}
    for found in named:
        if found.default is inspect.Parameter.empty and found.name not in given:
            raise DeclarationError(f"`{found.name}` is missing", where=place, remedy="give it")


def check_path(path: object, place: str) -> None:
    """Refuse what is no path, and what has a secret in it.

    Raises:
        DeclarationError: It is such a one.
    """
    if isinstance(path, os.PathLike):
        raise DeclarationError(f"the path is {path!r}", where=place, remedy=f"write it as text: {os.fspath(path)!r}")
    if not isinstance(path, str) or not path.strip() or "\0" in path:
        raise DeclarationError(f"{path!r} is not a path", where=place, remedy="give a path or a URL")
    check_credentials(path, place=place)


_OF_PYTHON_ALONE = re.compile(r"\(\?(?:P|#|\(|[aLu]+[):])|\{,")
"""Of regular expressions, what Java's do not have."""


def check_pattern(pattern: object, what: str, place: str) -> None:
    """Refuse a regular expression that Python does not read as Java does: a plan would look at other things.

    Raises:
        DeclarationError: It is such a one.
    """
    why = "it is no text" if not isinstance(pattern, str) else None
    if isinstance(pattern, str):
        try:
            with warnings.catch_warnings():
                # Python warns of what it takes literally, and Java takes for nested sets.
                warnings.simplefilter("error", FutureWarning)
                re.compile(pattern, re.ASCII)
        except (re.error, FutureWarning, ValueError, RecursionError, OverflowError) as exc:
            why = str(exc)
        found = _OF_PYTHON_ALONE.search(pattern)
        why = why or (f"Java's have no `{found[0]}`" if found else None)
    if why is not None:
        raise DeclarationError(
            f"`{what}` is {pattern!r}: {why}",
            where=place,
            remedy="write it in the syntax that Java's and Python's regular expressions share",
        )


def check_reference(reference: object, what: str, place: str, *, form: str = "module:function") -> None:
    """Refuse what does not name a function, or a class, of a module.

    Args:
        reference: What was typed.
        what: What it is to name, for the message.
        place: Where it was typed.
        form: How it is to be written.

    Raises:
        DeclarationError: It does not; the remedy tells how it probably is to be written.
    """
    if isinstance(reference, str) and _REFERENCE.fullmatch(reference):
        return
    meant, otherwise = None, f'write it as "{form}"'
    if callable(reference):
        otherwise = f'put it into a module of the project, and write it as "{form}"'
        name, module = getattr(reference, "__name__", ""), getattr(reference, "__module__", None) or ""
        # A declaration has a private name as a module; what it defines itself is to be moved.
        meant = f"{module}:{name}" if name.isidentifier() and not module.startswith(("_", "builtins")) else None
    elif isinstance(reference, str):
        path = re.sub(r"\.py\b", "", reference.strip()).replace("/", ".").strip(".")
        module, _, name = path.replace("::", ":").rpartition(":" if ":" in path else ".")
        meant = f"{module}:{name}"
    is_good = meant is not None and _REFERENCE.fullmatch(meant)
    itself = f"the {form.rpartition(':')[2].lower()} itself"
    raise DeclarationError(
        f"{what} is {itself if callable(reference) else repr(reference)}",
        where=place,
        remedy=f'write it as "{meant}"' if is_good else otherwise,
    )


def column_names(given: object, what: str, place: str) -> tuple[str, ...]:
    """The columns that an argument names: a list of them, or one.

    Args:
        given: What was typed.
        what: The argument.
        place: Where it was typed.

    Raises:
        DeclarationError: It names what is no column, or one twice.
    """
    example = f'`{what}=["day", "country"]`'
    if isinstance(given, str):
        if "," in given:
            raise DeclarationError(f"`{what}` is {given!r}", where=place, remedy=f"write a list: {example}")
        given = (given,)
    if not isinstance(given, list | tuple) or not all(isinstance(name, str) and name.strip() for name in given):
        raise DeclarationError(
            f"`{what}` is {given!r}", where=place, remedy=f"give the names of columns, as in {example}"
        )
    for name in given:
        if (meant := no_column(name)) is not None:
            raise DeclarationError(f"`{what}` names `{name}`, which is no column", where=place, remedy=meant)
    twice = next((name for index, name in enumerate(given) if name in given[:index]), None)
    if twice is not None:
        raise DeclarationError(f"`{what}` names `{twice}` twice", where=place, remedy="name every column once")
    return tuple(given)


def no_column(name: str) -> str | None:
    """What to write in place of something that is surely not the name of a column alone; None when it may be one."""
    if (sorted_by := re.fullmatch(r"(.*\S)\s+(asc|desc)", name.strip(), re.IGNORECASE)) is not None:
        return f"write `{sorted_by[1]}` alone"
    if re.fullmatch(r"\w+\(.*\)", name.strip()):
        return "compute it in the transform, and name the column that it makes"
    if len(name) > 2 and name[0] == name[-1] == "`":
        return f"write {name[1:-1]!r}, without backquotes"
    return None


def declaring_line() -> str | None:
    """`file:line` of the code outside of this package that is declaring something; None when there is none."""
    frame = inspect.currentframe()
    while frame is not None:
        name = frame.f_code.co_filename
        # What dataclasses generate is in a file called `<string>`.
        if not name.startswith((_PACKAGE, "<")) and "dataclasses" not in name:
            return f"{name}:{frame.f_lineno}"
        frame = frame.f_back
    return None


def missing_kind(exc: BaseException) -> DeclarationError | None:
    """The answer to a kind of source or sink that there is not; None when the exception tells of something else."""
    module, name = _looked_for(exc)
    if module not in KIND_WORDS or name is None:
        return None
    return no_such_kind(module, name)


def no_such_kind(module: str, name: str) -> DeclarationError:
    """The answer to a name that one of the packages of `KIND_WORDS` does not have."""
    public = list(sys.modules[module].__all__)
    what = module.removeprefix("sluice.")
    return DeclarationError(f"there is no `{what}.{name}`", remedy=_advice(name, public, KIND_WORDS[module]))


def _looked_for(exc: BaseException) -> tuple[str, str | None]:
    """The module and the name in it that an exception says is missing."""
    if isinstance(exc, AttributeError):
        return getattr(exc.obj, "__name__", ""), exc.name
    if isinstance(exc, ImportError) and (found := re.match(r"cannot import name '(\w+)'", str(exc))):
        return exc.name or "", found[1]
    return "", None


def check_booleans(place: str, **given: object) -> None:
    """Refuse what is neither True nor False: every text is true to Python, `"no"` as well.

    Raises:
        DeclarationError: One is not.
    """
    for name, value in given.items():
        if not isinstance(value, bool):
            raise DeclarationError(f"`{name}` is {value!r}", where=place, remedy="give True or False")


def check_limit(value: int | None, name: str, place: str) -> None:
    """Refuse a per-batch limit that is not a positive number.

    Raises:
        DeclarationError: It is not.
    """
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
        raise DeclarationError(
            f"`{name}` is {value!r}", where=place, remedy="give a whole number above 0, or leave it out"
        )
