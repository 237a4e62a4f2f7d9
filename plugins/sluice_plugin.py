"""Registers the plugin where Sluice lies in the plugins folder and is not installed.

Where it is installed, its entry point registers it; with both, Airflow records an import error.
"""

from importlib.metadata import entry_points

if not any(found.value.startswith("sluice_airflow.") for found in entry_points(group="airflow.plugins")):
    from sluice_airflow.plugin import SluicePlugin  # noqa: F401 - Airflow finds it here
