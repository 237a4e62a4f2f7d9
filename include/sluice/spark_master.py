"""What names a Spark: a master, or the URL of a Spark Connect server."""

from __future__ import annotations

import difflib
import os
import re

from sluice.errors import DeclarationError

SERVE = "serve"
"""The Spark that `sluice serve` keeps warm for the project, and one of its own where none is there."""
CONNECT_SCHEME = "sc://"
"""What the URL of a Spark Connect server begins with."""
_LOCAL = re.compile(r"local(-cluster)?(\[\s*(\*|[1-9]\d*)\s*(,\s*\d+\s*){0,2}\])?")
_OWN = ("spark", "k8s", "sc")
_NOT_SPARK = {
    "http": "spark://HOST:7077, or k8s://https://HOST:PORT",
    "https": "k8s://https://HOST:PORT",
    "mesos": "spark://HOST:7077: Spark 4 has no Mesos any more",
    "connect": "sc://HOST:15002",
}
_EXAMPLES = "`local[*]`, `serve`, `spark://HOST:7077`, `yarn`, `k8s://https://HOST:PORT` or `sc://HOST:15002`"


def check_master(master: str, place: str) -> None:
    """Refuse what can name no Spark. Cluster managers that others have written may bear any other name.

    Raises:
        DeclarationError: It is certainly wrong.
    """
    scheme, is_url, rest = master.partition("://")
    if not is_url and (_LOCAL.fullmatch(master) or master in {"yarn", SERVE}):
        return
    remedy = None
    if is_url and scheme.lower() in _NOT_SPARK:
        remedy = f"write {_NOT_SPARK[scheme.lower()]}"
    elif is_url and scheme.lower() in _OWN and scheme not in _OWN:
        remedy = f"write it in small letters: {scheme.lower()}://"
    elif is_url and scheme in _OWN and not rest.strip("/"):
        remedy = f"name the host: {_EXAMPLES}"
    elif not is_url and re.fullmatch(r"(spark|sc|k8s):/?[^/].*", master):
        remedy = f"write two slashes: {master.replace(':/', ':', 1).replace(':', '://', 1)}"
    elif not is_url and re.fullmatch(r"[\w.-]+:\d+", master):
        remedy = f"write spark://{master} for a cluster, or sc://{master} for Spark Connect"
    elif not is_url and (near := _near(master)) is not None:
        remedy = f"did you mean `{near}`?"
    if remedy is not None:
        # A URL may hold a token.
        raise DeclarationError(f"no Spark has the name `{master}`" if not is_url else f"`{scheme}://` names no Spark",
                               where=place, remedy=remedy)  # fmt: skip


def _near(master: str) -> str | None:
    """What somebody has probably meant: a misspelt name of Spark's own."""
    word, bracket, inside = master.partition("[")
    if word.lower() == "yarn" or word.lower() in {"yarn-client", "yarn-cluster"}:
        return "yarn"
    if word == "local" or difflib.get_close_matches(word.lower(), ["local"], cutoff=0.7):
        threads = inside.strip("] ")
        return f"local[{threads}]" if threads == "*" or (threads.isdecimal() and int(threads)) else "local[*]"
    return "yarn" if not bracket and difflib.get_close_matches(word.lower(), ["yarn"], cutoff=0.7) else None


def is_submitted() -> bool:
    """Whether this process was started by `spark-submit`, which has its own master and class path."""
    return "PYSPARK_GATEWAY_PORT" in os.environ
