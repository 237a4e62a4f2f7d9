"""Spark's text of a plan without literals. The texts are Spark 4.2's own."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.spark.shown_plan import without_literals

PLAN = """== Physical Plan ==
AdaptiveSparkPlan (8)
+- Project (7)
   +- BroadcastHashJoin Inner BuildRight (6)
      :- * Filter (2)
      :  +- StreamingRelation (1)


(1) StreamingRelation
Output [4]: [id#0L, name#1, ts#2, we ird#3]
Arguments: FileSource[/data/in], [id#0L, name#1, ts#2, we ird#3]

(2) Filter [codegen id : 1]
Input [4]: [id#0L, name#1, ts#2, we ird#3]
Condition : ((isnotnull(name#1) AND isnotnull(id#0L)) AND (NOT (name#1 = LITERAL) AND (id#0L > LITERAL)))

(6) BroadcastHashJoin
Left keys [1]: [id#0L]
Right keys [1]: [id#4L]
Join type: Inner
Join condition: None

(7) Project
Output [5]: [sha2(cast(concat(name#1, LITERAL) as binary), 256) AS sha2(concat(name, LITERAL), 256)#26, LITERAL AS\
 x#23, CASE WHEN (id#0L = 1) THEN LITERAL ELSE we ird#3 END AS CASE WHEN flag THEN LITERAL ELSE we ird END#27,\
 LITERAL AS LITERAL#28, id#0L AS key#29L]
Input [4]: [id#0L, name#1, we ird#3, id#4L]

(8) AdaptiveSparkPlan
Output [3]: [sha2(concat(name, LITERAL), 256)#26, CASE WHEN flag THEN LITERAL ELSE we ird END#27, LITERAL#28]
Arguments: isFinalPlan=false
"""
SCAN = """== Physical Plan ==
* Filter (2)
+- Scan json  (1)


(1) Scan json
Output [2]: [id#33L, name#34]
Batched: false
Location: InMemoryFileIndex [file:/data/in]
PushedFilters: [IsNotNull(name), EqualTo(name,LITERAL), GreaterThan(id,LITERAL)]
ReadSchema: struct<id:bigint,name:string>

(2) Filter
Input [2]: [id#33L, name#34]
Condition : ((name#34 = LITERAL) AND (id#33L > 5))
"""


def with_literal(plan: str, literal: str) -> str:
    return plan.replace("LITERAL", literal)


@pytest.mark.parametrize("plan", [PLAN, SCAN])
@pytest.mark.parametrize(
    "literal",
    [
        "hunter2",
        "hunter2, hunter2",
        "hunter2 (x) [y]",
        "(hunter2",
        "hunter2(",
        "hunter2#1",
        "-----BEGIN KEY-----\nhunter2\n(3) Filter\nhunter2\n-----END KEY-----",
        "hunter2\n\n(1) hunter2\nOutput [1]: [x]",
        "AND hunter2 OR",
        "'hunter2'",
        "hunter2=",
    ],
)
def test_literals(plan: str, literal: str) -> None:
    """They are not in the text, also where they look like parts of a plan."""
    assert "hunter2" not in without_literals(with_literal(plan, literal))


@pytest.mark.parametrize("literal", ["4217", "4217.5", "-4217", "0x4217", "4217-01-01", "INTERVAL '4217' DAY"])
def test_numbers_and_times(literal: str) -> None:
    """They are literals as well: a salt may be a number."""
    assert "4217" not in without_literals(with_literal(PLAN, literal))


@given(literal=st.text(st.characters(codec="utf-8", exclude_characters="\r"), min_size=1, max_size=30))
def test_any_text(literal: str) -> None:
    """Nothing that stands in a literal gives it away."""
    shown = without_literals(with_literal(PLAN, f"c4nary{literal}c4nary"))

    assert "c4nary" not in shown


def test_what_stays() -> None:
    """Operators, columns, functions and conditions: that is what the text is for."""
    shown = without_literals(with_literal(PLAN, "hunter2")).splitlines()

    assert shown[:6] == PLAN.splitlines()[:6]
    assert "(2) Filter [codegen id : 1]" in shown
    assert "Output [4]: [id#0L, name#1, ts#2, we ird#3]" in shown
    assert "Condition: ((isnotnull(name#1) AND isnotnull(id#0L)) AND (NOT (name#1 = ?) AND (id#0L > ?)))" in shown
    assert "(6) BroadcastHashJoin" in shown
    assert any("sha2(cast(concat(name#1, ?) as binary), ?) AS " in line for line in shown)
    assert any("id#0L AS key#29L" in line for line in shown)
    assert "ReadSchema: struct<id:bigint,name:string>" in without_literals(SCAN)
    assert "PushedFilters: [IsNotNull(name), EqualTo(name,?), GreaterThan(id,?)]" in without_literals(SCAN)


@pytest.mark.parametrize("text", ["", "hunter2", "\n\n\n", "== Physical Plan ==", "(1) hunter2\n\n(1) hunter2"])
def test_other_texts(text: str) -> None:
    """What is no plan shows nothing."""
    assert "hunter2" not in without_literals(text)
