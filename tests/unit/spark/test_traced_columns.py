"""Columns that are followed down a plan's text, where a query with Spark would take too long or can't be had."""

from __future__ import annotations

from sluice.home import SourceLine
from sluice.spark.plan_tree import parse_plan
from sluice.spark.traced_columns import MARK, TracedColumns, source_prefixes

LEAF = "StreamingRelation FileSource[/land], [k#0, v#1L], name=<Unassigned>"


def spelled(*lines: str, sources: int = 1) -> str:
    """How the root's keys are spelled."""
    root = parse_plan("\n".join(lines))
    lines_of_sources = [SourceLine("xyz"[number], str(number)) for number in range(sources)]
    columns = TracedColumns(root, source_prefixes(root, root, lines_of_sources))
    return columns.spell(root.rest.strip(), root, lambda column: column.key).replace(MARK, "")


def test_a_thousand_projections() -> None:
    """As many as a loop of `withColumn` makes: the plan is followed all the way down."""
    depth = 1000
    lines = [f"~Deduplicate [c#{depth + 1}, k#0]"]
    for level in range(depth):
        made = f"(c#{depth - level} + 1) AS c#{depth - level + 1}" if level < depth - 1 else "v#1L AS c#2"
        lines.append(f"{'   ' * level}+- ~Project [k#0, v#1L, {made}]")
    lines.append(f"{'   ' * depth}+- {LEAF}")

    assert spelled(*lines) == "[c(v), k]"
    assert len(list(parse_plan("\n".join(lines)).walk())) == depth + 2


def test_columns_that_code_has_made() -> None:
    """They go by their names, also under another one."""
    made = "+- ~MapInPandas f(k#0, v#1L)#5, [a#6, b#7], false"
    assert spelled("~Deduplicate [a#6]", made, f"   +- {LEAF}") == "[a]"
    renamed = "+- ~Project [{} AS c#8]"
    for column in ("a#6", "b#7"):
        lines = ("~Deduplicate [c#8]", renamed.format(column), f"   {made}", f"      +- {LEAF}")
        assert spelled(*lines) == f"[{column[0]}]"


def test_a_name_with_brackets() -> None:
    """Spark calls a column by its expression where nobody has named it."""
    made = "+- ~Project [k#0, cast(v#1L as string) AS CAST(v AS STRING)#9]"
    assert spelled("~Deduplicate [CAST(v AS STRING)#9]", made, f"   +- {LEAF}") == "[CAST(v AS STRING)(v)]"


def test_a_source_that_comes_twice() -> None:
    """Its sides are told apart, by their order."""
    other = LEAF.replace("#0", "#10").replace("#1L", "#11L")
    lines = ("~Join Inner, (k#0 = k#10)", f":- {LEAF}", f"+- {other}")
    root = parse_plan("\n".join(lines))
    columns = TracedColumns(root, source_prefixes(root, root, [SourceLine("x", "0"), SourceLine("x", "0")]))
    assert columns.spell(root.rest, root, lambda column: column.key) == " Inner, (`x.k` = `x (2).k`)"


def test_a_literal_that_looks_like_a_column() -> None:
    """It is none of that number: the next start numbers its columns otherwise. Names count in any case."""
    lines = ("~Deduplicate [if((K#0 = v#0), k#0, v#1L)]", f"+- {LEAF}")
    assert spelled(*lines) == "[if((k = v#0), k, v)]"
