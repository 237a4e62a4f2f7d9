"""Every core expectation of Great Expectations 1.24.1: its arguments, and how Sluice measures it.

The table is Great Expectations' own registry; a test walks it. `docs/quality.md` shows it to people.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import Any, Literal

Path = Literal["exact", "schema", "sketch", "reread", "none"]
"""How an expectation is measured.

`exact` in the write's own pass; `schema` from the columns alone; `sketch` in the pass, approximately, when asked for,
else re-read; `reread` by Great Expectations on what the run wrote; `none` not at all.
"""
Level = Literal["row", "table"]


@dataclass(frozen=True)
class Argument:
    """One argument of an expectation."""

    check: Callable[[Any], Any]
    """Gives the value as Great Expectations reads it; raises ValueError with what was expected."""
    is_required: bool = False
    default: Any = None


@dataclass(frozen=True)
class Kind:
    """One expectation of the library."""

    path: Path
    level: Level
    why: str
    """What is measured, or why it can't be."""
    arguments: Mapping[str, Argument] = field(default_factory=dict)
    columns: tuple[str, ...] = ()
    """The arguments that name columns which must exist."""


def _expected(what: str) -> ValueError:
    return ValueError(f"must be {what}")


def _name(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise _expected("the name of a column")
    return value


def _names(value: Any) -> list[str]:
    if not isinstance(value, list) or len(value) < 2 or not all(isinstance(name, str) and name for name in value):
        raise _expected("a list of at least two names of columns")
    return value


def _texts(value: Any) -> list[str]:
    if not isinstance(value, list) or not value or not all(isinstance(text, str) for text in value):
        raise _expected("a list of strings with at least one")
    return value


def _any_texts(value: Any) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise _expected("a list of strings")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise _expected("a string")
    return value


def _character(value: Any) -> str:
    if not isinstance(value, str) or len(value) != 1:
        raise _expected("a single character")
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _expected("true or false")
    return value


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _expected("a number")
    try:
        return float(value)
    except OverflowError as exc:
        raise _expected("a number that a double can hold") from exc


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float) or int(value) != value:
        raise _expected("a whole number")
    return int(value)


def _share(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise _expected("a number from 0 to 1")
    return float(value)


def _moment(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is not None:
        try:
            moment.astimezone(UTC)
        except OverflowError as exc:
            raise OverflowError("must lie between the years 1 and 9999 in UTC, too") from exc
    return moment


def _bound(value: Any) -> float | date | datetime:
    """A bound as Great Expectations reads it: a number first, also from a string, then a date, then a time."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _number(value)
    if isinstance(value, datetime | date):
        return value
    if isinstance(value, str):
        for read in (float, date.fromisoformat, _moment):
            try:
                return read(value)
            except ValueError:
                continue
    raise _expected("a number, or a date or time in ISO 8601")


def _values(value: Any) -> list[Any]:
    if not isinstance(value, list) or not all(isinstance(item, str | int | float | bool | None) for item in value):
        raise _expected("a list of strings, numbers or booleans")
    return value


def _some_values(value: Any) -> list[Any]:
    if not _values(value):
        raise _expected("a list with at least one value")
    return list(value)


def _pairs(value: Any) -> list[tuple[Any, Any]]:
    if not isinstance(value, list) or not value or not all(isinstance(p, list | tuple) and len(p) == 2 for p in value):
        raise _expected("a list of pairs with at least one")
    _values([item for pair in value for item in pair])
    return [(first, second) for first, second in value]


def _mapping(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _expected("an object")
    return value


def _anything(value: Any) -> Any:
    return value


def _one_of(*choices: str) -> Callable[[Any], str]:
    def check(value: Any) -> str:
        if value not in choices:
            raise _expected(f"one of: {', '.join(choices)}")
        return str(value)

    return check


def _needed(check: Callable[[Any], Any]) -> Argument:
    return Argument(check, is_required=True)


_STRICT = {"strict_min": Argument(_flag, default=False), "strict_max": Argument(_flag, default=False)}
_CONDITION = {"row_condition": Argument(_anything), "condition_parser": Argument(_anything)}
_MOSTLY = {"mostly": Argument(_share, default=1.0)}
_BETWEEN = {"min_value": Argument(_bound), "max_value": Argument(_bound), **_STRICT}
_NUMBERS_BETWEEN = {"min_value": Argument(_number), "max_value": Argument(_number), **_STRICT}
_COUNTS_BETWEEN = {"min_value": Argument(_whole), "max_value": Argument(_whole), **_STRICT}
_PAIR_IGNORE = _one_of("both_values_are_missing", "either_value_is_missing", "neither")
_LIST_IGNORE = _one_of("all_values_are_missing", "any_value_is_missing", "never")


def _row(path: Path, why: str, **arguments: Argument) -> Kind:
    return Kind(path, "row", why, {"column": _needed(_name), **_MOSTLY, **_CONDITION, **arguments}, ("column",))


def _pair(why: str, **arguments: Argument) -> Kind:
    ignore = Argument(_PAIR_IGNORE, default="both_values_are_missing")
    columns = {"column_A": _needed(_name), "column_B": _needed(_name)}
    return Kind(
        "exact",
        "row",
        why,
        {**columns, **_MOSTLY, **_CONDITION, "ignore_row_if": ignore, **arguments},
        ("column_A", "column_B"),
    )


def _several(path: Path, why: str, **arguments: Argument) -> Kind:
    ignore = Argument(_LIST_IGNORE, default="all_values_are_missing")
    shared = {"column_list": _needed(_names), **_MOSTLY, **_CONDITION, "ignore_row_if": ignore}
    return Kind(path, "row", why, {**shared, **arguments}, ("column_list",))


def _aggregate(path: Path, why: str, **arguments: Argument) -> Kind:
    return Kind(path, "table", why, {"column": _needed(_name), **_CONDITION, **arguments}, ("column",))


def _table(path: Path, why: str, **arguments: Argument) -> Kind:
    return Kind(path, "table", why, arguments)


_ESCAPE = Argument(_character)
_TWICE = "a value is compared with all others of the run, which no aggregate of fixed size can do"
_PYTHON = "Great Expectations decides it with Python code, row by row"
_ORDER = "the rows of a batch have no order"

EXPECTATIONS: Mapping[str, Kind] = {
    "expect_column_distinct_values_to_be_in_set": _aggregate(
        "exact",
        "verdict from a count; how many distinct values lie outside by a sketch: exact up to 4,096, then within 3.2 %",
        value_set=_needed(_some_values),
    ),
    "expect_column_distinct_values_to_contain_set": _aggregate(
        "exact", "the values of the set that were seen", value_set=_needed(_values)
    ),
    "expect_column_distinct_values_to_equal_set": _aggregate("exact", "both of the above", value_set=_needed(_values)),
    "expect_column_kl_divergence_to_be_less_than": _aggregate(
        "reread",
        "it needs a histogram whose bins depend on the data",
        partition_object=Argument(_mapping),
        threshold=Argument(_number),
        internal_weight_holdout=Argument(_share, default=0.0),
        tail_weight_holdout=Argument(_share, default=0.0),
        bucketize_data=Argument(_flag, default=True),
        min_value=Argument(_bound),
        max_value=Argument(_bound),
    ),
    "expect_column_max_to_be_between": _aggregate("exact", "`max`", **_BETWEEN),
    "expect_column_mean_to_be_between": _aggregate("exact", "`sum` and a count", **_BETWEEN),
    "expect_column_median_to_be_between": _aggregate("reread", "an exact median needs all values", **_BETWEEN),
    "expect_column_min_to_be_between": _aggregate("exact", "`min`", **_BETWEEN),
    "expect_column_most_common_value_to_be_in_set": _aggregate(
        "reread",
        "it needs a count per value",
        value_set=_needed(_values),
        ties_okay=Argument(_flag),
    ),
    "expect_column_pair_values_a_to_be_greater_than_b": _pair("a count of rows", or_equal=Argument(_flag)),
    "expect_column_pair_values_to_be_equal": _pair("a count of rows"),
    "expect_column_pair_values_to_be_in_set": _pair("a count of rows", value_pairs_set=_needed(_pairs)),
    "expect_column_proportion_of_non_null_values_to_be_between": _aggregate("exact", "two counts", **_NUMBERS_BETWEEN),
    "expect_column_proportion_of_unique_values_to_be_between": _aggregate(
        "sketch", "a sketch of distinct values: exact up to 4,096, then within 3.2 % (95 %)", **_NUMBERS_BETWEEN
    ),
    "expect_column_quantile_values_to_be_between": _aggregate(
        "reread",
        "exact quantiles need all values",
        quantile_ranges=_needed(_mapping),
        allow_relative_error=Argument(_anything, default=False),
    ),
    "expect_column_stdev_to_be_between": _aggregate("exact", "`stddev_samp`, `sum` and a count", **_NUMBERS_BETWEEN),
    "expect_column_sum_to_be_between": _aggregate("exact", "`sum`", **_BETWEEN),
    "expect_column_to_exist": _table("schema", "the columns", column=_needed(_name), column_index=Argument(_whole)),
    "expect_column_type_to_be": Kind(
        "schema", "table", "the columns", {"column": _needed(_name), "type_": _needed(_text)}, ("column",)
    ),
    "expect_column_unique_value_count_to_be_between": _aggregate(
        "sketch", "a sketch of distinct values: exact up to 4,096, then within 3.2 % (95 %)", **_COUNTS_BETWEEN
    ),
    "expect_column_value_lengths_to_be_between": _row("exact", "a count of rows", **_COUNTS_BETWEEN),
    "expect_column_value_lengths_to_equal": _row("exact", "a count of rows", value=_needed(_number)),
    "expect_column_value_z_scores_to_be_less_than": _row(
        "reread",
        "it needs the mean and the deviation of the run before it looks at a row",
        threshold=_needed(_number),
        double_sided=_needed(_flag),
    ),
    "expect_column_values_to_be_between": _row("exact", "a count of rows", **_BETWEEN),
    "expect_column_values_to_be_dateutil_parseable": _row("none", "Great Expectations measures it in pandas only"),
    "expect_column_values_to_be_decreasing": _row("none", _ORDER, strictly=Argument(_flag)),
    "expect_column_values_to_be_in_set": _row("exact", "a count of rows", value_set=_needed(_values)),
    "expect_column_values_to_be_in_type_list": _row("schema", "the columns", type_list=Argument(_texts)),
    "expect_column_values_to_be_increasing": _row("none", _ORDER, strictly=Argument(_flag)),
    "expect_column_values_to_be_json_parseable": _row("reread", _PYTHON),
    "expect_column_values_to_be_null": _row("exact", "a count of rows"),
    "expect_column_values_to_be_of_type": _row("schema", "the columns", type_=_needed(_text)),
    "expect_column_values_to_be_unique": _row("reread", _TWICE),
    "expect_column_values_to_match_json_schema": _row("reread", _PYTHON, json_schema=_needed(_mapping)),
    "expect_column_values_to_match_like_pattern": _row(
        "exact", "a count of rows, by Spark's LIKE", like_pattern=_needed(_text), escape=_ESCAPE
    ),
    "expect_column_values_to_match_like_pattern_list": _row(
        "exact",
        "a count of rows, by Spark's LIKE",
        like_pattern_list=_needed(_texts),
        match_on=Argument(_one_of("any", "all"), default="any"),
        escape=_ESCAPE,
    ),
    "expect_column_values_to_match_regex": _row("exact", "a count of rows", regex=Argument(_text, default="(?s).*")),
    "expect_column_values_to_match_regex_list": _row(
        "exact",
        "a count of rows",
        regex_list=_needed(_texts),
        match_on=Argument(_one_of("any", "all"), default="any"),
    ),
    "expect_column_values_to_match_strftime_format": _row("reread", _PYTHON, strftime_format=_needed(_text)),
    "expect_column_values_to_not_be_in_set": _row("exact", "a count of rows", value_set=_needed(_values)),
    "expect_column_values_to_not_be_null": _row("exact", "a count of rows"),
    "expect_column_values_to_not_be_outliers": _row(
        "reread",
        "it needs quantiles or the deviation of the run before it looks at a row",
        method=Argument(_one_of("iqr", "std"), default="iqr"),
        multiplier=Argument(_number, default=1.5),
    ),
    "expect_column_values_to_not_match_like_pattern": _row(
        "exact", "a count of rows, by Spark's LIKE", like_pattern=_needed(_text), escape=_ESCAPE
    ),
    "expect_column_values_to_not_match_like_pattern_list": _row(
        "exact", "a count of rows, by Spark's LIKE", like_pattern_list=_needed(_texts), escape=_ESCAPE
    ),
    "expect_column_values_to_not_match_regex": _row("exact", "a count of rows", regex=_needed(_text)),
    "expect_column_values_to_not_match_regex_list": _row("exact", "a count of rows", regex_list=_needed(_texts)),
    "expect_compound_columns_to_be_unique": _several("reread", _TWICE),
    "expect_multicolumn_sum_to_equal": _several("exact", "a count of rows", sum_total=_needed(_number)),
    "expect_multicolumn_values_to_be_equal": _several("exact", "a count of rows"),
    "expect_query_results_to_match_comparison": _table(
        "none",
        "it compares with another data source",
        base_query=_needed(_text),
        comparison_data_source_name=_needed(_text),
        comparison_query=_needed(_text),
        **_MOSTLY,
    ),
    "expect_select_column_values_to_be_unique_within_record": _several("exact", "a count of rows"),
    "expect_table_column_count_to_be_between": _table(
        "schema", "the columns", min_value=Argument(_number), max_value=Argument(_number)
    ),
    "expect_table_column_count_to_equal": _table("schema", "the columns", value=_needed(_whole)),
    "expect_table_columns_to_match_ordered_list": _table("schema", "the columns", column_list=Argument(_any_texts)),
    "expect_table_columns_to_match_set": _table(
        "schema", "the columns", column_set=Argument(_any_texts), exact_match=Argument(_flag, default=True)
    ),
    "expect_table_row_count_to_be_between": _table("exact", "a count", **_COUNTS_BETWEEN, **_CONDITION),
    "expect_table_row_count_to_equal": _table("exact", "a count", value=_needed(_whole), **_CONDITION),
    "expect_table_row_count_to_equal_other_table": _table(
        "none", "it compares with another table", other_table_name=_needed(_text), **_CONDITION
    ),
    "unexpected_rows_expectation": _table("reread", "it is a query of your own", unexpected_rows_query=_needed(_text)),
}
