"""The SQL files of a pipeline: what their statements define, by the text alone."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sluice.errors import DeclarationError
from sluice.pipelines.elements import Elements, FlowElement, OutputElement, OutputKind, Read
from sluice.sql_tokens import NAME, masked, named_queries, stream_reads, table_reads

_MOST_BYTES = 1_000_000
_NAME = rf"(?P<name>{NAME})"
_OUTPUT = re.compile(
    r"\s*create\s+(?:or\s+refresh\s+)?(?P<kind>streaming\s+table|materialized\s+view|temporary\s+view)\s+"
    rf"(?:if\s+not\s+exists\s+)?{_NAME}",
    re.IGNORECASE,
)
_FLOW = re.compile(rf"\s*create\s+flow\s+{_NAME}(?:\s+comment\s+)?\s+as\s+(?P<rest>.*)", re.IGNORECASE | re.DOTALL)
_INSERT = re.compile(
    rf"insert\s+into\s+(?:table\s+)?{_NAME}(?:\s+by\s+name)?\s+(?P<query>.*)", re.IGNORECASE | re.DOTALL
)
_AUTO_CDC = re.compile(rf"auto\s+cdc\s+into\s+{_NAME}", re.IGNORECASE)
_QUERY = re.compile(r"\bas\s+(?=[\s(]*(?:select|with|from|values|table)\b)", re.IGNORECASE)
_USING = re.compile(r"\busing\s+(\w+)", re.IGNORECASE)
_PARTITIONED = re.compile(r"\bpartitioned\s+by\s*\(([^()]*)\)", re.IGNORECASE)
_OPTIONS = re.compile(r"\s*with\s*\(([^()]*)\)", re.IGNORECASE)
_PAIR = re.compile(
    r"""(?P<key>'[^']*'|"[^"]*"|(?<![\w.])[\w.]++)(?:\s*=\s*|\s+)(?P<value>'[^']*'|"[^"]*"|[\w.\-]++)\s*(?:,\s*|$)"""
)
_SET = re.compile(r"\s*set\s+(?P<key>[\w.\-]+)\s*=(?P<value>.*)", re.IGNORECASE | re.DOTALL)
_USE = re.compile(r"\s*(?:use\b|set\s+catalog\b)", re.IGNORECASE)
_KINDS: dict[str, OutputKind] = {
    "streaming table": "streaming table",
    "materialized view": "materialized view",
    "temporary view": "temporary view",
}


def read_sql_file(file: str) -> Elements:
    """What the statements of a file define.

    Raises:
        DeclarationError: It can't be read, is no text, or has a statement that defines nothing known.
    """
    text = _text(file)
    words = masked(text)
    found = _File(file)
    start = 0
    for end in [*(semicolon.start() for semicolon in re.finditer(";", words)), len(words)]:
        if words[start:end].strip():
            lead = len(words[start:end]) - len(words[start:end].lstrip())
            found.read(text[start + lead : end], text.count("\n", 0, start + lead) + 1)
        start = end + 1
    return Elements(tuple(found.outputs), tuple(found.flows))


@dataclass
class _File:
    """What the statements of a file have defined so far."""

    file: str
    outputs: list[OutputElement] = field(default_factory=list)
    flows: list[FlowElement] = field(default_factory=list)
    conf: dict[str, str] = field(default_factory=dict)
    """What `SET` has set for the flows that come then."""

    def read(self, text: str, line: int) -> None:
        """One statement."""
        words = masked(text)
        if (output := _OUTPUT.match(words)) is not None:
            self._read_output(output, text, words, line)
        elif (flow := _FLOW.match(words)) is not None and self._read_flow(flow, text, line):
            return
        elif (setting := _SET.match(text)) is not None:
            self.conf[setting["key"]] = setting["value"].strip()
        elif _USE.match(words) is not None:
            raise DeclarationError(
                "the file changes the catalog or the database for what comes then, which Sluice does not follow",
                where=f"{self.file}:{line}",
                remedy="write the names of tables in full: `catalog.database.table`",
            )
        else:
            raise DeclarationError(
                f"the statement `{' '.join(words.split()[:3])} ...` defines no table, view or flow that is known",
                where=f"{self.file}:{line}",
                remedy="write CREATE STREAMING TABLE, MATERIALIZED VIEW, TEMPORARY VIEW, or FLOW ... AS INSERT INTO",
            )

    def _read_output(self, output: re.Match[str], text: str, words: str, line: int) -> None:
        query = _QUERY.search(words, output.end())
        head = words[output.end() : query.start() if query else len(words)]
        using, partitioned = _USING.search(head), _PARTITIONED.search(head)
        columns = partitioned[1].split(",") if partitioned else []
        name = plain_name(output["name"])
        self.outputs.append(
            OutputElement(
                kind=_KINDS[" ".join(output["kind"].lower().split())],
                name=name,
                file=self.file,
                line=line,
                format=using[1] if using else None,
                partition_by=tuple(column.strip().strip("`") for column in columns),
            )
        )
        if query is not None:
            self._add_flow(name, name, text[query.end() :], line)

    def _read_flow(self, flow: re.Match[str], text: str, line: int) -> bool:
        """Whether it is one that is known."""
        insert = _INSERT.match(flow["rest"])
        name = plain_name(flow["name"])
        if insert is not None:
            self._add_flow(name, plain_name(insert["name"]), text[flow.start("rest") + insert.start("query") :], line)
            return True
        target = _AUTO_CDC.match(flow["rest"])
        if target is not None:
            self.flows.append(FlowElement(name, plain_name(target["name"]), self.file, line, is_auto_cdc=True))
        return target is not None

    def _add_flow(self, name: str, target: str, query: str, line: int) -> None:
        words = masked(query)
        streams = stream_reads(words)
        self.flows.append(
            FlowElement(
                name,
                target,
                self.file,
                line,
                sql=query.strip(),
                reads=tuple(
                    Read(table=plain_name(read.name), options=_options_of(query, words, read.end)[0])
                    for read in streams
                ),
                tables=tuple(dict.fromkeys(map(plain_name, table_reads(words)))),
                conf=dict(self.conf),
            )
        )


def with_names(query: str, names: Sequence[str]) -> str:
    """A query that reads its streams by other names, given in the order in which it reads them, without options."""
    words, parts, end = masked(query), list[str](), 0
    for read, name in zip(stream_reads(words), names, strict=True):
        parts += [query[end : read.start], f"STREAM({name})"]
        _, end = _options_of(query, words, read.end)
    return "".join([*parts, query[end:]])


def _options_of(query: str, words: str, begin: int) -> tuple[dict[str, str], int]:
    """The options of a stream, `WITH ('key' = 'value')`, that begin at a place, and where they end."""
    clause = _OPTIONS.match(words, begin)
    if clause is None:
        return {}, begin
    given = query[clause.start(1) : clause.end(1)].strip()
    pairs = [*_PAIR.finditer(given)]
    if "".join(found[0] for found in pairs) != given:
        raise DeclarationError(
            "the options of a stream, `WITH (...)`, are not told as 'key' = 'value'",
            where=query[max(0, begin - 40) : begin].strip(),
            remedy="write each so, without comments among them",
        )
    return {_unquoted(found["key"]): _unquoted(found["value"]) for found in pairs}, clause.end()


def _unquoted(text: str) -> str:
    return text[1:-1] if text[0] in "'\"" else text


def plain_tables(query: str) -> set[str]:
    """The names without a database, in small letters, that a query has for tables and for queries within it."""
    words = masked(query)
    names = (plain_name(name).lower() for name in (*table_reads(words), *named_queries(words)))
    return {name for name in names if "." not in name}


def plain_name(name: str) -> str:
    """A name as Python has it: without quotes, and without space around its dots."""
    return re.sub(r"\s*\.\s*", ".", name.strip()).replace("`", "")


def _text(file: str) -> str:
    try:
        with Path(file).open("rb") as opened:
            content = opened.read(_MOST_BYTES + 1)
        if len(content) > _MOST_BYTES:
            raise DeclarationError(f"the SQL has more than {_MOST_BYTES:,} bytes", where=file, remedy="split the file")
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        raise DeclarationError("the SQL is no text in UTF-8", where=file, remedy="save it as UTF-8") from exc
    except OSError as exc:
        raise DeclarationError(f"the file can't be read: {exc.strerror}", where=file, remedy="check it") from exc
