"""Which leaves of a plan's text are whose."""

from __future__ import annotations

from sluice.spark.connect_plan import _streaming_leaves
from sluice.spark.plan_tree import parse_plan

FILES = "StreamingRelation FileSource[/in], [id#{0}L], name=<Unassigned>"


def leaf(number: int) -> str:
    return FILES.format(number)


def test_each_leaf_belongs_to_the_alias_above_it() -> None:
    """An alias reaches as far as its branch of the tree, through whatever lies between."""
    tree = f"""~Union false, false
:- ~Project [id#1L]
:  +- ~SubqueryAlias __sluice_source_b
:     +- ~CollectMetrics sluice.source.b, [count(1) AS n#9L], 1
:        +- {leaf(1)}
+- ~Join Inner, (id#2L = id#3L)
   :- ~SubqueryAlias mine
   :  +- ~SubqueryAlias __sluice_source_a
   :     +- {leaf(2)}
   +- ~SubqueryAlias __sluice_source_long_name
      +- {leaf(3)}"""
    assert list(_streaming_leaves(parse_plan(tree))) == [("b", leaf(1)), ("a", leaf(2)), ("long_name", leaf(3))]


def test_a_leaf_outside_of_every_alias() -> None:
    """A branch that ends takes its alias along."""
    tree = f"""~Union false, false
:- ~SubqueryAlias __sluice_source_a
:  +- {leaf(1)}
:- ~StreamingRelationV2 org.apache.Rate@1, rate, Table@2, [], [value#3L], name=<Unassigned>
+- Relation [id#4L] json"""
    assert [name for name, _ in _streaming_leaves(parse_plan(tree))] == ["a", None]


def test_a_leaf_alone() -> None:
    """A plan may be nothing but a source."""
    assert list(_streaming_leaves(parse_plan(f"~SubqueryAlias __sluice_source_a\n+- {leaf(1)}"))) == [("a", leaf(1))]


def test_text_with_line_ends() -> None:
    """A literal that goes on in another line is no node."""
    tree = f"~Project [one\nStreamingRelation, two AS x#1]\n+- ~SubqueryAlias __sluice_source_a\n   +- {leaf(1)}"
    assert list(_streaming_leaves(parse_plan(tree))) == [("a", leaf(1))]
