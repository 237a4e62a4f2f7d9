"""What Airflow asks of a provider package."""

from __future__ import annotations

from typing import Any


def get_provider_info() -> dict[str, Any]:
    """Describe this provider; the shape is Airflow's `provider_info.schema.json`."""
    return {
        "package-name": "sluice",
        "name": "Sluice",
        "description": "Streaming semantics on a batch schedule: Spark Structured Streaming, planned and bounded.",
        "integrations": [
            {
                "integration-name": "Sluice",
                "external-doc-url": "https://spark.apache.org/streaming/",
                "tags": ["software"],
            }
        ],
        "operators": [
            {"integration-name": "Sluice", "python-modules": ["sluice_airflow.operators.run_stream"]},
        ],
    }
