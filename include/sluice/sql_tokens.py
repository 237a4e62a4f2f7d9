"""A text of SQL without a parser: what of it has no words (quotes, comments, space), and what it reads."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_QUOTED = r"(?<!\w)[rR](?:'[^']*'|\"[^\"]*\")|'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.|\"\")*\""
_LINE_COMMENT = r"--(?:\\\n|[^\r\n])*"
_TOKEN = re.compile(
    rf"(?P<quoted>{_QUOTED})|(?P<name>`(?:[^`]|``)*`)|(?P<comment>{_LINE_COMMENT}|/\*(?!\+))|(?P<space>\s+)", re.DOTALL
)
"""What is not to be read as words, or how it begins: a quote that is doubled within its like is one of the text; hints
(`/*+ ... */`) are words."""
_PART = r"(?:`(?:[^`]|``)+`|[A-Za-z_]\w*)"
NAME = rf"{_PART}(?:\s*\.\s*{_PART})*"
"""A pattern of names, each part quoted or not."""
_CALLED = re.compile(rf"\bstream\s*\(\s*({NAME})\s*\)", re.IGNORECASE)
_BARE = re.compile(rf"stream\s+({NAME})", re.IGNORECASE)
_NO_TABLE = re.compile(rf"stream\s+{NAME}|{NAME}\s*\(", re.IGNORECASE)
"""What stands where a table does, and is none: a stream, a function."""
_WORD = re.compile(rf"\bis\s+(?:not\s+)?distinct\s+from\b|{NAME}|[(),]|\|>", re.IGNORECASE)
_WITH_FROM = {"extract", "overlay", "substr", "substring", "trim"}
"""The functions that have a FROM of their own."""
_NAMED_QUERY = re.compile(rf"(?<![\w`])({_PART})\s*(?:\([^()]*\)\s*)?\bas\s*\(", re.IGNORECASE)
_BEFORE_TABLES = {"from", "join", "table"}
_BEHIND_TABLES = {
    *("|>", "select", "where", "group", "having", "window", "qualify", "order", "sort", "cluster", "distribute"),
    *("limit", "offset", "union", "intersect", "except", "minus", "view"),
}
_COMMENT_EDGE = re.compile(r"/\*(?!\+)|\*/")


class Token(NamedTuple):
    """A part of the text that has no words: `quoted`, `name`, `comment` or `space`."""

    kind: str
    start: int
    end: int


class StreamRead(NamedTuple):
    """Where a text reads a stream: `stream(NAME)`, or `STREAM NAME` after FROM or JOIN."""

    start: int
    end: int
    name: str


def stream_reads(masked_text: str) -> list[StreamRead]:
    """Where a text reads streams, in order; of a text as `masked` gives it."""
    called = [StreamRead(read.start(), read.end(), read[1]) for read in _CALLED.finditer(masked_text)]
    bare = (_BARE.match(masked_text, word.start()) for word in _tables(masked_text))
    return sorted([*called, *(StreamRead(read.start(), read.end(), read[1]) for read in bare if read is not None)])


def table_reads(masked_text: str) -> list[str]:
    """The names that a text has in the place of tables, but those of streams; of a text as `masked` gives it."""
    return [word[0] for word in _tables(masked_text) if _NO_TABLE.match(masked_text, word.start()) is None]


def _tables(masked_text: str) -> Iterator[re.Match[str]]:
    """The words that stand where a table does: of what stands there, the first."""
    # By how many parentheses are open: whether a list of tables is; None where none can be.
    lists, is_next, said = list[bool | None]([False]), False, ""
    for word in _WORD.finditer(masked_text):
        before, said = said, word[0].lower()
        if said == "(":
            lists.append(None if before in _WITH_FROM else is_next)
        elif said == ")":
            lists.pop()
            lists, is_next = lists or [False], False
        elif said == ",":
            is_next = lists[-1] is True
        elif said in _BEFORE_TABLES and lists[-1] is not None:
            lists[-1] = is_next = True
        elif said in _BEHIND_TABLES:
            lists[-1] = is_next = False
        elif is_next and said != "lateral":
            is_next = False
            yield word


def named_queries(masked_text: str) -> list[str]:
    """The names that a text gives to queries within it: `WITH NAME AS (...)`; of a text as `masked` gives it."""
    return [found[1] for found in _NAMED_QUERY.finditer(masked_text)]


def masked(text: str) -> str:
    """The text with spaces in the place of what has no words; of the same length."""
    parts, end = list[str](), 0
    for token in tokens(text):
        is_name = token.kind == "name"
        parts += [
            text[end : token.start],
            text[token.start : token.end] if is_name else " " * (token.end - token.start),
        ]
        end = token.end
    return "".join([*parts, text[end:]])


def tokens(text: str) -> Iterator[Token]:
    """What of a text has no words, in order."""
    end = 0
    while (found := _TOKEN.search(text, end)) is not None:
        end = _end_of_comment(text, found.end()) if found[0] == "/*" else found.end()
        yield Token(found.lastgroup or "", found.start(), end)


def _end_of_comment(text: str, begun: int) -> int:
    """Where a comment ends whose first two characters end at a place: those within it are closed before."""
    depth, end = 1, begun
    while depth and (found := _COMMENT_EDGE.search(text, end)) is not None:
        depth += 1 if found[0] == "/*" else -1
        end = found.end()
    return len(text) if depth else end
