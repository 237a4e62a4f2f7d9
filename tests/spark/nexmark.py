"""Nexmark's persons, auctions and bids, drawn by a seed: an auction house in a minute around midnight.

The columns are those of Nexmark's specification, and so is how they hang together: who is new soon sells something, and
bids go to the newest auctions. Times are whole half seconds, so that many of them are where a window ends, and a row
arrives less than `LATENESS` behind the newest of its side: none is too late for a watermark of as much.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import duckdb
import pyarrow as pa

Row = Mapping[str, Any]
SCHEMAS = {
    "people": "id bigint, name string, emailAddress string, creditCard string, city string, state string,"
    " dateTime timestamp, extra string",
    "auctions": "id bigint, itemName string, description string, initialBid bigint, reserve bigint,"
    " dateTime timestamp, expires timestamp, seller bigint, category bigint, extra string",
    "bids": "auction bigint, bidder bigint, price bigint, channel string, url string, dateTime timestamp, extra string",
}
"""By side, the columns."""
START = datetime(2026, 2, 28, 23, 59, 42, tzinfo=UTC)
"""The time of the first event: its day ends 18 seconds later."""
LATENESS = timedelta(seconds=4)
FAR = START + timedelta(days=10)
"""The time of the last row of each side: what is before it is over by then."""
_STEP_SECONDS = 0.5
_FIRST_PERSON, _FIRST_AUCTION = 1000, 9 * 123
"""Query 2 is about every 123rd auction: one of those that all want."""
_ROUND = ("person", *("auction", "bid", "bid") * 3, "bid", "bid", "bid")
"""In which turns events come. Nexmark has 46 bids in 50; here, sides that are joined have more to join."""
_CITIES = {
    "Phoenix": "AZ",
    "Los Angeles": "CA",
    "San Francisco": "CA",
    "Boise": "ID",
    "Portland": "OR",
    "Bend": "OR",
    "Seattle": "WA",
    "Cheyenne": "WY",
}
_FIRST_NAMES = ("Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter")
_LAST_NAMES = ("Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris")
_CHANNELS = ("Google", "Facebook", "Baidu", "Apple", "channel-27")


@dataclass(frozen=True)
class AuctionHouse:
    """Everything that happens, by side, in the order in which it arrives."""

    people: Sequence[Row]
    auctions: Sequence[Row]
    bids: Sequence[Row]

    def files(self, side: str, count: int) -> list[Sequence[Row]]:
        """A side in as many files, each with what arrives together."""
        rows: Sequence[Row] = getattr(self, side)
        ends = [len(rows) * number // count for number in range(count + 1)]
        return [rows[begin:end] for begin, end in itertools.pairwise(ends)]


def draw(seed: int, events: int) -> AuctionHouse:
    """Draw an auction house.

    Args:
        seed: What is drawn by.
        events: How many things happen: a person in each thirteen, three auctions, nine bids.
    """
    chance = random.Random(f"nexmark {seed}")
    people, auctions, bids = list[Row](), list[Row](), list[Row]()
    for number in range(events):
        # Several at once, and now and then a while with nothing: some sessions end by it, some just do not.
        at = START + timedelta(seconds=number // 2 * _STEP_SECONDS + number // 40 * 9)
        match _ROUND[number % len(_ROUND)]:
            case "person":
                people.append(_person(chance, _FIRST_PERSON + len(people), at))
            case "auction":
                auctions.append(_auction(chance, _FIRST_AUCTION + len(auctions), at, people))
            case _:
                bids.append(_bid(chance, at, people, auctions))
    return AuctionHouse(*(_as_it_arrives(chance, rows) for rows in (people, auctions, bids)))


def closing(side: str) -> Row:
    """The last row of a side, from far ahead, which has to do with no other."""
    match side:
        case "people":
            return _person(random.Random(0), 1, FAR)
        case "auctions":
            return _auction(random.Random(0), 2, FAR, [{"id": 3}])
        case _:
            return _bid(random.Random(0), FAR, [{"id": 4}], [{"id": 5}])


def side_input() -> pa.Table:
    """The bounded table that bids are joined with in query 13: some auctions are not in it."""
    keys = [key for key in range(10_000) if key % 3]
    return pa.table({"key": keys, "value": [f"value {key}" for key in keys]})


def as_json(rows: Sequence[Row]) -> str:
    """The text of a file."""
    return "".join(json.dumps(row, default=_as_text) + "\n" for row in rows)


def at_once(query: str, arrived: Mapping[str, Sequence[Row]]) -> list[tuple[Any, ...]]:
    """What DuckDB makes of everything that has arrived.

    Args:
        query: It reads `people`, `auctions`, `bids` and `side_input`; `closed_at` is a variable, the watermark that the
            closing rows leave.
        arrived: The rows, by side.
    """
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute("SET VARIABLE closed_at = ?::TIMESTAMP", [(FAR - LATENESS).replace(tzinfo=None)])
        for side, ddl in SCHEMAS.items():
            connection.register(side, _table(arrived.get(side, ()), ddl))
        connection.register("side_input", side_input())
        return connection.execute(query).fetchall()


def _person(chance: random.Random, number: int, at: datetime) -> Row:
    city = chance.choice([*_CITIES])
    name = f"{chance.choice(_FIRST_NAMES)} {chance.choice(_LAST_NAMES)}"
    return {
        "id": number,
        "name": name,
        "emailAddress": f"{name.lower().replace(' ', '.')}@example.com",
        "creditCard": " ".join(f"{chance.randrange(10_000):04d}" for _ in range(4)),
        "city": city,
        "state": _CITIES[city],
        "dateTime": at,
        "extra": _extra(chance),
    }


def _auction(chance: random.Random, number: int, at: datetime, people: Sequence[Row]) -> Row:
    initial_bid = _price(chance)
    return {
        "id": number,
        "itemName": f"item {chance.randrange(50)}",
        "description": _extra(chance),
        "initialBid": initial_bid,
        "reserve": initial_bid + _price(chance),
        "dateTime": at,
        "expires": at + timedelta(seconds=chance.randint(1, 20)),
        "seller": _newest(chance, people)["id"],
        "category": chance.randint(10, 12),
        "extra": _extra(chance),
    }


def _bid(chance: random.Random, at: datetime, people: Sequence[Row], auctions: Sequence[Row]) -> Row:
    channel = chance.choice(_CHANNELS)
    return {
        "auction": _hot(chance, auctions)["id"],
        "bidder": chance.choice(people[-4:])["id"],
        "price": _price(chance),
        "channel": channel,
        "url": f"https://www.nexmark.com/{channel.lower()}/item.htm?query=1",
        "dateTime": at,
        "extra": _extra(chance),
    }


def _newest(chance: random.Random, rows: Sequence[Row]) -> Row:
    """Mostly the newest one, else one of some before."""
    return rows[-1] if chance.random() < 0.5 else chance.choice(rows[-5:])


def _hot(chance: random.Random, auctions: Sequence[Row]) -> Row:
    """Every second time the one of ten that all want, else a new one."""
    return auctions[(len(auctions) - 1) // 10 * 10] if chance.random() < 0.5 else _newest(chance, auctions)


def _price(chance: random.Random) -> int:
    """As Nexmark draws it, from 100 to 100 million; but so few that the highest are often several."""
    return int(10 ** chance.randint(0, 6)) * 100


def _extra(chance: random.Random) -> str:
    return "".join(chance.choices("abcdefgh ", k=8))


def _as_it_arrives(chance: random.Random, rows: Sequence[Row]) -> list[Row]:
    behind = [chance.randint(0, int(LATENESS.total_seconds() / _STEP_SECONDS) - 1) for _ in rows]
    arrives = [
        row["dateTime"] + timedelta(seconds=steps * _STEP_SECONDS) for row, steps in zip(rows, behind, strict=True)
    ]
    return [rows[number] for number in sorted(range(len(rows)), key=arrives.__getitem__)]


def _table(rows: Sequence[Row], ddl: str) -> pa.Table:
    kinds = {"bigint": pa.int64(), "string": pa.string(), "timestamp": pa.timestamp("us")}
    columns = [column.split() for column in ddl.split(",")]
    naive = [{name: _naive(value) for name, value in row.items()} for row in rows]
    return pa.Table.from_pylist(naive, pa.schema([(name, kinds[kind]) for name, kind in columns]))


def _naive(value: Any) -> Any:
    return value.replace(tzinfo=None) if isinstance(value, datetime) else value


def _as_text(value: Any) -> str:
    return str(value.isoformat(timespec="milliseconds"))
