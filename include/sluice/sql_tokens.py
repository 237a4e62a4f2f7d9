"""A text of SQL without a parser: what of it has no words (quotes, comments, space), and what it reads."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
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
_CALLED = re.compile(rf"\b()stream\s*\(\s*({NAME})\s*\)", re.IGNORECASE)
_BARE = re.compile(rf"\b((?:from|join)\s+)stream\s+({NAME})", re.IGNORECASE)
_WORD = re.compile(rf"(?P<name>{NAME})|[(),]")
_NAMED_QUERY = re.compile(rf"({_PART})\s*(?:\([^()]*\)\s*)?\bas\s*\(", re.IGNORECASE)
_NO_TABLES = frozenset(
    ("select", "where", "group", "having", "window", "order", "sort", "limit", "union", "intersect", "except", "minus")
)
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
    found = [*_CALLED.finditer(masked_text), *_BARE.finditer(masked_text)]
    return sorted(StreamRead(read.end(1), read.end(), read[2]) for read in found)


def table_reads(masked_text: str) -> list[str]:
    """The names that a text has in the place of tables, but those of streams; of a text as `masked` gives it."""
    found, streams = list[str](), {read.start: read.end for read in stream_reads(masked_text)}
    # By how many parentheses are open: whether a query is within them, and whether it is at its list of tables.
    open_ones, before, is_next, end = [_Open()], "", False, 0
    while (word := _WORD.search(masked_text, end)) is not None:
        here, said = open_ones[-1], word[0].lower()
        end = streams.get(word.start(), word.end())
        if word.start() in streams:
            is_next = False
        elif said == "(":
            open_ones.append(_Open(is_query=is_next, is_in_list=is_next))
        elif said == ")":
            open_ones, is_next = open_ones[:-1] or [_Open()], False
        elif said == ",":
            is_next = here.is_in_list
        elif _begins_tables(said, before, here):
            here.is_query = here.is_in_list = is_next = True
        elif said in _NO_TABLES:
            here.is_query, here.is_in_list, is_next = here.is_query or said == "select", False, False
        elif is_next:
            is_next = False
            if not masked_text[end:].lstrip().startswith("("):
                found.append(word[0])
        before = said
    return found


def _begins_tables(said: str, before: str, here: _Open) -> bool:
    is_first = before in {"", "("}
    if said == "from":
        # Not that of `extract(day FROM a)`, nor that of `IS DISTINCT FROM`.
        return (here.is_query or is_first) and before != "distinct"
    return said == "join" or (said == "table" and is_first)


@dataclass
class _Open:
    """What is known of the text between two parentheses, as far as it was read."""

    is_query: bool = False
    is_in_list: bool = False


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
