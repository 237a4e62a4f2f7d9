"""Settings on their way into a JVM."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from sluice.spark.settings_file import settings_file, settings_path


def test_the_file_has_no_name() -> None:
    """So there is nothing that could stay behind, and nobody else can open it."""
    with settings_file({"spark.secret": "hush"}) as descriptor:
        found = os.fstat(descriptor)
        assert (found.st_nlink, stat.S_IMODE(found.st_mode)) == (0, 0o600)
        assert Path(settings_path(descriptor)).read_text("latin-1") == "spark.secret=hush\n"


def test_characters_that_properties_would_misread() -> None:
    """Java would take a backslash for an escape, and a line's end for the end."""
    with settings_file({"a": "back\\slash\nline\r", "b": "ü€"}) as descriptor:
        assert Path(settings_path(descriptor)).read_text("latin-1") == "a=back\\\\slash\\nline\\r\nb=\\u00fc\\u20ac\n"
