"""Java's options for a driver."""

from __future__ import annotations

import pytest

from sluice.spark.java import Work, java_options

MIB = 1024 * 1024
SERIAL, FIRST_TIER = "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"


@pytest.fixture(autouse=True)
def _no_options_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("work", "expected"),
    [
        (Work(0), True),
        (Work(63 * MIB), True),
        (Work(64 * MIB), False),
        (Work(0, batches=64), True),
        (Work(1, batches=64), False),
        (None, False),
    ],
)
def test_the_second_compiler_is_for_much_work(work: Work | None, expected: object) -> None:
    """Bytes and batches count; what nobody knows may be much."""
    assert (FIRST_TIER in java_options("", tasks=2, work=work)) is expected


def test_a_small_plan_needs_no_collector_of_its_own() -> None:
    """However many tasks run at once."""
    assert SERIAL in java_options("", tasks=64, work=Work(0))
    assert SERIAL not in java_options("", tasks=64, work=None)


@pytest.mark.parametrize("variable", [None, "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS"])
def test_no_second_collector(variable: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A JVM that is told of two does not start."""
    chosen = "-XX:+UseParallelGC"
    if variable is not None:
        monkeypatch.setenv(variable, chosen)
    assert SERIAL not in java_options("" if variable else chosen, tasks=2, work=Work(0))


def test_the_projects_options_stay_as_they_are() -> None:
    """Quotes and all, at the end."""
    given = "-Dname='two words' -ea"
    assert java_options(given, tasks=2, work=None).endswith(f" {given}")
