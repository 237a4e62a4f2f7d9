"""What a user of Airflow may see and do here. Airflow itself does not guard the apps of plugins: this does."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Annotated
from urllib.parse import urlsplit

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.auth.managers.models.resource_details import AccessView, DagAccessEntity, DagDetails
from airflow.api_fastapi.core_api.security import GetUserDep
from airflow.configuration import conf
from airflow.models.dag import DagModel
from fastapi import Depends, HTTPException, Request, status

from sluice_airflow.ui.dag_tasks import known_dags


class Reader:
    """The user of a request, and the DAGs that they may read."""

    def __init__(self, user: BaseUser) -> None:
        self._user = user
        self._readable = get_auth_manager().get_authorized_dag_ids(user=user)

    @cached_property
    def _known(self) -> frozenset[str]:
        """Every DAG that Airflow knows; asked for once, however many streams a request looks at."""
        return known_dags()

    @property
    def name(self) -> str:
        """What Airflow calls the user."""
        return self._user.get_name()

    @property
    def sees_import_errors(self) -> bool:
        """Whether the user may see DAG files that do not load, and so declarations that do not."""
        return get_auth_manager().is_authorized_view(access_view=AccessView.IMPORT_ERRORS, user=self._user)

    @property
    def reads_all(self) -> bool:
        """Whether the user may read every DAG, and so a stream of which nobody can tell the DAGs."""
        return self._known <= self._readable

    def may_read(self, dag_ids: Iterable[str]) -> bool:
        """Whether the user may read every DAG of a stream; a stream that no DAG is known of is open to all users.

        DAGs that are gone do not count, as long as one is left: nobody could be given a permission for them any more.
        """
        unreadable = set(dag_ids) - self._readable
        if not unreadable:
            return True
        if self._known & unreadable:
            return False
        return bool(set(dag_ids) & self._readable) or all(self._may("GET", dag_id) for dag_id in unreadable)

    def may_stop(self, dag_id: str | None) -> bool:
        """Whether the user may end a run that this DAG asked for; one that none did, who may edit all of them."""
        if not self._may("PUT", dag_id):
            return False
        # What an auth manager says without a DAG may be true for one of them only.
        return dag_id is not None or self._known <= get_auth_manager().get_authorized_dag_ids(
            user=self._user, method="PUT"
        )

    def may_change(self, dag_ids: Iterable[str]) -> bool:
        """Whether the user may decide about a stream: who may edit the runs of every DAG that runs it."""
        there = set(dag_ids) & self._known
        return all(map(self.may_stop, there)) if there else self.may_stop(None)

    def _may(self, method: str, dag_id: str | None) -> bool:
        team = DagModel.get_team_name(dag_id) if dag_id else None
        return get_auth_manager().is_authorized_dag(
            method=method,  # type: ignore[arg-type]
            access_entity=DagAccessEntity.RUN,
            details=DagDetails(id=dag_id, team_name=team),
            user=self._user,
        )


def reader(user: GetUserDep) -> Reader:
    """The user of a request."""
    return Reader(user)


ReaderDep = Annotated[Reader, Depends(reader)]


def require_same_origin(request: Request) -> None:
    """Refuse what another site's page sends: a browser adds the user's cookie to that, too.

    Raises:
        HTTPException: The request does not come from a page of this Airflow.
    """
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        is_ours = site == "same-origin"
    else:
        # Browsers send no Sec-Fetch-Site to plain HTTP; Origin they send with every POST.
        origin = urlsplit(request.headers.get("origin", "")).netloc
        is_ours = bool(origin) and origin in {
            request.headers.get("host", ""),
            urlsplit(conf.get("api", "base_url", fallback="")).netloc,
        }
    if not is_ours:
        raise HTTPException(status.HTTP_403_FORBIDDEN, "This request does not come from a page of this Airflow.")
