"""What a batch is begun with: fingerprints of what is declared, by which a later run knows what has changed."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping

from sluice.delta_log.restore import shown_version
from sluice.delta_log.types import result_columns
from sluice.planning.checked_declaration import CheckedDeclaration
from sluice.planning.edited_sources import source_fingerprints
from sluice.planning.generation_sink import SINK_FORM
from sluice.planning.sink_places import is_place_name, sink_places
from sluice.planning.transform_text import reader_digests, transform_digest
from sluice.quality.suite import Suite
from sluice.spark.connect_session import is_connected
from sluice.spark.python_zone import TIME_ZONE
from sluice.spark.query import Query, plan_reader

_PASSING = re.compile(r"#\d+L?|@[0-9a-f]+|(?<=\]), \d+$|\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", re.MULTILINE)
"""What Spark's text of a plan has that is another one at every start: ids of columns, objects, observations and
watermarks."""

_VERSION_OF = "version of "


_PLAN = "transform"
_SERVERS_PLAN = "transform, as a server tells it"
"""A server spells a plan in other words than a Spark in this process: neither is compared with the other."""
_TEXT = "code of the transform's module"
TRANSFORM_NAME = "name of the transform"
"""Of it, records tell by the plan."""
_SETTINGS = "value of a setting of Spark's"
_OF_VALUES = re.compile(
    r"spark\.sql\.((ansi|decimalOperations|function|jsonGenerator|legacy|sources\.partitionColumnTypeInference)\..+"
    r"|(csv|json)\.(?!filterPushdown).+|(parquet|avro|orc)\..*(As|Rebase|infer|Case|ignore|int96|fieldId\.read).*"
    r"|files\.ignore.+|caseSensitive|charAsVarchar|columnNameOfCorruptRecord|mapKeyDedupPolicy|readSideCharPadding"
    r"|session\.timeZone|timestampType)"
)
"""The settings by which Spark reads and computes other values."""
_COLUMNS = "columns of the result"
_FOR_WHAT_IS_READ = {"output mode", "suite", "quarantine", SINK_FORM}
"""What is declared of the rows that come out."""


def fingerprints(declared: CheckedDeclaration, query: Query) -> dict[str, str]:
    """By name of what is declared, what tells it from another: the sink's place in words, all else as a digest.

    Raises:
        DeclarationError: The suite is wrong.
        StorageError: The suite, or the log of a static table, can't be read.
    """
    project, stream, storage = declared.project, query.stream, declared.project.storage()
    plans = plan_reader(query.frame.sparkSession)
    plan = "\n".join(_PASSING.sub("", plans.analysed_text(result)) for _, _, result in query.outputs)
    spelled = _SERVERS_PLAN if is_connected(query.frame.sparkSession) else _PLAN
    found = {spelled: _digest(plan), "output mode": stream.output_mode, **sink_places(project, stream.sink)}
    found |= source_fingerprints(stream)
    found[SINK_FORM] = stream.sink.form
    # Spark's plan has the names of Python functions, and not what they do.
    found[TRANSFORM_NAME] = stream.transform_name
    session = query.frame.sparkSession
    # A session that was given has what it has, whatever is declared; and each has a time zone.
    conf = {TIME_ZONE: session.conf.get(TIME_ZONE), **project.conf_of(stream), **plans.settings(session)}
    found[_SETTINGS] = _digest(repr(sorted(item for item in conf.items() if reads_values(item[0]))))
    found[_TEXT] = transform_digest(project, stream, query.sql) or ""
    found |= {f"code that reads source `{name}`": digest for name, digest in reader_digests(project, stream).items()}
    for name, _, result in query.outputs:
        found[columns_for(name)] = result_columns(result.schema.json())
        for location, version in plans.static_versions(result).items():
            # A table that is set back by `RESTORE` has a new version, and the rows of the old one.
            shown = shown_version(location, version, storage=storage)
            found[_VERSION_OF + project.place(location)] = str(shown)
    suite = declared.suite
    found["suite"] = _digest(_suite_text(suite)) if suite is not None else ""
    quarantine = stream.quarantine_table if suite is not None else None
    found["quarantine"] = project.place((quarantine.location or "") if quarantine is not None else "")
    return found


def columns_for(sink: str) -> str:
    """What the columns of a result are noted as: of the one for a sink, by its name where there are several."""
    return f"{_COLUMNS} for sink `{sink}`" if sink else _COLUMNS


def tells_columns(name: str) -> bool:
    """Whether it is the columns of a result that are noted by a name."""
    return name.startswith(_COLUMNS)


def reads_values(setting: str) -> bool:
    """Whether Spark reads or computes other values by a setting, and not only faster ones."""
    return _OF_VALUES.fullmatch(setting) is not None


def is_edited(then: Mapping[str, str], now: Mapping[str, str]) -> bool:
    """Whether something is declared otherwise; that a static table has another version is no edit."""
    return any(then.get(name) != found for name, found in now.items() if not name.startswith(_VERSION_OF))


def read_by(then: Mapping[str, str], now: Mapping[str, str], *, with_tables: bool) -> list[str]:
    """What is another one of that by which a batch is read; nothing where nobody knows what it was.

    Of one function, Spark's plan may be spelled otherwise at every start: by times, seeds, the order of a set. So its
    code tells, where it is known; what else a plan may come of, such as a file that it reads, the record tells alone.

    Args:
        then: What was declared when it was begun; empty where that is not known.
        now: What is declared.
        with_tables: Whether a static table counts that has another version.
    """
    is_one_function = now.get(_TEXT) and all(then.get(name) == now.get(name) for name in (_TEXT, TRANSFORM_NAME))
    told_by_text = {_PLAN, _SERVERS_PLAN} if is_one_function else set()
    return [
        name
        for name, found in now.items()
        if then.get(name, found) != found and name not in _FOR_WHAT_IS_READ | told_by_text
        if not tells_columns(name) and not is_place_name(name)
        if with_tables or not name.startswith(_VERSION_OF)
    ]


def _suite_text(suite: Suite) -> str:
    rules = [(found.type, sorted(found.kwargs.items(), key=str), found.policy) for found in suite.expectations]
    return repr((sorted(rules, key=repr), sorted(suite.meta.items(), key=str)))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
