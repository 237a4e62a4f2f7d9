"""The test bench for users: action-based tests of streams, in plain pytest.

    # tests/conftest.py
    from sluice.testing import bench
    __all__ = ["bench"]

    # tests/test_visits.py
    def test_visits(bench):
        bench.open("visits")
        bench.add("visits", [{"visit_id": 1, "page": "/", "visited_at": "2026-01-01T09:00:00Z"}])
        bench.run()
        bench.check_rows([{"visit_id": 1}])

It is no plugin that pytest loads by itself: whoever has Sluice installed and does not use it pays nothing.
"""

from sluice.testing.actions import Bench
from sluice.testing.crash import Moment
from sluice.testing.fixture import bench
from sluice.testing.state_stores import STATE_STORES

__all__ = ["STATE_STORES", "Bench", "Moment", "bench"]
