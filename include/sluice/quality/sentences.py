"""Checks as people say them: what must hold, and what was seen. Names and values stand between backticks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

_MOST_ITEMS = 8
_LONGEST = 120
_DEEPEST_CONDITION = 20
_COMPARED = {"==": "is", "!=": "is not", "IN": "is one of", "NOT_IN": "is none of"}


def rule(kind: str, kwargs: Mapping[str, Any]) -> str:
    """What an expectation asks for: "`dep_delay` must lie between -60 and 1440"."""
    say = _RULES.get(kind)
    try:
        said = say(kwargs) if say is not None else _plain(kind, kwargs)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        # A record is a file: what it says of a check may lack anything.
        said = _plain(kind, kwargs)
    mostly = kwargs.get("mostly")
    if isinstance(mostly, int | float) and not isinstance(mostly, bool) and mostly < 1:
        said += f", in at least {_number(100 * mostly)} % of the rows"
    condition = kwargs.get("row_condition")
    return f"{said}, where {_condition(condition)}" if condition else said


def finding(result: Mapping[str, Any], *, success: bool) -> str:
    """What was seen: "12 of 10,000 rows do not (0.12 %)"."""
    try:
        return _finding(result, success=success)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        return "the record does not tell"


def _finding(result: Mapping[str, Any], *, success: bool) -> str:
    details = result.get("details")
    details = details if isinstance(details, Mapping) else {}
    for told in ("not_measured", "sluice"):
        if told in details:
            return _text(details[told])
    rows, unexpected = result.get("element_count"), result.get("unexpected_count")
    if isinstance(rows, int) and isinstance(unexpected, int):
        return _rows(rows, unexpected, result.get("missing_count"))
    if isinstance(unexpected, int):
        return _sets(unexpected, result)
    if isinstance(result.get("missing_count"), int):
        return _sets(0, result)
    if result.get("observed_value") is not None:
        return f"it is {_value(result['observed_value'])}{_compared(details)}"
    exception = result.get("exception") or details.get("exception")
    if exception:
        return f"it could not be checked: {_text(exception)}"
    return "it does" if success else "it does not"


def _rows(rows: int, unexpected: int, missing: Any) -> str:
    if not rows:
        return "there were no rows"
    nulls = f"; {missing:,} have no value" if isinstance(missing, int) and missing else ""
    if not unexpected:
        return f"{'the only row does' if rows == 1 else f'all {rows:,} rows do'}{nulls}"
    does = "does" if unexpected == 1 else "do"
    looked = rows - (missing if isinstance(missing, int) else 0)
    share = f" ({_percent(unexpected / looked)})" if looked else ""
    return f"{unexpected:,} of {rows:,} rows {does} not{share}{nulls}"


def _sets(unexpected: int, result: Mapping[str, Any]) -> str:
    said = [f"{unexpected:,} other values were seen"] if unexpected else []
    if missing := result.get("missing_count"):
        named = _items(result.get("partial_missing_list") or ())
        said.append(f"{missing:,} of them were not seen" + (f": {named}" if named else ""))
    return "; ".join(said) or "it does"


def _compared(details: Mapping[str, Any]) -> str:
    mean, before = details.get("mean"), details.get("former_runs")
    if not isinstance(mean, int | float) or not before:
        return ""
    return f"; the mean of the last {before} runs is {_number(mean)}"


def _percent(share: float) -> str:
    percent = 100 * share
    return f"{percent:.2g} %" if percent < 1 else f"{percent:.1f} %" if percent < 99.95 else "100 %"


def _between(kwargs: Mapping[str, Any]) -> str:
    low, high = kwargs.get("min_value"), kwargs.get("max_value")
    over = "more than" if kwargs.get("strict_min") else "at least"
    under = "less than" if kwargs.get("strict_max") else "at most"
    if low is None and high is None:
        return "may be anything"
    if low is None:
        return f"must be {under} {_value(high)}"
    if high is None:
        return f"must be {over} {_value(low)}"
    if kwargs.get("strict_min") or kwargs.get("strict_max"):
        return f"must be {over} {_value(low)} and {under} {_value(high)}"
    return f"must lie between {_value(low)} and {_value(high)}"


def _of(what: str) -> Callable[[Mapping[str, Any]], str]:
    return lambda kwargs: f"{what} {_column(kwargs)} {_between(kwargs)}"


def _column(kwargs: Mapping[str, Any], key: str = "column") -> str:
    return _code(kwargs[key])


def _columns(kwargs: Mapping[str, Any]) -> str:
    return _listed([_code(name) for name in kwargs["column_list"]])


def _code(value: Any) -> str:
    return f"`{_text(value)}`"


def _text(value: Any) -> str:
    text = str(value).replace("`", "'")
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}\N{HORIZONTAL ELLIPSIS}"


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return _number(value)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return _items(value)
    return _text(value)


def _number(value: float) -> str:
    if isinstance(value, int):
        return f"{value:,}" if abs(value) >= 10_000 else str(value)
    if value.is_integer() and abs(value) < 1e15:
        return _number(int(value))
    return f"{value:,.6g}" if abs(value) < 1e15 else f"{value:.6g}"


def _items(values: Sequence[Any]) -> str:
    said = [_code(value) for value in values[:_MOST_ITEMS]]
    more = len(values) - len(said)
    return ", ".join(said) + (f" and {more:,} more" if more > 0 else "")


def _listed(parts: Sequence[str]) -> str:
    return f"{', '.join(parts[:-1])} and {parts[-1]}" if len(parts) > 1 else "".join(parts)


def _condition(condition: Any) -> str:
    """A `row_condition` in any form that Great Expectations writes: text, or a tree of comparisons."""
    if isinstance(condition, str):
        return _code(condition)
    return _tree(condition, 0) or _code(condition)


def _tree(condition: Any, depth: int) -> str | None:
    """A tree of comparisons in words; None when it is none."""
    if not isinstance(condition, Mapping) or depth > _DEEPEST_CONDITION:
        return None
    match condition.get("type"):
        case "pass_through":
            return _code(condition.get("pass_through_filter"))
        case "and" | "or" if isinstance(condition.get("conditions"), list) and condition["conditions"]:
            parts = [_tree(part, depth + 1) for part in condition["conditions"]]
            if None in parts:
                return None
            joined = f" {condition['type']} ".join(part for part in parts if part is not None)
            return f"({joined})" if depth and len(parts) > 1 else joined
        case "nullity":
            return f"{_condition_column(condition)} has {'no' if condition.get('is_null') else 'a'} value"
        case "comparison":
            operator = condition.get("operator")
            said = _COMPARED.get(operator, f"{operator}") if isinstance(operator, str) else f"{operator}"
            return f"{_condition_column(condition)} {said} {_value(condition.get('parameter'))}"
    return None


def _condition_column(condition: Mapping[str, Any]) -> str:
    column = condition.get("column")
    return _code(column.get("name") if isinstance(column, Mapping) else column)


def _plain(kind: str, kwargs: Mapping[str, Any]) -> str:
    """An expectation that has no sentence of its own: its name, and what it is about."""
    words = kind.removeprefix("expect_").removeprefix("column_").replace("_", " ").replace(" to ", " must ", 1)
    named = kwargs.get("column") or kwargs.get("column_list")
    if isinstance(named, list):
        return f"{words}: {_items(named)}"
    return f"{_code(named)}: {words}" if named else words


def _patterns(kwargs: Mapping[str, Any], key: str) -> str:
    which = "all" if kwargs.get("match_on") == "all" else "any"
    return f"{which} of {_items(kwargs[key])}"


def _history(kwargs: Mapping[str, Any], what: str) -> str:
    said = []
    if kwargs.get("min_value") is not None or kwargs.get("max_value") is not None:
        said.append(_between(kwargs).removeprefix("must "))
    if (change := kwargs.get("max_relative_change")) is not None:
        said.append(f"lie within {_number(100 * change)} % of the mean of the last {kwargs.get('last', 20)} runs")
    if (score := kwargs.get("max_z_score")) is not None:
        said.append(f"lie within {_number(score)} standard deviations of the last {kwargs.get('last', 20)} runs")
    return f"{what} must {_listed(said)}" if said else what


_RULES: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "expect_column_values_to_be_between": lambda it: f"{_column(it)} {_between(it)}",
    "expect_column_values_to_not_be_null": lambda it: f"{_column(it)} must have a value",
    "expect_column_values_to_be_null": lambda it: f"{_column(it)} must be empty",
    "expect_column_values_to_be_in_set": lambda it: f"{_column(it)} must be one of {_items(it['value_set'])}",
    "expect_column_values_to_not_be_in_set": lambda it: f"{_column(it)} must be none of {_items(it['value_set'])}",
    "expect_column_values_to_be_unique": lambda it: f"every value of {_column(it)} must be there once",
    "expect_column_values_to_match_regex": lambda it: f"{_column(it)} must match {_code(it['regex'])}",
    "expect_column_values_to_not_match_regex": lambda it: f"{_column(it)} must not match {_code(it['regex'])}",
    "expect_column_values_to_match_regex_list": lambda it: f"{_column(it)} must match {_patterns(it, 'regex_list')}",
    "expect_column_values_to_not_match_regex_list": lambda it: (
        f"{_column(it)} must match none of {_items(it['regex_list'])}"
    ),
    "expect_column_values_to_match_like_pattern": lambda it: f"{_column(it)} must be like {_code(it['like_pattern'])}",
    "expect_column_values_to_not_match_like_pattern": lambda it: (
        f"{_column(it)} must not be like {_code(it['like_pattern'])}"
    ),
    "expect_column_values_to_match_like_pattern_list": lambda it: (
        f"{_column(it)} must be like {_patterns(it, 'like_pattern_list')}"
    ),
    "expect_column_values_to_not_match_like_pattern_list": lambda it: (
        f"{_column(it)} must be like none of {_items(it['like_pattern_list'])}"
    ),
    "expect_column_value_lengths_to_be_between": lambda it: f"the length of {_column(it)} {_between(it)}",
    "expect_column_value_lengths_to_equal": lambda it: f"the length of {_column(it)} must be {_value(it['value'])}",
    "expect_column_values_to_be_of_type": lambda it: f"{_column(it)} must be of the type {_code(it['type_'])}",
    "expect_column_type_to_be": lambda it: f"{_column(it)} must be of the type {_code(it['type_'])}",
    "expect_column_values_to_be_in_type_list": lambda it: (
        f"{_column(it)} must be of one of the types {_items(it['type_list'])}"
    ),
    "expect_column_to_exist": lambda it: f"there must be a column {_column(it)}",
    "expect_column_pair_values_a_to_be_greater_than_b": lambda it: (
        f"{_column(it, 'column_A')} must be greater than {'or equal to ' if it.get('or_equal') else ''}"
        f"{_column(it, 'column_B')}"
    ),
    "expect_column_pair_values_to_be_equal": lambda it: (
        f"{_column(it, 'column_A')} must equal {_column(it, 'column_B')}"
    ),
    "expect_column_pair_values_to_be_in_set": lambda it: (
        f"{_column(it, 'column_A')} and {_column(it, 'column_B')} must be one of the pairs"
        f" {_items(it['value_pairs_set'])}"
    ),
    "expect_multicolumn_sum_to_equal": lambda it: f"{_columns(it)} must add up to {_value(it['sum_total'])}",
    "expect_multicolumn_values_to_be_equal": lambda it: f"{_columns(it)} must be equal",
    "expect_select_column_values_to_be_unique_within_record": lambda it: (
        f"{_columns(it)} must differ from each other in every row"
    ),
    "expect_compound_columns_to_be_unique": lambda it: f"{_columns(it)} together must be there once",
    "expect_table_row_count_to_be_between": lambda it: f"the number of rows {_between(it)}",
    "expect_table_row_count_to_equal": lambda it: f"the number of rows must be {_value(it['value'])}",
    "expect_table_column_count_to_be_between": lambda it: f"the number of columns {_between(it)}",
    "expect_table_column_count_to_equal": lambda it: f"the number of columns must be {_value(it['value'])}",
    "expect_table_columns_to_match_ordered_list": lambda it: (
        f"the columns must be {_items(it['column_list'])}, in this order"
    ),
    "expect_table_columns_to_match_set": lambda it: (
        f"there must be {'at least ' if it.get('exact_match') is False else 'exactly '}the columns"
        f" {_items(it['column_set'])}"
    ),
    "expect_column_max_to_be_between": _of("the largest value of"),
    "expect_column_min_to_be_between": _of("the smallest value of"),
    "expect_column_sum_to_be_between": _of("the sum of"),
    "expect_column_mean_to_be_between": _of("the mean of"),
    "expect_column_median_to_be_between": _of("the median of"),
    "expect_column_stdev_to_be_between": _of("the standard deviation of"),
    "expect_column_unique_value_count_to_be_between": _of("the number of different values of"),
    "expect_column_proportion_of_unique_values_to_be_between": _of("the share of different values of"),
    "expect_column_proportion_of_non_null_values_to_be_between": _of("the share of rows with a value of"),
    "expect_column_distinct_values_to_be_in_set": lambda it: (
        f"the values of {_column(it)} must be some of {_items(it['value_set'])}"
    ),
    "expect_column_distinct_values_to_contain_set": lambda it: (
        f"the values of {_column(it)} must include {_items(it['value_set'])}"
    ),
    "expect_column_distinct_values_to_equal_set": lambda it: (
        f"the values of {_column(it)} must be exactly {_items(it['value_set'])}"
    ),
    "sluice_row_count_against_history": lambda it: _history(it, "the number of rows"),
    "sluice_freshness_against_history": lambda it: _history(it, f"the seconds since the newest {_column(it)}"),
}
