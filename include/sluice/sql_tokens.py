"""A text of SQL without a parser: what of it has no words (quotes, comments, space), and what it reads."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
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
_WORD = re.compile(rf"(?P<name>{NAME})|[(),]|\|>")
_NAME = re.compile(NAME)
_CALL = re.compile(r"\s*\(")
_NAMED_QUERY = re.compile(rf"(?<![\w`])({_PART})\s*(?:\([^()]*\)\s*)?\bas\s*\(", re.IGNORECASE)
_NO_TABLES = frozenset(
    (
        "select",
        "where",
        "group",
        "having",
        "window",
        "order",
        "sort",
        "limit",
        "union",
        "intersect",
        "except",
        "minus",
        "view",
    )
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
    return [read for read, is_stream in _relations(masked_text) if is_stream]


def table_reads(masked_text: str) -> list[str]:
    """The names that a text has in the place of tables, but those of streams; of a text as `masked` gives it.

    Too many rather than too few: what `extract(day FROM a)` takes is one of them.
    """
    return [read.name for read, is_stream in _relations(masked_text) if not is_stream]


def _relations(masked_text: str) -> Iterator[tuple[StreamRead, bool]]:
    """What a text reads, in order, and whether it does so as a stream."""
    called = {read.start(): read for read in _CALLED.finditer(masked_text)}
    # By how many parentheses are open: whether a list of tables is.
    lists, is_next, end = [False], False, 0
    while (word := _WORD.search(masked_text, end)) is not None:
        start, end, said = word.start(), word.end(), word[0].lower()
        if start in called:
            end, is_next = called[start].end(), False
            yield StreamRead(start, end, called[start][2]), True
        elif said in _EDGES:
            is_next = _EDGES[said](lists, is_next)
        elif is_next and said == "stream" and (name := _NAME.search(masked_text, end)) is not None:
            end, is_next = name.end(), False
            yield StreamRead(start, end, name[0]), True
        elif is_next and said != "lateral":
            is_next = False
            if _CALL.match(masked_text, end) is None:
                yield StreamRead(start, end, word[0]), False


def _open(lists: list[bool], is_next: bool) -> bool:  # noqa: FBT001 - as the others
    lists.append(is_next)
    return is_next


def _close(lists: list[bool], _: bool) -> bool:  # noqa: FBT001 - as the others
    if len(lists) > 1:
        lists.pop()
    return False


def _begin(lists: list[bool], _: bool) -> bool:  # noqa: FBT001 - as the others
    lists[-1] = True
    return True


def _end(lists: list[bool], _: bool) -> bool:  # noqa: FBT001 - as the others
    lists[-1] = False
    return False


_EDGES: Mapping[str, Callable[[list[bool], bool], bool]] = {
    "(": _open,
    ")": _close,
    ",": lambda lists, _: lists[-1],
    **dict.fromkeys(("from", "join", "table"), _begin),
    **dict.fromkeys(("|>", *_NO_TABLES), _end),
}
"""What begins, goes on with and ends a list of tables; each tells whether a table comes next."""


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
