"""A data source that a project has written in Python (`pyspark.sql.datasource`), and how its batches are decided.

A static method `available(options, position, bound)` of the class makes it one that can be planned: it gives the end
offset of each batch, as a dict. Spark then runs exactly these. Without it, Spark alone decides the batches.

The class is imported where a run is planned, which is also in Airflow's processes. What `available` gives is looked at
before anything of it is written down: an offset that can't be read back would damage the checkpoint.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from sluice.checkpoint.offsets import decoded_offset
from sluice.datasets import Dataset
from sluice.declaration_checks import check_reference, declares
from sluice.errors import DeclarationError, Problem, RefusedError, SluiceError, StorageError
from sluice.extras import check_extra
from sluice.foreign_code import described, error_line, foreign_code
from sluice.interval import Interval
from sluice.other_names import SPARKS_OWN_SOURCES
from sluice.paths import expand_all
from sluice.project_code import load_named
from sluice.redaction import redacted
from sluice.schema_text import schema_problem
from sluice.sources.coded import CodedSource
from sluice.sources.contract import SOURCE_TAG, Available, Bound, Position, Slice, Step, offset_of_another_kind
from sluice.spark_options import any_options
from sluice.surroundings import Surroundings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sluice.storage import Storage

_METHOD = "available"
_MOST_BATCHES = 10_000
"""That are planned at once: who gives more probably never ends."""
_MOST_CHARACTERS = 1_000_000
"""Of one offset: every plan and record has it, and Spark keeps it for a hundred batches."""
_SHOWN = 100
"""Characters of what was given, in a message."""


@dataclass(frozen=True)
class PythonSource(CodedSource):
    """Declared by `sources.python`."""

    kind: ClassVar[str] = "python"
    unit: ClassVar[str] = "rows"
    planning_method: ClassVar[str] = _METHOD

    data_source: str
    schema: str | None
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    import_roots: tuple[str, ...] = field(default=(), repr=False)

    @property
    def reference(self) -> str:
        return self.data_source

    @property
    def location(self) -> str:
        return f"python:{self.data_source}"

    @property
    def reading(self) -> tuple[object, ...]:
        return self.data_source, self.schema, *sorted(self.options.items())

    def resolved(self, around: Surroundings) -> PythonSource:
        return replace(self, options=expand_all(self.options, place=self._declared))

    def importing(self, import_roots: Sequence[str]) -> PythonSource:
        return replace(self, import_roots=tuple(import_roots))

    def datasets(self, end: Any) -> tuple[Dataset, ...]:
        return ()

    def reads_from(self, place: str) -> bool:
        return False

    def load(self) -> type:
        check_extra("spark", self._declared)
        found: Any = load_named(self.data_source, self.import_roots, what="class")
        from pyspark.sql.datasource import DataSource

        if not issubclass(found, DataSource):
            raise DeclarationError(
                f"`{self.data_source}` is no `DataSource`",
                where=_file_of(found),
                remedy="derive it from `pyspark.sql.datasource.DataSource`",
            )
        if found.streamReader is DataSource.streamReader and found.simpleStreamReader is DataSource.simpleStreamReader:
            raise DeclarationError(
                f"`{self.data_source}` reads no stream",
                where=_file_of(found),
                remedy="give it `streamReader(self, schema)`, or `simpleStreamReader(self, schema)`",
            )
        self._check_name(found)
        loaded: type = found
        return loaded

    def available(self, position: Position, bound: Bound, *, storage: Storage, now: datetime) -> Available:
        loaded = self.load()
        if inspect.getattr_static(loaded, _METHOD, None) is None:
            why = f"`{self.data_source}` has no `{_METHOD}`, so that Spark alone knows its offsets"
            return Available(steps=(), unplannable=why, is_counted=False)
        at = self._decoded(position.offset)
        wrong = self._wrong(loaded)
        ends = tuple(_beyond(position.offset, self._ends(loaded, at, bound.until), wrong))
        if ends:
            _check_new(ends, position.earlier(), wrong)
        return Available(tuple(map(Step, ends)))

    def check_inputs(
        self, position: Position, end: str, *, storage: Storage, is_read: bool = True
    ) -> tuple[Problem, ...]:
        """Whether it is there is the reader's to say."""
        return ()

    def read_stream(self, spark: SparkSession, *, name: str, started_at: Mapping[str, Any]) -> DataFrame:
        data_source: Any = self.load()
        spark.dataSource.register(data_source)
        reader = spark.readStream.format(data_source.name()).options(**self.options).option(SOURCE_TAG, name)
        return (reader if self.schema is None else reader.schema(self.schema)).load()

    @property
    def backfill_obstacle(self) -> str:
        return (
            f"a data source in Python may let go of what Spark has committed, and `{self.data_source}` can't tell"
            " whether all of it is still there"
        )

    def slice(self, position: Position, arrivals: Interval | None, *, storage: Storage) -> Slice:
        raise DeclarationError(self.backfill_obstacle, where=self._declared, remedy="run the stream")

    def read_batch(self, spark: SparkSession, *, name: str, taken: Slice) -> DataFrame:
        raise DeclarationError(self.backfill_obstacle, where=self._declared, remedy="run the stream")

    def columns(self, newest: str | None, *, storage: Storage) -> str | None:
        return self.schema

    @property
    def _declared(self) -> str:
        return f"sources.python({self.data_source!r})"

    def _check_name(self, found: Any) -> None:
        """Spark registers none under the name of a source of its own."""
        where = _file_of(found)
        with self._calling("name", where):
            name = found.name()
        if not isinstance(name, str) or not name.strip():
            raise DeclarationError(
                f"`{self.data_source}.name()` gives {_shown(name)}", where=where, remedy="let it give a text"
            )
        if name.lower() in SPARKS_OWN_SOURCES:
            raise DeclarationError(
                f"`{self.data_source}` has the name `{name}`, which is one of Spark's own sources",
                where=where,
                remedy="let its `name()` give another one",
            )

    def _calling(self, method: str, where: str | None) -> AbstractContextManager[None]:
        """Whatever is raised while this lasts is told with the line of the project's code that it comes from."""
        file = re.sub(r":\d+$", "", where or "")
        return foreign_code(f"`{self.data_source}.{method}` fails", where=lambda exc: error_line(exc, file) or where)

    def _decoded(self, offset: str | None) -> dict[str, Any] | None:
        found = None if offset is None else json.loads(offset)
        if offset is not None and not isinstance(found, dict):
            raise RefusedError(offset_of_another_kind(offset, "Python data source's", self.location))
        return found

    def _ends(self, loaded: type, at: dict[str, Any] | None, until: datetime | None) -> Sequence[str]:
        """What `available` gives, as Spark writes offsets."""
        wrong = self._wrong(loaded)
        with self._calling(_METHOD, _line_of(loaded)):
            method = _static_method(loaded, wrong)
            try:
                given = method(dict(self.options), at, until)
                found = list(islice(_several(given, wrong), _MOST_BATCHES + 1))
            except OSError as exc:
                # What it asks may be away for a moment: the run may be tried again.
                problem = f"`{self.data_source}.{_METHOD}` fails: {described(exc)}"
                raise StorageError(problem, where=_line_of(loaded)) from exc
            if len(found) > _MOST_BATCHES:
                most = f"{_MOST_BATCHES:,}"
                wrong(f"gives more than {most} offsets", f"let it end after {most}: later runs take the rest")
            return [_encoded(offset, wrong) for offset in found]

    def _wrong(self, loaded: type) -> Callable[[str, str], NoReturn]:
        """What refuses something of `available`: called with what is wrong, and what to do about it."""

        def refuse(what: str, remedy: str) -> NoReturn:
            raise DeclarationError(f"`{self.data_source}.{_METHOD}` {what}", where=_line_of(loaded), remedy=remedy)

        return refuse


_Refuse = Callable[[str, str], NoReturn]
_AS_STATIC = f"write it as `@staticmethod`, `def {_METHOD}(options, position, bound)`"


def _static_method(loaded: type, wrong: _Refuse) -> Callable[..., Any]:
    if not isinstance(inspect.getattr_static(loaded, _METHOD), staticmethod | classmethod):
        wrong("is no static method", _AS_STATIC)
    method: Callable[..., Any] = getattr(loaded, _METHOD)
    if inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method):
        wrong("is `async`: a call of it runs nothing", "make it a plain function")
    try:
        inspect.signature(method).bind({}, None, None)
    except TypeError:
        wrong(f"has the parameters {inspect.signature(method)}", _AS_STATIC)
    except ValueError:
        # It is written in C, and does not tell.
        pass
    return method


def _several(given: object, wrong: _Refuse) -> Iterable[object]:
    if given is None:
        return ()
    if inspect.iscoroutine(given):
        given.close()
    if isinstance(given, Mapping):
        wrong(f"gives one offset, {_shown(given)}", "give a list of them, one for each batch")
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        wrong(f"gives {_shown(given)}", "give a list of offsets, which are dicts: one for each batch, none for nothing")
    return given


def _encoded(offset: object, wrong: _Refuse) -> str:
    """An offset exactly as pyspark writes those of a reader; what could not be read back is refused."""
    if not isinstance(offset, dict):
        wrong(f"gives {_shown(offset)} as an offset", "give dicts, as `latestOffset` of its reader does")
    remedy = "give dicts of texts, whole numbers and booleans, as Spark wants offsets"
    try:
        text = json.dumps(offset, allow_nan=False)
        decoded_offset(text)
        is_same = json.dumps(json.loads(text)) == text
    except SluiceError:
        raise
    except Exception as exc:
        # Whatever is in it may raise whatever it likes.
        wrong(f"gives the offset {_shown(offset)}, which is no JSON: {described(exc)}", remedy)
    if not is_same:
        wrong(f"gives the offset {_shown(offset)}, which has a key twice in JSON", remedy)
    if len(text) > _MOST_CHARACTERS:
        wrong(f"gives an offset of {len(text):,} characters", "tell in few words how far a batch reads")
    return text


def _beyond(position: str | None, ends: Iterable[str], wrong: _Refuse) -> Iterable[str]:
    """The ends of the batches that have something: one that ends where the one before it does has nothing."""
    last = None if position is None else _same(position)
    seen = {last}
    for end in ends:
        found = _same(end)
        if found != last and found in seen:
            wrong(f"goes back to the offset {_shown(json.loads(end))}", "give each offset once, in their order")
        if found != last:
            yield end
        last = found
        seen.add(found)


def _check_new(ends: Iterable[str], earlier: Iterable[str], wrong: _Refuse) -> None:
    """Refuse an offset that a batch before the newest one has ended at: what lies behind it would be read again."""
    read = set(map(_same, earlier))
    for end in ends:
        if _same(end) in read:
            wrong(
                f"goes back behind its position, to the offset {_shown(json.loads(end))}, where an earlier batch ended",
                "give what is beyond `position`, and nothing where there is nothing new",
            )


def _same(offset: str) -> str:
    """What is equal for offsets that say the same, in whichever order."""
    return json.dumps(json.loads(offset), sort_keys=True)


def _shown(given: object) -> str:
    try:
        text = redacted(repr(given))
    except Exception:
        # It is nested too deep, or has words of its own.
        text = f"a {type(given).__name__}"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _file_of(loaded: type) -> str | None:
    return getattr(sys.modules.get(loaded.__module__), "__file__", None)


def _line_of(loaded: type) -> str | None:
    """`file:line` of its `available`; of what is no function, the file."""
    found: Any = inspect.getattr_static(loaded, _METHOD)
    code = getattr(inspect.unwrap(getattr(found, "__func__", found)), "__code__", None)
    return _file_of(loaded) if code is None else f"{code.co_filename}:{code.co_firstlineno}"


@declares("sources.python()", {})
def python(data_source: str, *, schema: str | None = None, **options: Any) -> PythonSource:
    """Declare a source that a class of the project reads: a `DataSource` of `pyspark.sql.datasource`.

    With a static method `available(options, position, bound)`, its runs are planned, bounded and skipped without Spark.
    It gives the end offsets of the batches, as dicts and in order: what is beyond `position`, the offset of the newest
    batch (None before the first), and arrived before `bound` (None for all). Without it, Spark decides the batches.

    Args:
        data_source: `module:Class`, with a `streamReader` or a `simpleStreamReader`.
        schema: The columns as DDL, where the class wants to be told.
        options: Its options; `${NAME}` stands for a variable of the environment.

    Raises:
        DeclarationError: It is no such reference, the schema can't be read, or an option is no text, number or boolean.
    """
    check_reference(data_source, "the data source", "sources.python()", form="module:Class")
    place = f"sources.python({data_source!r})"
    if schema is not None and (wrong := schema_problem(schema)) is not None:
        raise DeclarationError(wrong.problem, where=place, remedy=wrong.remedy)
    return PythonSource(data_source, schema, any_options(options, place))
