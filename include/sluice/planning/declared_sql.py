"""The SQL that a stream may be declared in: its text, and what the text alone tells of it.

`stream(visits)` reads a source, as in Spark's declarative pipelines; all else is Spark's, and Spark's to check.
"""

from __future__ import annotations

import difflib
import os
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from sluice.errors import DeclarationError
from sluice.project import Project
from sluice.sql_tokens import StreamRead, masked, named_queries, stream_reads, table_reads, tokens
from sluice.stream import Stream

_MOST_BYTES = 1_000_000
_QUERY = re.compile(r"[\s(]*(?:select|with|from|values|table)\b", re.IGNORECASE)
_COMMAND = re.compile(
    r"\b(?:insert\s+(?:into|overwrite)|merge\s+into|delete\s+from|update\s+\S+\s+set)\b", re.IGNORECASE
)


@dataclass(frozen=True)
class DeclaredSql:
    """One query."""

    text: str
    place: str
    """Its file; or where the stream is declared."""
    is_file: bool

    @property
    def for_batch(self) -> str:
        """The text that reads the sources as tables: `visits` in place of `stream(visits)`."""
        parts, end = list[str](), 0
        for start, stop, name in self._reads():
            parts += [self.text[end:start], name]
            end = stop
        return "".join([*parts, self.text[end:]])

    @property
    def code(self) -> str:
        """The text without comments, whatever its lines are: two that have the same do the same."""
        parts, end = list[str](), 0
        for token in tokens(self.text):
            parts.append(self.text[end : token.start])
            if token.kind not in {"comment", "space"}:
                parts.append(self.text[token.start : token.end])
            elif parts[-1] or len(parts) < 2 or parts[-2] != " ":
                # Side by side, two may be another thing than apart: `'it''s'`, and `'it' 's'`.
                parts.append(" ")
            else:
                parts.pop()
            end = token.end
        return "".join([*parts, self.text[end:]]).strip()

    @property
    def without_literals(self) -> str:
        """The text for others to read: what it has in quotes may be a secret."""
        parts, end = list[str](), 0
        for token in tokens(self.text):
            is_quoted = token.kind == "quoted"
            parts += [self.text[end : token.start], "'?'" if is_quoted else self.text[token.start : token.end]]
            end = token.end
        return "".join([*parts, self.text[end:]])

    @property
    def words(self) -> set[str]:
        """Everything in it that may be a name."""
        return set(re.findall(r"[^\W\d]\w*", self._masked))

    @property
    def literals(self) -> set[str]:
        """What it has in quotes."""
        quoted = (self.text[token.start : token.end] for token in tokens(self.text) if token.kind == "quoted")
        written = {(text[-1], text.lstrip("rR")[1:-1]) for text in quoted}
        return {form for quote, text in written for form in (text, text.replace(quote * 2, quote))}

    def check(self, stream: Stream) -> None:
        """Refuse a text that is certainly no query of the stream's sources.

        Raises:
            DeclarationError: It is none, or does not read one of them, or reads something else as a stream.
        """
        command = _COMMAND.search(self._masked)
        if command is not None or _QUERY.match(self._masked) is None:
            words = self._masked.split() if command is None else [command[0]]
            raise DeclarationError(
                f"the SQL is no query: it has `{words[0]}`" if words else "the SQL is empty",
                where=self.place,
                remedy="begin it with `select`, `with` or `from`: where its rows go is the sink's business",
            )
        if ";" in self._masked.rstrip().removesuffix(";"):
            raise DeclarationError(
                "the SQL has several statements", where=self.place, remedy="leave one query, without `;` in it"
            )
        read = {name.strip("`").lower() for _, _, name in self._reads()}
        known = {name.lower(): name for name in stream.sources}
        if len(known) < len(stream.sources):
            raise DeclarationError(
                f"source names differ by their case alone: {', '.join(stream.sources)}",
                where=stream.place,
                remedy="give them other names: SQL takes them for one",
            )
        for name in sorted(read - known.keys()):
            near = difflib.get_close_matches(name, known, n=1)
            raise DeclarationError(
                f"the SQL reads `stream({name})`, and the stream has no source of that name",
                where=self.place,
                remedy=f"did you mean `{known[near[0]]}`?"
                if near
                else f"declare it in `sources`; or read it as a table, without `stream`; there are: {', '.join(known)}",
            )
        for name in (known[name] for name in known if name not in read):
            raise DeclarationError(
                f"the SQL does not read the source `{name}`",
                where=self.place,
                remedy=f"write `stream({name})` where it reads it, or leave the source out",
            )

        own = {name.strip("`").lower() for name in named_queries(self._masked)}
        bare = (name.strip("`").lower() for name in table_reads(self._masked))
        for name in (known[name] for name in bare if name in known and name not in own):
            raise DeclarationError(
                f"the SQL reads `{name}` without `stream`, and that is a source's name",
                where=self.place,
                remedy=f"write `stream({name})`; or, for a table of that name, `DATABASE.{name}`",
            )

    @cached_property
    def _masked(self) -> str:
        """The text with spaces in the place of what has no words; of the same length."""
        return masked(self.text)

    def _reads(self) -> list[StreamRead]:
        return stream_reads(self._masked)


def declared_sql(project: Project, stream: Stream) -> DeclaredSql | None:
    """The SQL of a stream; None for one whose transform is a function.

    Raises:
        DeclarationError: Its file can't be read, or is no text.
    """
    if stream.sql is None:
        return None
    if not stream.has_sql_file:
        return DeclaredSql(stream.sql, stream.place, is_file=False)
    file = os.path.join(project.root, stream.sql)
    try:
        with Path(file).open("rb") as opened:
            content = opened.read(_MOST_BYTES + 1)
        if len(content) > _MOST_BYTES:
            raise DeclarationError(
                f"the SQL has more than {_MOST_BYTES:,} bytes", where=file, remedy="name the file of one query"
            )
        return DeclaredSql(content.decode("utf-8-sig"), file, is_file=True)
    except UnicodeDecodeError as exc:
        raise DeclarationError("the SQL is no text in UTF-8", where=file, remedy="save it as UTF-8") from exc
    except OSError as exc:
        raise DeclarationError(
            f"the file of the SQL can't be read: {exc.strerror}",
            where=file,
            remedy="correct `sql`: a path below the project's folder",
        ).at(stream.declared_at) from exc
