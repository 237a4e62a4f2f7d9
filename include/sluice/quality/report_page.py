"""The report as one HTML file: no script, no address outside of it, light and dark. For people who read no code."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from sluice.quality.report import CheckReport, JudgedRun, QualityReport, Trend, TrendBar

_WORDS = {"pass": "passed", "warn": "passed, with warnings", "fail": "failed"}
_STYLE = """
:root{color-scheme:light dark;--page:#f7f9fa;--card:#fff;--edge:#e3e8eb;--text:#18222a;--quiet:#5c6b77;--good:#1d7a4f;
--warn:#93600a;--bad:#b3302e;--none:#b4bec6;font:15px/1.5 system-ui,-apple-system,"Segoe UI",Arial,sans-serif}
@media(prefers-color-scheme:dark){:root{--page:#0f1418;--card:#171e24;--edge:#27313a;--text:#e2e9ee;--quiet:#93a3b0;
--good:#58c794;--warn:#e6b357;--bad:#f08a85;--none:#55636e}}
*{box-sizing:border-box}body{margin:0;background:var(--page);color:var(--text)}
main{max-width:1040px;margin:0 auto;padding:32px 24px 64px}
h1{margin:0 0 4px;font-size:24px;overflow-wrap:anywhere}h2{margin:32px 0 8px;font-size:14px;color:var(--quiet)}
p{margin:4px 0}small,.quiet{color:var(--quiet);font-size:13px}
code{font:13px ui-monospace,Menlo,Consolas,"DejaVu Sans Mono",monospace;overflow-wrap:anywhere}
.card{background:var(--card);border:1px solid var(--edge);border-radius:10px;overflow-x:auto}
.verdict{padding:16px 20px;border-left:5px solid var(--tone)}.verdict strong{color:var(--tone);font-size:18px}
.good{--tone:var(--good)}.warn{--tone:var(--warn)}.bad{--tone:var(--bad)}.none{--tone:var(--none)}
table{border-collapse:collapse;width:100%}td,th{padding:10px 16px;text-align:left;vertical-align:top;
border-top:1px solid var(--edge)}thead th{border-top:0;font-weight:500;font-size:13px;color:var(--quiet)}
.mark{color:var(--tone);font-weight:600;white-space:nowrap}.number{text-align:right}td.words{overflow-wrap:anywhere}
svg{display:block}p svg{margin-bottom:10px}rect{fill:var(--tone)}
"""


def report_page(report: QualityReport) -> str:
    """The whole file, in UTF-8 by what it says of itself."""
    run = report.run
    name = escape(report.stream)
    lines = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        # Nothing in here loads anything: a name that got past all else could not either.
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
        f"<title>Quality of {name}</title><style>{_STYLE}</style></head><body><main>",
        f"<h1>Quality of {name}</h1>",
        f'<p class="quiet">Run {escape(run.run_id)}, {_moment(run)} UTC{_about(run)}</p>',
        f'<section class="card verdict {report.tone}"><strong>The run {_WORDS.get(run.verdict, "was judged")}</strong>',
        f"<p>{_prose(report.headline)}.</p>",
        *(f"<p>{_prose(remark)}</p>" for remark in report.remarks),
        "</section>",
        *_checks(report),
        *_runs(report),
        "</main></body></html>",
    ]
    return "\n".join(lines) + "\n"


def _checks(report: QualityReport) -> Iterator[str]:
    if not report.checks:
        return
    yield '<h2>Checks</h2><div class="card"><table>'
    yield "<thead><tr><th>What must hold</th><th>What was seen</th><th></th><th>Last runs</th></tr></thead><tbody>"
    for check in report.checks:
        yield f'<tr class="{check.tone}"><td class="words">{_prose(check.rule)}</td>'
        yield f'<td class="words">{_prose(check.finding)}{_consequence(check)}</td>'
        yield f'<td class="mark">{"holds" if check.success else "does not hold"}</td>'
        yield f"<td>{_picture(check.trend)}</td></tr>"
    yield "</tbody></table></div>"


def _consequence(check: CheckReport) -> str:
    return f"<br><small>{escape(check.consequence)}</small>" if check.consequence else ""


def _runs(report: QualityReport) -> Iterator[str]:
    yield f"<h2>Last runs</h2><p>{_picture(report.verdicts)}</p>"
    yield '<div class="card"><table><thead><tr><th>Run</th><th>Began (UTC)</th><th>Verdict</th>'
    yield '<th class="number">Rows</th><th class="number">Left out</th><th class="number">Quarantined</th></tr></thead>'
    yield "<tbody>"
    for run in report.runs:
        tone = {"pass": "good", "warn": "warn", "fail": "bad"}.get(run.verdict, "none")
        by = f" <small>released by {escape(run.released_by)}</small>" if run.released_by else ""
        rows = "?" if run.rows is None else f"{run.rows:,}"
        yield f'<tr class="{tone}"><td><code>{escape(run.run_id)}</code></td><td>{_moment(run)}</td>'
        yield f'<td><span class="mark">{escape(_WORDS.get(run.verdict, run.verdict))}</span>{by}</td>'
        yield f'<td class="number">{rows}</td><td class="number">{run.dropped:,}</td>'
        yield f'<td class="number">{run.quarantined:,}</td></tr>'
    yield "</tbody></table></div>"


def _picture(trend: Trend) -> str:
    said = escape("; ".join(bar.label for bar in trend.bars), quote=True)
    bars = "".join(map(_bar, trend.bars))
    size = f'width="{trend.width}" height="{trend.height}" viewBox="0 0 {trend.width} {trend.height}"'
    return f'<svg {size} role="img" aria-label="{said}">{bars}</svg>'


def _bar(bar: TrendBar) -> str:
    place = f'x="{bar.x}" y="{bar.y}" width="{bar.width}" height="{bar.height}"'
    return f'<rect class="{bar.tone}" {place} rx="1"><title>{escape(bar.label)}</title></rect>'


def _moment(run: JudgedRun) -> str:
    return run.at.strftime("%Y-%m-%d %H:%M:%S")


def _about(run: JudgedRun) -> str:
    suite = f", suite {escape(run.suite)}" if run.suite else ""
    return suite + (f", backfill of {escape(run.interval)}" if run.interval else "")


def _prose(text: str) -> str:
    """A sentence, with what stands between backticks as code."""
    pieces = text.split("`")
    if len(pieces) % 2 == 0:
        return escape(text)
    return "".join(f"<code>{escape(piece)}</code>" if at % 2 else escape(piece) for at, piece in enumerate(pieces))
