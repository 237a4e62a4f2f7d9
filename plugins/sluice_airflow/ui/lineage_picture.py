"""Which stream reads which, as a picture: where its boxes and lines are. A template draws it as SVG."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from sluice.amounts import describe_count
from sluice.monitoring.inspection import SourceLag
from sluice.planning.stream_order import below, is_read
from sluice.sources.contract import Source
from sluice.stream import Stream
from sluice.table_writers import written_tables
from sluice_airflow.ui import wording
from sluice_airflow.ui.next_run import NextRun
from sluice_airflow.ui.rows import Badge, describe_backlog, describe_oldest

MOST_STREAMS = 40
"""How many streams a picture shows: one of more is no help."""
_BOX_WIDTH, _BOX_HEIGHT, _PASSAGE_HEIGHT = 200, 46, 12
_PORT_HEIGHT, _LABEL_HEIGHT = 18, 12
"""How much of a box's side a line that comes in needs, with its label; and the label alone."""
_GAP_X, _GAP_Y, _MARGIN, _BEND = 200, 14, 8, 64
_SWEEPS = 6
_LONGEST_NAME, _LONGEST_LABEL = 20, 21


@dataclass(frozen=True, order=True)
class Reading:
    """A stream reads what another one writes."""

    reader: str
    source: str
    """What the reader calls it."""
    writer: str


Slot = str | tuple[Reading, int]
"""What stands in a column: a stream's box, or the passage of a line that goes on to another column."""


@dataclass(frozen=True)
class Box:
    """A stream in the picture."""

    name: str
    short_name: str
    x: float
    y: float
    width: float
    height: float
    verdict: Badge
    is_found: bool
    """Whether it is one of those that were searched for."""


@dataclass(frozen=True)
class Line:
    """From who writes to who reads."""

    reading: Reading
    path: str
    """As SVG writes it."""
    label: str
    """What waits, in short."""
    label_x: float
    label_y: float
    told: str
    """What waits, in words."""
    tone: str


@dataclass(frozen=True)
class Picture:
    """Streams and who reads whom."""

    boxes: tuple[Box, ...]
    lines: tuple[Line, ...]
    width: float
    height: float
    related: int
    """How many streams read another one or are read by one, also those that are not in the picture."""


def find_readings(streams: Mapping[str, Stream]) -> tuple[Reading, ...]:
    """Who reads what whom writes, of these streams: their sinks, and what they put aside."""
    writers: dict[str, list[str]] = defaultdict(list)
    for name, stream in streams.items():
        for place in written_tables(stream).values():
            writers[place].append(name)
    places = sorted(writers)
    return tuple(
        Reading(name, source_name, writer)
        for name, stream in streams.items()
        for source_name, source in stream.sources.items()
        for writer in sorted({writer for place in _read_by(source, places) for writer in writers[place]})
        if writer != name
    )


def _read_by(source: Source, places: Sequence[str]) -> Iterator[str]:
    """The places, of these in order, that a source reads: its own, or those that its glob matches."""
    base = source.reads_below.rstrip("/")
    for place in below(base, places):
        if place == source.location or (place.startswith(f"{base}/") and is_read(source, place)):
            yield place


def choose(readings: Sequence[Reading], found: Collection[str] | None, urgent: Sequence[str] = ()) -> tuple[str, ...]:
    """Which streams a picture shows, sorted: all that are related, or those that lie nearest to some.

    Args:
        readings: Who reads whom.
        found: What the search has found; None when nothing was searched for.
        urgent: The streams that need somebody: of too many, those around them are shown.
    """
    near: dict[str, set[str]] = defaultdict(set)
    for reading in readings:
        near[reading.reader].add(reading.writer)
        near[reading.writer].add(reading.reader)
    if found is None and len(near) <= MOST_STREAMS:
        return tuple(sorted(near))
    first = sorted(near.keys() & set(found if found is not None else urgent))
    if found is None:
        first = first or sorted(near)[:1]
    chosen = dict.fromkeys(first[:MOST_STREAMS])
    ring = list(chosen)
    while ring and len(chosen) < MOST_STREAMS:
        ring = sorted({other for name in ring for other in near[name]} - chosen.keys())
        ring = ring[: MOST_STREAMS - len(chosen)]
        chosen |= dict.fromkeys(ring)
    return tuple(sorted(chosen))


def draw(
    readings: Sequence[Reading],
    names: Sequence[str],
    *,
    found: Collection[str] | None,
    verdicts: Mapping[str, Badge],
    next_runs: Mapping[str, NextRun],
    now: datetime,
) -> Picture:
    """Place streams in columns, each to the right of what it reads.

    Args:
        readings: Who reads whom, of all streams.
        names: Which streams to show.
        found: What the search has found; None when nothing was searched for.
        verdicts: What the next run of each would do.
        next_runs: What waits for them, as far as it is known.
        now: The time.
    """
    shown = [reading for reading in readings if {reading.reader, reading.writer} <= set(names)]
    incoming: dict[str, list[Reading]] = defaultdict(list)
    for reading in shown:
        incoming[reading.reader].append(reading)
    ranks = _ranks(names, shown)
    columns = _columns(ranks, shown)
    heights: dict[Slot, float] = {
        name: max(_BOX_HEIGHT, _PORT_HEIGHT * len(incoming[name]) + _PORT_HEIGHT / 2) for name in names
    }
    tallest = max((_height(column, heights) for column in columns), default=0)
    middles: dict[Slot, float] = {}
    """Where the middle of each slot is."""
    for column in columns:
        y = _MARGIN + (tallest - _height(column, heights)) / 2
        for slot in column:
            height = heights.get(slot, _PASSAGE_HEIGHT)
            middles[slot] = y + height / 2
            y += height + _GAP_Y
    boxes = {}
    for name in names:
        y = middles[name] - heights[name] / 2
        is_found, short = found is not None and name in found, wording.short(name, _LONGEST_NAME)
        boxes[name] = Box(
            name, short, _left(ranks[name]), y, _BOX_WIDTH, heights[name], verdicts[name], is_found=is_found
        )
    lines = []
    for name in names:
        # From top to bottom as they come, so that they do not cross at the box.
        routes = sorted(([middles[slot] for slot in _route(reading, ranks)], reading) for reading in incoming[name])
        for port, (route, reading) in enumerate(routes):
            box = boxes[name]
            to_y = box.y + box.height / 2 + _PORT_HEIGHT * (port - (len(routes) - 1) / 2) + _LABEL_HEIGHT / 2
            path = _path(route, to_y, ranks[reading.writer], ranks[name])
            label, told, tone = _lag(next_runs.get(name), reading.source, now)
            lines.append(Line(reading, path, label, box.x - 8, to_y - 4, told, tone))
    width = 2 * _MARGIN + len(columns) * _BOX_WIDTH + max(0, len(columns) - 1) * _GAP_X
    related = len({name for reading in readings for name in (reading.reader, reading.writer)})
    return Picture(tuple(boxes.values()), tuple(lines), width, tallest + 2 * _MARGIN, related)


def _left(rank: int) -> float:
    return _MARGIN + rank * (_BOX_WIDTH + _GAP_X)


def _route(reading: Reading, ranks: Mapping[str, int]) -> list[Slot]:
    """Where a line goes through, from right to left: the passages between its ends, and the box that it comes from."""
    between = range(ranks[reading.reader] - 1, ranks[reading.writer], -1)
    return [*((reading, rank) for rank in between), reading.writer]


def _path(route: Sequence[float], to_y: float, from_rank: int, to_rank: int) -> str:
    """A line through the heights of a route (from right to left), bent where a column ends, flat where its label is."""
    heights = [*reversed(route), to_y]
    x = _left(from_rank) + _BOX_WIDTH
    if to_rank <= from_rank:
        # In a circle one stream stands to the left of what it reads: the line leaves and comes in on the usual sides.
        end = _left(to_rank)
        return f"M{x},{heights[0]:.1f} C{x + _GAP_X},{heights[0]:.1f} {end - _GAP_X},{to_y:.1f} {end},{to_y:.1f}"
    path = f"M{x},{heights[0]:.1f}"
    for y, next_y in pairwise(heights):
        middle, bent = x + _BEND / 2, x + _BEND
        x += _GAP_X + _BOX_WIDTH
        path += f" C{middle},{y:.1f} {middle},{next_y:.1f} {bent},{next_y:.1f} H{x}"
    return path.rpartition(" H")[0] + f" H{x - _BOX_WIDTH}"


def _lag(next_run: NextRun | None, source: str, now: datetime) -> tuple[str, str, str]:
    """What waits: in short, in words, and in which tone."""
    if next_run is None:
        return "\N{HORIZONTAL ELLIPSIS}", "what waits is being looked up", "none"
    if next_run.hangs_for is not None:
        return "no answer", "looking at it takes very long", "warn"
    lag = next_run.lags.get(source)
    if lag is None or lag.unreadable:
        return "unknown", "what waits is not known", "bad"
    if not lag.amount and lag.batches is None:
        return "unknown", "Spark alone knows what waits", "none"
    amount = describe_backlog([lag])
    if amount == "nothing":
        return "nothing waits", "nothing waits", "none"
    oldest = describe_oldest([lag.oldest_ms], now)
    told = f"{amount} wait{f', the {oldest}' if oldest else ''}"
    return wording.short(_in_short(lag, now), _LONGEST_LABEL), told, "info"


def _in_short(lag: SourceLag, now: datetime) -> str:
    amount = describe_count({unit: count for unit, count in lag.amount.items() if count}) or describe_backlog([lag])
    oldest = describe_oldest([lag.oldest_ms], now).removeprefix("oldest ").removesuffix(" ago")
    return f"{amount}, {oldest}" if oldest else amount


def _height(column: Sequence[Slot], heights: Mapping[Slot, float]) -> float:
    return sum(heights.get(slot, _PASSAGE_HEIGHT) for slot in column) + _GAP_Y * max(0, len(column) - 1)


def _ranks(names: Sequence[str], readings: Iterable[Reading]) -> dict[str, int]:
    """In which column each stream stands: to the right of all that it reads."""
    reads: dict[str, set[str]] = {name: set() for name in names}
    for reading in readings:
        reads[reading.reader].add(reading.writer)
    ranks: dict[str, int] = {}
    waiting = sorted(names)
    while waiting:
        ready = [name for name in waiting if reads[name] <= ranks.keys()]
        # Streams that read each other in a circle have no order: the first of them begins.
        for name in ready or waiting[:1]:
            ranks[name] = max((ranks[other] + 1 for other in reads[name] if other in ranks), default=0)
        waiting = [name for name in waiting if name not in ranks]
    return ranks


def _columns(ranks: Mapping[str, int], readings: Iterable[Reading]) -> list[list[Slot]]:
    """What stands in each column, from top to bottom: each thing near to what it is joined to."""
    columns: list[list[Slot]] = [[] for _ in range(max(ranks.values(), default=-1) + 1)]
    for name, rank in ranks.items():
        columns[rank].append(name)
    left: dict[Slot, list[Slot]] = defaultdict(list)
    right: dict[Slot, list[Slot]] = defaultdict(list)
    for reading in readings:
        route = [reading.reader, *_route(reading, ranks)]
        for slot in route[1:-1]:
            if isinstance(slot, tuple):
                columns[slot[1]].append(slot)
        for at_right, at_left in pairwise(route):
            left[at_right].append(at_left)
            right[at_left].append(at_right)
    for sweep in range(_SWEEPS):
        is_forward = sweep % 2 == 0
        _sort_by_neighbours(columns if is_forward else columns[::-1], left if is_forward else right)
    return columns


def _sort_by_neighbours(columns: Sequence[list[Slot]], joined: Mapping[Slot, Sequence[Slot]]) -> None:
    """Put each thing at the mean height of those that it is joined to."""
    place = {slot: (index + 0.5) / len(column) for column in columns for index, slot in enumerate(column)}

    def mean(slot: Slot) -> float:
        others = [place[other] for other in joined.get(slot, ())]
        return sum(others) / len(others) if others else place[slot]

    for column in columns:
        column.sort(key=mean)
        place.update({slot: (index + 0.5) / len(column) for index, slot in enumerate(column)})
