"""`transformWithState`: variables of one's own per key, timers, and what is forgotten after a while."""

from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor

from jobs.operators.feeds import departures

HOURS = 3
REMEMBERED_MILLISECONDS = 60 * 60 * 1000


class Totals(StatefulProcessor):
    """One value: how many flights there were."""

    def init(self, handle: Any) -> None:
        """Name the variables."""
        self._totals = handle.getValueState("totals", "flights long")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        """Count on."""
        flights = (self._totals.get()[0] if self._totals.exists() else 0) + sum(1 for _ in rows)
        self._totals.update((flights,))
        yield Row(carrier=key[0], flights=flights)


class TotalsAndMiles(StatefulProcessor):
    """The same value with a field more: state that was kept without it goes on, and has none."""

    def init(self, handle: Any) -> None:
        """Name the variables."""
        self._totals = handle.getValueState("totals", "flights long, miles long")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        """Count on."""
        flights, miles = self._totals.get() if self._totals.exists() else (0, 0)
        for row in rows:
            flights, miles = flights + 1, (miles or 0) + (row.distance or 0)
        self._totals.update((flights, miles))
        yield Row(carrier=key[0], flights=flights)


class LongestDelays(StatefulProcessor):
    """A list: the three longest delays."""

    def init(self, handle: Any) -> None:
        """Name the variables."""
        self._longest = handle.getListState("longest", "delay int")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        """Keep the longest of those that were known and those that came."""
        delays = [delay for (delay,) in self._longest.get()] if self._longest.exists() else []
        delays += [row.dep_delay for row in rows if row.dep_delay is not None]
        longest = sorted(delays, reverse=True)[:3]
        if longest:
            self._longest.put([(delay,) for delay in longest])
        yield Row(origin=key[0], longest=longest)


class Periods(StatefulProcessor):
    """A map, and a timer per period: what an aircraft flew in it is told once the watermark has passed its end."""

    def init(self, handle: Any) -> None:
        """Name the variables."""
        self._handle = handle
        self._flown = handle.getMapState("flown", "until long", "flights long, miles long")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        """Add each row to its period."""
        for row in rows:
            flights, miles = self._flown.getValue((row.until,)) if self._flown.containsKey((row.until,)) else (0, 0)
            self._flown.updateValue((row.until,), (flights + 1, miles + (row.distance or 0)))
            self._handle.registerTimer(row.until * 1000)
        return iter(())

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        """A period is over."""
        until = expiredTimerInfo.getExpiryTimeInMs() // 1000
        flights, miles = self._flown.getValue((until,))
        self._flown.removeKey((until,))
        yield Row(tailnum=key[0], until=until, flights=flights, miles=miles)


class Remembered(StatefulProcessor):
    """A value that is forgotten an hour after it was last set."""

    def init(self, handle: Any) -> None:
        """Name the variables."""
        self._seen = handle.getValueState("seen", "flights long", ttlDurationMs=REMEMBERED_MILLISECONDS)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        """Tell of an aircraft that is not remembered."""
        is_new, flights = not self._seen.exists(), sum(1 for _ in rows)
        self._seen.update((flights,))
        if is_new:
            yield Row(tailnum=key[0], flights=flights)


def value_state(flights: DataFrame) -> DataFrame:
    """Flights per carrier."""
    carriers = departures(flights).groupBy("carrier")
    return carriers.transformWithState(Totals(), "carrier string, flights long", "update", "None")


def evolved_state(flights: DataFrame) -> DataFrame:
    """The same with a field more in the state; a stream of `value_state` may go on as this one."""
    carriers = departures(flights).groupBy("carrier")
    return carriers.transformWithState(TotalsAndMiles(), "carrier string, flights long", "update", "None")


def list_state(flights: DataFrame) -> DataFrame:
    """The longest delays of each airport."""
    airports = departures(flights).groupBy("origin")
    return airports.transformWithState(LongestDelays(), "origin string, longest array<int>", "update", "None")


def timers(flights: DataFrame) -> DataFrame:
    """What each aircraft flew in three hours."""
    end = F.ceil((F.unix_seconds("scheduled_at") + 1) / (HOURS * 3600)) * HOURS * 3600
    aircraft = departures(flights).withColumn("until", end.cast("long")).groupBy("tailnum")
    columns = "tailnum string, until long, flights long, miles long"
    return aircraft.transformWithState(Periods(), columns, "append", "EventTime")


def time_to_live(flights: DataFrame) -> DataFrame:
    """The aircraft that nobody heard of for an hour, by the clock, as they are heard of again."""
    aircraft = departures(flights).groupBy("tailnum")
    columns = "tailnum string, flights long"
    return aircraft.transformWithState(Remembered(), columns, "append", "ProcessingTime")
