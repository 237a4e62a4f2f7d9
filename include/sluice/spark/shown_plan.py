"""Spark's text of a plan without the literals of the transform: a salt or a key in an expression is one.

Spark writes literals without quotes, so nothing in its text tells them from other words. So it is the other way round:
what is known to be no literal stays, and everything else becomes `?`. Known are the operators of the tree, the columns
that flow between them, Spark's own labels, functions and types. Whatever Spark adds in later versions is masked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

MASK = "?"
"""What stands in the place of what may be a literal."""

_LABELS = (
    "Aggregate Attributes",
    "Arguments",
    "Batched",
    "Condition",
    "DataFilters",
    "Functions",
    "Input",
    "Join condition",
    "Join type",
    "Keys",
    "Left keys",
    "Location",
    "Output",
    "PartitionFilters",
    "PushedFilters",
    "ReadSchema",
    "Results",
    "Right keys",
)
_SPARKS_WORDS = """ALL AND ANY AS ASC BETWEEN CASE DESC DISTINCT ELSE END EXISTS FIRST FOLLOWING FROM ILIKE IN IS LAST
    LIKE NOT NULL NULLS OR PRECEDING RLIKE ROWS THEN WHEN as
    Append Complete Update Inner LeftOuter RightOuter FullOuter LeftSemi LeftAnti Cross BuildLeft BuildRight None null
    ENSURE_REQUIREMENTS REQUIRED_BY_STATEFUL_OPERATOR REPARTITION_BY_COL REPARTITION_BY_NUM RowFrame RangeFrame
    ArrayType BinaryType BooleanType ByteType DateType DoubleType FloatType IntegerType LongType ShortType StringType
    TimestampNTZType TimestampType
    array bigint binary boolean byte date double float int map smallint string struct timestamp timestamp_ntz tinyint
    checkpoint info isFinalPlan numPartitions opId runId state stateStoreCkptIds ver"""
_SPARKS_FUNCTIONS = """CheckOverflow Contains EndsWith EqualNullSafe EqualTo GreaterThan GreaterThanOrEqual In IsNotNull
    IsNull LessThan LessThanOrEqual Not Or And StartsWith StringContains StringStartsWith StringEndsWith
    cast currentrow$ decimal dynamicpruning HashedRelationBroadcastMode IdentityBroadcastMode hashpartitioning
    isnotnull isnull knownfloatingpointnormalized knownnotnull knownnullable List normalizenanandzero
    precisetimestampconversion promote_precision rangepartitioning roundrobinpartitioning SinglePartition
    specifiedwindowframe statefulhashpartitioning try_cast unboundedfollowing$ unboundedpreceding$
    windowspecdefinition"""
"""Those of its plans that are none of its API."""
_WORDS, _INTERNAL_FUNCTIONS = frozenset(_SPARKS_WORDS.split()), frozenset(_SPARKS_FUNCTIONS.split())
_STAGES = re.compile(r"(?:partial_|merge_|finalmerge_)?(.+)")
_TREE_LINE = re.compile(r"(?P<lead>[ :+*-]*)(?P<name>[A-Z]\w*(?: \w+)*) ?(?P<rest>.*?)\((?P<number>\d+)\)")
_HEAD = re.compile(r"\((?P<number>\d+)\) (?P<name>[A-Z]\w*(?: \w+)*).*?(?P<codegen> \[codegen id : \d+\])?")
_DETAIL = re.compile(r"(?P<label>[A-Z][A-Za-z ]*?)(?P<count> \[\d+\])?(?P<colon> ?: ?)(?P<value>.*)")
_COLUMN = re.compile(r"\w+#\d+L?(?:-T\d+ms)?")
_COLUMN_OF_SOURCE = re.compile(r"\w[\w ]*#\d+L?(?:-T\d+ms)?")
_SOURCE = re.compile(r"\n?\(\d+\) (?:StreamingRelation|Scan|BatchScan|MicroBatchScan)\b")
_ALONE = re.compile(r"(?<![\w#])\w+(?![\w#(])")
_LIST = re.compile(r"^(Input|Output|Results) \[\d+\]: \[(.*)\]$", re.MULTILINE)
_TITLE = "== Physical Plan =="
_SIGNS = re.compile(r"\)#\d+L?(?:-T\d+ms)?|[\s()\[\],=<>!+*/%:|&-]")
_WORD = re.compile(r"[^\s()\[\],=<>:]+")


def without_literals(text: str) -> str:
    """The formatted text of a physical plan, with `?` in the place of whatever may be a literal."""
    tree, _, details = text.partition("\n\n")
    names: dict[str, str] = {}
    shown = [_tree_line(line, names) for line in tree.split("\n")]
    columns = _columns(details)
    shown += ["", *(_detail_line(line, names, columns) for line in details.split("\n"))]
    return "\n".join(shown)


def _tree_line(line: str, names: dict[str, str]) -> str:
    found = _TREE_LINE.fullmatch(line)
    if found is None:
        return line if line == _TITLE else MASK
    names[found["number"]] = found["name"]
    return f"{found['lead']}{found['name']} ({found['number']})"


def _columns(details: str) -> frozenset[str]:
    """The columns that flow between operators, as the plan spells them: `id#0L`.

    Spark calls a column that nobody has named by its expression, literals included. So a name is none, unless it is one
    of a source's, if it also stands in an expression by itself.
    """
    alone = set(_ALONE.findall(details))
    found: set[str] = set()
    for operator in details.split("\n\n"):
        is_source = _SOURCE.match(operator) is not None
        for _, listed in _LIST.findall(operator):
            for entry in _parts(listed):
                column = entry.rpartition(" AS ")[2]
                if is_source and _COLUMN_OF_SOURCE.fullmatch(entry):
                    found.add(entry)
                elif _COLUMN.fullmatch(column) and _name(column) not in alone:
                    found.add(column)
    return frozenset(found)


def _parts(text: str) -> Iterator[str]:
    """The parts of a list between the commas that are in no bracket."""
    depth, start = 0, 0
    for at, character in enumerate(text):
        depth += (character in "([") - (character in ")]")
        if character == "," and depth == 0:
            yield text[start:at].strip()
            start = at + 1
    yield text[start:].strip()


def _name(column: str) -> str:
    return column.partition("#")[0]


def _detail_line(line: str, names: dict[str, str], columns: frozenset[str]) -> str:
    head = _HEAD.fullmatch(line)
    if head is not None and names.get(head["number"], "").startswith(head["name"]):
        return f"({head['number']}) {head['name']}{head['codegen'] or ''}"
    detail = _DETAIL.fullmatch(line)
    if detail is not None and detail["label"] in _LABELS:
        return f"{detail['label']}{detail['count'] or ''}: {masked_expression(detail['value'], columns)}"
    return masked_expression(line, columns)


def masked_expression(text: str, columns: frozenset[str]) -> str:
    """An expression with `?` in the place of whatever may be a literal.

    Args:
        text: The expression, as Spark writes it.
        columns: The columns that stay, as they are spelled in it.
    """
    known = re.compile(
        "|".join(rf"(?<![\w#]){re.escape(one)}(?![\w#-])" for one in sorted(columns, reverse=True)) or "(?!)"
    )
    words = {_name(column) for column in columns}
    shown: list[str] = []
    at = 0
    while at < len(text):
        if (found := known.match(text, at)) is not None:
            piece = found[0]
        elif (found := _SIGNS.match(text, at)) is not None:
            piece = found[0][0]
        else:
            found = _WORD.match(text, at)
            if found is None:  # what no pattern knows
                shown.append(MASK)
                at += 1
                continue
            is_called = text.startswith("(", found.end())
            names = {found[0], found[0].lower()} if is_called else set()
            is_known = found[0] in words or _is_known(found[0]) or any(map(_is_function, names))
            piece = found[0] if is_known else MASK
        shown.append(piece)
        at = found.end()
    # How many words a literal has, and how they are set, is nobody's business either.
    return re.sub(r"\?(?:[\s=<>!+*/%:|&-]*\?)+", MASK, "".join(shown))


def is_sparks_word(word: str) -> bool:
    """Whether a word is one of Spark's own: a literal of this name tells nothing."""
    return _is_known(word) or _is_function(word)


def _is_known(word: str) -> bool:
    # Errors spell types in capitals.
    return word in _WORDS or (word.isupper() and word.lower() in _WORDS)


def _is_function(name: str) -> bool:
    staged = _STAGES.fullmatch(name)
    return name in _INTERNAL_FUNCTIONS or (staged is not None and staged[1] in _functions())


@cache
def _functions() -> frozenset[str]:
    """The names of Spark's functions."""
    from pyspark.sql import functions

    return frozenset(name for name in dir(functions) if not name.startswith("_") and name.islower())
