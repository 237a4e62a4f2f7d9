"""The pages as a person sees them: in a real Chromium that reaches nothing but this machine.

The screenshots are kept in `var/screenshots`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sluice.gate.judged_runs import report_on
from sluice.quality.report_page import report_page
from tests.browser.api_server import REPOSITORY, ApiServer
from tests.browser.showcase import RUN_ID, Showcase
from tests.browser.webdriver import CHROMIUM, DRIVER, Browser

pytestmark = [
    pytest.mark.airflow,
    pytest.mark.browser,
    pytest.mark.skipif(
        not (os.access(CHROMIUM, os.X_OK) and os.access(DRIVER, os.X_OK)),
        reason="needs Chromium and its driver: apt-get install chromium chromium-driver",
    ),
]

SHOTS = REPOSITORY / "var" / "screenshots"


@pytest.fixture(scope="module", params=["light", "dark"])
def scheme(request: pytest.FixtureRequest) -> str:
    """What the person prefers."""
    return str(request.param)


@pytest.fixture(scope="module")
def browser(server: ApiServer, scheme: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A browser in which the administrator has logged in through Airflow's own page."""
    with Browser(tmp_path_factory.mktemp("profile"), is_dark=scheme == "dark") as running:
        running.open(f"{server.url}/auth/login/")
        running.find("input[name=username]").type("anna")
        running.find("input[name=password]").type("anna")
        running.find("button[type=submit]").click()
        running.until(lambda: "/auth/login" not in running.url, "the login")
        yield running


def brightness(browser: Browser) -> float:
    """How bright the page's text is, from 0 to 255."""
    colour = browser.run("return getComputedStyle(document.body).color")
    return sum(float(part) for part in colour.partition("(")[2].rstrip(")").split(",")[:3]) / 3


def test_from_airflow_to_a_stream_to_a_run_and_back(
    browser: Browser, server: ApiServer, showcase: Showcase, scheme: str
) -> None:
    """Inside of Airflow's frame: the list, a stream, its run, and from there out of the frame to the DAG run."""
    browser.open(f"{server.url}/plugin/streams")
    browser.enter_frame()
    assert "run" in browser.find("table.streams").text
    assert (brightness(browser) > 128) == (scheme == "dark")
    browser.leave_frame()
    browser.screenshot(SHOTS / f"streams-{scheme}.png")

    browser.enter_frame()
    browser.link("departures").click()
    assert browser.find("h1").text.startswith("departures")
    browser.link(showcase.newest("departures").run_id).click()
    assert browser.find("h1").text.startswith("Run of departures")
    browser.leave_frame()
    # Airflow's own address follows the frame, so that it can be sent to somebody.
    browser.until(lambda: browser.url.endswith(showcase.newest("departures").run_id), "the address to follow")
    browser.screenshot(SHOTS / f"run-{scheme}.png")

    browser.enter_frame()
    browser.find("a[data-airflow]").click()
    browser.leave_frame()
    browser.until(lambda: "/dags/flights/runs/scheduled__" in browser.url, "Airflow's page of the DAG run")
    assert browser.all("iframe") == []


def test_a_stream_as_a_page_of_its_own(browser: Browser, server: ApiServer, scheme: str) -> None:
    """All of it is there: pictures, offsets side by side, generations, the lease."""
    browser.open(f"{server.url}/sluice/streams/departures")

    assert (brightness(browser) > 128) == (scheme == "dark")
    assert len(browser.all("figure.chart svg")) == 3
    assert [heading.text.partition("\n")[0] for heading in browser.all("h2")] == [
        "Waiting", "Watermark", "Lease", "Last runs", "Quality",
        "What the next run does", "Sources", "Batches", "Runs", "Generations", "Declaration", "Lease",
    ]  # fmt: skip
    assert "succeeded" in browser.run("return document.querySelector('svg.spark title').textContent")
    browser.screenshot(SHOTS / f"stream-{scheme}.png")


def test_a_run_that_goes_on(browser: Browser, server: ApiServer, showcase: Showcase, scheme: str) -> None:
    """It shows how far it is, and keeps itself up to date."""
    browser.open(f"{server.url}/sluice/streams/hourly/runs/{showcase.newest('hourly').run_id}")

    assert browser.find(".progress p").text == "2 of 5 batches"
    assert browser.find("button").text == "Stop this run"
    browser.screenshot(SHOTS / f"running-{scheme}.png")
    browser.run("window.isOld = true")
    browser.until(lambda: browser.run("return window.isOld === undefined && !!document.body"), "the page to refresh")


def test_a_search_with_the_keyboard(browser: Browser, server: ApiServer) -> None:
    """From the field with Enter; nothing that is typed is lost to the page's loading itself again."""
    browser.open(f"{server.url}/sluice/")
    field = browser.find("input[type=search]")
    field.type("FLIGHTS hour")
    browser.run("window.isOld = true")
    past = "return performance.now() > 1000 * Number(document.documentElement.dataset.refresh) + 1500"
    browser.until(lambda: browser.run(past), "the time at which the page loads itself again")
    assert browser.run("return window.isOld && document.activeElement.value") == "FLIGHTS hour"
    field.type("\ue007")
    browser.until(lambda: "search=" in browser.url, "the search")

    assert [link.text for link in browser.all("table.streams a.name")] == ["hourly"]
    assert browser.run("return document.querySelector('[role=status]').textContent") == "1 stream found"
    assert browser.run("return document.querySelector('input[type=search]').labels[0].textContent") == "Search"
    browser.link("All streams").click()
    browser.until(lambda: len(browser.all("table.streams a.name")) > 1, "all streams")


def test_the_picture_of_who_reads_whom(browser: Browser, server: ApiServer, scheme: str) -> None:
    """Seen, gone along with the keyboard, and read as a list; what waits stands on the line."""
    labels = "[...document.querySelectorAll('.lineage .lag')].map(it => it.firstChild.data.split(',')[0]).sort()"
    browser.open(f"{server.url}/sluice/")
    expected = ["7 files", "nothing waits"]
    browser.until(lambda: browser.run(f"return {labels}") == expected, "what waits on the lines")
    browser.screenshot(SHOTS / f"lineage-{scheme}.png")

    left = browser.run(
        "return Object.fromEntries([...document.querySelectorAll('.lineage a[aria-label]')]"
        ".map(it => [it.getAttribute('aria-label').split(':')[0], it.getBoundingClientRect().left]))"
    )
    assert left["departures"] < left["hourly"] == left["reports"]
    browser.run("document.querySelector('.lineage details').open = true")
    assert "hourly reads departures as departures: nothing waits" in browser.find(".lineage ul").text
    browser.run("document.querySelector('.lineage svg a').focus()")
    browser.run("return document.activeElement.dispatchEvent(new MouseEvent('click', {bubbles: true}))")
    browser.until(lambda: browser.url.endswith("/streams/departures"), "the stream's page")


def test_backfills(browser: Browser, server: ApiServer, showcase: Showcase, scheme: str) -> None:
    """Marked in the list; one that goes on is alive by its interval's lease, one that is over says what it did."""
    going_on, done, _ = showcase.runs("reports")
    browser.open(f"{server.url}/sluice/streams/reports")
    assert browser.run("return document.body.innerText").count("backfill") == 2
    browser.screenshot(SHOTS / f"backfills-{scheme}.png")

    browser.open(f"{server.url}/sluice/streams/reports/runs/{going_on.run_id}")
    assert "recomputed" in browser.find(".progress p").text
    assert browser.all("article.problem") == []
    browser.screenshot(SHOTS / f"backfill-running-{scheme}.png")

    browser.open(f"{server.url}/sluice/streams/reports/runs/{done.run_id}")
    assert " ".join(browser.find("h1").text.split()) == "Backfill of reports 2026-01-01 to 2026-02-01 succeeded"
    assert [heading.text for heading in browser.all("h2")] == [
        "Summary",
        "What it reads",
        "Streams that read this table",
    ]
    browser.screenshot(SHOTS / f"backfill-{scheme}.png")


def test_quality(browser: Browser, server: ApiServer, showcase: Showcase, scheme: str) -> None:
    """A held stream says why and what to do; its checks are sentences, each with a trend; a click releases it."""
    browser.open(f"{server.url}/sluice/streams/reports")

    assert "sluice quality release reports" in browser.find("article.problem").text
    text = browser.run("return document.body.innerText")
    assert "dep_delay must lie between -60 and 1440" in text
    assert "1 of 4 checks failed, and stops the run" in text
    browser.screenshot(SHOTS / f"held-{scheme}.png")
    browser.find("article.problem button").click()
    browser.until(lambda: browser.all("article.problem button") == [], "the release")
    assert not showcase.is_held("reports")
    showcase.hold("reports")

    failed = next(run for run in showcase.runs("departures") if run.quality and run.quality.verdict == "warn")
    browser.open(f"{server.url}/sluice/streams/departures/runs/{failed.run_id}")
    assert "rows went to the quarantine" in browser.run("return document.body.innerText")
    browser.run("document.querySelectorAll('h2')[3].scrollIntoView()")
    browser.screenshot(SHOTS / f"quality-{scheme}.png")


def test_the_report_page(browser: Browser, showcase: Showcase, scheme: str, tmp_path: Path) -> None:
    """It opens from a disk, without a server, as the person prefers it, and nothing in it is refused or run."""
    file = tmp_path / "report.html"
    file.write_text(report_page(report_on("departures", showcase.home("departures"), [], most=20)), "utf-8")

    browser.open(file.as_uri())

    assert (brightness(browser) > 128) == (scheme == "dark")
    assert "The run passed" in browser.find("section").text
    assert len(browser.all("svg")) == 5
    assert browser.all("script") == []
    browser.screenshot(SHOTS / f"report-{scheme}.png")


def test_what_is_broken(browser: Browser, server: ApiServer, scheme: str) -> None:
    """Problems come with what they lead to and what to do, and markup from disk is only text."""
    browser.open(f"{server.url}/sluice/streams/torn")

    assert "restore the file" in browser.find("article.problem dl").text
    browser.screenshot(SHOTS / f"damaged-{scheme}.png")
    assert browser.run("return document.querySelectorAll('script:not([src])').length") == 0


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ("/dags/flights/plugin/dag-streams", "of DAG flights"),
        (f"/dags/flights/runs/{RUN_ID}/plugin/dag-run-streams", "Runs of flights"),
        (f"/dags/flights/runs/{RUN_ID}/tasks/hourly/plugin/task-stream-run", "Run of hourly"),
    ],
)
def test_tabs_in_airflow(browser: Browser, server: ApiServer, showcase: Showcase, place: str, expected: str) -> None:
    """A DAG, a DAG run and a task instance have a tab that shows what is theirs."""
    server.trigger("flights", RUN_ID)
    browser.open(f"{server.url}{place}")
    browser.enter_frame()

    assert expected in " ".join(browser.find("h1").text.split())
    browser.leave_frame()


def test_a_click_stops_a_run(browser: Browser, server: ApiServer, showcase: Showcase) -> None:
    """The button works inside of Airflow's frame, too, and then says who asked."""
    run_id = showcase.start("hourly", run_key=f"flights/{RUN_ID}/hourly/-1/9")
    browser.open(f"{server.url}/plugin/streams/sluice/streams/hourly/runs/{run_id}")
    browser.enter_frame()
    browser.find("button").click()

    assert "anna asked it to stop" in browser.find(".pending").text
    browser.leave_frame()
    request = showcase.stop("hourly", run_id)
    assert request is not None
    assert request.requested_by == "anna"
    showcase.forget("hourly", run_id)


def test_nothing_leaves_the_machine(browser: Browser, server: ApiServer) -> None:
    """Of all that was asked for above, nothing of ours is elsewhere, and no page of ours was refused anything."""
    browser.open(f"{server.url}/sluice/")
    asked, said = browser.requested(), browser.log("browser")

    assert f"{server.url}/sluice/static/sluice.css" in asked
    local = (f"{server.url}/", f"blob:{server.url}/", "chrome:", "data:", "about:", "file:")
    assert [url for url in asked if not url.startswith(local)] == []
    complaints = [entry["message"] for entry in said if entry["level"] == "SEVERE" and "/sluice" in entry["message"]]
    assert complaints == []
