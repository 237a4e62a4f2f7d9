"""Whether operators and sensors defer where their declaration does not say."""

from __future__ import annotations

import os
from configparser import ConfigParser

from airflow.configuration import conf

_SECTION, _KEY = "operators", "default_deferrable"


def default_deferrable() -> bool | None:
    """What Airflow's `[operators] default_deferrable` says; None where nobody has set it.

    Airflow's own default is no word of anybody's: what is made to be deferred then is.
    """
    # What Airflow's own defaults say does not count here: the parser itself has only what the file says.
    is_set = f"AIRFLOW__{_SECTION}__{_KEY}".upper() in os.environ or ConfigParser.has_option(conf, _SECTION, _KEY)
    return conf.getboolean(_SECTION, _KEY) if is_set else None
