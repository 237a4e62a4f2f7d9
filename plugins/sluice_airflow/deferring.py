"""Whether operators and sensors defer where their declaration does not say."""

from __future__ import annotations

import os

from airflow.configuration import conf

_SECTION, _KEY = "operators", "default_deferrable"


def default_deferrable() -> bool | None:
    """What Airflow's `[operators] default_deferrable` says; None where nobody has set it.

    Airflow writes its own default, `false`, into every `airflow.cfg` that it makes: there it is no word of anybody's.
    In the environment it is.
    """
    is_wanted = conf.getboolean(_SECTION, _KEY)
    is_said = is_wanted or f"AIRFLOW__{_SECTION}__{_KEY}".upper() in os.environ
    return is_wanted if is_said else None
