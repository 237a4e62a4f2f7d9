"""One stream for each stateful operator; what Spark does with the rows is in `jobs/operators`."""

from sluice import Stream, sinks, sources

FLIGHTS = sources.files(
    "data/landing/flights",
    format="csv",
    schema="""
        year int, month int, day int, dep_time int, sched_dep_time int, dep_delay int, arr_time int, sched_arr_time int,
        arr_delay int, carrier string, flight int, tailnum string, origin string, dest string, air_time int,
        distance int, hour int, minute int, time_hour timestamp
    """,
    header=True,
    null_value="NA",
    max_files_per_batch=2,
)
WEATHER = sources.files(
    "data/landing/weather",
    format="csv",
    schema="""
        origin string, year int, month int, day int, hour int, temp double, dewp double, humid double, wind_dir int,
        wind_speed double, wind_gust double, precip double, pressure double, visib double, time_hour timestamp
    """,
    header=True,
    null_value="NA",
    max_files_per_batch=2,
)

tumbling_window = Stream(
    name="tumbling_window",
    sources={"flights": FLIGHTS},
    transform="jobs.operators.windows:tumbling_window",
    sink=sinks.delta("data/lake/tumbling_window"),
)
sliding_window = Stream(
    name="sliding_window",
    sources={"flights": FLIGHTS},
    transform="jobs.operators.windows:sliding_window",
    sink=sinks.delta("data/lake/sliding_window"),
)
session_window = Stream(
    name="session_window",
    sources={"flights": FLIGHTS},
    transform="jobs.operators.windows:session_window",
    sink=sinks.delta("data/lake/session_window"),
)
