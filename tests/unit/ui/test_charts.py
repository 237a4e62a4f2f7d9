"""Where the bars and lines of pictures are."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sluice_airflow.ui.charts import PHASES, Value, bar_chart, line_chart, phases, sparkline

VALUES = st.lists(st.none() | st.floats(min_value=-1, max_value=1e12, allow_nan=False), max_size=80)


@given(VALUES)
def test_everything_lies_inside_of_its_picture(amounts: list[float | None]) -> None:
    """Whatever the values are: none, all zero, below zero, or far apart."""
    values = [Value(amount, "good", "x") for amount in amounts]

    for chart in (sparkline(values), bar_chart(values, top=""), line_chart(values, top="")):
        for bar in chart.bars:
            assert 0 <= bar.x <= bar.x + bar.width <= chart.width + 0.02
            assert 0 <= bar.y <= bar.y + bar.height <= chart.height + 0.02
        for point in chart.line.split():
            x, y = map(float, point.split(","))
            assert 0 <= x <= chart.width
            assert 0 <= y <= chart.height


def test_the_newest_run_is_on_the_right() -> None:
    """Few runs leave room on the left; of many, the newest are shown."""
    few = sparkline([Value(4, "good", "old"), Value(1, "bad", "new")])
    many = sparkline([Value(1, "good", str(number)) for number in range(30)])

    assert [bar.label for bar in few.bars] == ["old", "new"]
    assert few.bars[-1].x + few.bars[-1].width == few.width - 2
    assert few.bars[0].height == few.height
    assert 3 < few.bars[1].height < few.bars[0].height
    assert [bar.label for bar in many.bars] == [str(number) for number in range(10, 30)]


def test_a_line_leaves_out_what_is_unknown() -> None:
    """A gap is no zero, and one value alone is a level line."""
    values = [Value(1, "bare", "a"), Value(None, "bare", "b"), Value(2, "bare", "c")]

    assert len(line_chart(values, top="").line.split()) == 2
    assert line_chart(values[:1], top="").line.split() == ["0,4.0", "480,4.0"]


def test_phases_add_up_to_the_whole() -> None:
    """What Spark does not name is shown as other time, and shares are of all batches together."""
    batch = {"addBatch": 700, "queryPlanning": 200, "triggerExecution": 1000, "unknownPhase": 5}
    picture = phases([("batch 1", batch), ("batch 2", {"addBatch": 3000, "triggerExecution": 3000})])

    assert [(bar.tone, bar.width) for bar in picture.bands[0].bars] == [
        ("queryPlanning", 42.67), ("addBatch", 149.33), ("other", 21.33),
    ]  # fmt: skip
    assert [band.total for band in picture.bands] == ["1.0 s", "3.0 s"]
    assert [(share.name, share.seconds) for share in picture.shares] == [
        ("addBatch", 3.7), ("queryPlanning", 0.2), ("other", 0.1),
    ]  # fmt: skip
    assert round(sum(share.percent for share in picture.shares)) == 100


def test_phases_of_nothing() -> None:
    """No batch, and batches that took no time, have no bars."""
    assert phases([]).bands == ()
    assert phases([("batch 0", dict.fromkeys(PHASES, 0))]).bands[0].bars == ()
