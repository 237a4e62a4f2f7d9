"""Secrets of every kind, put wherever a project may have one, and found again wherever one is told."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Iterator
from pathlib import Path

KINDS = (
    *("conf_by_name", "conf_by_any_name", "java_option", "storage", "connection_password", "connection_extra"),
    *("environment", "literal", "url_of_a_setting", "url_of_an_error", "connect_token", "several_lines", "signature"),
    *("failing_literal", "row"),
)
CANARIES = {kind: f"canary{number:02d}{secrets.token_hex(8)}" for number, kind in enumerate(KINDS)}
"""No value of a secret is a part of any other word."""
OF_ERRORS = {"literal", "failing_literal", "row"}
"""What Spark quotes in its errors: these are in the driver's log, which only its owner can read."""
FROM_FILES = {kind for kind in KINDS if not kind.startswith(("connection", "environment"))}
_SETTINGS = """
[spark.conf]
"spark.hadoop.fs.s3a.secret.key" = "{conf_by_name}"
"spark.example.of.anything" = "{conf_by_any_name}"
"spark.example.url" = "https://me:{url_of_a_setting}@example.org/"
"spark.example.remote" = "sc://example.org:15002/;token={connect_token};use_ssl=true"
"spark.driver.extraJavaOptions" = "-Dexample.word={java_option}"
[storage]
aws_secret_access_key = "{storage}"
azure_storage_endpoint = "https://example.blob.core.windows.net/x?sv=1&sig={signature}&se=2"
google_service_account_key = '''
-----BEGIN PRIVATE KEY-----
MIIE{several_lines}first
MIIE{several_lines}second
-----END PRIVATE KEY-----
'''
"""
_TRANSFORM = """
import json, os
from pathlib import Path
from pyspark.sql import functions as F

def processes():
    for folder in Path("/proc").glob("[0-9]*"):
        for name in ("cmdline", "environ"):
            try:
                yield name, folder.name, (folder / name).read_bytes().decode(errors="replace")
            except OSError:
                continue
    for file in Path({aside!r}).rglob("*"):
        if file.is_file():
            yield "file", str(file), file.read_bytes().decode(errors="replace")

def events(events):
    found = [[name, process, text] for name, process, text in processes()]
    Path({seen!r}).write_text(json.dumps(found))
    ill = Path({ill!r}).read_text() if Path({ill!r}).exists() else ""
    if ill == "transform":
        conf = events.sparkSession.conf
        known = [conf.get("spark.hadoop.fs.s3a.secret.key"), conf.get("spark.example.remote")]
        token = "{url_of_an_error}"
        raise RuntimeError(f"can't reach https://me:{{token}}@example.org/?token={{token}} with {{known}}")
    if ill == "batch":
        events = events.withColumn("n", F.concat(F.lit("{failing_literal}"), F.col("text")).cast("bigint"))
    return events.where(F.sha2(F.concat(F.lit("{literal}"), F.col("n").cast("string")), 256) != "")

def keep(frame, batch_id):
    frame.collect()
"""


def settings() -> str:
    """What a project's `sluice.toml` has of secrets."""
    return _SETTINGS.format(**CANARIES)


def transform(folder: Path) -> str:
    """A module whose `events` notes what it sees of other processes, and fails as `ill` in the folder says."""
    places = {name: str(folder / name) for name in ("seen", "ill", "aside")}
    return _TRANSFORM.format(**places, **CANARIES)


def row(number: int, *, text: str = "") -> str:
    """A row of a source, as JSON."""
    return json.dumps({"n": number, "text": text, "day": "2026-01-01"})


def leaks(places: Iterable[tuple[str, str]], kinds: Iterable[str]) -> list[str]:
    """Which secret is told where, with what stands around it."""
    wanted = sorted(kinds)
    return [
        f"{kind} in {place}: {told[max(0, at - 150) : at + 40]!r}"
        for place, told in places
        for kind in wanted
        if (at := told.find(CANARIES[kind])) >= 0 and not (kind in OF_ERRORS and _is_log(place))
    ]


def processes(folder: Path, kind: str) -> Iterator[tuple[str, str]]:
    """What the transform saw: a `cmdline`, an `environ` or a `file`, by the process or the path."""
    for seen, name, told in json.loads((folder / "seen").read_text()):
        if seen == kind:
            yield f"{kind} {name}", f"{name}{told}"


def files(*roots: Path) -> Iterator[tuple[str, str]]:
    """What every file holds, its name included."""
    for root in roots:
        for path in [root, *root.rglob("*")] if root.is_dir() else [root]:
            if path.is_file() and not path.is_symlink():
                yield f"file {path}", f"{path}{path.read_bytes().decode(errors='replace')}"


def open_to_others(home: Path) -> dict[str, str]:
    """What others may reach of a home; what Spark makes by the umask is below a folder that they can't enter."""
    found = {str(path): oct(path.stat().st_mode) for path in home.rglob("*") if path.stat().st_mode & 0o077}
    return {path: mode for path, mode in found.items() if "/generations/" not in path and "/staged" not in path}


def _is_log(place: str) -> bool:
    path = Path(place.removeprefix("file "))
    return path.suffix == ".log" and path.exists() and not path.stat().st_mode & 0o077
