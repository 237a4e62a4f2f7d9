"""Airflow's simple auth manager, in which one DAG is for administrators only: by itself it knows no single DAGs."""

from __future__ import annotations

from typing import Any

from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager


class PayrollIsPrivate(SimpleAuthManager):
    """Keeps the DAG `payroll` from all but administrators."""

    def is_authorized_dag(self, *, method: Any, user: Any, access_entity: Any = None, details: Any = None) -> bool:
        """Whether a user may do something with a DAG."""
        if details is not None and details.id == "payroll" and user.role.upper() != "ADMIN":
            return False
        return super().is_authorized_dag(method=method, user=user, access_entity=access_entity, details=details)
