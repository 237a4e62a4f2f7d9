"""What a session on a server leaves in this process's modules, which a Spark of its own has no use for."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sluice.spark.left_behind import forget_servers_modules

MODULES = {
    "leftpack/__init__.py": "",
    "leftpack/doubling.py": "from pyspark.sql.connect.udf import UserDefinedFunction\n"
    "from pyspark.sql.types import LongType\n\n"
    "double = UserDefinedFunction(lambda number: number * 2, LongType())._wrapped()\n",
    "leftpack/plain.py": "def same(number):\n    return number\n",
    "leftuser.py": "from leftpack import doubling, plain\n",
    "leftother.py": "from leftpack.plain import same\n",
}


@pytest.fixture
def imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, object]]:
    """Some modules, by name: one makes a function for a server, one holds that module."""
    for name, code in MODULES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    names = ["leftpack.doubling", "leftpack.plain", "leftuser", "leftother"]
    yield {name: importlib.import_module(name) for name in names}
    for name in (*names, "leftpack"):
        sys.modules.pop(name, None)


def test_modules_of_a_server(imported: dict[str, object]) -> None:
    """They are imported anew, and so is who holds them; all others stay as they are."""
    forget_servers_modules()

    kept = {name for name, module in imported.items() if sys.modules.get(name) is module}
    assert kept == {"leftpack.plain", "leftother"}
    assert "leftpack" in sys.modules
    assert importlib.import_module("leftuser").doubling is not imported["leftpack.doubling"]
