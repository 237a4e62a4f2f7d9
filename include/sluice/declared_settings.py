"""Settings of Spark as somebody writes them: in `[spark.conf]`, or for one stream."""

from __future__ import annotations

import re
from collections.abc import Mapping

from sluice.errors import DeclarationError
from sluice.spark_conf_values import check_name, check_value

DRIVER_MEMORY = "spark.driver.memory"
"""The setting that `Stream(memory=...)` is."""
MEMORY = re.compile(r"[1-9]\d{0,5}[kmgtKMGT]")
"""An amount of memory as Java's options take it."""
MEMORY_REMEDY = 'give a number and a unit, such as "4g" or "900m"'


def check_setting(key: object, value: object, *, place: str) -> None:
    """Refuse a setting that Spark would pass over, or fail of when it starts.

    Raises:
        DeclarationError: It is one; of the value, only what can't be a secret is told.
    """
    if not isinstance(key, str) or not key.startswith("spark."):
        raise DeclarationError(f"unknown setting {key!r}", where=place, remedy="settings of Spark begin with `spark.`")
    if key == "spark.master":
        raise DeclarationError(f"`{key}` can't be set", where=place, remedy="write `master` under [spark]")
    check_name(key, place=place)
    is_memory = isinstance(value, str) and (MEMORY.fullmatch(value) or "$" in value)
    if key == DRIVER_MEMORY and not is_memory:
        raise DeclarationError(f"`{key}` is {value!r}", where=place, remedy=MEMORY_REMEDY)


def setting_text(value: str | float | bool) -> str:  # noqa: FBT001 - it is what somebody gave as a value
    """A value as Spark reads it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def check_values(declared: Mapping[str, str], expanded: Mapping[str, str], *, place: str) -> None:
    """Refuse values that Spark would refuse, once variables of the environment stand for what they say.

    Args:
        declared: The settings as they were written; messages tell of these alone, for a variable may hold a secret.
        expanded: The same with what Spark gets.
        place: Where they were written.

    Raises:
        DeclarationError: There is such a value.
    """
    for key, value in expanded.items():
        check_value(key, value, declared=declared[key], place=place)
