"""Which stream reads which, as a picture."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice import Stream, sinks, sources
from sluice.monitoring.inspection import SourceLag
from sluice_airflow.ui.lineage_picture import MOST_STREAMS, Picture, choose, draw, find_readings
from sluice_airflow.ui.next_run import NextRun
from sluice_airflow.ui.rows import Badge
from tests.builders import NOW, NOW_MS, make_files_source


def streams_of(reads: Mapping[str, Sequence[str]]) -> dict[str, Stream]:
    """Streams, each with the names of those that it reads."""
    return {
        name: Stream(
            name=name,
            sources={other: sources.delta(f"/lake/{other}") for other in others}
            or {"landing": make_files_source(f"/in/{name}")},
            transform="jobs:one",
            sink=sinks.delta(f"/lake/{name}"),
        )
        for name, others in reads.items()
    }


def picture_of(
    reads: Mapping[str, Sequence[str]],
    *,
    found: Sequence[str] | None = None,
    urgent: Sequence[str] = (),
    next_runs: Mapping[str, NextRun] | None = None,
) -> Picture:
    """The picture of these streams."""
    readings = find_readings(streams_of(reads))
    names = choose(readings, found, urgent)
    verdicts = dict.fromkeys(reads, Badge("skip", "calm"))
    return draw(readings, names, found=found, verdicts=verdicts, next_runs=next_runs or {}, now=NOW)


def test_what_reads_stands_to_the_right_of_what_it_reads() -> None:
    """Those that nobody reads, and that read nobody, are not in the picture."""
    picture = picture_of({"daily": ["hourly", "raw"], "hourly": ["raw"], "raw": [], "alone": []})
    left = {box.name: box.x for box in picture.boxes}

    assert left.keys() == {"raw", "hourly", "daily"}
    assert left["raw"] < left["hourly"] < left["daily"]
    assert {(line.reading.writer, line.reading.reader) for line in picture.lines} == {
        ("raw", "hourly"), ("raw", "daily"), ("hourly", "daily"),
    }  # fmt: skip


def test_lag_stands_on_the_lines() -> None:
    """What waits in that very source; what is not known is not nothing."""
    lags = {
        "files": SourceLag({"files": 1200, "bytes": 5_000_000}, NOW_MS - 660_000),
        "rows": SourceLag({"rows": 30}),
        "none": SourceLag({"files": 0, "bytes": 0, "rows": 0}),
        "away": SourceLag({}, unreadable="permission denied"),
        "batches": SourceLag({}, batches=3),
        "drained": SourceLag({}),
    }
    reads = {"all": [*lags, "other"], "waits": ["files"], "hangs": ["files"]} | {name: [] for name in [*lags, "other"]}
    next_runs = {"all": NextRun(NOW, lags=lags), "hangs": NextRun(NOW, hangs_for=9.0)}
    lines = {(line.reading.reader, line.reading.writer): line for line in picture_of(reads, next_runs=next_runs).lines}

    assert {writer: line.label for (reader, writer), line in lines.items() if reader == "all"} == {
        "files": "1,200 files, 11 min", "rows": "30 rows", "none": "nothing waits", "away": "unknown",
        "other": "unknown", "batches": "3 batches", "drained": "unknown",
    }  # fmt: skip
    assert (lines["all", "batches"].told, lines["all", "batches"].tone) == ("3 batches wait", "info")
    assert lines["all", "files"].told == "1,200 files, 5.0 MB wait, the oldest 11 min ago"
    assert lines["waits", "files"].label == "\N{HORIZONTAL ELLIPSIS}"
    assert lines["hangs", "files"].label == "no answer"


def test_streams_in_a_circle_are_drawn() -> None:
    """A plan refuses nothing of that; the picture must not go round for ever."""
    picture = picture_of({"a": ["c"], "b": ["a"], "c": ["b"], "self": ["self"]})

    assert [box.name for box in picture.boxes] == ["a", "b", "c"]
    assert len(picture.lines) == 3


CHAIN = {f"s{number:03}": [f"s{number - 1:03}"] if number else [] for number in range(1000)}


def test_of_many_streams_those_around_what_needs_somebody_are_drawn() -> None:
    """With what lies nearest to them, to both sides; where nobody is needed, those around the first of them."""
    assert picture_of(CHAIN).related == 1000
    assert [box.name for box in picture_of(CHAIN).boxes] == [f"s{number:03}" for number in range(40)]
    picture = picture_of(CHAIN, urgent=["alone", "s900", "s100"])
    around = [*range(90, 111), *range(891, 910)]

    assert [box.name for box in picture.boxes] == [f"s{number:03}" for number in around]
    assert not [box.name for box in picture.boxes if box.is_found]
    assert len(picture_of(CHAIN, urgent=list(CHAIN)).boxes) == MOST_STREAMS


def test_of_many_streams_those_that_were_searched_for_are_drawn() -> None:
    """With what lies nearest to them, to both sides."""
    picture = picture_of(CHAIN, found=["s500"])
    names = [box.name for box in picture.boxes]

    assert names == [f"s{number:03}" for number in range(480, 520)]
    assert [box.name for box in picture.boxes if box.is_found] == ["s500"]
    assert len(picture_of(CHAIN, found=list(CHAIN)).boxes) == MOST_STREAMS
    assert picture_of(CHAIN, found=["nothing like it"]).boxes == ()


def test_streams_without_relations_have_no_readings() -> None:
    """As of a project whose streams all read from outside."""
    assert find_readings(streams_of({"a": [], "b": []})) == ()


def test_globs_and_quarantines(tmp_path: Path) -> None:
    """A glob over what a sink writes reads it, and so does who reads what a stream has put aside."""
    lake = f"{tmp_path}/lake"
    declared = {
        "web": {"sink": sinks.files(f"{lake}/day=1/web", format="json")},
        "shop": {"sink": sinks.delta(f"{lake}/shop"), "quality": "suite.json"},
        "all": {"reads": sources.files(f"{lake}/day=*/*", format="json", schema="n bigint")},
        "below": {"reads": sources.files(f"{lake}/day=2/*", format="json", schema="n bigint")},
        "refused": {"reads": sources.delta(f"{lake}/shop_quarantine")},
        "wrong": {"reads": sources.files(f"{lake}/day=[1/*", format="json", schema="n bigint")},
    }
    streams = {
        name: Stream(
            name=name,
            sources={"n": known.get("reads", make_files_source(f"/in/{name}"))},
            transform="jobs:one",
            sink=known.get("sink", sinks.delta(f"/elsewhere/{name}")),
            quality=known.get("quality"),
        )
        for name, known in declared.items()
    }

    found = {(reading.reader, reading.writer) for reading in find_readings(streams)}
    assert found == {("all", "web"), ("refused", "shop")}


graphs = st.integers(2, 30).flatmap(
    lambda size: st.dictionaries(
        st.sampled_from([f"n{number}" for number in range(size)]),
        st.lists(st.sampled_from([f"n{number}" for number in range(size)]), unique=True, max_size=4),
        min_size=size, max_size=size,
    )
)  # fmt: skip


@given(graphs)
def test_nothing_covers_anything(reads: dict[str, list[str]]) -> None:
    """Whatever reads whatever: no box covers another, all are inside, and no two labels are in one place."""
    picture = picture_of(reads)

    for one in picture.boxes:
        assert 0 <= one.x <= picture.width - one.width
        assert 0 <= one.y <= picture.height - one.height
        for other in picture.boxes:
            assert one is other or one.x != other.x or abs(one.y - other.y) >= min(one.height, other.height)
    places = [(line.label_x, line.label_y) for line in picture.lines]
    assert len(set(places)) == len(places)


@pytest.mark.parametrize("size", [3, 30])
def test_lines_go_round_boxes(size: int) -> None:
    """A line over several columns passes between the boxes of those: where it runs flat, there is none."""
    reads = {f"s{number:02}": [f"s{other:02}" for other in {number - 1, number // 2, 0} if 0 <= other < number]
             for number in range(size)}  # fmt: skip
    picture = picture_of(reads)

    for line in picture.lines:
        for flat_from, y, flat_to in re.findall(r"(\d+),([\d.]+) H(\d+)", line.path):
            for box in picture.boxes:
                is_beside = float(flat_to) <= box.x or box.x + box.width <= float(flat_from)
                assert is_beside or not box.y < float(y) < box.y + box.height, (line, box)
