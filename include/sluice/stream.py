"""What a stream is declared with: frozen data, no I/O, no Spark.

    Stream(name=..., sources={NAME: Source}, transform="module:function", sink=Sink)
    Stream(name=..., sources={NAME: Source}, sql="select ... from stream(NAME)", sink=Sink)
    Stream(name=..., sources={NAME: Source}, transform="module:function", sinks={NAME: Sink, NAME: Sink})

A `Source` or a `Sink` is the declaration of one kind (files, Delta, ...); its module below `sluice.sources` or
`sluice.sinks` holds everything about that kind, with and without a JVM.
"""

from __future__ import annotations

import inspect
import keyword
import re
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import MISSING, Field, InitVar, dataclass, field, fields, replace
from datetime import timedelta
from typing import Any, Self, cast

from sluice.declaration_checks import check_call, check_reference, declaring_line, no_column
from sluice.declared_settings import DRIVER_MEMORY, MEMORY, MEMORY_REMEDY, check_setting, setting_text
from sluice.errors import DeclarationError
from sluice.other_names import STREAM_WORDS
from sluice.several_sinks import SeveralSinks, several
from sluice.sinks.contract import OutputMode, Sink, SinkUse
from sluice.sinks.replaceable import ReplaceableSink
from sluice.sinks.splitting import SplittingSink
from sluice.sources.contract import Source
from sluice.spark_conf_values import check_value
from sluice.storage import Storage

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,99}")
_SOURCE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_FOUND_OUT = ("declared_at",)
"""Fields that nobody types; copies bring them along."""
noticed_by: ContextVar[Callable[[Stream], None] | None] = ContextVar("noticed_by", default=None)
"""Who is told of each stream that is made: while a file of declarations is imported, by the thread that does so."""
_LATENESS = re.compile(r"\s*(\d{1,6})\s*(minute|hour|day|week)s?\s*")


@dataclass(frozen=True, kw_only=True)
class Stream:
    """A declared stream: from sources through a transform into a sink.

    Args:
        name: Letters, digits, `_` and `-`; names the stream's folder in the home.
        sources: The sources by the names of the transform's parameters.
        transform: `module:function`; gets one DataFrame per source, by name, and returns one; with `sinks`, one for
            each of them, by its name.
        sql: A query in place of a transform, or the `.sql` file that has it; `stream(NAME)` reads a source.
        sink: Where the result goes.
        sinks: In place of `sink`, several by names: of what is read once, the transform makes a result for each. The
            first is a Delta table; it is written last.
        output_mode: Spark's output mode.
        checkpoint: An existing Spark checkpoint to use in place of a generation in the home.
        interval_column: The date or time column of the result by which a backfill replaces rows.
        lateness: How long after its interval column says a row may arrive (`"3 days"`); a backfill reads no file that
            arrived later. All that was ever read, when it is not given.
        quality: The suite that its rows are checked with: a JSON file of Great Expectations, `module:function`, or a
            Python file.
        quarantine: The Delta table for rows that fail an expectation with the policy `quarantine`; beside the sink,
            with `_quarantine` after its name, when it is not given.
        conf: Settings of Spark for this stream alone, by their names; they win over `[spark.conf]` of the project.
        memory: How much memory Spark's driver has, such as `"4g"`; on a server, that is the server's business.
        tags: Words by which several streams are run at once: `sluice run --tag WORD`.

    Raises:
        DeclarationError: A field is not what it must be.
    """

    name: str
    sources: Mapping[str, Source]
    transform: str | None = None
    sql: str | None = field(default=None, repr=False)
    sink: Sink = cast("Sink", None)
    sinks: InitVar[Mapping[str, Sink] | None] = None
    output_mode: OutputMode = "append"
    checkpoint: str | None = None
    interval_column: str | None = None
    lateness: str | None = None
    quality: str | None = None
    quarantine: Sink | None = None
    conf: Mapping[str, str | int | float | bool] | None = field(default=None, repr=False)
    memory: str | None = None
    tags: Sequence[str] = ()
    declared_at: str | None = field(default=None, compare=False, repr=False)
    """`file:line` of its declaration; found out, not declared."""

    def __new__(cls, *args: object, **given: object) -> Self:
        # Copies and pickles are made without arguments.
        if args or given:
            named = {found.name: _default(found) for found in fields(cls) if found.name not in _FOUND_OUT}
            named |= {"sinks": None} if "sinks" in given else {"sink": inspect.Parameter.empty}
            kind = inspect.Parameter.KEYWORD_ONLY
            parameters = [inspect.Parameter(name, kind, default=default) for name, default in named.items()]
            typed = {name: value for name, value in given.items() if name not in _FOUND_OUT}
            check_call(parameters, args, typed, place="Stream(...)", words=STREAM_WORDS)
        return super().__new__(cls)

    @property
    def place(self) -> str:
        """Where it is declared, for messages."""
        named = f"stream `{self.name}`"
        return named if self.declared_at is None else f"{self.declared_at}: {named}"

    @property
    def has_sql_file(self) -> bool:
        """Whether `sql` names a file."""
        return self.sql is not None and self.sql.lower().endswith(".sql")

    @property
    def transform_name(self) -> str:
        """The transform, as people are told of it: `module:function`, the file of its SQL, or that it is SQL."""
        if self.transform is not None:
            return self.transform
        return str(self.sql) if self.has_sql_file else "sql"

    @property
    def settings(self) -> Mapping[str, str]:
        """`conf` and `memory` as settings of Spark; variables of the environment stand in them as they are declared."""
        own = {key: setting_text(value) for key, value in (self.conf or {}).items()}
        return own if self.memory is None else own | {DRIVER_MEMORY: self.memory}

    def sink_use(self, conf: Mapping[str, str], *, storage: Storage) -> SinkUse:
        """How it writes into its sink.

        Args:
            conf: The settings of Spark that it runs with.
            storage: Where the sink is.
        """
        return SinkUse(self.output_mode, self.interval_column, conf, self.place, storage)

    @property
    def backfill_obstacle(self) -> str | None:
        """Why the stream can't be backfilled, by its declaration alone; None when it can."""
        if not isinstance(self.sink, ReplaceableSink):
            return self.sink.replace_obstacle
        if self.output_mode != "append":
            return f"in output mode `{self.output_mode}` the next batch of the live stream writes all rows anew"
        if self.interval_column is None:
            return "it declares no `interval_column`, by which rows could be replaced"
        obstacles = (source.backfill_obstacle for source in self.sources.values())
        return next((obstacle for obstacle in obstacles if obstacle is not None), None)

    @property
    def quarantine_table(self) -> SplittingSink | None:
        """Where rows go that `quarantine` takes; None when the sink has no place for them."""
        if isinstance(self.quarantine, SplittingSink):
            return self.quarantine
        if not isinstance(self.sink, SplittingSink):
            return None
        return self.sink.beside("_quarantine")

    @property
    def split_tables(self) -> tuple[SplittingSink, SplittingSink]:
        """The sink and its quarantine.

        Raises:
            DeclarationError: The sink can't be split.
        """
        if isinstance(self.sink, SplittingSink) and (table := self.quarantine_table) is not None:
            return self.sink, table
        raise DeclarationError(
            self.sink.split_obstacle[0],
            where=self.place,
            remedy="use a Delta sink, or another policy than `quarantine`",
        )

    @property
    def lateness_time(self) -> timedelta | None:
        """`lateness` as a time; None when it is not declared."""
        match = _LATENESS.fullmatch(self.lateness or "")
        return timedelta(**{f"{match[2]}s": int(match[1])}) if match else None

    @property
    def outputs(self) -> Mapping[str, Stream]:
        """By the name of each of several sinks, the stream as it would be with that one alone; else nothing."""
        if not isinstance(self.sink, SeveralSinks):
            return {}
        return {name: replace(self, sink=part) for name, part in self.sink.parts.items()}

    def __post_init__(self, sinks: Mapping[str, Sink] | None) -> None:
        if self.declared_at is None:
            object.__setattr__(self, "declared_at", declaring_line())
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            raise DeclarationError(
                f"`name` is {self.name!r}",
                where="Stream(name=...)",
                remedy="start with a letter; use letters, digits, `_` and `-`, at most 100",
            )
        place = f"stream `{self.name}`"
        self._check_sources(place)
        self._check_transform(place)
        if sinks is not None:
            object.__setattr__(self, "sink", self._several(sinks, place))
        if not isinstance(self.sink, Sink):
            raise DeclarationError(
                f"`sink` is {_shown(self.sink)}",
                where=place,
                remedy="declare it by a function of `sluice.sinks`, such as `sinks.delta(PATH)`",
            )
        if self.output_mode not in self.sink.output_modes:
            raise DeclarationError(
                f"`output_mode` is {self.output_mode!r}, which {self.sink.named} does not take",
                where=place,
                remedy=self.sink.mode_remedy(self.output_mode),
            )
        self._check_spark(place)
        self._check_tags(place)
        self._check_quality(place)
        self._check_backfill(place)
        if (notice := noticed_by.get()) is not None:
            notice(self)

    def _check_sources(self, place: str) -> None:
        if not isinstance(self.sources, Mapping) or not self.sources:
            raise DeclarationError(
                "`sources` is empty or not a mapping",
                where=place,
                remedy='give each a name, a parameter of the transform: sources={"visits": sources.files(...)}',
            )
        for name, source in self.sources.items():
            if not isinstance(name, str) or not _SOURCE_NAME.fullmatch(name):
                raise DeclarationError(
                    f"source name {name!r} can't be a parameter name", where=place, remedy="use letters, digits and `_`"
                )
            if keyword.iskeyword(name):
                raise DeclarationError(
                    f"source name {name!r} can't be a parameter name",
                    where=place,
                    remedy="use another one: Python has it for itself",
                )
            if not isinstance(source, Source):
                raise DeclarationError(
                    f"source `{name}` is {_shown(source)}",
                    where=place,
                    remedy="declare it by a function of `sluice.sources`, such as `sources.files(PATH, ...)`",
                )

    def _several(self, sinks: object, place: str) -> SeveralSinks:
        given: object = self.sink
        if given is not None:
            raise DeclarationError("`sink` and `sinks` are both given", where=place, remedy="leave one of them out")
        if not isinstance(sinks, Mapping) or len(sinks) < 2:
            raise DeclarationError(
                "`sinks` is not a mapping of two or more",
                where=place,
                remedy='name each, as the transform does: sinks={"good": ..., "rest": ...}; for one, use `sink`',
            )
        for name in sinks:
            if not isinstance(name, str) or not _SOURCE_NAME.fullmatch(name):
                raise DeclarationError(f"sink name {name!r} is none", where=place, remedy="use letters, digits and `_`")
        found = several(sinks, place=place)
        if len(self.sources) > 1:
            raise DeclarationError(
                "`sinks` get what one source gives, and there are several sources",
                where=place,
                remedy="write the result of all of them into one table, and let a stream with `sinks` follow that one",
            )
        if self.sql is not None:
            raise DeclarationError(
                "a query of SQL has one result, and `sinks` takes one for each",
                where=place,
                remedy="write a transform, which returns them by the names of the sinks",
            )
        if self.quality is not None:
            raise DeclarationError(
                "`quality` checks the rows of one sink, and there are `sinks`",
                where=place,
                remedy="let the transform give rows that fail to a sink of their own; or check one sink's table in a"
                " stream that follows it",
            )
        return found

    def _check_transform(self, place: str) -> None:
        if self.sql is None:
            if self.transform is None:
                raise DeclarationError(
                    "`transform` is missing",
                    where=place,
                    remedy='write it as "module:function", or a query of SQL: sql="select * from stream(visits)"',
                )
            check_reference(self.transform, "`transform`", place)
            return
        if self.transform is not None:
            raise DeclarationError("`transform` and `sql` are both given", where=place, remedy="leave one of them out")
        if not isinstance(self.sql, str) or not self.sql.strip():
            raise DeclarationError(
                f"`sql` is {self.sql!r}", where=place, remedy='give a query, or its file: sql="queries/visits.sql"'
            )

    def _check_spark(self, place: str) -> None:
        conf: object = self.conf
        if conf is not None and not isinstance(conf, Mapping):
            raise DeclarationError(
                f"`conf` is a {type(conf).__name__}",
                where=place,
                remedy='give settings by their names: conf={"spark.sql.shuffle.partitions": 8}',
            )
        given: Mapping[Any, Any] = self.conf or {}
        for key, value in given.items():
            if not isinstance(value, str | int | float | bool):
                # What it is may be a secret.
                kind = type(value).__name__
                raise DeclarationError(
                    f"`{key}` in `conf` is a {kind}", where=place, remedy="give a string, a number or a boolean"
                )
            check_setting(key, value, place=f"{place}, conf")
            # Variables are the project's to fill in, which then looks at these again.
            text = setting_text(value)
            check_value(key, text, declared=text, place=f"{place}, conf")
        if self.memory is None:
            return
        if not isinstance(self.memory, str) or not MEMORY.fullmatch(self.memory):
            raise DeclarationError(f"`memory` is {self.memory!r}", where=place, remedy=MEMORY_REMEDY)
        if DRIVER_MEMORY in given:
            raise DeclarationError(
                f"`memory` and `{DRIVER_MEMORY}` in `conf` say the same", where=place, remedy="leave one of them out"
            )

    def _check_tags(self, place: str) -> None:
        tags: object = self.tags
        if isinstance(tags, str) or not isinstance(tags, Sequence):
            raise DeclarationError(f"`tags` is {tags!r}", where=place, remedy='give a list of words: tags=["hourly"]')
        for tag in tags:
            if not isinstance(tag, str) or not _NAME.fullmatch(tag):
                raise DeclarationError(
                    f"`tags` has {tag!r}",
                    where=place,
                    remedy="start with a letter; use letters, digits, `_` and `-`, at most 100",
                )
        object.__setattr__(self, "tags", tuple(tags))

    def _check_quality(self, place: str) -> None:
        if self.quality is not None and (not isinstance(self.quality, str) or not self.quality.strip()):
            raise DeclarationError(
                f"`quality` is {self.quality!r}", where=place, remedy="name a suite's file, or `module:function`"
            )
        if self.quarantine is not None and (self.quality is None or not isinstance(self.quarantine, SplittingSink)):
            given = self.quarantine.named if isinstance(self.quarantine, Sink) else repr(self.quarantine)
            what = f"is {given}" if self.quality is not None else "is set without `quality`"
            raise DeclarationError(
                f"`quarantine` {what}", where=place, remedy="give `sinks.delta(PATH)`, for rows that fail the suite"
            )

    def _check_backfill(self, place: str) -> None:
        column = self.interval_column
        if column is not None and (not isinstance(column, str) or not column or "`" in column):
            raise DeclarationError(
                f"`interval_column` is {column!r}", where=place, remedy="name a date or time column of the result"
            )
        if column is not None and (meant := no_column(column)) is not None:
            raise DeclarationError(f"`interval_column` is {column!r}, which is no column", where=place, remedy=meant)
        if column is not None and self.backfill_obstacle is not None:
            raise DeclarationError(
                f"`interval_column` is set, but {self.backfill_obstacle}",
                where=place,
                remedy="leave it out, or correct the sink or the output mode",
            )
        if self.lateness is None:
            return
        if column is None:
            raise DeclarationError(
                "`lateness` is set without `interval_column`",
                where=place,
                remedy="declare the column, too; or leave it out: it says which late rows a backfill may pass over",
            )
        if not isinstance(self.lateness, str) or self.lateness_time is None:
            raise DeclarationError(
                f"`lateness` is {self.lateness!r}",
                where=place,
                remedy='give a number and a unit, such as "3 days", "12 hours" or "30 minutes"',
            )


def _shown(value: object) -> str:
    """What was given in place of a source or a sink; functions and modules would show where they are in memory."""
    if inspect.isroutine(value):
        return "a function that was not called"
    if isinstance(value, Source | Sink):
        return "a source" if isinstance(value, Source) else "a sink"
    return "a module" if inspect.ismodule(value) else repr(value)


def _default(declared: Field[Any]) -> Any:
    return inspect.Parameter.empty if declared.default is MISSING else declared.default
