"""Page visits: daily JSON files in, one clean Delta table out."""

from sluice import Stream, sinks, sources

visits = Stream(
    name="visits",
    sources={
        "visits": sources.files(
            "data/landing/visits",
            format="json",
            schema="visit_id bigint, page string, visited_at timestamp",
            max_files_per_batch=10,
        )
    },
    transform="jobs.visits:visits",
    sink=sinks.delta("data/lake/visits", partition_by=["visit_date"]),
    interval_column="visit_date",
    quality="suites/visits.json",
)
