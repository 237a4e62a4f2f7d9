"""What the pages show of quality: the same report as the page of its own, from records that are only files."""

from __future__ import annotations

from collections.abc import Sequence

from sluice.gate.judged_runs import judged_run
from sluice.quality.report import JudgedRun, QualityReport, quality_report
from sluice_airflow.ui.reading import RunFile


def newest_report(stream: str, runs: Sequence[RunFile]) -> QualityReport | None:
    """The report on the newest run that was judged; None when none of them was.

    Args:
        stream: The stream.
        runs: Its runs, newest first.
    """
    judged = [found for run in runs if (found := _judged(run)) is not None]
    return quality_report(stream, judged, None) if judged else None


def report_on(stream: str, run: RunFile, runs: Sequence[RunFile]) -> QualityReport | None:
    """The report on a run; None when it was not judged.

    Args:
        stream: The stream.
        run: The run, perhaps older than those of the list.
        runs: The stream's newest runs, newest first, for trends.
    """
    before = [earlier for earlier in runs if earlier.run_id < run.run_id]
    return newest_report(stream, [run, *before]) if _judged(run) is not None else None


def _judged(run: RunFile) -> JudgedRun | None:
    return judged_run(run.record) if run.record is not None and run.record.quality is not None else None
