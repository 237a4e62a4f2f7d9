"""The SQL files of a pipeline: what their statements define, by the text alone."""

from __future__ import annotations

import re
from pathlib import Path

from sluice.errors import DeclarationError
from sluice.pipelines.elements import Elements, FlowElement, OutputElement, OutputKind, Read
from sluice.sql_tokens import masked

_MOST_BYTES = 1_000_000
_PART = r"(?:`(?:[^`]|``)+`|[A-Za-z_]\w*)"
_NAME = rf"(?P<name>{_PART}(?:\s*\.\s*{_PART})*)"
_OUTPUT = re.compile(
    r"\s*create\s+(?:or\s+refresh\s+)?(?P<kind>streaming\s+table|materialized\s+view|temporary\s+view)\s+"
    rf"(?:if\s+not\s+exists\s+)?{_NAME}",
    re.IGNORECASE,
)
_FLOW = re.compile(rf"\s*create\s+flow\s+{_NAME}(?:\s+comment\s+)?\s+as\s+(?P<rest>.*)", re.IGNORECASE | re.DOTALL)
_INSERT = re.compile(
    rf"insert\s+into\s+(?:table\s+)?{_NAME}(?:\s+by\s+name)?\s+(?P<query>.*)", re.IGNORECASE | re.DOTALL
)
_QUERY = re.compile(r"\bas\s+(?=[\s(]*(?:select|with|from|values|table)\b)", re.IGNORECASE)
_USING = re.compile(r"\busing\s+(\w+)", re.IGNORECASE)
_PARTITIONED = re.compile(r"\bpartitioned\s+by\s*\(([^()]*)\)", re.IGNORECASE)
_STREAM = re.compile(rf"\bstream\s*(?:\(\s*{_NAME}\s*\)|\s{_NAME.replace('name', 'bare')})", re.IGNORECASE)
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
    outputs: list[OutputElement] = []
    flows: list[FlowElement] = []
    start = 0
    for end in [*(found.start() for found in re.finditer(";", words)), len(words)]:
        if words[start:end].strip():
            lead = len(words[start:end]) - len(words[start:end].lstrip())
            _read(text[start + lead : end], file, text.count("\n", 0, start + lead) + 1, outputs, flows)
        start = end + 1
    return Elements(tuple(outputs), tuple(flows))


def _read(text: str, file: str, line: int, outputs: list[OutputElement], flows: list[FlowElement]) -> None:
    """One statement."""
    words = masked(text)
    if (output := _OUTPUT.match(words)) is not None:
        query = _QUERY.search(words, output.end())
        head = words[output.end() : query.start() if query else len(words)]
        kind = _KINDS[" ".join(output["kind"].lower().split())]
        using, partitioned = _USING.search(head), _PARTITIONED.search(head)
        columns = partitioned[1].split(",") if partitioned else []
        name = plain_name(output["name"])
        outputs.append(
            OutputElement(
                kind=kind,
                name=name,
                file=file,
                line=line,
                format=using[1] if using else None,
                partition_by=tuple(column.strip().strip("`") for column in columns),
            )
        )
        if query is not None:
            flows.append(_flow(name, name, text[query.end() :], file, line))
        return
    if (flow := _FLOW.match(words)) is not None:
        insert = _INSERT.match(flow["rest"])
        name = plain_name(flow["name"])
        if insert is not None:
            query_text = text[flow.start("rest") + insert.start("query") :]
            flows.append(_flow(name, plain_name(insert["name"]), query_text, file, line))
            return
        target = re.match(rf"auto\s+cdc\s+into\s+{_NAME}", flow["rest"], re.IGNORECASE)
        if target is not None:
            flows.append(FlowElement(name, plain_name(target["name"]), file, line, is_auto_cdc=True))
            return
    said = " ".join(words.split()[:3])
    raise DeclarationError(
        f"the statement `{said} ...` defines no table, view or flow that is known",
        where=f"{file}:{line}",
        remedy="write CREATE STREAMING TABLE, MATERIALIZED VIEW, TEMPORARY VIEW, or FLOW ... AS INSERT INTO",
    )


def _flow(name: str, target: str, query: str, file: str, line: int) -> FlowElement:
    reads: list[Read] = []
    for found in _STREAM.finditer(masked(query)):
        read = Read(table=plain_name(found["name"] or found["bare"]))
        if read not in reads:
            reads.append(read)
    return FlowElement(name, target, file, line, sql=query.strip(), reads=tuple(reads))


def by_last_part(query: str) -> str:
    """A query that reads each stream by the last part of its name alone."""
    words, parts, end = masked(query), list[str](), 0
    for found in _STREAM.finditer(words):
        group = "name" if found["name"] else "bare"
        parts += [query[end : found.start(group)], plain_name(found[group]).rpartition(".")[2]]
        end = found.end(group)
    return "".join([*parts, query[end:]])


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
