"""The pages' addresses: who may open them, and what they are made from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote, urlencode

from airflow.api_fastapi.auth.managers.models.resource_details import AccessView, DagAccessEntity
from airflow.api_fastapi.core_api.security import requires_access_dag, requires_access_view
from fastapi import Depends, FastAPI, HTTPException, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.exceptions import HTTPException as StarletteHTTPException

from sluice.errors import DeclarationError, SluiceError
from sluice.foreign_code import described, is_failure
from sluice.gate.judged_runs import hold_of
from sluice.gate.state import read_gate, release_gate
from sluice.home import StreamHome
from sluice.runs.record import RunRecord
from sluice.runs.stop import request_stop
from sluice.runs.summary import RunLine
from sluice.stream import Stream
from sluice_airflow.projects import airflow_project
from sluice_airflow.run_keys import parse_run_key
from sluice_airflow.ui import reading, wording
from sluice_airflow.ui.access import Reader, ReaderDep, require_same_origin
from sluice_airflow.ui.backstage import Backstage
from sluice_airflow.ui.dag_tasks import DagTasks, StreamTask, run_keys
from sluice_airflow.ui.guarded_route import GuardedRoute
from sluice_airflow.ui.known_runs import KnownRuns, RunsInMind
from sluice_airflow.ui.lineage_picture import choose, draw, find_readings
from sluice_airflow.ui.next_run import NextRun, hanging, look_ahead
from sluice_airflow.ui.other_projects import other_projects
from sluice_airflow.ui.quality_view import report_on
from sluice_airflow.ui.reading import LeaseOwner, RunFile
from sluice_airflow.ui.rows import Badge, run_line, run_row
from sluice_airflow.ui.run_view import run_page
from sluice_airflow.ui.shown_declarations import shown_declarations
from sluice_airflow.ui.stream_view import stream_page
from sluice_airflow.ui.streams_view import is_found, part_of, stream_row, streams_page, who_needs_somebody

_FOLDER = Path(__file__).parent
_ASSETS = {"sluice.css": "text/css", "sluice.js": "text/javascript"}
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; form-action 'self';"
        " base-uri 'none'; frame-ancestors 'self'"
    ),
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}
_PATIENCE_SECONDS = 0.1
"""How long a page waits for plans; those that are not made by then are shown when it is loaded again."""
_LISTING_PATIENCE_SECONDS = 2.0
"""How long a page waits for what it can't do without: the runs of all streams, which tell who may see them."""
_FRESH_SECONDS = 0.3
"""How long a page waits for them to be listed anew, where it can show what was known before."""
_DEADLINE_SECONDS = 3.0
"""How long it may take to look at a stream before its row says so, and others are looked at in its place."""
_STREAMS_ON_PAGE = 50
_LONGEST_SEARCH = 200
_RUNS_ON_PAGE = 60
_BATCHES_ON_PAGE = 20

_templates = Environment(
    loader=FileSystemLoader(_FOLDER / "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_templates.filters["address"] = partial(quote, safe="")
_templates.filters["pieces"] = wording.code_pieces
_dag_tasks = DagTasks()
_next_runs: Backstage[NextRun] = Backstage(15, deadline_seconds=_DEADLINE_SECONDS, overdue=hanging, threads=8)
_runs = RunsInMind()
_run_lists: Backstage[Mapping[str, KnownRuns]] = Backstage(
    1, deadline_seconds=30, overdue=lambda _seconds: {}, threads=1
)

app = FastAPI(
    title="Sluice",
    docs_url=None,
    redoc_url=None,
    openapi_url=None,
    dependencies=[Depends(requires_access_view(AccessView.PLUGINS))],
)
app.router.route_class = GuardedRoute


SearchParameter = Annotated[str, Query(max_length=_LONGEST_SEARCH)]


@dataclass(frozen=True)
class _Found:
    """A stream that the user may see."""

    stream: Stream
    home: StreamHome
    dag_ids: set[str]
    """The DAGs that run it."""
    error: str
    """Why the runs can't be read, if so."""
    runs: list[RunFile] = field(default_factory=list)
    """The newest runs, where their records were read."""
    lines: tuple[RunLine, ...] = ()
    """What lists tell of the newest runs."""
    streams: Mapping[str, Stream] = field(default_factory=dict)
    """Every stream of the project, as declared just now."""


@app.exception_handler(StarletteHTTPException)
def failed(request: Request, exc: StarletteHTTPException) -> Response:
    """Say what is wrong, as a page with the right status."""
    return _page(
        request,
        "message.html",
        exc.status_code,
        title=_title(exc.status_code),
        message=str(exc.detail),
        is_login=exc.status_code == 401,
    )


@app.exception_handler(RequestValidationError)
def incomplete(request: Request, exc: RequestValidationError) -> Response:
    """Say which part of an address is missing."""
    missing = ", ".join(str(error["loc"][-1]) for error in exc.errors())
    message = f"The address lacks, or has no valid, {missing}."
    return _page(request, "message.html", 422, title=_title(422), message=message, is_login=False)


@app.exception_handler(SluiceError)
def broken(request: Request, exc: SluiceError) -> Response:
    """Say what is wrong with the project, or with what is on disk."""
    return _page(request, "message.html", 500, title="Sluice can't show this", message=str(exc), is_login=False)


@app.get("/")
def all_streams(request: Request, user: ReaderDep, search: SearchParameter = "", page: int = 1) -> Response:
    """The streams that the user may see."""
    return _streams(request, user, None, search, page)


@app.get("/dag", dependencies=[Depends(requires_access_dag("GET", DagAccessEntity.RUN))])
def streams_of_dag(
    request: Request, user: ReaderDep, dag_id: str, search: SearchParameter = "", page: int = 1
) -> Response:
    """The streams that a DAG runs."""
    _check_is_shown(dag_id)
    return _streams(request, user, dag_id, search, page)


@app.get("/streams/{name}")
def one_stream(request: Request, user: ReaderDep, name: str) -> Response:
    """One stream."""
    now = datetime.now(UTC)
    found = _find(user, name)
    look = partial(look_ahead, airflow_project(), found.stream, found.home, now, found.streams)
    next_run = _next_runs.get({name: look}, _PATIENCE_SECONDS).get(name)
    errors: list[str] = []
    generation = _try(errors, found.home.current_generation)
    generations, damaged = _try(errors, partial(reading.read_generations, found.home)) or ([], [])
    errors += damaged
    hold = hold_of(_try(errors, partial(read_gate, found.home)))
    row = stream_row(name, [run_line(run) for run in found.runs], next_run, now, hold=hold, error=found.error)
    page = stream_page(
        found.stream,
        row,
        runs=found.runs,
        next_run=next_run,
        batches=_try(errors, partial(reading.read_batches, found.home, generation or 1, _BATCHES_ON_PAGE)) or [],
        generations=generations,
        lease=_try(errors, partial(reading.read_lease, found.home, found.home.lease_folder(generation or 1), now)),
        skip=reading.read_skip(found.home),
        hold=hold,
        errors=errors,
        now=now,
    )
    may_release = page.is_releasable and user.may_change(found.dag_ids)
    refresh = 2 if row.is_pending else 5 if row.running else None
    return _page(request, "stream.html", page=page, may_release=may_release, refresh=refresh)


@app.post("/streams/{name}/release", dependencies=[Depends(require_same_origin)])
def release_stream(request: Request, user: ReaderDep, name: str) -> Response:
    """Let a batch through that quality has blocked, or a stream go on that it holds."""
    found = _find(user, name)
    if not user.may_change(found.dag_ids):
        raise HTTPException(403, "You may not release this stream: that takes the right to edit the DAGs that run it.")
    if release_gate(found.home, user.name, datetime.now(UTC)) is None:
        raise HTTPException(409, "Nothing is blocked or held: there is nothing to release.")
    return RedirectResponse(f"{_root(request)}/streams/{quote(name, safe='')}", 303)


@app.get("/streams/{name}/runs/{run_id}")
def one_run(request: Request, user: ReaderDep, name: str, run_id: str) -> Response:
    """One run."""
    found = _find(user, name)
    run = _run(user, found, run_id)
    now = datetime.now(UTC)
    owner = _owner(found.home, run.record, now) if run.record else None
    page = run_page(
        name,
        run,
        reading.read_stop(found.home, run_id),
        now,
        owner=owner,
        is_visible=partial(_is_visible, user),
        quality=report_on(name, run, found.runs),
    )
    may_stop = page.is_active and user.may_stop(page.key.dag_id if page.key else None)
    return _page(request, "run.html", page=page, may_stop=may_stop, refresh=2 if page.is_active else None)


@app.post("/streams/{name}/runs/{run_id}/stop", dependencies=[Depends(require_same_origin)])
def stop_run(request: Request, user: ReaderDep, name: str, run_id: str) -> Response:
    """Ask a run to end."""
    found = _find(user, name)
    run = _run(user, found, run_id)
    key = parse_run_key(run.record.run_key) if run.record else None
    if not user.may_stop(key.dag_id if key else None):
        raise HTTPException(403, "You may not stop runs of this DAG.")
    if run.record is None or run.record.status not in {"planned", "running"}:
        raise HTTPException(409, "This run is not going on: there is nothing to stop.")
    request_stop(found.home, run_id, requested_by=user.name, now=datetime.now(UTC))
    return RedirectResponse(f"{_root(request)}/streams/{quote(name, safe='')}/runs/{run_id}", 303)


@app.get("/runs", dependencies=[Depends(requires_access_dag("GET", DagAccessEntity.RUN))])
def runs_of_task(  # noqa: PLR0917 - what Airflow's links carry
    request: Request, user: ReaderDep, dag_id: str, run_id: str, task_id: str = "", map_index: str = ""
) -> Response:
    """The runs that a DAG run, or one of its tasks, asked for; straight to the run where there is just one."""
    now = datetime.now(UTC)
    # Airflow leaves `{MAP_INDEX}` as it is where there is none.
    index = int(map_index) if map_index.isdecimal() else None
    _check_is_shown(dag_id)
    tasks = [task for task in _own_tasks() if task.dag_id == dag_id and task_id in {"", task.task_id}]
    asked = {task_id, *(task.key_task_id for task in tasks)} if task_id else {None}
    keys = {str(key) for asked_id in asked for key in run_keys(dag_id, run_id, asked_id, index)}
    rows = [run_row(name, run, now) for name, run in _find_runs(_visible(user)[0], keys, tasks)]
    if task_id and len(rows) == 1:
        return RedirectResponse(f"{_root(request)}/streams/{quote(rows[0].stream, safe='')}/runs/{rows[0].run_id}", 303)
    return _page(request, "runs.html", rows=rows, dag_id=dag_id, run_id=run_id, task_id=task_id)


@app.get("/static/{name}")
def asset(name: str) -> Response:
    """The style sheet, and the script that follows Airflow's theme."""
    if name not in _ASSETS:
        raise HTTPException(404, "There is no such file.")
    headers = {**_HEADERS, "Cache-Control": "private, max-age=300"}
    return Response((_FOLDER / "static" / name).read_bytes(), media_type=_ASSETS[name], headers=headers)


def _own_tasks() -> list[StreamTask]:
    """The tasks that run streams of the project that is shown."""
    tasks = _dag_tasks.all()
    others = other_projects(tasks, airflow_project())
    return [task for task in tasks if task not in others]


def _check_is_shown(dag_id: str) -> None:
    """Say so where all that a DAG runs are streams of another project, which may have the names of those shown here."""
    shown = airflow_project()
    tasks = [task for task in _dag_tasks.all() if task.dag_id == dag_id]
    others = other_projects(tasks, shown)
    if others and len(others) == len(set(tasks)):
        other = next(iter(others.values()))
        raise HTTPException(
            404,
            f"This DAG belongs to another project: {wording.short(other.name)} in {other.root}. These pages show"
            f" {wording.short(shown.name)} in {shown.root}, the project of the api-server (SLUICE_PROJECT). Of the"
            " other one, `sluice list` and `sluice runs` tell, run in its folder.",
        )


def _find_runs(visible: Mapping[str, _Found], keys: set[str], tasks: Sequence[StreamTask]) -> list[tuple[str, RunFile]]:
    """The runs that bear one of these keys, by stream.

    However old in the streams that the tasks name; elsewhere among those that lists show, for a template may have named
    another stream, and a task may have named another one then. To look through all streams takes a listing of each.
    """
    named = {task.stream for task in tasks}
    near = [name for name, it in visible.items() if name in named or any(line.run_key in keys for line in it.lines)]
    return [(name, run) for name in near for run in reading.find_runs(visible[name].home, keys)]


def _streams(request: Request, user: Reader, dag_id: str | None, search: str, number: int) -> Response:
    now = datetime.now(UTC)
    visible, errors = _visible(user, dag_id)
    words = search.split()
    found = {name: it for name, it in visible.items() if is_found(words, _searched(it))}
    runs = {name: it.lines for name, it in found.items()}
    part = part_of(runs, search=" ".join(words), number=number, length=_STREAMS_ON_PAGE)
    readings = find_readings({name: it.stream for name, it in visible.items()})
    hits = found.keys() if words else None
    drawn = choose(readings, hits, who_needs_somebody(runs))
    shown = {name: visible[name] for name in dict.fromkeys((*part.names, *drawn))}
    project = airflow_project()
    jobs = {name: partial(look_ahead, project, it.stream, it.home, now, it.streams) for name, it in shown.items()}
    next_runs = _next_runs.get(jobs, _PATIENCE_SECONDS)
    rows = {}
    for name, it in shown.items():
        next_run = next_runs.get(name)
        hold = next_run.hold if next_run else None
        rows[name] = stream_row(name, it.lines, next_run, now, hold=hold, error=it.error)
    verdicts = {name: Badge("error", "bad") if row.error else row.verdict for name, row in rows.items()}
    picture = draw(readings, drawn, found=hits, verdicts=verdicts, next_runs=next_runs, now=now) if readings else None
    page = streams_page([rows[name] for name in part.names], part, errors if user.sees_import_errors else [])
    is_pending = any(row.is_pending for row in rows.values())
    refresh = 1 if is_pending else 3 if any(row.running for row in rows.values()) else 30
    base = f"{_root(request)}{'/dag' if dag_id else '/'}"
    given = {"dag_id": dag_id, "search": part.search}

    def page_link(to: int) -> str:
        return f"{base}?{urlencode({name: value for name, value in given.items() if value} | {'page': to})}"

    return _page(
        request,
        "streams.html",
        page=page,
        picture=picture,
        dag_id=dag_id,
        page_link=page_link,
        longest_search=_LONGEST_SEARCH,
        refresh=refresh,
    )


def _searched(found: _Found) -> Iterator[str]:
    """What a search looks at: the stream's name, the DAGs that run it, what it reads and writes."""
    yield found.stream.name
    yield from found.dag_ids
    for name, source in found.stream.sources.items():
        yield name
        yield source.location
    yield found.stream.sink.location or ""


def _visible(user: Reader, dag_id: str | None = None) -> tuple[dict[str, _Found], list[tuple[str, DeclarationError]]]:
    """The streams that the user may see, and what is wrong with other declarations, by file."""
    project = airflow_project()
    declarations = shown_declarations(project)
    streams = declarations.usable()
    declared: dict[str | None, set[str]] = {}
    for task in _own_tasks():
        declared.setdefault(task.stream, set()).add(task.dag_id)
    homes = project.stream_homes(streams.values())
    patience = _FRESH_SECONDS if _runs.knows(homes.values()) else _LISTING_PATIENCE_SECONDS
    listed = _run_lists.get({project.home: partial(_runs.all, homes)}, patience).get(project.home, {})
    visible = {}
    for name, stream in streams.items():
        runs = listed.get(name) or _runs.last_known(homes[name])
        dag_ids = declared.get(name, set()) | _dag_ids(runs.lines)
        if _may_see(user, dag_ids, is_known=not runs.error) and (dag_id is None or dag_id in dag_ids):
            visible[name] = _Found(stream, homes[name], dag_ids, runs.error, lines=runs.lines, streams=streams)
    return visible, declarations.errors()


def _find(user: Reader, name: str) -> _Found:
    """One stream; what the user may not see does not exist for them."""
    project = airflow_project()
    streams = shown_declarations(project).usable()
    if name not in streams:
        raise HTTPException(404, f"There is no stream {wording.short(name)} that you may see.")
    home = project.stream_home(streams[name])
    try:
        runs, error = reading.read_runs(home, _RUNS_ON_PAGE), ""
    except SluiceError as exc:
        runs, error = [], str(exc)
    dag_ids = {task.dag_id for task in _own_tasks() if task.stream == name} | _dag_ids(map(run_line, runs))
    if not _may_see(user, dag_ids, is_known=not error):
        raise HTTPException(404, f"There is no stream {wording.short(name)} that you may see.")
    return _Found(streams[name], home, dag_ids, error, runs, streams=streams)


def _is_visible(user: Reader, name: str) -> bool:
    """Whether there is a stream of this name that the user may see."""
    try:
        _find(user, name)
    except HTTPException:
        return False
    return True


def _may_see(user: Reader, dag_ids: set[str], *, is_known: bool) -> bool:
    """Whether the user may see a stream; which DAGs run it may not be known without its records."""
    return user.may_read(dag_ids) and (is_known or bool(dag_ids) or user.reads_all)


def _run(user: Reader, found: _Found, run_id: str) -> RunFile:
    """One run; also one that is older than those by which the stream's DAGs are known."""
    run = reading.read_run(found.home, run_id)
    if run is None or not user.may_read(_dag_ids([run_line(run)])):
        raise HTTPException(404, f"There is no run {wording.short(run_id)} of {found.stream.name} that you may see.")
    return run


def _owner(home: StreamHome, record: RunRecord, now: datetime) -> LeaseOwner | None:
    """Who has the lease that a run needs: its generation, or the interval that it backfills."""

    def read() -> LeaseOwner | None:
        interval = record.interval
        if interval is None:
            return reading.read_lease(home, home.lease_folder(record.generation), now)
        return reading.read_lease(home, home.interval_lease_folder(interval.start, interval.end), now)

    owner: LeaseOwner | None = _try([], read)
    return owner


def _dag_ids(runs: Iterable[RunLine]) -> set[str]:
    keys = [parse_run_key(run.run_key) for run in runs]
    return {key.dag_id for key in keys if key is not None}


def _try(errors: list[str], read: Callable[[], Any]) -> Any:
    """What was read; None, and a line on the page, where that fails."""
    try:
        return read()
    except BaseException as exc:
        if not is_failure(exc):
            raise
        errors.append(str(exc) if isinstance(exc, SluiceError) else described(exc))
        return None


def _page(request: Request, template: str, status_code: int = 200, **context: Any) -> Response:
    root = _root(request)
    content = _templates.get_template(template).render(
        {"root": root, "airflow": root.removesuffix("/sluice"), "refresh": None, **context}
    )
    return HTMLResponse(content, status_code, headers=_HEADERS)


def _root(request: Request) -> str:
    return str(request.scope.get("root_path", ""))


def _title(status_code: int) -> str:
    return {401: "Please log in", 403: "Not allowed", 404: "Not found"}.get(status_code, "Not possible")
