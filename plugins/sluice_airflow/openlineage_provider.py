"""Lineage through Airflow's OpenLineage provider, where it is installed: its settings, and the task as parent of a run.

The driver of a run tells of the stream's job: its inputs, outputs, columns and checks. The provider tells of the task,
whose events name the run and none of its data: so nothing is told twice.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from airflow.configuration import conf

from sluice.lineage.settings import SILENT, LineageSettings, Parent, using

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage
    from airflow.sdk import BaseOperator, Context

logger = logging.getLogger(__name__)

_SECTION = "openlineage"


@contextmanager
def lineage_of_task(context: Context, operator: BaseOperator) -> Iterator[None]:
    """While this lasts, tell of runs, and let drivers tell, as the provider is set up to tell of the task."""
    with using(_settings(context, operator)):
        yield


def _settings(context: Context, operator: BaseOperator) -> LineageSettings | None:
    """What the provider says; None where it is not installed, or not set up: then the environment counts."""
    if importlib.util.find_spec("airflow.providers.openlineage") is None:
        return None
    try:
        from airflow.providers.openlineage import conf as provider

        if conf.getboolean(_SECTION, "disabled", fallback=False):
            return SILENT
        if provider.is_disabled():
            # What more it has takes a second to import.
            return None
        return _settings_of_provider(context["ti"], operator)
    except Exception:
        # A connection that is missing, a file that can't be read: no run fails for its lineage.
        logger.warning("what the OpenLineage provider is set up with could not be told to the run", exc_info=True)
        return None


def _settings_of_provider(ti: Any, operator: BaseOperator) -> LineageSettings:
    from airflow.providers.openlineage.plugins import macros
    from airflow.providers.openlineage.plugins.adapter import OpenLineageAdapter
    from airflow.providers.openlineage.utils.emission_policy import resolve_task_emission_policy

    if not resolve_task_emission_policy(operator, ti.dag_id, ti.task_id).emit:
        return SILENT
    config = OpenLineageAdapter().get_openlineage_config()
    return LineageSettings(
        namespace=conf.get(_SECTION, "namespace", fallback="") or os.environ.get("OPENLINEAGE_NAMESPACE"),
        parent=Parent.parse(macros.lineage_parent_id(ti)),
        root=Parent.parse(macros.lineage_root_parent_id(ti)),
        # As a driver will read it: what can't be spelled for one must not come to light when it is started.
        config=None if config is None else json.loads(json.dumps(config)),
    )


class ToldByProvider:
    """What the provider asks an operator for. The run itself is told of by whoever runs it."""

    def get_openlineage_facets_on_start(self) -> OperatorLineage[Any, Any]:
        """Nothing yet: what the task will run is to be found out."""
        from airflow.providers.openlineage.extractors import OperatorLineage

        return OperatorLineage()

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> OperatorLineage[Any, Any]:
        """Which run the task has followed."""
        from airflow.providers.openlineage.extractors import OperatorLineage

        from sluice.lineage.jobs import SluiceRunFacet

        followed = self.followed_run
        if followed is None:
            return OperatorLineage()
        return OperatorLineage(run_facets={"sluice": SluiceRunFacet(runId=followed[1], stream=followed[0])})

    @property
    def followed_run(self) -> tuple[str, str] | None:
        """The stream, and the id of the run or the audit that the task has come to; None where it came to none."""
        raise NotImplementedError
