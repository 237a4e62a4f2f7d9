"""A text of SQL without a parser: what of it has no words (quotes, comments, space), and where it reads streams."""

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
_CALLED = re.compile(rf"\b()stream\s*\(\s*({NAME})\s*\)", re.IGNORECASE)
_BARE = re.compile(rf"\b((?:from|join)\s+)stream\s+({NAME})", re.IGNORECASE)
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
