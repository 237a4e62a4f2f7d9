"""Is every flight in the table once, whoever wrote it? Whenever somebody asks, and for what they ask."""

from airflow.sdk import DAG, Param

from sluice_airflow.operators.audit_stream import AuditStreamOperator

with DAG(
    "flights_audit",
    schedule=None,
    params={"where": Param("", type="string", description="Only these rows: `flight_date >= '2013-07-01'`")},
    tags=["sluice", "example"],
) as flights_audit:
    AuditStreamOperator(
        task_id="audit",
        stream="departures",
        suite="include/expectations/departures_table.json",
        where="{{ params.where }}",
    )
