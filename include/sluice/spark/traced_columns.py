"""Which columns of the sources the expressions of a plan are about, without the numbers that differ at every start."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from sluice.home import SourceLine
from sluice.spark.plan_columns import (
    ATTRIBUTE,
    MAKES_COLUMNS,
    PYTHON,
    aliases,
    called_columns,
    items,
    lists,
    output_columns,
    split,
)
from sluice.spark.plan_tree import PASSING, TAGGED, Node, is_streaming_leaf, without_numbers

MARK = "`"
"""What stands before and behind a column in an expression that is spelled: a literal may be of the same letters."""
_NAMED = re.compile(rf"(?:.*? AS )?(?P<name>.*){TAGGED.pattern}", re.DOTALL)
_MAKES = {"Expand", "Generate", *PYTHON}
_VARIABLE = re.compile(r"\blambda [\w$]+#\d+L?")
_CALLED = re.compile(r"(<?(?<![\w.$])\w+>?)\(")
_SUBQUERY = re.compile(r"subquery#\d+ \[")
_GROUPING_ID = "spark_grouping_id"
_WINDOW = re.compile(r"named_struct\(start, .*precisetimestampconversion\(", re.DOTALL)
_TAKEN_OUT = re.compile(r"_groupingexpression|_common_expr_\d+|_extract_.*|_gen_alias_\d+|_nondeterministic")
"""What Spark calls an expression of an operator that it computes before it."""
NOT_SHOWN = re.compile(rf"~[0-9a-f]{{8}}|{MARK}")
"""What is not for people: marks of columns, and digests of what is told in short, such as windows."""
_LENGTHS = re.compile(r"\b\d+ (?:year|month|week|day|hour|minute|second|millisecond)s?\b|\b\d{4,}\b")


@dataclass(frozen=True)
class Column:
    """A column of some operator's output."""

    name: str
    sources: tuple[str, ...]
    """The columns of sources that it is made of, or windows over them."""
    is_plain: bool = False
    """Whether it is one of those as it is, under whatever name."""
    is_expression: bool = False
    """Whether it stands for an expression of the operator itself, literals included."""
    call: str | None = None
    """The call of a function in Python whose result it is: as long as it has no name, that is what it stands for."""
    is_alone: bool = True
    """Whether no join has a column of its name that is computed on the other side."""

    @property
    def key(self) -> str:
        """How it is spelled where rows are told apart by it: what it is made of belongs to it."""
        if self.call is not None:
            return self.call
        if self.is_plain or (len(self.sources) == 1 and self._own):
            return self.sources[0]
        return f"{self.name}({' + '.join(self.sources)})"

    @property
    def value(self) -> str:
        """How it is spelled where it is added up: by what it is computed may change, as for any other row."""
        if self.call is not None or not (self.is_plain or self.is_alone):
            return self.key
        return " + ".join(self.sources if self.is_plain else self._own) or self.name

    @property
    def _own(self) -> tuple[str, ...]:
        return tuple(found for found in self.sources if found.rpartition(".")[2] == self.name)


@dataclass
class TracedColumns:
    """Follows columns from operators of a plan down to the sources.

    Args:
        root: The plan.
        prefixes: What stands before the columns of each source, by the id of its leaf.
        functions: What tells the functions in Python that the query calls from others, by the number of the call, or
            by their names.
    """

    root: Node
    prefixes: Mapping[int, str]
    functions: Mapping[str, str] = field(default_factory=dict)
    spelled: set[str] = field(default_factory=set)
    """Every column that has been spelled, as it was."""

    def __post_init__(self) -> None:
        self._names: dict[str, set[str]] = {}
        self._names_of_leaves: dict[int, dict[str, str]] = {}
        self._known: dict[tuple[int, str], Column | None] = {}
        self._made = {id(node): aliases(node) for node in self.root.walk()}
        self._given = {number: made["name"] for found in self._made.values() for number, made in found.items()}
        for node in self.root.walk():
            # What else stands in the lists of those are expressions.
            listed = [items(node.rest)] if node.kind in MAKES_COLUMNS | {"Expand"} else lists(node.rest)
            listed = listed[-1:] if node.kind in PYTHON else listed
            for found in (found for one in listed for item in one if (found := _NAMED.fullmatch(item)) is not None):
                self._names.setdefault(found["id"], set()).add(found["name"])
        self._twins = set(chain.from_iterable(map(self._named_twice, self.root.walk())))
        # From the sources up, so that no call has to go down a thousand projections.
        for node in reversed(list(self.root.walk())):
            for number in self._made[id(node)]:
                self._find(node, number)

    def spell(self, expression: str, node: Node, how: Callable[[Column], str]) -> str:
        """An expression of a node, with its columns spelled as they are to be."""
        expression = without_variables(expression)
        shown, at = "", 0
        for tag, written, column in self._mentioned(expression, node):
            before = expression[at : tag.start()]
            if column is not None:
                text = how(column)
                if not column.is_expression:
                    self.spelled.add(text)
                before = before[: len(before) - len(written)] + f"{MARK}{text}{MARK}"
            shown += before
            at = tag.end()
        whole = PASSING.sub("?", shown + expression[at:])
        if _SUBQUERY.search(expression) is not None:
            whole += _digest(_subqueries(node))
        called = [found for name in _calls(expression) if (found := self.functions.get(name)) is not None]
        return whole + _digest(called) if called else whole

    def outputs(self, node: Node, how: Callable[[Column], str]) -> list[str]:
        """The columns of a node's output, spelled; none where the plan does not tell."""
        above = Node("", is_streaming=True, rest="", children=[node])
        numbers = output_columns(node) or []
        return [self.spell(f"{self._any_name(number)}#{number}", above, how) for number in numbers]

    def made_of(self, node: Node) -> list[Column | None]:
        """The columns of a node's output, in order; None for those that the plan does not tell of."""
        return [self._find(node, number) for number in output_columns(node) or ()]

    def sources_of(self, expression: str, node: Node) -> tuple[str, ...]:
        """The columns of sources that an expression of a node is about."""
        return self._sources(expression, node)

    def _written(self, before: str, number: str) -> str:
        """The name of a column, at the end of a text."""
        found = [name for name in self._names.get(number, ()) if name and before.endswith(name)]
        return max(found, key=len) if found else re.split(r"[^\w$.]", before)[-1]

    def _any_name(self, number: str) -> str:
        return self._given.get(number) or min(self._names.get(number, ("",)))

    def _mentioned(self, expression: str, node: Node) -> Iterator[tuple[re.Match[str], str, Column | None]]:
        """What an expression mentions: number and name as written, and the column; None where it is no column."""
        expression = without_variables(expression)
        for tag in TAGGED.finditer(expression):
            before, names = expression[: tag.start()].lower(), self._names.get(tag["id"])
            if names is not None and not any(before.endswith(name.lower()) for name in names):
                # A literal, which says by chance what Spark writes behind a column.
                continue
            written = self._written(expression[: tag.start()], tag["id"])
            column = self._below(node, tag["id"])
            if column is None and not written and not before.endswith(")"):
                # Nor is that one a column. Behind brackets stands the number of a call.
                continue
            if column is None and written:
                # It is made by code, or read from something that is no stream.
                column = Column(written, (written,), is_plain=True)
            yield tag, written, column

    def _below(self, node: Node, number: str) -> Column | None:
        found = (self._find(child, number) for child in node.children)
        return next((column for column in found if column is not None), None)

    def _find(self, node: Node, number: str) -> Column | None:
        """A column of a node's output; None where none has that number."""
        while len(node.children) == 1 and node.kind not in _MAKES and number not in self._made[id(node)]:
            node = node.children[0]
        key = (id(node), number)
        if key not in self._known:
            self._known[key] = self._traced(node, number)
        return self._known[key]

    def _traced(self, node: Node, number: str) -> Column | None:
        if not node.children:
            return self._of_leaf(node, number)
        if (made := self._made[id(node)].get(number)) is not None:
            return self._computed(node, number, made["expression"])
        if node.kind == "Union":
            return self._of_union(node, number)
        if node.kind == "Expand" and number in (outputs := output_columns(node) or []):
            place = outputs.index(number)
            rows = [split(row.strip()[1:-1]) for row in lists(node.rest)[0]]
            cells = dict.fromkeys(row[place] for row in rows if place < len(row))
            if self._any_name(number) == _GROUPING_ID:
                sets = f"{_GROUPING_ID} {', '.join(sorted(cells))}"
                return Column(_GROUPING_ID, (sets,), is_plain=True, is_expression=True)
            return self._computed(node, number, ", ".join(cells))
        if node.kind in PYTHON and number in (results := called_columns(node)):
            return self._called(node, lists(node.rest)[0][results.index(number)])
        if node.kind == "Generate" and number in ATTRIBUTE.findall(" ".join(items(node.rest))):
            return self._computed(node, number, split(node.rest.strip())[0])
        return self._below(node, number)

    def _of_leaf(self, leaf: Node, number: str) -> Column | None:
        names = self._names_of_leaves.get(id(leaf))
        if names is None:
            named = (_NAMED.fullmatch(item) for listed in lists(leaf.rest) for item in listed)
            # Of two with one number, the first counts.
            names = {found["id"]: found["name"] for found in reversed([*filter(None, named)])}
            self._names_of_leaves[id(leaf)] = names
        name = names.get(number)
        if name is None:
            return None
        return Column(name, (f"{self.prefixes.get(id(leaf), '')}{name}",), is_plain=True)

    def _of_union(self, node: Node, number: str) -> Column | None:
        """Columns of a union are those of its first child, and by position those of the others."""
        first = self._find(node.children[0], number)
        places = output_columns(node.children[0]) or []
        if first is None or number not in places:
            return first or self._below(node, number)
        found = [first]
        for child in node.children[1:]:
            numbers = output_columns(child) or []
            there = self._find(child, numbers[places.index(number)]) if len(numbers) == len(places) else None
            found += [there] if there is not None else []
        if len({column.key for column in found}) == 1:
            return first
        return Column(first.name, tuple(dict.fromkeys(column.key for column in found)))

    def _called(self, node: Node, call: str) -> Column:
        """What a function in Python makes."""
        whole = self.spell(call, node, lambda column: column.key)
        return Column("", self._sources(call, node), is_expression=True, call=whole)

    def _computed(self, node: Node, number: str, expression: str) -> Column:
        name = self._any_name(number)
        if _WINDOW.match(expression) is not None:
            return Column(name, (self._window(node, expression),), is_plain=True)
        if _TAKEN_OUT.fullmatch(name) is not None:
            whole = self.spell(expression, node, lambda column: column.key)
            return Column(name, (whole,), is_plain=True, is_expression=True)
        mentioned = [found for found in self._mentioned(expression, node) if found[2] is not None]
        for tag, written, column in mentioned:
            if column is not None and column.call is None and written + tag[0] == expression:
                return Column(name, column.sources, is_plain=True) if column.is_plain else column
        return Column(name, self._sources(expression, node), is_alone=name.lower() not in self._twins)

    def _sources(self, expression: str, node: Node) -> tuple[str, ...]:
        columns = (column for _, _, column in self._mentioned(expression, node) if column is not None)
        return tuple(sorted({source for column in columns for source in column.sources}))

    def _named_twice(self, node: Node) -> set[str]:
        """The names of columns that both sides of a join compute."""
        if node.kind != "Join":
            return set()
        made = ([made for below in side.walk() for made in self._made[id(below)].values()] for side in node.children)
        return set.intersection(*({column["name"].lower() for column in side} for side in made))

    def _window(self, node: Node, expression: str) -> str:
        """A window by its column and its lengths: Spark's own expression tells it from others, and not people."""
        whole = self.spell(expression, node, lambda column: column.key)
        time = next((column.key for _, _, column in self._mentioned(expression, node) if column is not None), "")
        rest = TAGGED.sub("", expression)
        lengths = list(dict.fromkeys(_length(found) for found in _LENGTHS.findall(rest)))
        return f"window({', '.join([time, *lengths])}){_digest(whole)}"


def without_variables(expression: str) -> str:
    """An expression with the variables of its lambdas by their order: Spark counts those of a session."""
    order: dict[str, str] = {}
    return _VARIABLE.sub(lambda found: order.setdefault(found[0], f"lambda {len(order) + 1}"), expression)


def _calls(expression: str) -> Iterator[str]:
    """By what functions in Python may be known that are called in an expression: numbers of calls, and names."""
    yield from (found["id"] for found in TAGGED.finditer(expression) if expression[: found.start()].endswith(")"))
    yield from (found[1] for found in _CALLED.finditer(expression))


def _subqueries(node: Node) -> list[str]:
    """The subqueries of a node, which stand before what it reads, with columns by their order."""
    reads = 2 if node.kind == "Join" else 1
    return without_numbers(chain.from_iterable(child.walk() for child in node.children[:-reads]))


def _digest(found: object) -> str:
    return f"~{hashlib.sha256(repr(found).encode()).hexdigest()[:8]}"


def source_prefixes(root: Node, analysed: Node, lines: Sequence[SourceLine]) -> dict[int, str]:
    """What stands before the columns of each source, so that they are told from those of others, by the id of its leaf.

    Args:
        root: A plan that Spark has made of the analysed one: it may have its leaves in another order, and not all.
        analysed: The analysed plan.
        lines: The sources, in the order of its streaming leaves.
    """
    left = [*zip((leaf.rest for leaf in analysed.walk() if is_streaming_leaf(leaf)), _prefixes(lines), strict=False)]
    found: dict[int, str] = {}
    for leaf in filter(is_streaming_leaf, root.walk()):
        place = next((place for place, (rest, _) in enumerate(left) if rest == leaf.rest), 0)
        # A server numbers columns anew whenever it is asked: there the order has to tell.
        found[id(leaf)] = left.pop(place)[1] if left else ""
    return found


def _prefixes(lines: Sequence[SourceLine]) -> Iterator[str]:
    """What stands before the columns of each source, so that they are told from those of others."""
    if len(lines) == 1:
        yield ""
        return
    seen: dict[str, int] = {}
    for line in lines:
        number = seen[line.source] = seen.get(line.source, 0) + 1
        yield f"{line.source}." if number == 1 else f"{line.source} ({number})."


def _length(text: str) -> str:
    return f"{int(text) / 1_000_000:g} seconds" if text.isdigit() else text
