"""Finds the project of an Airflow."""

from __future__ import annotations

import os

from airflow.configuration import conf

from sluice.project import Project, find_project


def airflow_project(folder: str | None = None) -> Project:
    """The project in `folder`, else in `$SLUICE_PROJECT`, else in or above the DAGs folder.

    Raises:
        DeclarationError: There is none, or it is not right.
    """
    return find_project(folder or os.environ.get("SLUICE_PROJECT") or conf.get("core", "dags_folder"))
