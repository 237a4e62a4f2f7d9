"""`make up`: Airflow with the example DAGs, until Ctrl-C."""

from __future__ import annotations

import signal
import sys

from demo.landing import BAD_DAY, land_correction, land_flights
from demo.standalone import REPOSITORY, USER, Standalone

_WHAT_HAPPENS = f"""
The file of {BAD_DAY} is half broken: the DAG `flights` fails in its third quarter and is paused, for the gate stops the
batch. To let the rest of it through, its broken rows being in the quarantine: `sluice quality release departures`,
then clear the failed task, and unpause the DAG. The day is delivered anew in the fourth quarter.
Four DAGs show how others follow the flights, and are paused until you want to see them: `flights_per_day`,
`flights_per_commit`, `flights_complete_day`, and `flights_on_arrival`, which runs them in place of `flights`.
"""


def main() -> None:
    """Land the flights if there are none, start Airflow, print where it is, and wait."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    landing = REPOSITORY / "data" / "landing" / "flights"
    if not landing.exists():
        print(f"landing the flights in {landing}", flush=True)
        land_flights(landing)
        land_correction(landing)
    print("starting Airflow", flush=True)
    with Standalone(REPOSITORY / "var" / "airflow", REPOSITORY / "dags", REPOSITORY) as airflow:
        airflow.wait_until_healthy()
        print(f"\n{how_to_use(airflow)}\n{_WHAT_HAPPENS}\nCtrl-C ends it.", flush=True)
        try:
            signal.pause()
        except KeyboardInterrupt:
            print("ending Airflow", flush=True)


def how_to_use(airflow: Standalone) -> str:
    """Where an Airflow is, how to come in, and the command that works on it, which is made."""
    command = airflow.keep_command()
    return f"""\
Airflow is at {airflow.url}
  user     {USER}
  password {airflow.password}
  log      {airflow.log_file}
  command  {command}
`airflow` by itself would look into another home: this command has the settings of this Airflow, as in
  {command} dags list
  {command} backfill create --help"""


if __name__ == "__main__":
    main()
