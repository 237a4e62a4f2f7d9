"""`transformWithStateInPandas`: the same with frames in the place of rows, and state that is there from the start."""

from collections.abc import Iterator
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql.streaming import StatefulProcessor

from jobs.operators.feeds import departures

FLOWN_BEFORE = [("AA", 1000), ("UA", 2000)]
"""How many flights there were of a carrier before the first file."""


class Destinations(StatefulProcessor):
    """A map: how many flights went where."""

    def init(self, handle: Any) -> None:
        """Name the variables."""
        self._flown = handle.getMapState("flown", "dest string", "flights long")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
        """Tell the destinations that came anew."""
        changed = {}
        for frame in rows:
            for dest, flights in frame["dest"].fillna("?").value_counts().items():
                before = self._flown.getValue((dest,))[0] if self._flown.containsKey((dest,)) else 0
                changed[dest] = before + int(flights)
                self._flown.updateValue((dest,), (changed[dest],))
        yield pd.DataFrame({"origin": key[0], "dest": [*changed], "flights": [*changed.values()]})


class Continued(StatefulProcessor):
    """A value that does not begin at nothing."""

    def init(self, handle: Any) -> None:
        """Name the variables."""
        self._totals = handle.getValueState("totals", "flights long")

    def handleInitialState(self, key: Any, initialState: pd.DataFrame, timerValues: Any) -> None:
        """Take what there was before; once for each key, in the first batch of all."""
        self._totals.update((int(initialState["flights"].iloc[0]),))

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
        """Count on."""
        flights = (self._totals.get()[0] if self._totals.exists() else 0) + sum(map(len, rows))
        self._totals.update((flights,))
        yield pd.DataFrame({"carrier": [key[0]], "flights": [flights]})


def map_state(flights: DataFrame) -> DataFrame:
    """Flights from each airport to each destination."""
    columns = "origin string, dest string, flights long"
    airports = departures(flights).groupBy("origin")
    return airports.transformWithStateInPandas(Destinations(), columns, "update", "None")


def initial_state(flights: DataFrame) -> DataFrame:
    """Flights per carrier, those before the first file among them."""
    before = flights.sparkSession.createDataFrame(FLOWN_BEFORE, "carrier string, flights long").groupBy("carrier")
    carriers = departures(flights).groupBy("carrier")
    columns = "carrier string, flights long"
    return carriers.transformWithStateInPandas(Continued(), columns, "update", "None", initialState=before)
