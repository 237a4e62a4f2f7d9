"""What others are shown of a driver's log: without the errors of Spark, which quote literals and rows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from sluice.errors import SluiceError
from sluice.planning.transform_text import words_of_transform
from sluice.project import Project
from sluice.redaction import redacted
from sluice.spark.query_words import QueryWords
from sluice.spark.shown_error import shown_text

_OURS = re.compile(r"sluice \S+: ")
_SPARKS = re.compile(r"(?P<head>\d\d/\d\d/\d\d \d\d:\d\d:\d\d (?P<level>[A-Z]+) [\w.$]+: )(?P<words>.*)")
_PYTHONS = re.compile(
    r"(?P<head>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} (?P<level>[A-Z]+) (?P<name>[\w.]+): )(?P<words>.*)"
)
_JSON = '{"ts": '
_ERROR = re.compile(r"Traceback \(|\s+at [\w.$/]+\(|(?:Caused by: |\s*)[\w.$]*(?:Exception|Error)\b")
"""How an error begins that is told in several lines."""
_NAMED = re.compile(r"[\w.$]*(?:Exception|Error)\b")


def shown_lines(lines: Iterable[str], words: QueryWords) -> Iterator[str]:
    """The lines of a driver's log that others may see; in the place of an error's, how many they are.

    Args:
        lines: The log.
        words: What is known of the words of its query.
    """
    hidden, is_error = 0, False
    for line in lines:
        shown = _shown_head(line, words)
        if shown is None and (is_error or line.startswith(_JSON) or _ERROR.match(line)):
            hidden += 1
            is_error = is_error or not line.startswith(_JSON)
            continue
        if hidden:
            yield f"({hidden:,} lines of an error: they are in the driver's log)"
        hidden = 0
        if shown is not None:
            is_error = _OURS.match(line) is None and (" ERROR " in line[:40] or _NAMED.search(line) is not None)
        yield shown if shown is not None else redacted(words.masked(line))
    if hidden:
        yield f"({hidden:,} lines of an error: they are in the driver's log)"


def words_of_stream(project: Project, name: str) -> QueryWords:
    """The literals of a stream's transform, found without importing it; none where the declaration can't be read."""
    try:
        written = words_of_transform(project, project.stream(name))
    except SluiceError:
        return QueryWords()
    return QueryWords(frozenset(written.columns), written.secrets())


def words_of_streams(project: Project, names: Iterable[str]) -> QueryWords:
    """Those of several, where nobody can tell which of them a line is about."""
    found = [words_of_stream(project, name) for name in names]
    literals = {literal for words in found for literal in words.literals}
    columns = frozenset(column for words in found for column in words.columns)
    return QueryWords(columns, tuple(sorted(literals, key=lambda text: (-len(text), text))))


def _shown_head(line: str, words: QueryWords) -> str | None:
    """A line that begins something, masked; None for any other."""
    if _OURS.match(line):
        return redacted(line)
    for pattern in (_SPARKS, _PYTHONS):
        if (found := pattern.fullmatch(line)) is not None:
            of_a_user = pattern is _PYTHONS and not found["name"].startswith(("py4j", "pyspark"))
            said = words.masked(found["words"]) if of_a_user else shown_text(found["words"], words)
            return redacted(found["head"] + said)
    return None
