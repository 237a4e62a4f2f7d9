"""What holds `docs/coverage.md` to its word: a run of all tests fails if one that the page names has not passed in it.

A failed test fails the run by itself. What would pass in silence is a test that was skipped, or has lost its last case.
Runs of a part of the tests are not asked.
"""

from __future__ import annotations

import pytest

from tests.draw_coverage import systems


def takes_all_tests(config: pytest.Config) -> bool:
    """Whether nothing was left out, and this is the process that hears of every test."""
    option = config.option
    narrowed = (option.keyword, option.markexpr, option.deselect, option.ignore, option.ignore_glob, option.collectonly)
    is_worker = hasattr(config, "workerinput")
    # Named by `testpaths`, as `make test` does; `lf` takes those that failed before.
    return config.args_source is pytest.Config.ArgsSource.TESTPATHS and not (
        is_worker or any(narrowed) or getattr(option, "lf", False)
    )


class Verdicts:
    """Listens to a run of all tests."""

    def __init__(self) -> None:
        self._named = {test for system in systems() for test in system.tests}
        self._passed: set[str] = set()
        self._missing: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed:
            self._passed.add(report.nodeid.partition("[")[0])

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if exitstatus == pytest.ExitCode.OK:
            self._missing = sorted(self._named - self._passed)
        if self._missing:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for test in self._missing:
            terminalreporter.write_line(f"docs/coverage.md says that it passes, and it did not: {test}", red=True)
