"""Answers what somebody types into a declaration and what is not there: other tools' names, and misspelt ones.

Who comes from Spark, Airflow, dbt or Great Expectations types their words first: each is answered with ours.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn, ParamSpec, TypeVar

from sluice.errors import DeclarationError

P = ParamSpec("P")
R = TypeVar("R")

_REFERENCE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_SCHEDULED = 'leave it out: a run takes what is there and stops; `stream_dag("NAME", schedule=...)` says when it begins'
_OF_THE_DAG = 'give it to the DAG: `stream_dag("NAME", ...)` takes what every DAG takes'
_OF_THE_SINK = 'give it to the sink: `sinks.delta(PATH, partition_by=["COLUMN"])`'
_HOME_KEEPS_IT = "leave it out: the home keeps the checkpoint; `Stream(checkpoint=...)` takes over one that Spark made"
_CONF = "write it into `sluice.toml`, under [spark.conf]"
_NO_CLEANING = "leave it out: a backfill reads files again that were taken; move old ones away by other means"
_OUTPUT_MODE = "say it by `Stream(output_mode=...)`"
_OURS_TO_SET = "leave it out: Sluice sets it with every batch"
_ALWAYS_INCREMENTAL = "leave it out: a stream takes only what is new; a backfill recomputes an interval"
_DEDUPLICATE = "drop duplicates in the transform (`dropDuplicatesWithinWatermark`), or merge in `sinks.foreach_batch`"
_IN_TRANSFORM = "call `withWatermark` in the transform"
_QUALITY = "write it as `quality`: a suite's JSON file, or `module:function`"
_INTERVAL = "write it as `interval_column`"
_STATIC = "leave it out: a stream reads changes; a table as it was can be read in the transform"


def _each(names: str, answer: str) -> dict[str, str]:
    return dict.fromkeys(names.split(), answer)


STREAM_WORDS: Mapping[str, str] = {
    **_each("trigger processing_time available_now once trigger_once continuous trigger_interval", _SCHEDULED),
    **_each("schedule schedule_interval cron timetable interval refresh", _SCHEDULED),
    **_each("catchup depends_on_past start_date end_date max_active_runs retries retry_delay owner", _OF_THE_DAG),
    **_each("dag_id default_args pool execution_timeout on_failure_callback sla tags email", _OF_THE_DAG),
    **_each("checkpoint_location checkpoint_dir checkpoint_path", _HOME_KEEPS_IT),
    **_each("query_name stream_name id", "write it as `name`"),
    **_each("mode write_mode save_mode", "write it as `output_mode`"),
    **_each("source input inputs read_from from_ upstream", 'write it as `sources={"NAME": sources.files(...)}`'),
    **_each("target destination output outputs write_to to table", "write it as `sink=sinks.delta(PATH)`"),
    **_each("function func fn transformation transformer model job", 'write it as `transform="module:function"`'),
    **_each("sql query", 'write it in a transform: `transform="module:function"` returns a DataFrame'),
    **_each("partition_by partition_cols partition_columns partitioned_by cluster_by clustered_by", _OF_THE_SINK),
    **_each("schema columns format", 'give it to the source: `sources.files(PATH, format="json", schema="...")`'),
    **_each("options option", "give each option by its name to the source or the sink that it is for"),
    **_each("foreach_batch foreach", 'write it as `sink=sinks.foreach_batch("module:function")`'),
    **_each("watermark with_watermark watermark_delay watermark_column delay_threshold", _IN_TRANSFORM),
    **_each("max_files_per_trigger max_files", "give the source `max_files_per_batch`"),
    **_each("max_bytes_per_trigger", "give the source `max_bytes_per_batch`"),
    **_each("starting starting_offsets starting_version starting_timestamp", "give `starting` to the source"),
    **_each("materialized materialization incremental is_incremental incremental_strategy full_refresh strategy kind",
            _ALWAYS_INCREMENTAL),
    **_each("unique_key primary_key merge_keys keys dedup", _DEDUPLICATE),
    **_each("on_schema_change merge_schema", "give it to the sink: `sinks.delta(PATH, merge_schema=True)`"),
    **_each("event_time time_column date_column partition_column backfill_column batch_column", _INTERVAL),
    **_each("lookback allowed_lateness late_by", "write it as `lateness`"),
    **_each("expectations expectation_suite expectation_suite_name suite tests checks validations data_quality",
            _QUALITY),
    **_each("dead_letter dead_letters dlq bad_records bad_records_path rejects errors", "write it as `quarantine`"),
    **_each("conf config spark_conf spark_config settings", _CONF),
    **_each("master spark_master", "write it into `sluice.toml`, under [spark]"),
    **_each("home", "write it into `sluice.toml`, under [project]"),
}  # fmt: skip
"""What is typed into `Stream(...)`, in snake_case, and what to write there."""

SOURCE_WORDS: Mapping[str, str] = {
    **_each("max_files_per_trigger", "write it as `max_files_per_batch`"),
    **_each("max_bytes_per_trigger", "write it as `max_bytes_per_batch`"),
    **_each("max_versions_per_trigger max_offsets_per_trigger", "write it as `max_offsets_per_batch`"),
    **_each("starting_offsets starting_timestamp start_from starting_position", "write it as `starting`"),
    **_each("clean_source source_archive_dir", _NO_CLEANING),
    **_each("ignore_changes", "write it as `skip_change_commits`"),
    **_each("read_change_data", "write it as `read_change_feed`"),
    **_each("version_as_of timestamp_as_of", _STATIC),
    **_each("ending_version", "bound the run: `sluice run NAME --to-version N`"),
    **_each("ending_timestamp ending_offsets", "bound the run: `sluice run NAME --until TIME`"),
    **_each("columns fields", "write it as `schema`"),
    **_each("schema format", "leave it out: the table tells"),
    **_each("recursive", "write it as `recursive_file_lookup`"),
    **_each("glob pattern file_pattern", "write it into the path, or as `path_glob_filter`"),
    **_each("trigger schedule once available_now", _SCHEDULED),
    **_each("checkpoint_location", _HOME_KEEPS_IT),
    **_each("watermark with_watermark", _IN_TRANSFORM),
    **_each("options option", "give each option by its name, in snake_case"),
}
"""What is typed into `sources.files(...)` and `sources.delta(...)`."""

SINK_WORDS: Mapping[str, str] = {
    **_each("partition_cols partition_columns partitioned_by partitions", "write it as `partition_by`"),
    **_each("mode output_mode save_mode write_mode overwrite", _OUTPUT_MODE),
    **_each("checkpoint_location", _HOME_KEEPS_IT),
    **_each("trigger schedule once available_now", _SCHEDULED),
    **_each("replace_where txn_app_id txn_version", _OURS_TO_SET),
    **_each("partition_overwrite_mode", _ALWAYS_INCREMENTAL),
    **_each("unique_key merge_keys primary_key", _DEDUPLICATE),
    **_each(
        "z_order zorder cluster_by clustered_by", "leave it out: cluster the table by `ALTER TABLE`, then OPTIMIZE"
    ),
    **_each("options option", "give each option by its name, in snake_case"),
    **_each("query_name", "leave it out: `Stream(name=...)` names the query"),
    **_each("rows", "write it as `num_rows`"),
    **_each("format", "leave it out: other formats than Delta are written by `sinks.files(PATH, format=...)`"),
    **_each("schema", "leave it out: the result of the transform tells the columns"),
}
"""What is typed into `sinks.delta(...)`, `sinks.files(...)` and `sinks.console(...)`."""

_OF_FILES = "write it as `sources.files(PATH, format={!r}, ...)`"
_INTO_FILES = "write it as `sinks.files(PATH, format={!r})`"
_LAND_IT = "let its records land as files or in a Delta table, and read those: `sources.files`, `sources.delta`"
_WRITE_IT = 'write each batch by a function of yours: `sinks.foreach_batch("module:function")`'
KIND_WORDS: Mapping[str, Mapping[str, str]] = {
    "sluice.sources": {
        **{name: _OF_FILES.format(name) for name in ("csv", "json", "orc", "parquet", "text")},
        **_each("kafka kinesis pubsub eventhubs event_hubs pulsar socket rate jdbc postgres mysql mongo", _LAND_IT),
        **_each("iceberg hudi snowflake bigquery avro xml", _LAND_IT),
        **_each(
            "file folder s3 cloud_files cloudfiles autoloader auto_loader", "write it as `sources.files(PATH, ...)`"
        ),
        **_each("table delta_table", "write it as `sources.delta(PATH)`"),
        **_each("foreach_batch console noop", "it is a sink"),
    },
    "sluice.sinks": {
        **{name: _INTO_FILES.format(name) for name in ("csv", "json", "orc", "parquet", "text")},
        **_each("kafka kinesis pubsub jdbc postgres mysql mongo iceberg hudi snowflake bigquery avro", _WRITE_IT),
        **_each("foreach foreach_function merge upsert function", _WRITE_IT),
        **_each("file folder s3", "write it as `sinks.files(PATH, format=...)`"),
        **_each("table delta_table", "write it as `sinks.delta(PATH)`"),
        **_each("print stdout show", "write it as `sinks.console()`"),
        **_each("none null nothing black_hole", "write it as `sinks.noop()`"),
    },
}
"""What is looked for in the modules of sources and of sinks."""


FORMAT_WORDS: Mapping[str, str] = {
    "delta": "write it as `sources.delta(PATH)`",
    **_each("jsonl ndjson json_lines", "write it as `json`: that reads one document per line"),
    **_each("tsv psv", 'write it as `csv`, with `sep="\\t"` or another one'),
    **_each("txt log", "write it as `text`"),
    **_each("pq parq", "write it as `parquet`"),
}
"""What is given as the format of files."""


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
    ours = snake_case(name)
    if ours in known:
        return f"write it as `{ours}`"
    if ours in words:
        return words[ours]
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
    """Refuse what is no path.

    Raises:
        DeclarationError: It is not.
    """
    if isinstance(path, os.PathLike):
        raise DeclarationError(f"the path is {path!r}", where=place, remedy=f"write it as text: {os.fspath(path)!r}")
    if not isinstance(path, str) or not path.strip() or "\0" in path:
        raise DeclarationError(f"{path!r} is not a path", where=place, remedy="give a path or a URL")


def check_reference(reference: object, what: str, place: str) -> None:
    """Refuse what does not name a function as `module:function`.

    Raises:
        DeclarationError: It does not; the remedy tells how it probably is to be written.
    """
    if isinstance(reference, str) and _REFERENCE.fullmatch(reference):
        return
    meant, otherwise = None, 'write it as "module:function"'
    if callable(reference):
        otherwise = 'put it into a module of the project, and write it as "module:function"'
        name, module = getattr(reference, "__name__", ""), getattr(reference, "__module__", None) or ""
        # A declaration has a private name as a module; what it defines itself is to be moved.
        meant = f"{module}:{name}" if name.isidentifier() and not module.startswith(("_", "builtins")) else None
    elif isinstance(reference, str):
        path = re.sub(r"\.py\b", "", reference.strip()).replace("/", ".").strip(".")
        module, _, name = path.replace("::", ":").rpartition(":" if ":" in path else ".")
        meant = f"{module}:{name}"
    is_good = meant is not None and _REFERENCE.fullmatch(meant)
    raise DeclarationError(
        f"{what} is {'the function itself' if callable(reference) else repr(reference)}",
        where=place,
        remedy=f'write it as "{meant}"' if is_good else otherwise,
    )


def partition_columns(given: object, place: str) -> tuple[str, ...]:
    """The columns that `partition_by` names: a list of them, or one.

    Raises:
        DeclarationError: It names none, or one twice.
    """
    example = '`partition_by=["day", "country"]`'
    if isinstance(given, str):
        if "," in given:
            raise DeclarationError(f"`partition_by` is {given!r}", where=place, remedy=f"write a list: {example}")
        given = (given,)
    if not isinstance(given, list | tuple) or not all(isinstance(name, str) and name.strip() for name in given):
        raise DeclarationError(
            f"`partition_by` is {given!r}", where=place, remedy=f"give the names of columns, as in {example}"
        )
    twice = next((name for index, name in enumerate(given) if name in given[:index]), None)
    if twice is not None:
        raise DeclarationError(f"`partition_by` names `{twice}` twice", where=place, remedy="name every column once")
    return tuple(given)


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
    what = module.removeprefix("sluice.")
    public = list(sys.modules[module].__all__)
    return DeclarationError(
        f"there is no `{what}.{name}`", where=None, remedy=_advice(name, public, KIND_WORDS[module])
    )


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
