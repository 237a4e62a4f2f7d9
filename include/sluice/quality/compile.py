"""Compiles a suite for given columns into a plan of measures: one row of aggregates, and rules for rows."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from sluice.errors import DeclarationError
from sluice.quality.column_contracts import SchemaResult, check_schema
from sluice.quality.columns import INTEGRAL, Column, Schema
from sluice.quality.comparability import check_comparable, require_family
from sluice.quality.expectations import Path
from sluice.quality.history import HistoryRule, history_rules
from sluice.quality.measures import (
    Measure,
    Merge,
    Reading,
    as_text,
    distinct_sql,
    reading_of,
    sample_sql,
)
from sluice.quality.predicates import RowRule, in_list, row_rule
from sluice.quality.row_conditions import condition_sql
from sluice.quality.suite import MAX_SAMPLE, Expectation, Policy, Suite
from sluice.sql_text import all_of, any_of, only_where


@dataclass(frozen=True)
class Check:
    """One expectation, compiled."""

    expectation: Expectation
    path: Path
    """How it is measured here: a `sketch` that nobody asked for is a `reread`."""
    measures: Mapping[str, str] = field(default_factory=dict)
    """The measures that its result is made of, by their part in it."""
    unexpected: str | None = None
    """Row-level: the condition, in Spark SQL, that is true for rows that break it, false or null for all others."""
    columns: tuple[Column, ...] = ()
    """The columns that it looks at."""
    schema_result: SchemaResult | None = None
    """The answer, when the columns alone give it."""

    @property
    def why(self) -> str:
        """What is measured, or why it has to be re-read."""
        return self.expectation.kind.why


@dataclass(frozen=True)
class HistoryCheck:
    """A rule about the runs before, and the measure of this one."""

    rule: HistoryRule
    measure: str
    """The rows that would be published, or the newest value of the column among them."""


@dataclass(frozen=True)
class QualityPlan:
    """What to observe while rows are written, and what each value is for."""

    suite: Suite
    measures: tuple[Measure, ...]
    checks: tuple[Check, ...]
    history: tuple[HistoryCheck, ...]
    removed: str | None
    """The rows that `drop` and `quarantine` take away, as a condition that is never null; None when none are.

    Measures of tables leave them out already, so that one observation on the incoming rows gives both levels.
    """
    quarantined: str | None
    """Those of them that `quarantine` takes, as a condition that is never null; the others are dropped."""
    rows: str
    """The measure of how many rows came in."""
    removals: Mapping[Literal["drop", "quarantine"], str]
    """The measures of how many rows each of these policies took away, where the suite has it."""

    @cached_property
    def rereads(self) -> tuple[Expectation, ...]:
        """What Great Expectations has to measure on what the run wrote."""
        return tuple(check.expectation for check in self.checks if check.path == "reread")

    def row_checks(self, *policies: str) -> tuple[Check, ...]:
        """The row-level checks with one of these policies."""
        return tuple(c for c in self.checks if c.unexpected is not None and c.expectation.policy in policies)


def compile_suite(suite: Suite, columns: str | Mapping[str, str], *, sample: int = 0) -> QualityPlan:
    """Compile a suite for a DataFrame's columns. Pure: needs neither Spark nor Great Expectations.

    Args:
        suite: What to check.
        columns: A DDL string, or types (as `DataFrame.dtypes` spells them) by name, in order.
        sample: How many unexpected values each row-level check keeps, 0 to 200. They end up in the run record.

    Raises:
        DeclarationError: A column does not exist or has the wrong type, or an expectation can't apply to a stream.
    """
    if not 0 <= sample <= MAX_SAMPLE:
        raise DeclarationError(f"`sample` is {sample}", remedy=f"keep 0 to {MAX_SAMPLE} unexpected values")
    schema = Schema.of(columns)
    compiler = _Compiler(schema, sample)
    rules = {
        expectation.id: row_rule(expectation, schema)
        for expectation in suite.expectations
        if expectation.kind.level == "row" and expectation.kind.path == "exact"
    }
    quarantined = _removed(suite, rules, "quarantine")
    compiler.removed = _removed(suite, rules, "drop", "quarantine")
    checks = tuple(compiler.check(expectation, rules.get(expectation.id)) for expectation in suite.expectations)
    history = tuple(
        HistoryCheck(rule, compiler.history_measure(rule, f"{suite.source}, meta.sluice.history"))
        for rule in history_rules(suite)
    )
    removals: dict[Literal["drop", "quarantine"], str] = {}
    if (dropped := _removed(suite, rules, "drop")) is not None:
        removals["drop"] = compiler.count(dropped if quarantined is None else f"{dropped} AND NOT {quarantined}")
    if quarantined is not None:
        removals["quarantine"] = compiler.count(quarantined)
    rows = compiler.count(None)
    measures = tuple(compiler.measures.values())
    return QualityPlan(suite, measures, checks, history, compiler.removed, quarantined, rows, removals)


def _removed(suite: Suite, rules: Mapping[str, RowRule], *policies: Policy) -> str | None:
    """The rows that fail an expectation with one of these policies."""
    found = [rules[expectation.id].unexpected for expectation in suite.expectations if expectation.policy in policies]
    return f"coalesce({any_of(list(dict.fromkeys(found)))}, false)" if found else None


class _Compiler:
    """Collects measures; equal ones appear once."""

    def __init__(self, schema: Schema, sample: int) -> None:
        self.schema, self.sample = schema, sample
        self.measures: dict[str, Measure] = {}
        self.removed: str | None = None

    def check(self, expectation: Expectation, rule: RowRule | None) -> Check:
        kind = expectation.kind
        columns = self._columns(expectation)
        if kind.path == "none":
            raise DeclarationError(
                f"`{expectation.type}` can't be checked on a stream: {kind.why}",
                where=expectation.place,
                remedy="remove it from this suite",
            )
        if kind.path == "schema":
            return Check(expectation, "schema", columns=columns, schema_result=check_schema(expectation, self.schema))
        if rule is not None:
            return Check(expectation, "exact", self._row_measures(rule), rule.unexpected, columns)
        if expectation.is_reread:
            condition_sql(
                expectation.arguments.get("row_condition"),
                expectation.arguments.get("condition_parser"),
                self.schema,
                place=expectation.place,
            )
            return Check(expectation, "reread", columns=columns)
        return Check(expectation, kind.path, self._table_measures(expectation, columns), columns=columns)

    def history_measure(self, rule: HistoryRule, place: str) -> str:
        kept = f"NOT {self.removed}" if self.removed else None
        if rule.column is None:
            return self.count(kept)
        column = self.schema.find(rule.column, place=place)
        require_family(column, ("date", "timestamp", "timestamp_ntz"), "dates or times", place)
        return self._add(as_text(column, f"max({only_where(kept, column.sql)})"), "greatest", reading_of(column))

    def _columns(self, expectation: Expectation) -> tuple[Column, ...]:
        found = []
        for argument in expectation.kind.columns:
            named = expectation.arguments[argument]
            names = named if isinstance(named, list) else [named]
            found += [self.schema.find(name, place=expectation.place) for name in names]
        return tuple(found)

    def _row_measures(self, rule: RowRule) -> dict[str, str]:
        roles = {"rows": self.count(rule.domain), "unexpected": self.count(rule.unexpected)}
        if rule.missing is not None:
            roles["missing"] = self.count(all_of(rule.domain, rule.missing))
        if self.sample and all(column.is_orderable for column in rule.columns):
            readings = tuple(reading_of(column) for column in rule.columns)
            sql = sample_sql(rule.columns, rule.unexpected, self.sample)
            roles["sample"] = self._add(sql, "sample", *readings, limit=self.sample)
        return roles

    def _table_measures(self, expectation: Expectation, columns: tuple[Column, ...]) -> dict[str, str]:
        arguments, place = expectation.arguments, expectation.place
        domain = condition_sql(arguments["row_condition"], arguments["condition_parser"], self.schema, place=place)
        kept = all_of(f"NOT {self.removed}", domain) if self.removed else domain
        if not columns:
            return {"rows": self.count(kept)}
        return _TABLE[expectation.type](self, expectation, columns[0], kept)

    def extreme(self, expectation: Expectation, column: Column, kept: str | None) -> dict[str, str]:
        function, merge = ("max", "greatest") if "_max_" in expectation.type else ("min", "least")
        families: tuple[str, ...] = ("number", "date", "timestamp", "timestamp_ntz")
        bounds = [expectation.arguments[name] for name in ("min_value", "max_value")]
        require_family(column, families if any(b is not None for b in bounds) else (*families, "string"),
                       "numbers, dates or times", expectation.place)  # fmt: skip
        for name, bound in zip(("min_value", "max_value"), bounds, strict=True):
            check_comparable(column, bound, name, expectation.place)
        sql = as_text(column, f"{function}({only_where(kept, column.sql)})")
        return {"value": self._add(sql, merge, reading_of(column))}  # type: ignore[arg-type]  # one of two

    def total(self, expectation: Expectation, column: Column, kept: str | None) -> dict[str, str]:
        self._numbers(expectation, column)
        value = only_where(kept, column.sql)
        if column.base == "decimal":
            return {"value": self._add(f"CAST(try_sum({value}) AS STRING)", "add", "decimal")}
        if column.base in INTEGRAL:
            value = f"CAST({value} AS DOUBLE)"
        return {"value": self._add(f"CAST(sum({value}) AS STRING)", "add", "double")}

    def mean(self, expectation: Expectation, column: Column, kept: str | None) -> dict[str, str]:
        """By sum and count, which merge exactly; Spark's own average is just that."""
        total = self.total(expectation, column, kept)["value"]
        return {"sum": total, "count": self.count(all_of(kept, f"{column.sql} IS NOT NULL"))}

    def deviation(self, expectation: Expectation, column: Column, kept: str | None) -> dict[str, str]:
        mean = self.mean(expectation, column, kept)
        sql = f"CAST(stddev_samp({only_where(kept, column.sql)}) AS STRING)"
        return {"value": self._add(sql, "deviation", "double", weights=(mean["count"], mean["sum"]))}

    def present(self, expectation: Expectation, column: Column, kept: str | None) -> dict[str, str]:
        return {"present": self.count(all_of(kept, f"{column.sql} IS NOT NULL")), "rows": self.count(kept)}

    def distinct(self, expectation: Expectation, column: Column, kept: str | None) -> dict[str, str]:
        if column.family in {"nested", "other"}:
            require_family(column, (), "single values", expectation.place)
        sketch = self._add(distinct_sql(column, kept), "distinct")
        return {"distinct": sketch, **self.present(expectation, column, kept)}

    def seen(self, expectation: Expectation, column: Column, kept: str | None) -> dict[str, str]:
        """The values of the set that were seen: at most as many as the set has."""
        inside = in_list(column, expectation.arguments["value_set"], expectation.place)
        value = f"({column.sql} + 0)" if reading_of(column) == "double" else column.sql
        found = only_where(all_of(kept, inside), as_text(column, value))
        return {"seen": self._add(f"to_json(collect_set({found}))", "union", reading_of(column))}

    def outside(self, expectation: Expectation, column: Column, kept: str | None) -> dict[str, str]:
        values = expectation.arguments["value_set"]
        # An empty set is no filter at all for Great Expectations: every value lies outside.
        inside = in_list(column, values, expectation.place)
        outside = all_of(kept, f"{column.sql} IS NOT NULL", f"NOT ({inside})") or "false"
        roles = {
            "outside": self.count(outside),
            "outside_values": self._add(distinct_sql(column, f"coalesce({outside}, false)"), "distinct"),
        }
        if self.sample:
            sql = sample_sql((column,), outside, self.sample)
            roles["sample"] = self._add(sql, "sample", reading_of(column), limit=self.sample)
        return roles

    def equal_set(self, expectation: Expectation, column: Column, kept: str | None) -> dict[str, str]:
        return {**self.outside(expectation, column, kept), **self.seen(expectation, column, kept)}

    def _numbers(self, expectation: Expectation, column: Column) -> None:
        require_family(column, ("number",), "numbers", expectation.place)
        for name in ("min_value", "max_value"):
            check_comparable(column, expectation.arguments[name], name, expectation.place)

    def count(self, condition: str | None) -> str:
        """The measure of how many rows meet a condition."""
        return self._add("count(1)" if condition is None else f"count_if({condition})", "add")

    def _add(self, sql: str, merge: Merge, *readings: Reading, weights: tuple[str, ...] = (), limit: int = 0) -> str:
        if sql not in self.measures:
            # Drawn from what is measured: the measures of a try before keep their meaning when the suite is changed.
            name = hashlib.sha256(sql.encode()).hexdigest()[:16]
            self.measures[sql] = Measure(name, sql, merge, readings or ("integer",), weights, limit)
        return self.measures[sql].name


_Measured = Callable[[_Compiler, Expectation, Column, str | None], dict[str, Any]]
_TABLE: Mapping[str, _Measured] = {
    "expect_column_max_to_be_between": _Compiler.extreme,
    "expect_column_min_to_be_between": _Compiler.extreme,
    "expect_column_sum_to_be_between": _Compiler.total,
    "expect_column_mean_to_be_between": _Compiler.mean,
    "expect_column_stdev_to_be_between": _Compiler.deviation,
    "expect_column_proportion_of_non_null_values_to_be_between": _Compiler.present,
    "expect_column_proportion_of_unique_values_to_be_between": _Compiler.distinct,
    "expect_column_unique_value_count_to_be_between": _Compiler.distinct,
    "expect_column_distinct_values_to_be_in_set": _Compiler.outside,
    "expect_column_distinct_values_to_contain_set": _Compiler.seen,
    "expect_column_distinct_values_to_equal_set": _Compiler.equal_set,
}
