"""Departures from New York: daily files in, clean flights in Delta, hourly delays per airport out of them."""

from sluice import Stream, sinks, sources

FLIGHTS_SCHEMA = """
    year int, month int, day int, dep_time int, sched_dep_time int, dep_delay int, arr_time int, sched_arr_time int,
    arr_delay int, carrier string, flight int, tailnum string, origin string, dest string, air_time int, distance int,
    hour int, minute int, time_hour timestamp
"""

departures = Stream(
    name="departures",
    sources={
        "flights": sources.files(
            "data/landing/flights",
            format="csv",
            schema=FLIGHTS_SCHEMA,
            header=True,
            null_value="NA",
            max_files_per_batch=31,
        )
    },
    transform="jobs.flights:departures",
    sink=sinks.delta("data/lake/departures", partition_by=["flight_date"]),
    interval_column="flight_date",
    quality="include/expectations/departures.json",
)

hourly_delays = Stream(
    name="hourly_delays",
    sources={"departures": sources.delta("data/lake/departures", skip_change_commits=True)},
    transform="jobs.flights:hourly_delays",
    sink=sinks.delta("data/lake/hourly_delays"),
    interval_column="start",
)
