"""Every address of the pages, asked for by nobody, by a viewer and by an editor, at a real api-server."""

from __future__ import annotations

import json
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.browser.api_server import Answer, ApiServer
from tests.browser.showcase import HOSTILE, RUN_ID, Showcase

pytestmark = [pytest.mark.airflow]

READ, STOP = "GET", "POST"
FAILED = "was published has failed, and the stream is held"
ROUTES = {
    (READ, "/"): "/",
    (READ, "/dag"): "/dag?dag_id=flights",
    (READ, "/streams/{name}"): "/streams/hourly",
    (READ, "/streams/{name}/runs/{run_id}"): "/streams/hourly/runs/{hourly}",
    (READ, "/runs"): "/runs?dag_id=flights&run_id=nothing",
    (READ, "/static/{name}"): "/static/sluice.css",
    (STOP, "/streams/{name}/runs/{run_id}/stop"): "/streams/hourly/runs/{hourly}/stop",
    (STOP, "/streams/{name}/release"): "/streams/reports/release",
}
"""Every route of the app, and an address that it answers."""


HANGING = """
from dataclasses import dataclass
from threading import Event
from sluice import Stream, sinks, sources
from sluice.sources.files.source import FilesSource

@dataclass(frozen=True)
class Hanging(FilesSource):
    def available(self, *arguments, **named):
        Event().wait()

for number in range(12):
    name = f"hanging{number:02}"
    numbers = Hanging(**vars(sources.files("landing-of-hanging", format="json", schema="n bigint")))
    globals()[name] = Stream(
        name=name, transform="showcase_jobs:anything", sink=sinks.noop(), sources={"numbers": numbers}
    )
"""
"""A file of streams whose only source never answers, as that of a share whose server is away."""


@pytest.fixture
def addresses(showcase: Showcase) -> dict[tuple[str, str], str]:
    """An address for every route."""
    hourly = showcase.newest("hourly").run_id
    return {route: f"/sluice{path.format(hourly=hourly)}" for route, path in ROUTES.items()}


def counts(body: str, texts: Iterable[str]) -> dict[str, int]:
    """How often a page has each of some texts."""
    return {text: body.count(text) for text in texts}


def from_here(server: ApiServer, path: str, user: str | None) -> Answer:
    """A POST as a page of this Airflow sends it."""
    return server.request(STOP, path, user, Origin=server.url)


def test_the_table_has_every_route(server: ApiServer) -> None:
    """A new route is added to the table above, and so to the tests below; none of them is documentation."""
    listed = server.run(
        "import json; from sluice_airflow.ui.app import app;"
        "print(json.dumps([[method, route.path] for route in app.routes for method in route.methods]))"
    )
    routes = {(method, path) for method, path in json.loads(listed.splitlines()[-1]) if method != "HEAD"}
    assert routes == set(ROUTES)


def test_nobody_sees_anything(server: ApiServer, addresses: dict[tuple[str, str], str]) -> None:
    """Without a login, every route answers 401, and names no stream."""
    answers = {
        address: server.request(method, address, Origin=server.url) for (method, _), address in addresses.items()
    }

    assert {address: answer.status for address, answer in answers.items()} == dict.fromkeys(answers, 401)
    assert not [answer for answer in answers.values() if "departures" in answer.body or "2 of 5" in answer.body]


def test_a_wrong_token_is_no_login(server: ApiServer) -> None:
    """A token that Airflow did not sign is refused."""
    assert server.request(READ, "/sluice/", Cookie="_token=eyJhbGciOiJub25lIn0.e30.").status in {401, 403}


def test_a_viewer_reads(server: ApiServer, addresses: dict[tuple[str, str], str]) -> None:
    """Who may only look gets every page, and may not stop a run, nor sees the button for it."""
    answers = {route: server.request(route[0], path, "vera", Origin=server.url) for route, path in addresses.items()}

    assert {route: answer.status for route, answer in answers.items()} == {
        route: 403 if route[0] == STOP else 200 for route in ROUTES
    }
    assert "Stop this run" not in answers[READ, "/streams/{name}/runs/{run_id}"].body


def test_pages_are_pages(server: ApiServer, addresses: dict[tuple[str, str], str]) -> None:
    """They are ours, not Airflow's answer to addresses that it does not know, and no browser runs what is not ours."""
    for method, path in ROUTES:
        if method == READ and path != "/static/{name}":
            answer = server.get(addresses[method, path], "eric")
            assert "· Sluice</title>" in answer.body, path
            assert "script-src 'self'" in answer.headers["content-security-policy"], path
            assert answer.headers["cache-control"] == "no-store", path


@pytest.mark.parametrize("path", ["/docs", "/redoc", "/openapi.json", "/nothing"])
def test_there_is_nothing_else(server: ApiServer, path: str) -> None:
    """The app does not describe itself."""
    assert server.get(f"/sluice{path}", "anna").status == 404


@pytest.mark.parametrize("name", ["..%2Fapp.py", "app.py", "..%2F..%2Fplugin.py", "sluice.css%00"])
def test_only_our_assets_are_served(server: ApiServer, name: str) -> None:
    """No other file of the disk has an address."""
    assert server.get(f"/sluice/static/{name}", "anna").status == 404


@pytest.mark.parametrize("run_id", ["..%2F..%2Fcurrent", "20260131T120000000Z-00000000", "x", "%2e%2e"])
def test_a_run_that_is_none(server: ApiServer, run_id: str) -> None:
    """What is no run's name names no file."""
    assert server.get(f"/sluice/streams/departures/runs/{run_id}", "anna").status == 404


def test_a_stream_of_a_dag_that_one_may_not_read_does_not_exist(server: ApiServer, showcase: Showcase) -> None:
    """The stream of a private DAG is in no list, and its pages answer as those of a stream that is not there."""
    run_id = showcase.newest("payroll").run_id
    before = showcase.stop("payroll", run_id)

    assert "payroll" not in server.get("/sluice/", "eric").body
    assert "payroll" in server.get("/sluice/", "anna").body
    assert server.get("/sluice/dag?dag_id=payroll", "eric").status == 403
    for path in ("/streams/payroll", f"/streams/payroll/runs/{run_id}"):
        hidden, missing = (
            server.get(f"/sluice{path}".replace("payroll", name), "eric") for name in ("payroll", "absent")
        )
        assert (hidden.status, missing.status) == (404, 404)
        assert hidden.body == missing.body.replace("absent", "payroll")
    assert from_here(server, f"/sluice/streams/payroll/runs/{run_id}/stop", "eric").status == 404
    assert showcase.stop("payroll", run_id) == before


@pytest.mark.parametrize("user", ["eric", "vera"])
def test_a_stream_of_a_decorated_task_is_as_private_as_its_dag(server: ApiServer, user: str) -> None:
    """It never ran, so that only the task, which `@task.stream` made, tells which DAG is to run it."""
    assert server.get("/sluice/streams/bonuses", "anna").status == 200
    assert "bonuses" in server.get("/sluice/dag?dag_id=payroll", "anna").body
    assert server.get("/sluice/streams/bonuses", user).status == 404
    assert "bonuses" not in server.get("/sluice/", user).body


def test_a_search_finds_what_one_may_see(server: ApiServer) -> None:
    """By name, by DAG, by what is read; nothing of what is hidden, and what was searched for is text."""
    found = {search: server.get(f"/sluice/?search={search}", "eric").body for search in ("HOUR", "flights", "payroll")}

    row = 'class="name" href="/sluice/streams/{}"'.format
    assert row("hourly") in found["HOUR"]
    assert row("departures") not in found["HOUR"]
    assert row("departures") in found["flights"]
    assert "No stream that you may see" in found["payroll"]
    assert "1 stream found" in server.get("/sluice/dag?dag_id=payroll&search=bonus", "anna").body
    hostile = server.get(f"/sluice/?search={quote(HOSTILE)}", "eric")
    assert (hostile.status, HOSTILE in hostile.body) == (200, False)


def test_sources_that_hang_cost_their_own_rows_only(server: ApiServer, showcase: Showcase) -> None:
    """More of them than there are threads to look: each row says so, and every other row has its plan."""
    declaration = showcase.root / "streams" / "hanging.py"
    declaration.write_text(HANGING)
    seen = {">no answer<": 12, ">planning<": 0, "3 new files": 1}
    try:
        # All of it in one answer: on a slow machine, another row may be late for a while, too.
        server.until(lambda: counts(server.get("/sluice/", "eric").body, seen) == seen)
    finally:
        declaration.unlink()


def test_a_declaration_that_hangs_keeps_no_page_waiting(server: ApiServer, showcase: Showcase) -> None:
    """It is imported once, however many pages want it: more of them than the server has threads. Airflow's go on."""
    declaration = showcase.root / "streams" / "waiting.py"
    declaration.write_text("import pathlib, time\nwhile pathlib.Path(__file__).exists():\n    time.sleep(0.1)\n")
    try:
        with ThreadPoolExecutor(60) as people:
            answers = [*people.map(lambda _: server.get("/sluice/", "anna"), range(60))]
        told = server.get("/sluice/", "anna").body
        assert {answer.status for answer in answers} == {200}
        assert "/streams/departures" in told
        assert "the declaration is being imported, and has not come back for" in told
        assert f"<code>{declaration}</code>" in told
        assert server.get("/sluice/streams/departures", "anna").status == 200
        assert server.get("/api/v2/monitor/health", None).status == 200
    finally:
        declaration.unlink()


@pytest.mark.parametrize(
    ("query", "status"), [("page=99", 200), ("page=-1", 200), ("page=x", 422), (f"search={'x' * 201}", 422)]
)
def test_a_list_answers_whatever_its_address_says(server: ApiServer, query: str, status: int) -> None:
    """A page that is not there is the nearest; what is no page, or too long to search for, is said."""
    assert server.get(f"/sluice/?{query}", "eric").status == status


def test_a_viewer_releases_nothing(server: ApiServer, showcase: Showcase) -> None:
    """Who may only look sees what is held and why, and no button."""
    page = "/sluice/streams/reports"

    assert FAILED in server.get(page, "vera").body
    assert "Release it" not in server.get(page, "vera").body
    assert from_here(server, f"{page}/release", "vera").status == 403
    assert from_here(server, "/sluice/streams/payroll/release", "eric").status == 404
    assert showcase.is_held("reports")


def test_an_editor_releases_a_stream(server: ApiServer, showcase: Showcase) -> None:
    """Once: then there is nothing more to release, and the page says nothing of it."""
    page = "/sluice/streams/reports"
    try:
        assert "Release it" in server.get(page, "eric").body
        assert [from_here(server, f"{page}/release", "eric").status for _ in range(2)] == [303, 409]
        assert not showcase.is_held("reports")
        assert FAILED not in server.get(page, "eric").body
    finally:
        showcase.hold("reports")


def test_a_stream_that_no_dag_runs_is_released_by_those_who_may_edit_all(server: ApiServer, showcase: Showcase) -> None:
    """Nobody can tell whose it is."""
    run_id = showcase.start("fresh", run_key=None)
    showcase.hold("fresh")
    try:
        answers = [from_here(server, "/sluice/streams/fresh/release", user).status for user in ("vera", "eric", "anna")]
        assert answers == [403, 403, 303]
    finally:
        showcase.forget("fresh", run_id)


@pytest.mark.parametrize("headers", [{}, {"Origin": "https://elsewhere.example"}, {"Sec_Fetch_Site": "cross-site"}])
def test_another_site_releases_nothing(server: ApiServer, showcase: Showcase, headers: dict[str, str]) -> None:
    """As it stops nothing."""
    assert server.request(STOP, "/sluice/streams/reports/release", "anna", **headers).status == 403
    assert showcase.is_held("reports")


def test_a_damaged_gate_is_said(server: ApiServer, showcase: Showcase) -> None:
    """The stream's page is there all the same, in the list and on its own."""
    gate = Path(showcase.home("reports").gate_file())
    gate.write_text(f'{{"format": 1, "state": "{HOSTILE}"')
    try:
        answer = server.get("/sluice/streams/reports", "anna")
        assert (answer.status, "gate.json" in answer.body, HOSTILE in answer.body) == (200, True, False)
        assert from_here(server, "/sluice/streams/reports/release", "anna").status == 500
    finally:
        showcase.hold("reports")


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Origin": "https://elsewhere.example"},
        {"Origin": "null"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
        {"Sec_Fetch_Site": "none"},
    ],
)
def test_another_site_stops_nothing(server: ApiServer, showcase: Showcase, headers: dict[str, str]) -> None:
    """A browser would send the cookie of a user who may stop the run along with another page's form."""
    run_id = showcase.newest("departures").run_id
    answer = server.request(STOP, f"/sluice/streams/departures/runs/{run_id}/stop", "anna", **headers)

    assert answer.status == 403
    assert "does not come from a page of this Airflow" in answer.body


def test_a_backfill_names_downstream_streams_that_one_may_see(server: ApiServer, showcase: Showcase) -> None:
    """Of the others, only how many there are."""
    page = f"/sluice/streams/reports/runs/{showcase.newest('reports').run_id}"
    seen = {user: server.get(page, user).body for user in ("anna", "vera")}

    assert all("/streams/hourly" in body for body in seen.values())
    assert "payroll" in seen["anna"]
    assert "payroll" not in seen["vera"]
    assert "1 that you may not see" in seen["vera"]
    assert not [body for body in seen.values() if "driver of this" in body]


def test_a_run_that_has_ended_is_not_stopped(server: ApiServer, showcase: Showcase) -> None:
    """There is nothing to stop, and no request is left behind."""
    run_id = showcase.newest("departures").run_id

    assert from_here(server, f"/sluice/streams/departures/runs/{run_id}/stop", "eric").status == 409
    assert showcase.stop("departures", run_id) is None


def test_an_editor_stops_a_run(server: ApiServer, showcase: Showcase) -> None:
    """The request is left in the home, with the user's name, and the page says so; a second one changes nothing."""
    run_id = showcase.newest("payroll").run_id
    page = f"/sluice/streams/payroll/runs/{run_id}"

    assert "Stop this run" in server.get(page, "anna").body
    assert [from_here(server, f"{page}/stop", "anna").status for _ in range(2)] == [303, 303]
    request = showcase.stop("payroll", run_id)
    assert request is not None
    assert request.requested_by == "anna"
    assert "anna asked it to stop" in server.get(page, "anna").body
    assert "Stop this run" not in server.get(page, "anna").body


def test_a_run_that_no_dag_asked_for(server: ApiServer, showcase: Showcase) -> None:
    """The command line started it: it is stopped by those who may edit the runs of all DAGs."""
    run_id = showcase.start("fresh", run_key=None)
    page = f"/sluice/streams/fresh/runs/{run_id}"
    try:
        assert [from_here(server, f"{page}/stop", user).status for user in ("vera", "eric")] == [403, 403]
        assert showcase.stop("fresh", run_id) is None
        assert from_here(server, f"{page}/stop", "anna").status == 303
        assert showcase.stop("fresh", run_id) is not None
    finally:
        showcase.forget("fresh", run_id)


def test_records_that_can_not_be_listed(server: ApiServer, showcase: Showcase) -> None:
    """Nobody can tell the stream's DAGs: it is shown, with the error, to those who may read all DAGs."""
    runs = Path(showcase.home("fresh").runs_folder())
    runs.rmdir() if runs.exists() else runs.parent.mkdir(parents=True, exist_ok=True)
    runs.symlink_to(runs)
    try:
        shown = {user: server.get("/sluice/streams/fresh", user) for user in ("anna", "eric")}
        assert {user: answer.status for user, answer in shown.items()} == {"anna": 200, "eric": 404}
        assert "could not list it" in shown["anna"].body
        # The list keeps what it has read for a few seconds.
        server.until(lambda: "could not look at it" in server.get("/sluice/", "anna").body)
        assert "/streams/fresh" not in server.get("/sluice/", "eric").body
    finally:
        runs.unlink()


def test_an_old_run_of_a_private_dag(server: ApiServer, showcase: Showcase) -> None:
    """The stream's DAGs are those of its newest runs; an older run of another DAG is checked by itself."""
    old = showcase.start("fresh", run_key="payroll/once/fresh/-1/0")
    newer = [showcase.start("fresh", run_key=None) for _ in range(60)]
    try:
        assert [server.get(f"/sluice/streams/fresh/runs/{run}", "eric").status for run in (old, newer[0])] == [404, 200]
        assert from_here(server, f"/sluice/streams/fresh/runs/{old}/stop", "eric").status == 404
        assert server.get(f"/sluice/streams/fresh/runs/{old}", "anna").status == 200
    finally:
        for run_id in (old, *newer):
            showcase.forget("fresh", run_id)


def test_a_task_leads_to_its_run(server: ApiServer, showcase: Showcase) -> None:
    """Airflow's tab at a task instance goes to the one run; `{MAP_INDEX}` stays as it is for unmapped tasks."""
    server.trigger("flights", RUN_ID)
    asked = f"/sluice/runs?dag_id=flights&run_id={RUN_ID.replace('+', '%2B')}&task_id=hourly&map_index=%7BMAP_INDEX%7D"
    answer = server.get(asked, "vera")

    assert answer.status == 303
    assert answer.headers["location"] == f"/sluice/streams/hourly/runs/{showcase.newest('hourly').run_id}"


def test_a_dag_run_lists_its_runs(server: ApiServer, showcase: Showcase) -> None:
    """Airflow's tab at a DAG run."""
    server.trigger("flights", RUN_ID)
    answer = server.get(f"/sluice/runs?dag_id=flights&run_id={RUN_ID.replace('+', '%2B')}", "vera")

    assert showcase.newest("hourly").run_id in answer.body


def test_a_task_that_was_cleared_late_leads_to_its_run(server: ApiServer, showcase: Showcase) -> None:
    """After 30 tries of a task with retries, a clear makes generation 30; Airflow's database tells how far they go."""
    server.trigger("flights", "often")
    asked = "/sluice/runs?dag_id=flights&run_id=often&task_id=reports"
    run_id = showcase.start("reports", run_key="flights/often/reports/-1/30")
    try:
        assert "no run of a stream to show" in server.get(asked, "vera").body
        server.run(
            "from airflow.models.taskinstance import TaskInstance as T\n"
            "from airflow.utils.session import create_session\n"
            "with create_session() as session:\n"
            "    session.query(T).filter_by(run_id='often', task_id='reports').update({'max_tries': 33})"
        )
        assert server.get(asked, "vera").headers["location"] == f"/sluice/streams/reports/runs/{run_id}"
    finally:
        showcase.forget("reports", run_id)


@pytest.mark.parametrize("path", ["/dag?dag_id=elsewhere", "/runs?dag_id=elsewhere&run_id=x&task_id=departures"])
def test_a_dag_of_another_project(server: ApiServer, showcase: Showcase, path: str) -> None:
    """Its stream is called like one that the pages show, and is none of them: it is said which project is shown."""
    answer = server.get(f"/sluice{path}", "vera")

    assert answer.status == 404
    assert f"This DAG belongs to another project: other in {showcase.dags / 'elsewhere'}." in answer.body
    assert f"These pages show showcase in {showcase.root}" in answer.body
    assert "/streams/departures" not in answer.body
    assert "No stream that you may see has" in server.get("/sluice/?search=elsewhere", "vera").body


@pytest.mark.parametrize(("path", "missing"), [("/runs?dag_id=flights", "run_id"), ("/dag", "dag_id")])
def test_an_incomplete_address(server: ApiServer, path: str, missing: str) -> None:
    """It is told what it lacks, as a page."""
    answer = server.get(f"/sluice{path}", "vera")

    assert answer.status == 422
    assert f"has no valid, {missing}" in answer.body


def test_a_task_without_a_stream(server: ApiServer) -> None:
    """Airflow shows the tab at every task: it says that there is nothing to show."""
    answer = server.get("/sluice/runs?dag_id=flights&run_id=x&task_id=other", "vera")

    assert answer.status == 200
    assert "no run of a stream to show" in answer.body


def test_what_is_broken_is_said_in_its_place(server: ApiServer) -> None:
    """A damaged checkpoint, record, generation and declaration hide nothing else, and come out as text."""
    streams, torn = server.get("/sluice/", "anna"), server.get("/sluice/streams/torn", "anna")

    assert (streams.status, torn.status) == (200, 200)
    assert "FILE_DAMAGED" in torn.body
    assert "0002.json" in torn.body
    assert "broken.py" in streams.body
    assert "departures" in streams.body


def test_nothing_from_disk_becomes_markup(server: ApiServer, showcase: Showcase) -> None:
    """What declarations, records and checkpoints say is escaped wherever it is shown."""
    failed = next(run for run in showcase.runs("departures") if run.error)
    shown = [
        server.get(path, "anna").body
        for path in ("/sluice/", "/sluice/streams/departures", f"/sluice/streams/departures/runs/{failed.run_id}")
    ]

    assert all(HOSTILE not in body for body in shown)
    assert all("&lt;script&gt;alert(1)&lt;/script&gt;" in body for body in shown)


def test_airflow_knows_the_plugin(server: ApiServer) -> None:
    """It is registered once, without an import error, and each place in the UI leads to an address of ours."""
    errors = json.loads(server.get("/api/v2/plugins/importErrors", "anna").body)
    plugins = json.loads(server.get("/api/v2/plugins", "anna").body)["plugins"]
    ours = [plugin for plugin in plugins if plugin["name"] == "sluice"]

    assert errors["total_entries"] == 0
    assert len(ours) == 1
    assert {view["destination"] for view in ours[0]["external_views"]} == {"nav", "dag", "dag_run", "task_instance"}
    assert {f"/{view['href'].partition('?')[0]}" for view in ours[0]["external_views"]} <= {
        f"/sluice{path}" for _, path in ROUTES
    }


def test_an_installed_sluice_is_registered_once(server: ApiServer) -> None:
    """By its entry point; the stub in the plugins folder then keeps quiet, and Airflow records no import error."""
    program = (
        "import json; from airflow import plugins_manager as found;"
        "ours = [str(plugin['source']) for plugin in found.get_plugin_info() if plugin['name'] == 'sluice'];"
        "print(json.dumps([ours, found.get_import_errors()]))"
    )

    sources, errors = json.loads(server.run(program).splitlines()[-1])

    assert len(sources) == 1
    assert "EntryPoint" in sources[0]
    assert errors == {}
