"""A project: what `sluice.toml` says, and the declarations and functions that are found by it."""

from __future__ import annotations

import difflib
import inspect
import os
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sluice.declarations import Declarations, Unusable, read_declarations, resolve_stream
from sluice.declared_settings import check_setting, check_values, setting_text
from sluice.errors import DeclarationError, UnknownStreamError
from sluice.home import StreamHome
from sluice.locations import join
from sluice.paths import VARIABLE, expand, resolve_path
from sluice.pipelines.flows import Flow, Flows, read_flows
from sluice.pipelines.spec import PipelineSpec, find_spec, read_spec
from sluice.project_code import load_named
from sluice.redaction import is_harmless, is_secret_name, remember_secrets, secrets_of_url
from sluice.spark_master import CONNECT_SCHEME, check_master, is_submitted
from sluice.storage import Storage
from sluice.storage_options import check_storage_options
from sluice.stream import Stream
from sluice.surroundings import Surroundings
from sluice.table_names import TableName, read_tables

FILE_NAME = "sluice.toml"

_TABLES: dict[str, dict[str, type]] = {
    "project": {"name": str, "home": str, "streams": list, "path": list, "pipeline": str},
    "spark": {"master": str, "conf": dict},
    "storage": {},
    "tables": {},
}
_FREE = frozenset({"storage", "tables"})
"""The tables that have keys of their own, which whoever reads them checks."""
_DEFAULT_MASTER = "local[*]"


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
    tables: Mapping[TableName, str] = field(default_factory=dict)
    """The locations of tables that streams declare by their names."""
    moving_folder: str | None = None
    """A folder of which the next version has another copy, such as Airflow's of its bundles: nothing that streams read
    or write may lie in it."""

    spec: PipelineSpec | None = None
    """The pipeline whose flows are the project's streams; None for a project that declares its own."""

    @property
    def is_remote(self) -> bool:
        """Whether it runs on a Spark Connect server; what `spark-submit` started has a Spark of its own."""
        return self.spark_master.startswith(CONNECT_SCHEME) and not is_submitted()

    @property
    def surroundings(self) -> Surroundings:
        """What its declarations are resolved by."""
        return Surroundings(self.root, self.moving_folder, self.spark_conf, self.import_roots, self.tables)

    def storage(self) -> Storage:
        """Where the project's files are read from and written to."""
        return Storage(self.storage_options)

    def stream_home(self, stream: Stream) -> StreamHome:
        """The folder of a stream in the project's home."""
        return self.home_named(stream.name, stream.checkpoint)

    def home_named(self, name: str, checkpoint: str | None = None) -> StreamHome:
        """The folder of a stream by its name: its declaration may be gone, or wrong, by now."""
        return StreamHome(join(self.home, name), self.storage(), checkpoint)

    def conf_of(self, stream: Stream) -> Mapping[str, str]:
        """Spark's settings for a stream: those of `[spark.conf]`, and its own, which win.

        Raises:
            DeclarationError: A variable of the environment that one of them names is not set.
        """
        remember_secrets(_secrets(stream.settings))
        own = {key: expand(value, place=stream.place) for key, value in stream.settings.items()}
        check_values(stream.settings, own, place=f"{stream.place}, conf")
        return {**self.spark_conf, **own}

    def place(self, location: str) -> str:
        """A location from the project's folder where it lies in it: the same after the project was moved."""
        return location.removeprefix(self.root.rstrip("/") + "/")

    def stream_homes(self, streams: Iterable[Stream]) -> dict[str, StreamHome]:
        """The folders of many streams, by name, which share what reads them."""
        storage = self.storage()
        return {stream.name: StreamHome(join(self.home, stream.name), storage, stream.checkpoint) for stream in streams}

    def declarations(self) -> Declarations:
        """Load every declaration of the project.

        Raises:
            DeclarationError: A folder of declarations does not exist.
        """
        return self._declarations()

    def _declarations(self, wanted: str | None = None) -> Declarations:
        if self.spec is None:
            return read_declarations(self.declaration_files(), self.surroundings, wanted=wanted)
        found = self.flows()
        by_file: dict[str, list[Stream]] = {}
        for flow in found.flows.values():
            by_file.setdefault(flow.element.file, []).append(flow.stream)
        read = read_declarations(by_file, self.surroundings, wanted=wanted, load=by_file.__getitem__)
        refused = {name: Unusable(error, file) for name, (error, file) in found.refused.items()}
        return Declarations(
            read.streams, read.unusable | refused, read.unreadable | found.unreadable, (*read.names, *refused)
        )

    def flows(self) -> Flows:
        """What the files of the project's pipeline define; nothing, where it has none.

        Raises:
            DeclarationError: The files can't be run.
        """
        if self.spec is None:
            return Flows()
        return read_flows(self.spec, self.spark_conf, self.tables, self._definitions_file, self.storage())

    @property
    def _definitions_file(self) -> str:
        """Where it is kept what the Python files of the project's pipeline define."""
        return join(self.home, "definitions.json")

    def forget_definitions(self) -> None:
        """Let the Python files of the project's pipeline be run anew by whoever needs them next."""
        self.storage().delete(self._definitions_file)

    def flow(self, name: str) -> Flow:
        """The flow of a pipeline's stream.

        Raises:
            UnknownStreamError: There is none, or it can't be run.
        """
        found = self.flows().flows.get(name)
        if found is None:
            raise UnknownStreamError(f"there is no flow `{name}` to run", where=self.root, remedy="`sluice list`")
        return found

    def streams(self) -> dict[str, Stream]:
        """The streams by name that can be used; what is wrong with others is no concern of these."""
        return self.declarations().usable()

    def stream(self, name: str) -> Stream:
        """The stream of this name, with absolute locations; what is wrong with others is no concern of it.

        Raises:
            UnknownStreamError: No declaration has this name.
            DeclarationError: The stream can't be used, or none has this name and a file does not load.
        """
        found = self._declarations(name)
        if name in found.unusable:
            raise found.unusable[name].error
        if name in found.streams:
            return found.streams[name].stream
        if (view := self.flows().view(name)) is not None:
            raise UnknownStreamError(
                f"`{name}` is a {view.kind}, and no stream: it is computed anew each time",
                where=f"{view.file}:{view.line}",
                remedy="`spark-pipelines run` computes it",
            )
        near = difflib.get_close_matches(name, found.names, n=1)
        if found.unreadable:
            raise _not_among(name, near, next(iter(found.unreadable.values())))
        remedy = f"did you mean `{near[0]}`?" if near else f"declared are: {', '.join(found.names)}"
        if not found.names:
            remedy = "no file there declares one: write `NAME = Stream(...)` at the top level of a .py file"
        raise UnknownStreamError(f"there is no stream `{name}`", where=", ".join(self.stream_folders), remedy=remedy)

    def declaration_files(self) -> list[str]:
        """Every `.py` file directly in the declaration folders, sorted; names that start with `_` are left out.

        Raises:
            DeclarationError: A folder does not exist.
        """
        if self.spec is not None:
            return self.spec.files()
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
        return resolve_stream(stream, self.surroundings)

    def check_function(self, reference: str | None) -> None:
        """Make sure that a function can be imported, as far as can be told before Spark is there; None for none.

        Raises:
            DeclarationError: See `load_function`.
        """
        # Whoever knows the flows of a pipeline has run its files.
        if reference is None or self.spec is not None:
            return
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
        function = load_named(reference, self.import_roots)
        kinds = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)
        if any(is_kind(function) for is_kind in kinds):
            module = sys.modules.get(reference.partition(":")[0])
            raise no_plain_function(reference, getattr(module, "__file__", None))
        return function


def no_plain_function(reference: str, place: str | None) -> DeclarationError:
    """What to say of a function that is `async`, or yields: a call of it runs nothing, and would write nothing."""
    return DeclarationError(
        f"`{reference}` is `async`, or has `yield`: a call of it runs nothing",
        where=place,
        remedy="make it a plain function",
    )


def _not_among(name: str, near: Sequence[str], unread: DeclarationError) -> DeclarationError:
    """What to say of a name that no file has which loads, where one does not."""
    meant = f"did you mean `{near[0]}`? Else: " if near else ""
    return DeclarationError(
        f"there is no stream `{name}` in the files that load, and one does not: {unread.problem}",
        where=unread.where,
        remedy=f"{meant}{unread.remedy or 'correct that file'}",
    )


def find_project(start: str | None = None) -> Project:
    """Load the project of a folder: `sluice.toml` there or in the nearest folder above.

    Args:
        start: The folder to start at; `$SLUICE_PROJECT`, else the working directory, when not given.

    Raises:
        DeclarationError: There is none, or it is not right.
    """
    given = start or os.environ.get("SLUICE_PROJECT")
    origin = Path(given or os.getcwd()).resolve()
    if given and not origin.exists():
        # A folder above may have another project.
        raise DeclarationError(
            "there is no such folder", where=str(origin), remedy=f"name the folder of the project's {FILE_NAME}"
        )
    return project_above(origin)


def project_above(origin: Path) -> Project:
    """Load the project of a folder that nobody named as one, and that need not be there.

    Raises:
        DeclarationError: There is none, or it is not right.
    """
    for folder in (origin, *origin.parents):
        if (folder / FILE_NAME).is_file():
            return load_project(folder / FILE_NAME)
        if (spec := find_spec(folder)) is not None:
            return _pipeline_project(spec)
    raise DeclarationError(
        f"no {FILE_NAME} here or in a folder above", where=str(origin), remedy="run `sluice init DIR` to make a project"
    )


def _pipeline_project(file: Path) -> Project:
    """A project of Spark's declarative pipelines, which has no `sluice.toml`."""
    spec, root, place = read_spec(file), str(file.parent), str(file)
    remember_secrets(_secrets(spec.configuration))
    return Project(
        root=root,
        name=os.environ.get("SLUICE_NAME") or spec.name,
        home=resolve_path(os.environ.get("SLUICE_HOME") or "var/sluice", root, place=place),
        stream_folders=(root,),
        import_roots=(root,),
        spark_master=_spark_master(os.environ.get("SLUICE_SPARK_MASTER", ""), place),
        spark_conf=dict(spec.configuration),
        spec=spec,
    )


def _named_spec(named: str | None, root: str, place: str) -> PipelineSpec | None:
    """The spec that `pipeline` under [project] names."""
    if named is None:
        return None
    file = Path(root, named)
    if not file.is_file():
        raise DeclarationError(
            f"`pipeline` in [project] names {named!r}, which is no file", where=place, remedy="name the spec's file"
        )
    return read_spec(file)


def load_project(file: Path) -> Project:
    """Read one `sluice.toml`.

    Environment variables override it: `SLUICE_NAME`, `SLUICE_HOME`, `SLUICE_STREAMS`, `SLUICE_PATH` (lists as in
    `PATH`) and `SLUICE_SPARK_MASTER`; without the last, so does Spark's own `SPARK_REMOTE`.

    Raises:
        DeclarationError: It does not parse, or a key or value is not what it must be.
    """
    try:
        # Some editors put a mark at the beginning that nobody sees.
        tables = tomllib.loads(file.read_text("utf-8-sig"))
    except UnicodeDecodeError as exc:
        raise DeclarationError("the file is no UTF-8", where=str(file), remedy="save it as UTF-8") from exc
    except (OSError, tomllib.TOMLDecodeError, RecursionError) as exc:
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
    for key, value in conf.items():
        # A table is what a dotted key without its quotes makes.
        if not isinstance(value, dict):
            check_setting(key, value, place=f"{place}, [spark.conf]")
    spec = _named_spec(project.get("pipeline"), root, place)
    # Taken as it is, and before ours: `spark-pipelines` runs with that.
    of_spec = {} if spec is None else dict(spec.configuration)
    # Before anything can be said about them.
    master = setting(spark, "master", "SLUICE_SPARK_MASTER", "")
    remember_secrets(_secrets({"master": master, **conf, **of_spec, **storage}))
    return Project(
        root=root,
        name=setting(project, "name", "SLUICE_NAME", file.parent.name),
        home=resolve_path(setting(project, "home", "SLUICE_HOME", "var/sluice"), root, place=place),
        stream_folders=folders("streams", "SLUICE_STREAMS", ["streams"]),
        import_roots=folders("path", "SLUICE_PATH", ["."] if spec is None else [spec.root]),
        spark_master=_spark_master(master, place),
        spark_conf=_spark_conf(conf, place) | of_spec,
        storage_options=_storage_options(storage, place),
        tables=read_tables(tables.get("tables", {}), root, place=place),
        spec=spec,
    )


def _spark_conf(given: Mapping[str, Any], place: str) -> dict[str, str]:
    settings = {key: _setting(key, value, place, "[spark.conf]") for key, value in given.items()}
    declared = {key: setting_text(value) for key, value in given.items()}
    check_values(declared, settings, place=f"{place}, [spark.conf]")
    return settings


def _storage_options(given: Mapping[str, Any], place: str) -> dict[str, str]:
    options = {key.lower(): _setting(key, value, place, "[storage]") for key, value in given.items()}
    check_storage_options(options, f"{place}, [storage]")
    return options


def _secrets(settings: Mapping[str, Any]) -> Iterator[str]:
    """What of a project's settings is secret: by its name, by its place in a URL, or because the environment says it.

    Tables are looked through: a dotted key that lacks its quotes makes one.
    """
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from _secrets({f"{key}.{inner}": found for inner, found in value.items()})
        elif isinstance(value, str):
            told = [os.environ[name] for name in VARIABLE.findall(value) if name in os.environ]
            expanded = VARIABLE.sub(lambda match: os.environ.get(match[1], match[0]), value)
            yield from (text for text in told if not is_harmless(text))
            yield from secrets_of_url(expanded)
            if is_secret_name(key):
                yield expanded


def _check_tables(tables: dict[str, Any], place: str) -> None:
    for table, keys in tables.items():
        if table not in _TABLES:
            _refuse_name(table, list(_TABLES), "table", place)
        if not isinstance(keys, dict):
            raise DeclarationError(f"`{table}` is not a table", where=place, remedy=f"write [{table}]")
        for key, value in keys.items():
            kinds = _TABLES[table]
            if table in _FREE:
                continue
            if key not in kinds:
                _refuse_name(key, list(kinds), f"key in [{table}]", place)
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
    **dict.fromkeys(["driver_memory", "memory"], 'write `"spark.driver.memory" = "4g"` under [spark.conf]'),
    **dict.fromkeys(["remote", "url"], "write it as `master`: sc://HOST:15002"),
    **dict.fromkeys(["app_name", "version", "spark_home"], "leave it out: Sluice brings Spark, and names what it runs"),
    **dict.fromkeys(["env", "profile", "profiles", "targets"], "write ${NAME} into a value, and set the variable"),
    **dict.fromkeys(["quality", "expectations"], "declare it with the stream: `Stream(quality=...)`"),
    **dict.fromkeys(["connection", "connections"], "leave it out: a connection of Airflow's is named by the DAG"),
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


def _setting(key: str, value: Any, place: str, table: str) -> str:
    if isinstance(value, str):
        return expand(value, place=place)
    if isinstance(value, int | float):
        return setting_text(value)
    remedy = "give a string, a number or a boolean; quote dotted keys"
    raise _wrong_type(f"`{key}` in {table}", value, place, remedy)


def _wrong_type(what: str, value: object, place: str, remedy: str) -> DeclarationError:
    """The error about a value, of which it says only the type: it may be a secret, or a table that holds some."""
    kind = _TOML_TYPES.get(type(value), "a date or time")
    return DeclarationError(f"{what} is {kind}", where=place, remedy=remedy)
