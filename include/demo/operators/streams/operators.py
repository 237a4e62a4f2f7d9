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

FLIGHTS_ALONE = {"flights": FLIGHTS}
BOTH = {"flights": FLIGHTS, "weather": WEATHER}

tumbling_window = Stream(
    name="tumbling_window",
    sources=FLIGHTS_ALONE,
    transform="jobs.operators.windows:tumbling_window",
    sink=sinks.delta("data/lake/tumbling_window"),
)
sliding_window = Stream(
    name="sliding_window",
    sources=FLIGHTS_ALONE,
    transform="jobs.operators.windows:sliding_window",
    sink=sinks.delta("data/lake/sliding_window"),
)
session_window = Stream(
    name="session_window",
    sources=FLIGHTS_ALONE,
    transform="jobs.operators.windows:session_window",
    sink=sinks.delta("data/lake/session_window"),
)
slowest_watermark = Stream(
    name="slowest_watermark",
    sources=BOTH,
    transform="jobs.operators.watermarks:slowest_watermark",
    sink=sinks.delta("data/lake/slowest_watermark"),
)
fastest_watermark = Stream(
    name="fastest_watermark",
    sources=BOTH,
    transform="jobs.operators.watermarks:fastest_watermark",
    sink=sinks.delta("data/lake/fastest_watermark"),
    conf={"spark.sql.streaming.multipleWatermarkPolicy": "max"},
)
update_mode = Stream(
    name="update_mode",
    sources=FLIGHTS_ALONE,
    transform="jobs.operators.aggregations:update_mode",
    sink=sinks.delta("data/lake/update_mode", merge_on=["carrier"]),
    output_mode="update",
)
complete_mode = Stream(
    name="complete_mode",
    sources=FLIGHTS_ALONE,
    transform="jobs.operators.aggregations:complete_mode",
    sink=sinks.delta("data/lake/complete_mode"),
    output_mode="complete",
)
drop_duplicates = Stream(
    name="drop_duplicates",
    sources=FLIGHTS_ALONE,
    transform="jobs.operators.duplicates:drop_duplicates",
    sink=sinks.delta("data/lake/drop_duplicates"),
)
drop_duplicates_within_watermark = Stream(
    name="drop_duplicates_within_watermark",
    sources=FLIGHTS_ALONE,
    transform="jobs.operators.duplicates:drop_duplicates_within_watermark",
    sink=sinks.delta("data/lake/drop_duplicates_within_watermark"),
)
limit = Stream(
    name="limit",
    sources=FLIGHTS_ALONE,
    transform="jobs.operators.duplicates:limit",
    sink=sinks.delta("data/lake/limit"),
)
static_join = Stream(
    name="static_join",
    sources=FLIGHTS_ALONE,
    transform="jobs.operators.joins:static_join",
    sink=sinks.delta("data/lake/static_join"),
)
inner_join = Stream(
    name="inner_join",
    sources=BOTH,
    transform="jobs.operators.joins:inner_join",
    sink=sinks.delta("data/lake/inner_join"),
)
left_join = Stream(
    name="left_join",
    sources=BOTH,
    transform="jobs.operators.joins:left_join",
    sink=sinks.delta("data/lake/left_join"),
)
right_join = Stream(
    name="right_join",
    sources=BOTH,
    transform="jobs.operators.joins:right_join",
    sink=sinks.delta("data/lake/right_join"),
)
full_join = Stream(
    name="full_join",
    sources=BOTH,
    transform="jobs.operators.joins:full_join",
    sink=sinks.delta("data/lake/full_join"),
)
semi_join = Stream(
    name="semi_join",
    sources=BOTH,
    transform="jobs.operators.joins:semi_join",
    sink=sinks.delta("data/lake/semi_join"),
)
event_time_out = Stream(
    name="event_time_out",
    sources=FLIGHTS_ALONE,
    transform="jobs.operators.group_state:event_time_out",
    sink=sinks.delta("data/lake/event_time_out"),
)
processing_time_out = Stream(
    name="processing_time_out",
    sources=FLIGHTS_ALONE,
    transform="jobs.operators.group_state:processing_time_out",
    sink=sinks.delta("data/lake/processing_time_out"),
)
value_state = Stream(
    name="value_state",
    sources=FLIGHTS_ALONE,
    transform="jobs.operators.processors:value_state",
    sink=sinks.delta("data/lake/value_state", merge_on=["carrier"]),
    output_mode="update",
)
evolved_state = Stream(
    name="evolved_state",
    sources=FLIGHTS_ALONE,
    transform="jobs.operators.processors:evolved_state",
    sink=sinks.delta("data/lake/evolved_state", merge_on=["carrier"]),
    output_mode="update",
    conf={"spark.sql.streaming.stateStore.encodingFormat": "avro"},
)
list_state = Stream(
    name="list_state",
    sources=FLIGHTS_ALONE,
    transform="jobs.operators.processors:list_state",
    sink=sinks.delta("data/lake/list_state", merge_on=["origin"]),
    output_mode="update",
)
timers = Stream(
    name="timers",
    sources=FLIGHTS_ALONE,
    transform="jobs.operators.processors:timers",
    sink=sinks.delta("data/lake/timers"),
)
time_to_live = Stream(
    name="time_to_live",
    sources=FLIGHTS_ALONE,
    transform="jobs.operators.processors:time_to_live",
    sink=sinks.delta("data/lake/time_to_live"),
)
map_state = Stream(
    name="map_state",
    sources=FLIGHTS_ALONE,
    transform="jobs.operators.pandas_processors:map_state",
    sink=sinks.delta("data/lake/map_state", merge_on=["origin", "dest"]),
    output_mode="update",
)
initial_state = Stream(
    name="initial_state",
    sources=FLIGHTS_ALONE,
    transform="jobs.operators.pandas_processors:initial_state",
    sink=sinks.delta("data/lake/initial_state", merge_on=["carrier"]),
    output_mode="update",
)
