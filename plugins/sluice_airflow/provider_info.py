"""What Airflow asks of a provider package."""

from __future__ import annotations

from typing import Any


def get_provider_info() -> dict[str, Any]:
    """Describe this provider; the shape is Airflow's `provider_info.schema.json`."""
    return {
        "package-name": "sluice-streaming",
        "name": "Sluice",
        "description": "Streaming semantics on a batch schedule: Spark Structured Streaming, planned and bounded.",
        "integrations": [
            {
                "integration-name": "Sluice",
                "external-doc-url": "https://spark.apache.org/streaming/",
                "tags": ["software"],
            }
        ],
        "operators": [_modules("operators.run_stream", "operators.run_together", "operators.audit_stream")],
        "sensors": [_modules("sensors.progress", "sensors.lag", "sensors.quality")],
        "triggers": [
            _modules(
                "triggers.run",
                "triggers.together",
                "triggers.progress",
                "triggers.lag",
                "triggers.quality",
                "triggers.commits",
                "triggers.arrivals",
            )
        ],
        "task-decorators": [{"name": "stream", "class-name": "sluice_airflow.decorators.stream.stream_task"}],
    }


def _modules(*names: str) -> dict[str, Any]:
    return {"integration-name": "Sluice", "python-modules": [f"sluice_airflow.{name}" for name in names]}
