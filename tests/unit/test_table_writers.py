"""Who else writes to a table: found by whatever name it is declared."""

from __future__ import annotations

from pathlib import Path

import pytest

from sluice import sinks
from sluice.errors import DeclarationError
from sluice.planning.shared_sinks import shared_sink
from sluice.table_writers import Writer, other_writer
from tests.builders import make_stream
from tests.remedies import read_remedy


@pytest.mark.parametrize("is_there", [True, False], ids=["a table", "no table yet"])
@pytest.mark.parametrize("written", ["lake/out", "lake/./out/", "file:{root}/lake/out", "link/out"])
def test_every_name_of_a_table(tmp_path: Path, written: str, *, is_there: bool) -> None:
    """Through links and dots, before and after the first batch has made it."""
    (tmp_path / "lake" / ("out" if is_there else "")).mkdir(parents=True)
    (tmp_path / "link").symlink_to("lake")
    place = written.format(root=tmp_path)
    own = make_stream(name="a", sink=sinks.delta(f"{tmp_path}/lake/out"))
    other = make_stream(name="b", sink=sinks.delta(place if place.startswith("file:") else f"{tmp_path}/{place}"))
    third = make_stream(name="c", sink=sinks.delta(f"{tmp_path}/lake/out2"))

    assert other_writer(f"{tmp_path}/lake/out", own, {"a": own, "c": third}) is None
    assert other_writer(f"{tmp_path}/lake/out", own, {"a": own, "c": third, "b": other}) == Writer(other, "sink")
    problem = shared_sink(own, {"a": own, "b": other})
    read_remedy(problem, "SINK_SHARED", "give each stream a sink of its own")
    assert shared_sink(own, {"a": own, "c": third}) is None


def test_one_name_in_memory() -> None:
    """Each stream numbers its batches from 0 on: one would take the place of the other's."""
    own, other = (make_stream(name=name, sink=sinks.memory("rows")) for name in ("a", "b"))

    with pytest.raises(
        DeclarationError, match="stream `b` keeps its rows in memory under the same name, `rows`"
    ) as told:
        shared_sink(own, {"a": own, "b": other})
    assert str(told.value.remedy) == 'give each a name of its own: `sinks.memory("a")`'
    assert shared_sink(own, {"a": own, "b": make_stream(name="b", sink=sinks.memory("b"))}) is None


def test_a_quarantine_counts_where_a_suite_is(tmp_path: Path) -> None:
    """Without a suite nothing is written to it."""
    place = f"{tmp_path}/refused"
    own = make_stream(name="a", sink=sinks.delta(f"{tmp_path}/out"))
    with_suite = make_stream(
        name="b", sink=sinks.delta(f"{tmp_path}/b"), quality="suite.json", quarantine=sinks.delta(place)
    )

    assert other_writer(place, own, {"b": with_suite}) == Writer(with_suite, "quarantine")
    assert other_writer(place, own, {"b": make_stream(name="b")}) is None
