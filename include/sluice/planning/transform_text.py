"""What the text of a transform's module tells, without importing it.

Planning imports no module of a user's: that costs seconds, and may do anything. The text tells when a function is
certainly missing, or certainly has other parameters than there are sources; of all else Python has the last word.
"""

from __future__ import annotations

import ast
import contextlib
import difflib
import functools
import hashlib
import importlib.machinery
import importlib.util
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sluice.errors import DeclarationError
from sluice.planning.declared_sql import DeclaredSql, declared_sql
from sluice.planning.module_tree import module_tree
from sluice.planning.module_words import ModuleWords
from sluice.project import FILE_NAME, Project, no_plain_function
from sluice.sources.coded import CodedSource
from sluice.stream import Stream

_MOST_FILES = 1000
"""Among how many files a name is looked for that is near."""
_MOST_KEPT = 64
"""Of how many modules it is kept what their text tells: a run asks five times, a warm process before every run."""
_DYNAMIC = {"exec", "eval", "globals", "vars", "locals", "setattr", "__dict__", "__path__", "modules", "meta_path"}
"""What may make names that the text does not show."""


def check_functions(project: Project, stream: Stream) -> None:
    """Refuse a stream whose functions are certainly missing, or whose transform certainly can't take its sources.

    Raises:
        DeclarationError: One is, or that of the sink can't take batches; the error names the file and line of the
            function, or of the declaration.
    """
    if (sql := declared_sql(project, stream)) is not None:
        sql.check(stream)
    found = _find(project, stream, stream.transform, "transform") if stream.transform is not None else None
    if found is not None:
        _check_parameters(found, stream)
    found = _find(project, stream, stream.sink.function, "sink") if stream.sink.function is not None else None
    if found is not None:
        _check_called(found, stream.sink.called_with)


def transform_digest(project: Project, stream: Stream, sql: DeclaredSql | None = None) -> str | None:
    """What tells the code of the transform's module, and of all modules of the project that it imports, from others.

    Or its SQL. None where the module has no text. Comments, and how lines are broken, tell nothing.

    Args:
        project: Where the module is.
        stream: The declaration.
        sql: Its SQL as somebody has read it already; None to read it now.
    """
    texts = transform_texts(project, stream, sql)
    if texts is None:
        return None
    if stream.transform is None:
        return _digest(texts)
    return _digest(_codes(texts, stream))


def reader_digests(project: Project, stream: Stream) -> Mapping[str, str]:
    """By source, what tells the code by which a class of the project reads it from other code.

    What only plans, and reads nothing, tells nothing, nor does it in `transform_digest`. Empty where a module has no
    text.
    """
    found = {}
    for name, source in stream.sources.items():
        if isinstance(source, CodedSource):
            module = source.reference.partition(":")[0]
            file = _file_below(project.import_roots, module)
            try:
                texts = {} if file is None else _texts(module, file, project.import_roots)
            except OSError:
                texts = {}
            found[name] = _digest(_codes(texts, stream)) if texts else ""
    return found


def _digest(texts: Mapping[str, bytes]) -> str:
    digest = hashlib.sha256()
    for name, code in sorted(texts.items()):
        digest.update(f"{name}\0{len(code)}\0".encode() + code)
    return digest.hexdigest()[:16]


def _codes(texts: Mapping[str, bytes], stream: Stream) -> dict[str, bytes]:
    """What the texts of modules say to Python, without what only plans."""
    if not any(isinstance(source, CodedSource) for source in stream.sources.values()):
        return {name: _code(text) for name, text in texts.items()}
    trees: dict[str, ast.Module] = {}
    for name, text in texts.items():
        with contextlib.suppress(SyntaxError, ValueError, RecursionError, MemoryError):
            trees[name] = ast.parse(text)
    _leave_out_planning(stream, [node for tree in trees.values() for node in ast.walk(tree)])
    codes = dict(texts)
    for name, tree in trees.items():
        with contextlib.suppress(RecursionError, MemoryError):
            codes[name] = ast.dump(tree).encode()
    return codes


def _code(text: bytes) -> bytes:
    """What a text says to Python; the text itself where that is nothing, or nested too deep for who asks."""
    with contextlib.suppress(SyntaxError, ValueError, RecursionError, MemoryError):
        return _dumped(text)
    return text


@functools.lru_cache(_MOST_KEPT)
def _dumped(text: bytes) -> bytes:
    return ast.dump(module_tree(text)).encode()


def _leave_out_planning(stream: Stream, nodes: Iterable[ast.AST]) -> None:
    """Take the method that only plans out of each class that reads a source, and out of those that it derives from."""
    classes = [node for node in nodes if isinstance(node, ast.ClassDef)]
    for source in stream.sources.values():
        if isinstance(source, CodedSource):
            for node in _with_bases(source.reference.partition(":")[2], classes):
                node.body = [part for part in node.body if getattr(part, "name", None) != source.planning_method]


def _with_bases(name: str, classes: Iterable[ast.ClassDef]) -> list[ast.ClassDef]:
    """The classes of a name, and those that they derive from, found by their names."""
    found: list[ast.ClassDef] = []
    waiting, known = [name], set[str]()
    while waiting:
        current = waiting.pop()
        known.add(current)
        named = [node for node in classes if node.name == current]
        found += named
        waiting += {ast.unparse(base).rpartition(".")[2] for node in named for base in node.bases} - known
    return found


def transform_texts(project: Project, stream: Stream, sql: DeclaredSql | None = None) -> Mapping[str, bytes] | None:
    """The text of the transform's module, and of all modules of the project that it imports, by their names.

    Or its SQL. None where the module has no text. What is imported in ways of its own (`importlib`, installed packages)
    is not looked at.
    """
    try:
        if stream.transform is None:
            sql = sql or declared_sql(project, stream)
            return None if sql is None else {"sql": sql.code.encode()}
        module = stream.transform.partition(":")[0]
        file = _module_file(project, stream, module, "transform")
        return None if file is None else _texts(module, file, project.import_roots)
    except (DeclarationError, OSError):
        return None


def _texts(module: str, file: str, roots: Sequence[str]) -> dict[str, bytes]:
    """The text of a module and of all that it imports from the roots, by name.

    Raises:
        OSError: One can't be read.
    """
    files, texts = {module: file}, dict[str, bytes]()
    while waiting := files.keys() - texts.keys():
        name = min(waiting)
        texts[name] = Path(files[name]).read_bytes()
        package = name if os.path.basename(files[name]) == "__init__.py" else name.rpartition(".")[0]
        for imported in _imported(texts[name], package):
            found = _file_below(roots, imported)
            if found is not None:
                files.setdefault(imported, found)
    return texts


def _imported(text: bytes, package: str) -> tuple[str, ...]:
    """The names of modules that a module of a package imports, with those that may be modules."""
    try:
        return _all_imported(text, package)
    except (SyntaxError, ValueError, RecursionError):
        return ()


@functools.lru_cache(_MOST_KEPT)
def _all_imported(text: bytes, package: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_imports(module_tree(text), package)))


def _imports(tree: ast.Module, package: str) -> Iterator[str]:
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) + 1 - node.level] if node.level else []
            origin = ".".join([*above, *filter(None, [node.module])])
            names = [f"{origin}.{alias.name}" for alias in node.names]
        for name in names:
            parts = name.split(".")
            yield from (".".join(parts[:length]) for length in range(1, len(parts) + 1))


def _file_below(roots: Iterable[str], module: str) -> str | None:
    """The file of a module in the first of the roots that has one; None for a name that is no module there."""
    for root in roots:
        place = os.path.join(root, *module.split("."))
        for file in (f"{place}.py", os.path.join(place, "__init__.py")):
            if os.path.isfile(file):
                return file
    return None


def words_of_transform(project: Project, stream: Stream) -> ModuleWords:
    """The texts in the modules of a stream's functions; those that can't be found have none."""
    found = ModuleWords()
    try:
        sql = declared_sql(project, stream)
    except DeclarationError:
        sql = None
    if sql is not None:
        found.read_sql(sql)
    for reference, what in ((stream.transform, "transform"), (stream.sink.function, "sink")):
        try:
            file = _module_file(project, stream, reference.partition(":")[0], what) if reference else None
        except DeclarationError:
            continue
        if file is not None:
            found.read(file)
    return found


@dataclass(frozen=True)
class _Function:
    file: str
    text: ast.FunctionDef


def _find(project: Project, stream: Stream, reference: str, what: str) -> _Function | None:
    """The one definition of a function; None when only Python can tell what the name is."""
    module, _, name = reference.partition(":")
    file = _module_file(project, stream, module, what)
    if file is None:
        return None
    try:
        names = _names(Path(file).read_bytes())
    except SyntaxError as exc:
        raise DeclarationError(
            f"`{module}` does not import: {type(exc).__name__}: {exc.msg}",
            where=f"{file}:{exc.lineno}",
            remedy="correct the module",
        ) from exc
    except (OSError, ValueError, RecursionError):
        return None
    if name not in names.bound and not names.is_dynamic:
        functions = [known for known in names.functions if not known.startswith("_")]
        near = difflib.get_close_matches(name, functions, n=1)
        is_only = f"it has only `{functions[0]}`" if len(functions) == 1 else "define it, or correct the reference"
        raise DeclarationError(
            f"`{module}` has no function `{name}`",
            where=file,
            remedy=f"did you mean `{near[0]}`?" if near else is_only,
        ).at(stream.declared_at)
    definitions = names.functions.get(name, [])
    is_certain = not names.is_dynamic and len(definitions) == 1 and names.bound.count(name) == 1
    if is_certain and not definitions[0].decorator_list and _does_nothing(definitions[0]):
        raise no_plain_function(reference, f"{file}:{definitions[0].lineno}")
    if not is_certain or not isinstance(definitions[0], ast.FunctionDef) or definitions[0].decorator_list:
        return None
    return _Function(file, definitions[0])


def _does_nothing(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether a call of it runs nothing: it is `async`, or yields."""
    left: list[ast.AST] = list(function.body)
    while left and isinstance(function, ast.FunctionDef):
        node = left.pop()
        if isinstance(node, ast.Yield | ast.YieldFrom):
            return True
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            left += ast.iter_child_nodes(node)
    return isinstance(function, ast.AsyncFunctionDef)


def _module_file(project: Project, stream: Stream, module: str, what: str) -> str | None:
    """The Python file of a module; None when it is something else, or may be."""
    parts = module.split(".")
    roots = list(project.import_roots)
    try:
        spec = importlib.machinery.PathFinder.find_spec(parts[0], roots) or importlib.util.find_spec(parts[0])
        for part in parts[1:]:
            if spec is None:
                break
            locations = spec.submodule_search_locations
            if locations is None or _is_dynamic(spec.origin):
                return None
            # By its own name: of a folder without `__init__.py`, Python would ask a package above that is not imported.
            spec = importlib.machinery.PathFinder.find_spec(part, list(locations))
    except (ImportError, ValueError, OSError, AttributeError):
        return None
    if spec is not None:
        return spec.origin if spec.origin is not None and spec.origin.endswith(".py") else None
    near = _near_modules(module, project.import_roots)
    raise DeclarationError(
        f"there is no module `{module}`",
        where=f"{what} `{stream.transform if what == 'transform' else stream.sink.function}`,"
        f" import roots {', '.join(project.import_roots)}",
        remedy=f"did you mean `{near}`?" if near else f"create it, or correct the reference, or `path` in {FILE_NAME}",
    ).at(stream.declared_at)


def _is_dynamic(package: str | None) -> bool:
    """Whether a package may find its modules in ways of its own; one without a file can't."""
    if package is None:
        return False
    try:
        return _names(Path(package).read_bytes()).is_dynamic
    except (OSError, SyntaxError, ValueError, RecursionError):
        return True


def _near_modules(module: str, roots: Iterable[str]) -> str | None:
    """The module in the import roots, or a folder of one, whose name is nearest; None when none is near."""
    files = [file for root in roots for pattern in ("*.py", "*/*.py") for file in Path(root).glob(pattern)]
    known = {".".join(file.parts[-depth:])[:-3] for file in files[:_MOST_FILES] for depth in (1, 2)}
    return next(iter(difflib.get_close_matches(module, sorted(known - {module}), n=1)), None)


@dataclass
class _Names(ast.NodeVisitor):
    """The names that a module binds when it runs."""

    bound: list[str] = field(default_factory=list)
    functions: dict[str, list[ast.FunctionDef | ast.AsyncFunctionDef]] = field(default_factory=dict)
    is_dynamic: bool = False
    """Whether it may bind others, too."""

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self.bound.append(node.name)
        self.functions.setdefault(node.name, []).append(node)
        self.is_dynamic |= node.name == "__getattr__" or any(map(_is_dynamic_name, ast.walk(node)))
        self.bound += [name for inner in ast.walk(node) if isinstance(inner, ast.Global) for name in inner.names]

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self.visit_FunctionDef(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.bound.append(node.name)
        self.is_dynamic |= any(map(_is_dynamic_name, ast.walk(node)))

    def visit_Import(self, node: ast.Import | ast.ImportFrom) -> None:
        self.bound += [alias.asname or alias.name.partition(".")[0] for alias in node.names]
        self.is_dynamic |= any(alias.name == "*" for alias in node.names)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        self.visit_Import(node)

    def generic_visit(self, node: ast.AST) -> None:
        self.is_dynamic |= _is_dynamic_name(node)
        self.bound += _bound_by(node)
        super().generic_visit(node)


@functools.lru_cache(8)
def _names(text: bytes) -> _Names:
    """The names that a module of a text binds.

    Raises:
        SyntaxError: It is no Python.
        ValueError: It has a null byte.
        RecursionError: It is nested too deep.
    """
    names = _Names()
    names.visit(module_tree(text))
    return names


def _is_dynamic_name(node: ast.AST) -> bool:
    return (isinstance(node, ast.Name) and node.id in _DYNAMIC) or (
        isinstance(node, ast.Attribute) and node.attr in _DYNAMIC
    )


def _bound_by(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name is not None:
        yield node.name
    elif isinstance(node, ast.MatchMapping) and node.rest is not None:
        yield node.rest


def _check_called(found: _Function, called_with: Sequence[str]) -> None:
    """Spark would find out in the first batch, once that is planned."""
    given = found.text.args
    positional = [parameter.arg for parameter in [*given.posonlyargs, *given.args]]
    needed = len(positional) - len(given.defaults)
    by_name = [name.arg for name, default in zip(given.kwonlyargs, given.kw_defaults, strict=True) if default is None]
    count = len(called_with)
    if needed > count or by_name or (len(positional) < count and given.vararg is None):
        what = "the rows of a batch and its number" if count > 1 else f"a {called_with[0]}"
        raise DeclarationError(
            f"the sink's function has the parameters ({', '.join([*positional, *by_name])})",
            where=f"{found.file}:{found.text.lineno}",
            remedy=f"let it take {what}: `def {found.text.name}({', '.join(called_with)})`",
        )


def _check_parameters(found: _Function, stream: Stream) -> None:
    given = found.text.args
    parameters = [*given.posonlyargs, *given.args]
    names = [parameter.arg for parameter in [*parameters, *given.kwonlyargs]]
    if given.kwarg is not None or given.vararg is not None:
        return
    with_default = {parameter.arg for parameter in parameters[len(parameters) - len(given.defaults) :]}
    with_default |= {
        parameter.arg for parameter, default in zip(given.kwonlyargs, given.kw_defaults, strict=True) if default
    }
    check_parameters(
        names, [name for name in names if name not in with_default], stream, f"{found.file}:{found.text.lineno}"
    )


def check_parameters(parameters: list[str], needed: list[str], stream: Stream, place: str) -> None:
    """Refuse a transform that can't be called with the stream's sources.

    Args:
        parameters: The names of its parameters.
        needed: Those without a default.
        stream: The declaration.
        place: Where the transform is.

    Raises:
        DeclarationError: It can't.
    """
    unknown = [name for name in stream.sources if name not in parameters]
    unfilled = [name for name in needed if name not in stream.sources]
    if not unknown and not unfilled:
        return
    near = difflib.get_close_matches(unfilled[0], unknown, n=1) if unfilled else []
    raise DeclarationError(
        f"the transform's parameters are ({', '.join(parameters)}), the sources ({', '.join(stream.sources)})",
        where=place,
        remedy=f"call the parameter `{near[0]}` in place of `{unfilled[0]}`, or the source the other way round"
        if near
        else "name the parameters as the sources",
    )
