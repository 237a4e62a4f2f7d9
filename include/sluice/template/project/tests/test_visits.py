"""What becomes of visits, whatever arrives and whenever a run dies: on Spark, in a temporary folder."""

from sluice.testing import Bench

START = {"visit_id": 1, "page": "/", "visited_at": "2026-01-01T09:00:00Z"}
DOCS = {"visit_id": 2, "page": "/docs", "visited_at": "2026-01-01T09:05:00Z"}


def test_a_visit_that_is_delivered_twice(bench: Bench) -> None:
    """It counts once, in whichever file it comes again."""
    bench.open("visits")
    bench.add("visits", [START, START])
    bench.run()
    bench.add("visits", [START, DOCS])
    bench.run()
    bench.check_rows([{**START, "visit_date": "2026-01-01"}, {**DOCS, "visit_date": "2026-01-01"}])


def test_a_run_that_dies(bench: Bench) -> None:
    """Nothing is lost or doubled, and a visit without its id is put aside."""
    bench.open("visits")
    bench.add("visits", [START, {"page": "/docs", "visited_at": "2026-01-01T09:05:00Z"}])
    bench.crash(at="between the sink's commit and Spark's")
    bench.restart()
    bench.check_rows([START])
    bench.check_quarantine([{"page": "/docs"}])
