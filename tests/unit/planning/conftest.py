"""How many examples the property tests try: `HYPOTHESIS_PROFILE=campaign` for many."""

import os

from hypothesis import HealthCheck, settings

_SHARED = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large]}

settings.register_profile("default", max_examples=50, stateful_step_count=15, **_SHARED)
settings.register_profile("campaign", max_examples=1000, stateful_step_count=30, **_SHARED)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))
