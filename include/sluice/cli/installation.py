"""`sluice jars | profile`: what the machine needs for Spark."""

from __future__ import annotations

import sys
from typing import Any

from sluice.cli.options import AsJson
from sluice.cli.printing import print_json
from sluice.extras import check_extra


def fetch_jars() -> None:
    """Bring every pinned jar into the shared cache, checked by hash."""
    check_extra("spark", "`sluice jars fetch`")
    from sluice.spark import jars

    for jar in jars.fetch():
        print(f"fetched {jar.file_name}", file=sys.stderr)
    print(f"{len(jars.manifest())} jars in {jars.cache_folder()}")


def list_jars(as_json: AsJson = False) -> None:
    """List the pinned jars, and whether the cache has them."""
    check_extra("spark", "`sluice jars list`")
    from sluice.spark import jars

    rows = [(jar.coordinates, str(jar.path()), jar.is_cached()) for jar in jars.manifest()]
    if as_json:
        print_json([{"jar": jar, "path": path, "is_cached": cached} for jar, path, cached in rows])
        return
    from sluice.cli.printing import print_table

    print_table(
        "Jars", ("jar", "path", "cached"), [(jar, path, "yes" if cached else "no") for jar, path, cached in rows]
    )


def build_launch_profile() -> None:
    """Build the profile of this Java and these jars, in a minute; runs take it from then on."""
    check_extra("spark", "`sluice profile build`")
    from sluice.spark.profile_build import build_profile
    from sluice.training import train

    profile = build_profile(train)
    print(f"launch profile in {profile.folder}")


def show_launch_profile(as_json: AsJson = False) -> None:
    """Show whether runs are started with a profile, and why not."""
    check_extra("spark", "`sluice profile show`")
    from sluice.errors import RunError
    from sluice.spark.launch_profile import current_profile

    document: dict[str, Any] = {"usable": False, "reason": None, "folder": None, "java": None}
    try:
        profile = current_profile()
        document |= {"folder": str(profile.folder), "java": profile.installation.java}
        reason, record = profile.why_unfit(), profile.record()
        document |= {"usable": reason is None, "reason": reason}
        if record is not None:
            document |= {"built_at": record.built_at.isoformat(), "archive_bytes": record.archive_bytes}
    except RunError as exc:
        document["reason"] = str(exc)
    if as_json:
        print_json(document)
        return
    from sluice.cli.printing import print_table

    print_table("Launch profile", ("", ""), list(document.items()))
