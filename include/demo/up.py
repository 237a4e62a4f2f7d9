"""`make up`: Airflow with the example DAGs, until Ctrl-C."""

from __future__ import annotations

import signal
import sys

from demo.landing import land_flights
from demo.standalone import REPOSITORY, USER, Standalone


def main() -> None:
    """Land the flights if there are none, start Airflow, print where it is, and wait."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    landing = REPOSITORY / "data" / "landing" / "flights"
    if not landing.exists():
        print(f"landing the flights in {landing}", flush=True)
        land_flights(landing)
    print("starting Airflow", flush=True)
    with Standalone(REPOSITORY / "var" / "airflow", REPOSITORY / "dags", REPOSITORY) as airflow:
        airflow.wait_until_healthy()
        print(f"\nAirflow is at {airflow.url}\n  user     {USER}\n  password {airflow.password}")
        print(f"  log      {airflow.log_file}\n\nCtrl-C ends it.", flush=True)
        try:
            signal.pause()
        except KeyboardInterrupt:
            print("ending Airflow", flush=True)


if __name__ == "__main__":
    main()
