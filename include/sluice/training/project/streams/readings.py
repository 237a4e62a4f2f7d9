"""Files in, a clean table out; then hourly figures of the table."""

from sluice import Stream, sinks, sources

readings = Stream(
    name="readings",
    sources={"readings": sources.files("landing", format="json", schema="sensor bigint, at timestamp, value double")},
    transform="jobs.readings:readings",
    sink=sinks.delta("lake/readings", partition_by=["day"]),
    quality="suites/readings.json",
)
hours = Stream(
    name="hours",
    sources={"readings": sources.delta("lake/readings")},
    transform="jobs.readings:hours",
    sink=sinks.delta("lake/hours"),
)
