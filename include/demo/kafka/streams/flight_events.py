"""Flights that are told by events in two topics of Kafka: each with its landing, and the history of each aircraft."""

from sluice import Stream, sinks, sources

_events = {
    "departures": sources.kafka("${DEMO_KAFKA}", topics=["departures"]),
    "landings": sources.kafka("${DEMO_KAFKA}", topics=["landings"]),
}

flights = Stream(
    name="flights",
    sources=_events,
    transform="jobs.flight_events:flights",
    sink=sinks.delta("lake/flights", partition_by=["flight_date"]),
    interval_column="flight_date",
    lateness="12 hours",
)

aircraft = Stream(
    name="aircraft",
    sources=_events,
    transform="jobs.flight_events:aircraft",
    sink=sinks.delta(
        "lake/aircraft",
        changes=sinks.changes(
            keys=["tailnum"],
            sequence_by="at",
            apply_as_deletes="kind = 'cancelled'",
            stored_as_scd_type=2,
        ),
    ),
)
