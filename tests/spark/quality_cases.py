"""Random frames and random suites: what the differential test compares Sluice with Great Expectations on."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

DDL = (
    "id BIGINT, small INT, other INT, big BIGINT, ratio DOUBLE, single FLOAT, money DECIMAL(12,2), text STRING, "
    "word STRING, flag BOOLEAN, day DATE, at TIMESTAMP, local TIMESTAMP_NTZ"
)
_WORDS = [
    "",
    " ",
    "a",
    "ab",
    "Ab",
    "it's",
    'say "so"',
    "back\\slash",
    "${spark.x}",
    "naïve",
    "日本",
    "😀",
    "1",
    "a\nb",
    "%_",
]
_RATIOS = [math.nan, math.inf, -math.inf, 0.0, -0.0, 1.5, -2.25, 1e-5, 1e22, 3.0]
_MONEY = [Decimal("0.00"), Decimal("-1.50"), Decimal("3.10"), Decimal("99999999.99"), Decimal("0.10")]
_NUMBERS = ["small", "other", "big", "ratio", "single", "money"]
_MOMENTS = ["day", "at", "local"]
_OF_MOMENTS = [
    "expect_column_values_to_be_between",
    "expect_column_max_to_be_between",
    "expect_column_min_to_be_between",
]
"""Every suite has one of each of these about a date or a time: by chance, few would have."""
_REGEXES = ["^a", "[a-z]+$", "^$", r"\d", r"\\", r"\$\{", "(?i)AB", "日", r"^.{1,3}$", "(a|b)", r"\p{Lu}"]


def rows(draw: random.Random, count: int) -> list[tuple[Any, ...]]:
    """Rows for `DDL`, each value null in a share of the rows that differs by column."""
    columns: list[Callable[[], Any]] = [
        lambda: draw.randint(-3, 8),
        lambda: draw.randint(-3, 8),
        lambda: draw.choice([2**40, -(2**40), 0, 1, 2, 3, 7]),
        lambda: draw.choice(_RATIOS) if draw.random() < 0.5 else round(draw.uniform(-5, 5), 2),
        lambda: draw.choice([0.1, 0.5, -3.25, 2.0, math.inf, 7.7]),
        lambda: draw.choice(_MONEY),
        lambda: draw.choice(_WORDS),
        lambda: draw.choice(_WORDS[:6]),
        lambda: draw.random() < 0.5,
        lambda: date(2026, 1, 1) + timedelta(days=draw.randint(0, 9)),
        lambda: (
            datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=draw.randint(0, 200), microseconds=draw.randint(0, 3))
        ),
        lambda: datetime.fromisoformat("2026-01-01") + timedelta(hours=draw.randint(0, 200)),
    ]
    shares = [draw.choice([0.0, 0.1, 0.5, 1.0 if draw.random() < 0.2 else 0.3]) for _ in columns]
    return [
        (number, *(None if draw.random() < share else make() for make, share in zip(columns, shares, strict=True)))
        for number in range(count)
    ]


def suite(draw: random.Random, count: int) -> dict[str, Any]:
    """A suite of different random expectations, as Great Expectations writes it."""
    found: dict[str, dict[str, Any]] = {}
    for kind in _OF_MOMENTS:
        column = draw.choice(_MOMENTS)
        kwargs = {"column": column} | _moments(draw, column)
        found[repr((kind, kwargs))] = {"type": kind, "kwargs": kwargs}
    while len(found) < count:
        kind = draw.choice(list(_MAKERS))
        kwargs = _MAKERS[kind](draw)
        if draw.random() < 0.4:
            kwargs |= _condition(draw, kind)
        if kind not in _WITHOUT_MOSTLY and draw.random() < 0.6:
            kwargs["mostly"] = draw.choice([0.0, 0.5, 0.75, 0.9, 0.95, round(draw.random(), 3)])
        found.setdefault(repr((kind, kwargs)), {"type": kind, "kwargs": kwargs})
    expectations = [row | {"meta": {"number": number}} for number, row in enumerate(found.values())]
    return {"name": "random", "expectations": expectations, "meta": {}}


def _condition(draw: random.Random, kind: str) -> dict[str, Any]:
    if kind in _WITHOUT_CONDITION:
        return {}
    if draw.random() < 0.3:
        text = draw.choice(['col("small") > 2', 'col("word") == "ab"', 'col("ratio") <= 1.5', 'col("day").notnull()'])
        return {"row_condition": text, "condition_parser": "great_expectations"}
    if draw.random() < 0.2:
        return {"row_condition": "small % 2 = 0 OR flag", "condition_parser": "spark"}
    if draw.random() < 0.5:
        return {"row_condition": _simple(draw)}
    joint = draw.choice(["and", "or"])
    return {"row_condition": {"type": joint, "conditions": [_simple(draw) for _ in range(draw.randint(2, 3))]}}


def _simple(draw: random.Random) -> dict[str, Any]:
    column, value = draw.choice(
        [("small", 3), ("ratio", 1.5), ("text", "ab"), ("word", "a"), ("day", "2026-01-05"), ("money", 3.1), ("big", 2)]
    )
    kind = draw.random()
    if kind < 0.2:
        return {"type": "nullity", "column": {"name": column}, "is_null": draw.random() < 0.5}
    if kind < 0.4 and column != "day":
        operator = draw.choice(["IN", "NOT_IN"])
        return {"type": "comparison", "column": {"name": column}, "operator": operator, "parameter": [value]}
    operator = draw.choice(["==", "!=", "<", "<=", ">", ">="])
    return {"type": "comparison", "column": {"name": column}, "operator": operator, "parameter": value}


def _bounds(draw: random.Random, low: Any, high: Any, *, is_needed: bool = True) -> dict[str, Any]:
    found = {"min_value": low, "max_value": high}
    if draw.random() < 0.4:
        del found[draw.choice(["min_value", "max_value"])]
    elif not is_needed and draw.random() < 0.1:
        found = {}
    for name in ("strict_min", "strict_max"):
        if draw.random() < 0.3:
            found[name] = True
    return found


def _values_between(draw: random.Random) -> dict[str, Any]:
    column = draw.choice(draw.choice([_NUMBERS, _MOMENTS]))
    if column in _NUMBERS:
        return {"column": column} | _bounds(draw, draw.choice([-1, 0, 0.1, 1]), draw.choice([1, 1.5, 3, 3.1, 2**40]))
    return {"column": column} | _moments(draw, column)


def _moments(draw: random.Random, column: str, *, is_needed: bool = True) -> dict[str, Any]:
    low, high = "2026-01-02", "2026-01-06"
    if column != "day":
        zone = draw.choice(["", "", "Z", "+02:00"])
        low, high = f"{low}T05:00:00{zone}", f"{high}T12:30:00{zone}"
    return _bounds(draw, low, high, is_needed=is_needed)


def _extreme(draw: random.Random) -> dict[str, Any]:
    column = draw.choice(draw.choice([_NUMBERS, _MOMENTS]))
    if column in _NUMBERS:
        return {"column": column} | _bounds(draw, draw.choice([-3, 0, 7.7]), draw.choice([8, 99999999.99, 2**41]))
    return {"column": column} | _moments(draw, column, is_needed=False)


def _numeric(low: float, high: float, columns: list[str]) -> Callable[[random.Random], dict[str, Any]]:
    return lambda draw: {"column": draw.choice(columns)} | _bounds(draw, low, high, is_needed=False)


def _members(draw: random.Random, columns: list[str]) -> dict[str, Any]:
    column = draw.choice(columns)
    pool: dict[str, list[Any]] = {
        "small": [-1, 0, 1, 2, 3],
        "big": [0, 1, 2**40],
        "ratio": [1.5, 0.0, 3, -2.25],
        "money": [0.1, 3.1, -1.5, 0],
        "text": _WORDS,
        "word": _WORDS[:6],
        "flag": [True, False],
        "day": ["2026-01-01", "2026-01-05"],
    }
    values = draw.sample(pool[column], draw.randint(1, len(pool[column])))
    return {"column": column, "value_set": values}


def _set(draw: random.Random) -> dict[str, Any]:
    found = _members(draw, ["small", "big", "ratio", "money", "text", "word", "flag", "day"])
    if draw.random() < 0.15:
        found["value_set"] = [*found["value_set"], None]
    return found


def _distinct_set(draw: random.Random) -> dict[str, Any]:
    return _members(draw, ["small", "big", "text", "word", "flag"])


def _pair(draw: random.Random) -> dict[str, Any]:
    a, b = draw.choice([("small", "other"), ("text", "word"), ("ratio", "small"), ("big", "money"), ("other", "small")])
    found = {"column_A": a, "column_B": b}
    if draw.random() < 0.6:
        found["ignore_row_if"] = draw.choice(["both_values_are_missing", "either_value_is_missing", "neither"])
    return found


def _greater(draw: random.Random) -> dict[str, Any]:
    return _pair(draw) | ({"or_equal": True} if draw.random() < 0.5 else {})


def _pairs(draw: random.Random) -> dict[str, Any]:
    ignored = draw.choice(["both_values_are_missing", "either_value_is_missing", "neither"])
    pairs = [[draw.choice(_WORDS), draw.choice([*_WORDS[:6], None])] for _ in range(6)]
    return {"column_A": "text", "column_B": "word", "value_pairs_set": pairs, "ignore_row_if": ignored}


def _several(draw: random.Random) -> dict[str, Any]:
    columns = draw.choice([["small", "other"], ["small", "other", "big"], ["text", "word"], ["money", "small"]])
    found: dict[str, Any] = {"column_list": columns}
    if draw.random() < 0.6:
        found["ignore_row_if"] = draw.choice(["all_values_are_missing", "any_value_is_missing", "never"])
    return found


def _sum(draw: random.Random) -> dict[str, Any]:
    found = _several(draw) | {"sum_total": draw.choice([3, 5, 1.6, 0])}
    return found | {"column_list": draw.choice([["small", "other"], ["small", "big"], ["money", "money"]])}


def _regex(draw: random.Random) -> dict[str, Any]:
    return {"column": draw.choice(["text", "word"]), "regex": draw.choice(_REGEXES)}


def _regexes(draw: random.Random) -> dict[str, Any]:
    return {"column": draw.choice(["text", "word"]), "regex_list": draw.sample(_REGEXES, draw.randint(1, 3))}


def _matching_regexes(draw: random.Random) -> dict[str, Any]:
    return _regexes(draw) | {"match_on": draw.choice(["any", "all"])}


def _any_column(draw: random.Random) -> dict[str, Any]:
    return {"column": draw.choice([*_NUMBERS, "text", "word", "flag", "day", "at", "local"])}


def _lengths(draw: random.Random) -> dict[str, Any]:
    return {"column": draw.choice(["text", "word"])} | _bounds(draw, draw.randint(0, 2), draw.randint(2, 8))


def _type(draw: random.Random) -> dict[str, Any]:
    names = ["IntegerType", "StringType", "NumericType", "TimestampType", "DoubleType", "DateType"]
    return _any_column(draw) | {"type_": draw.choice(names)}


def _types(draw: random.Random) -> dict[str, Any]:
    names = ["IntegerType", "StringType", "NumericType", "TimestampNTZType", "DoubleType", "DateType", "LongType"]
    return _any_column(draw) | {"type_list": draw.sample(names, draw.randint(1, 3))}


def _column_count(draw: random.Random) -> dict[str, Any]:
    found = {"min_value": draw.choice([1, 13, 14]), "max_value": draw.choice([12, 13, 20])}
    if found["min_value"] > found["max_value"] or draw.random() < 0.4:
        del found[draw.choice(["min_value", "max_value"])]
    return found


def _ordered(draw: random.Random) -> dict[str, Any]:
    names = [column.split()[0] for column in DDL.split(", ")]
    if draw.random() < 0.5:
        at = draw.randrange(len(names))
        names[at:] = draw.choice([[], names[at + 1 :], [*names[at + 1 :], names[at]], ["gone", *names[at:]]])
    return {"column_list": names}


_DEVIATING = ["small", "other", "big", "money"]
_MAKERS: dict[str, Callable[[random.Random], dict[str, Any]]] = {
    "expect_column_values_to_be_between": _values_between,
    "expect_column_values_to_be_in_set": _set,
    "expect_column_values_to_not_be_in_set": _set,
    "expect_column_values_to_not_be_null": _any_column,
    "expect_column_values_to_be_null": _any_column,
    "expect_column_value_lengths_to_be_between": _lengths,
    "expect_column_value_lengths_to_equal": lambda draw: {"column": "text", "value": draw.randint(0, 3)},
    "expect_column_values_to_match_regex": _regex,
    "expect_column_values_to_not_match_regex": _regex,
    "expect_column_values_to_match_regex_list": _matching_regexes,
    "expect_column_values_to_not_match_regex_list": _regexes,
    "expect_column_pair_values_to_be_equal": _pair,
    "expect_column_pair_values_a_to_be_greater_than_b": _greater,
    "expect_column_pair_values_to_be_in_set": _pairs,
    "expect_multicolumn_sum_to_equal": _sum,
    "expect_multicolumn_values_to_be_equal": _several,
    "expect_select_column_values_to_be_unique_within_record": _several,
    "expect_column_max_to_be_between": _extreme,
    "expect_column_min_to_be_between": _extreme,
    "expect_column_mean_to_be_between": _numeric(0, 3, _NUMBERS),
    "expect_column_sum_to_be_between": _numeric(-10, 100, _NUMBERS),
    "expect_column_stdev_to_be_between": _numeric(0.5, 10, _DEVIATING),
    "expect_column_proportion_of_non_null_values_to_be_between": _numeric(0.3, 0.9, [*_NUMBERS, "text"]),
    "expect_column_proportion_of_unique_values_to_be_between": _numeric(0.1, 0.9, ["small", "text", "ratio", "day"]),
    "expect_column_unique_value_count_to_be_between": lambda draw: (
        {"column": draw.choice(["small", "text", "ratio", "money", "day", "at", "flag"])} | _bounds(draw, 3, 20)
    ),
    "expect_column_distinct_values_to_be_in_set": _distinct_set,
    "expect_column_distinct_values_to_contain_set": _distinct_set,
    "expect_column_distinct_values_to_equal_set": _distinct_set,
    "expect_table_row_count_to_be_between": lambda draw: _bounds(draw, draw.randint(0, 40), draw.randint(40, 80)),
    "expect_table_row_count_to_equal": lambda draw: {"value": draw.choice([60, 0, 10])},
    "expect_table_column_count_to_be_between": _column_count,
    "expect_table_columns_to_match_ordered_list": _ordered,
    "expect_column_values_to_be_in_type_list": _types,
    "expect_table_column_count_to_equal": lambda draw: {"value": draw.choice([13, 12])},
    "expect_column_to_exist": lambda draw: {
        "column": draw.choice(["small", "gone"]),
        "column_index": draw.randint(0, 3),
    },
    "expect_column_values_to_be_of_type": _type,
    "expect_column_type_to_be": _type,
    "expect_table_columns_to_match_set": lambda draw: {
        "column_set": draw.sample(["id", "small", "gone"], 2),
        "exact_match": draw.random() < 0.5,
    },
}
_WITHOUT_MOSTLY = frozenset(
    kind
    for kind in _MAKERS
    if not kind.startswith(("expect_column_value", "expect_column_pair", "expect_multicolumn", "expect_select"))
)
_WITHOUT_CONDITION = frozenset(
    [
        "expect_table_column_count_to_be_between",
        "expect_table_column_count_to_equal",
        "expect_table_columns_to_match_ordered_list",
        "expect_column_values_to_be_in_type_list",
        "expect_column_to_exist",
        "expect_column_type_to_be",
        "expect_table_columns_to_match_set",
        "expect_column_values_to_be_of_type",
        # Great Expectations ignores the condition in the counts of unexpected rows, and not in the count of all rows.
        "expect_column_pair_values_to_be_in_set",
    ]
)
