"""A project: `sluice.toml`, the declarations that it points at, and the functions that they name."""

from __future__ import annotations

import contextlib
import difflib
import functools
import hashlib
import importlib.util
import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from sluice.declaring import missing_kind
from sluice.errors import DeclarationError, SluiceError, UnknownStreamError
from sluice.foreign_code import described, foreign_code, is_failure
from sluice.home import StreamHome
from sluice.project_code import import_module
from sluice.redaction import is_harmless, is_secret_name, remember_secrets, secrets_of_url
from sluice.spark_master import CONNECT_SCHEME, check_master
from sluice.storage import Storage, is_local, is_within, join, real_location
from sluice.stream import Stream

FILE_NAME = "sluice.toml"

_TABLES: dict[str, dict[str, type]] = {
    "project": {"name": str, "home": str, "streams": list, "path": list},
    "spark": {"master": str, "conf": dict},
    "storage": {},
}
_VARIABLE = re.compile(r"\$\{(\w+)\}")
_DEFAULT_MASTER = "local[*]"


@dataclass(frozen=True)
class Declared:
    """A stream and the file that declares it."""

    stream: Stream
    file: str


@dataclass(frozen=True)
class Project:
    """What `sluice.toml` says, with absolute paths and environment overrides applied."""

    root: str
    """The folder that `sluice.toml` is in."""
    name: str
    home: str
    """Where checkpoints, leases and run records are kept: a location."""
    stream_folders: tuple[str, ...]
    import_roots: tuple[str, ...]
    """Folders that transforms are imported from."""
    spark_master: str = field(default=_DEFAULT_MASTER, repr=False)
    """A master of Spark's, or the URL of a Spark Connect server; that one may hold a token."""
    spark_conf: Mapping[str, str] = field(default_factory=dict, repr=False)
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    moving_folder: str | None = None
    """A folder of which the next version has another copy, such as Airflow's of its bundles: nothing that streams read
    or write may lie in it."""

    def storage(self) -> Storage:
        """Where the project's files are read from and written to."""
        return Storage(self.storage_options)

    def stream_home(self, stream: Stream) -> StreamHome:
        """The folder of a stream in the project's home."""
        return StreamHome(join(self.home, stream.name), self.storage(), stream.checkpoint)

    def place(self, location: str) -> str:
        """A location from the project's folder where it lies in it: the same after the project was moved."""
        return location.removeprefix(self.root.rstrip("/") + "/")

    def stream_homes(self, streams: Iterable[Stream]) -> dict[str, StreamHome]:
        """The folders of many streams, by name, which share what reads them."""
        storage = self.storage()
        return {stream.name: StreamHome(join(self.home, stream.name), storage, stream.checkpoint) for stream in streams}

    def streams(self) -> tuple[dict[str, Declared], list[DeclarationError]]:
        """Load every declaration: the streams by name, in the order of files and lines, and what is wrong with others.

        Raises:
            DeclarationError: A folder of declarations does not exist.
        """
        found, errors = self._readable()
        shared = self.shared_checkpoints()
        errors += shared.values()
        streams: dict[str, Declared] = {}
        for name, declared in found.items():
            if name in shared:
                continue
            try:
                streams[name] = Declared(self.resolve(declared.stream), declared.file)
            except DeclarationError as exc:
                errors.append(exc)
        return streams, errors

    def shared_checkpoints(self) -> dict[str, DeclarationError]:
        """The streams that declare one checkpoint with another one, by name, and what is wrong with that."""
        by_place: dict[str, list[str]] = {}
        streams = self._readable()[0]
        for name, declared in streams.items():
            if declared.stream.checkpoint is not None:
                with contextlib.suppress(DeclarationError):
                    place = resolve_path(declared.stream.checkpoint, self.root, place=f"stream `{name}`")
                    by_place.setdefault(real_location(place), []).append(name)
        return {
            name: DeclarationError(
                f"the streams {' and '.join(f'`{found}`' for found in names)} have one checkpoint",
                where=f"{' and '.join(dict.fromkeys(streams[found].file for found in names))}: {place}",
                remedy="give each one a checkpoint of its own: each would read what the others do not",
            )
            for place, names in by_place.items()
            if len(names) > 1
            for name in names
        }

    def _readable(self) -> tuple[dict[str, Declared], list[DeclarationError]]:
        """Every declaration that can be read and whose name is its own, as it was written; and what is wrong."""
        found: dict[str, Declared] = {}
        twice: set[str] = set()
        errors: list[DeclarationError] = []
        for file in self.declaration_files():
            try:
                streams = load_declarations(file)
            except DeclarationError as exc:
                errors.append(exc)
                continue
            for stream in streams:
                if stream.name in found:
                    where = f"{file} and {found[stream.name].file}"
                    what = f"stream `{stream.name}` is declared twice"
                    errors.append(DeclarationError(what, where=where, remedy="give one of them another name"))
                    twice.add(stream.name)
                else:
                    found[stream.name] = Declared(stream, file)
        return {name: declared for name, declared in found.items() if name not in twice}, errors

    def readable_streams(self) -> dict[str, Stream]:
        """The streams by name whose declarations can be read; what is wrong with others is no concern of these."""
        return {name: declared.stream for name, declared in self.streams()[0].items()}

    def stream(self, name: str) -> Stream:
        """The stream of this name, with absolute locations; what is wrong with others is no concern of it.

        Raises:
            UnknownStreamError: No declaration has this name.
            DeclarationError: No readable declaration has this name, and a declaration does not import.
        """
        streams, errors = self._readable()
        if name not in streams and errors:
            raise errors[0]
        if name not in streams:
            near = difflib.get_close_matches(name, streams, n=1)
            known = f"did you mean `{near[0]}`?" if near else f"declared are: {', '.join(streams) or 'none'}"
            raise UnknownStreamError(f"there is no stream `{name}`", where=", ".join(self.stream_folders), remedy=known)
        shared = self.shared_checkpoints() if streams[name].stream.checkpoint is not None else {}
        if name in shared:
            raise shared[name]
        return self.resolve(streams[name].stream)

    def declaration_files(self) -> list[str]:
        """Every `.py` file directly in the declaration folders, sorted; names that start with `_` are left out.

        Raises:
            DeclarationError: A folder does not exist.
        """
        files: list[str] = []
        for folder in self.stream_folders:
            if not os.path.isdir(folder):
                raise DeclarationError(
                    "the folder of declarations does not exist",
                    where=folder,
                    remedy=f"create it, or correct `streams` in {FILE_NAME}",
                )
            files += [str(path) for path in sorted(Path(folder).glob("*.py")) if not path.name.startswith("_")]
        return files

    def resolve(self, stream: Stream) -> Stream:
        """The same stream with every relative path made absolute.

        Raises:
            DeclarationError: A path leaves the project, or a source or sink of somebody's own fails.
        """
        changes: dict[str, Any] = {}
        place = f"stream `{stream.name}`"
        try:
            with foreign_code("a source or the sink fails", where=lambda exc: error_line(exc) or place):
                changes["sources"] = {name: source.resolved(self.root) for name, source in stream.sources.items()}
                changes["sink"] = stream.sink.resolved(self.root)
                if stream.quarantine is not None:
                    changes["quarantine"] = stream.quarantine.resolved(self.root)
            if stream.checkpoint is not None:
                changes["checkpoint"] = resolve_path(stream.checkpoint, self.root, place=place)
        except DeclarationError as exc:
            raise exc.at(stream.declared_at) from exc
        resolved = replace(stream, **changes)
        if self.moving_folder is not None:
            _check_lasting(resolved, self.moving_folder)
        return resolved

    def check_function(self, reference: str) -> None:
        """Make sure that a function can be imported, as far as can be told before Spark is there.

        Raises:
            DeclarationError: See `load_function`.
        """
        try:
            self.load_function(reference)
        except DeclarationError as exc:
            # pyspark asks Spark for the type of a `@udf("long")`.
            asked = getattr(exc.__cause__, "getCondition", None)
            if asked is None or asked() != "SESSION_OR_CONTEXT_NOT_EXISTS":
                raise

    def load_function(self, reference: str) -> Any:
        """Import the function behind `module:function` from the project's import roots, as it is now.

        Raises:
            DeclarationError: The module does not import, or has no such function.
        """
        module_name, _, function_name = reference.partition(":")

        def place(exc: BaseException) -> str | None:
            is_missing = isinstance(exc, ModuleNotFoundError) and f"{module_name}.".startswith(f"{exc.name}.")
            return f"import roots {', '.join(self.import_roots)}" if is_missing else error_line(exc)

        remedy = f"correct the module, or `path` in {FILE_NAME}"
        with foreign_code(f"`{module_name}` does not import", where=place, remedy=remedy):
            module = import_module(module_name, self.import_roots)
            function = getattr(module, function_name, None)
        if not callable(function):
            names = [name for name, value in vars(module).items() if callable(value) and not name.startswith("_")]
            near = difflib.get_close_matches(function_name, names, n=1)
            raise DeclarationError(
                f"`{module_name}` has no function `{function_name}`",
                where=module.__file__,
                remedy=f"did you mean `{near[0]}`?" if near else "define it, or correct the reference",
            )
        return function


def find_project(start: str | None = None) -> Project:
    """Load the project of a folder: `sluice.toml` there or in the nearest folder above.

    Args:
        start: The folder to start at; `$SLUICE_PROJECT`, else the working directory, when not given.

    Raises:
        DeclarationError: There is none, or it is not right.
    """
    origin = Path(start or os.environ.get("SLUICE_PROJECT") or os.getcwd()).resolve()
    for folder in (origin, *origin.parents):
        if (folder / FILE_NAME).is_file():
            return load_project(folder / FILE_NAME)
    raise DeclarationError(
        f"no {FILE_NAME} here or in a folder above", where=str(origin), remedy="run `sluice init DIR` to make a project"
    )


def load_project(file: Path) -> Project:
    """Read one `sluice.toml`.

    Environment variables override it: `SLUICE_NAME`, `SLUICE_HOME`, `SLUICE_STREAMS`, `SLUICE_PATH` (lists as in
    `PATH`) and `SLUICE_SPARK_MASTER`; without the last, so does Spark's own `SPARK_REMOTE`.

    Raises:
        DeclarationError: It does not parse, or a key or value is not what it must be.
    """
    try:
        tables = tomllib.loads(file.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as exc:
        raise DeclarationError(f"the file does not parse: {exc}", where=str(file), remedy="correct the TOML") from exc
    _check_tables(tables, str(file))
    root = str(file.parent)
    project, spark = tables.get("project", {}), tables.get("spark", {})
    place = str(file)

    def setting(table: dict[str, Any], key: str, variable: str, default: str) -> str:
        return os.environ.get(variable) or table.get(key, default)

    def folders(key: str, variable: str, default: list[str]) -> tuple[str, ...]:
        listed = os.environ.get(variable)
        paths = listed.split(os.pathsep) if listed else project.get(key, default)
        return tuple(resolve_path(path, root, place=place) for path in paths)

    conf, storage = spark.get("conf", {}), tables.get("storage", {})
    # Before anything can be said about them.
    remember_secrets(_secrets({"master": setting(spark, "master", "SLUICE_SPARK_MASTER", ""), **conf, **storage}))
    return Project(
        root=root,
        name=setting(project, "name", "SLUICE_NAME", file.parent.name),
        home=resolve_path(setting(project, "home", "SLUICE_HOME", "var/sluice"), root, place=place),
        stream_folders=folders("streams", "SLUICE_STREAMS", ["streams"]),
        import_roots=folders("path", "SLUICE_PATH", ["."]),
        spark_master=_spark_master(setting(spark, "master", "SLUICE_SPARK_MASTER", ""), place),
        spark_conf={key: _conf_value(key, value, place) for key, value in conf.items()},
        storage_options={key: expand(value, place=place) for key, value in storage.items()},
    )


def _secrets(settings: Mapping[str, Any]) -> Iterator[str]:
    """What of a project's settings is secret: by its name, by its place in a URL, or because the environment says it.

    Tables are looked through: a dotted key that lacks its quotes makes one.
    """
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from _secrets({f"{key}.{inner}": found for inner, found in value.items()})
        elif isinstance(value, str):
            told = [os.environ[name] for name in _VARIABLE.findall(value) if name in os.environ]
            expanded = _VARIABLE.sub(lambda match: os.environ.get(match[1], match[0]), value)
            yield from (text for text in told if not is_harmless(text))
            yield from secrets_of_url(expanded)
            if is_secret_name(key):
                yield expanded


def load_declarations(file: str) -> list[Stream]:
    """Import one declaration file under a private module name and return its streams, in order.

    A process imports a file once, and again when it has changed: a DAG file may name a hundred streams.

    Raises:
        DeclarationError: The file does not import; the message names the line.
    """
    try:
        found = os.stat(file)
    except OSError as exc:
        raise DeclarationError(
            f"the declaration can't be read: {exc.strerror}", where=file, remedy="check that it exists"
        ) from exc
    return list(_load_declarations(file, (found.st_mtime_ns, found.st_size, found.st_ino)))


@functools.lru_cache(maxsize=4096)
def _load_declarations(file: str, version: tuple[int, ...]) -> tuple[Stream, ...]:  # noqa: ARG001 - the key
    module = import_file(file, "declaration")
    return tuple(value for value in vars(module).values() if isinstance(value, Stream))


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
    try:
        spec.loader.exec_module(module)
    except SluiceError as exc:
        found = DeclarationError(exc.problem, where=exc.where, remedy=exc.remedy)
        raise found.at(error_line(exc, file) or file) from exc
    except BaseException as exc:
        if not is_failure(exc):
            raise
        found = missing_kind(exc) or DeclarationError(
            f"the {what} does not import: {' '.join(described(exc).split())}",
            remedy="correct it; `sluice check` shows every problem",
        )
        raise found.at(error_line(exc, file) or file) from exc
    return module


def resolve_path(path: str, root: str, *, place: str) -> str:
    """Make a declared path a location: `${ENV}` expanded, relative ones below the project.

    A relative path may not leave the project, neither through `..` nor through a link; to point elsewhere, an
    absolute path or a URL says so openly.

    Raises:
        DeclarationError: It leaves the project, or names a variable that is not set.
    """
    if not isinstance(path, str) or not path or "\0" in path:
        raise DeclarationError(f"{path!r} is not a path", where=place, remedy="give a path or a URL")
    expanded = expand(path, place=place)
    if not is_local(expanded):
        return expanded.rstrip("/")
    if expanded.startswith("file:"):
        # Spark takes what follows as it is: a `%20` in it is a `%20` in the folder's name.
        expanded = "/" + expanded.removeprefix("file:").lstrip("/")
    if expanded.startswith("/"):
        return expanded.rstrip("/") or "/"
    absolute = os.path.normpath(os.path.join(root, expanded))
    # What a glob matches is checked where it is listed; the fixed part in front of it is checked here.
    fixed = re.split(r"[*?\[{]", absolute, maxsplit=1)[0]
    if not is_within(fixed, root):
        raise DeclarationError(
            f"the path {path!r} leaves the project",
            where=place,
            remedy="write the absolute path if that is what you mean",
        )
    return absolute


def _check_lasting(stream: Stream, moving: str) -> None:
    """Make sure that a stream neither reads nor writes where the next version has another folder.

    Raises:
        DeclarationError: It does.
    """
    places = {f"source `{name}`": source.location for name, source in stream.sources.items()}
    places |= {"the sink": stream.sink.location or "", "the checkpoint": stream.checkpoint or ""}
    places |= {"the quarantine": stream.quarantine.location or ""} if stream.quarantine is not None else {}
    for what, location in places.items():
        if location and is_local(location) and is_within(re.split(r"[*?\[{]", location, maxsplit=1)[0], moving):
            raise DeclarationError(
                f"{what} of stream `{stream.name}` is `{location}`, in a folder that another version of its bundle has"
                " elsewhere, and that Airflow deletes in the end",
                where=f"stream `{stream.name}`",
                remedy="write an absolute path or a URL, with ${VARIABLE} if you like",
            )


def expand(text: str, *, place: str) -> str:
    """Replace every `${NAME}` by the environment's value.

    Raises:
        DeclarationError: A variable is not set.
    """

    def value(match: re.Match[str]) -> str:
        found = os.environ.get(match[1])
        if found is None:
            raise DeclarationError(
                f"the environment variable {match[1]} is not set", where=place, remedy="set it, or write the value"
            )
        return found

    return _VARIABLE.sub(value, text)


def error_line(exc: BaseException, file: str | None = None) -> str | None:
    """`file:line` of the innermost frame of an exception that lies in `file` (or of the innermost frame at all)."""
    if isinstance(exc, SyntaxError) and exc.filename:
        return f"{exc.filename}:{exc.lineno}"
    line = None
    trace = exc.__traceback__
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if (file is None and not name.startswith("<frozen")) or name == file:
            line = f"{name}:{trace.tb_lineno}"
        trace = trace.tb_next
    return line


def _check_tables(tables: dict[str, Any], place: str) -> None:
    for table, keys in tables.items():
        if table not in _TABLES:
            _refuse_name(table, list(_TABLES), "table", place)
        if not isinstance(keys, dict):
            raise DeclarationError(f"`{table}` is not a table", where=place, remedy=f"write [{table}]")
        for key, value in keys.items():
            kinds = _TABLES[table]
            if table == "storage":
                kind: type = str
            elif key not in kinds:
                _refuse_name(key, list(kinds), f"key in [{table}]", place)
            else:
                kind = kinds[key]
            if not isinstance(value, kind) or (isinstance(value, list) and not all(isinstance(v, str) for v in value)):
                raise _wrong_type(f"`{key}` in [{table}]", value, place, f"give a {_KIND_NAMES[kind]}")


_KIND_NAMES: dict[type, str] = {str: "string", list: "list of strings", dict: "table"}
_TOML_TYPES: dict[type, str] = {
    bool: "a boolean",
    dict: "a table",
    float: "a number",
    int: "a number",
    list: "a list",
    str: "a string",
}


_WORDS: dict[str, str] = {
    **dict.fromkeys(["home", "streams", "name", "path"], "write it under [project]"),
    **dict.fromkeys(["master", "conf"], "write it under [spark]"),
    **dict.fromkeys(["checkpoint", "checkpoint_location", "checkpoints"], "write it as `home`: checkpoints are there"),
    **dict.fromkeys(["packages", "jars", "submit_args"], 'write `"spark.jars.packages" = ...` under [spark.conf]'),
    **dict.fromkeys(["schedule", "airflow", "dags", "schedules"], "leave it out: a DAG says when its streams run"),
    **dict.fromkeys(["s3", "aws", "gcs", "azure"], "write it under [storage]"),
    **dict.fromkeys(["stream", "sources", "sinks"], "declare streams in Python, in the folders of `streams`"),
}
"""What is typed into `sluice.toml`, and where it belongs."""


def _refuse_name(name: str, known: list[str], what: str, place: str) -> None:
    near = difflib.get_close_matches(name, known, n=1)
    remedy = f"did you mean `{near[0]}`?" if near else f"valid are: {', '.join(known)}"
    raise DeclarationError(f"unknown {what}: `{name}`", where=place, remedy=_WORDS.get(name, remedy))


def _spark_master(given: str, place: str) -> str:
    """Where Spark is. What is in the environment was said for this process, what is in the file for all of them."""
    remote, ours = os.environ.get("SPARK_REMOTE"), os.environ.get("SLUICE_SPARK_MASTER")
    remember_secrets(secrets_of_url(remote or ""))
    # Where spark-submit started this process, the master is its own.
    if not remote or "PYSPARK_GATEWAY_PORT" in os.environ:
        master = expand(given, place=place) or _DEFAULT_MASTER
        check_master(master, "environment, SLUICE_SPARK_MASTER" if ours else f"{place}, [spark] master")
        return master
    if not remote.startswith(CONNECT_SCHEME) or (ours and not ours.startswith(CONNECT_SCHEME)):
        raise DeclarationError(
            "SPARK_REMOTE names no Spark Connect server, or SLUICE_SPARK_MASTER names another Spark",
            where="environment",
            remedy="write SPARK_REMOTE as sc://HOST:PORT, or unset it: pyspark would follow it whatever else is said",
        )
    return expand(ours, place=place) if ours else remote


def _conf_value(key: str, value: Any, place: str) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return expand(value, place=place)
    if isinstance(value, int | float):
        return str(value)
    remedy = "give a string, a number or a boolean; quote dotted keys"
    raise _wrong_type(f"`{key}` in [spark.conf]", value, place, remedy)


def _wrong_type(what: str, value: object, place: str, remedy: str) -> DeclarationError:
    """The error about a value, of which it says only the type: it may be a secret, or a table that holds some."""
    kind = _TOML_TYPES.get(type(value), "a date or time")
    return DeclarationError(f"{what} is {kind}", where=place, remedy=remedy)
