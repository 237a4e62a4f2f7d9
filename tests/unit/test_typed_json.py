"""JSON read into types: by many threads at once, and as msgspec reads it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from sluice.typed_json import decode_as

CROWD = """
import sys, threading
import msgspec
from sluice.typed_json import decode_as

sys.setswitchinterval(1e-6)
content = msgspec.json.encode({f"a{n}": {f"b{n}": {"c": [n]} for n in range(12)} for n in range(12)})
found = []
for number in range(100):
    inner = msgspec.defstruct(f"Inner{number}", [(f"b{n}", dict[str, list[int]] | None, None) for n in range(12)])
    outer = msgspec.defstruct(f"Outer{number}", [(f"a{n}", inner | None, None) for n in range(12)])
    together = threading.Barrier(6)

    def read():
        together.wait()
        found.append(decode_as(content, outer).a11.b11)

    threads = [threading.Thread(target=read) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
print(len(found), *{found["c"][0] for found in found})
"""


def test_a_crowd() -> None:
    """Threads that read a type for the first time, all at once: with msgspec alone, the process ends by a signal."""
    done = subprocess.run([sys.executable, "-c", CROWD], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout.split()) == (0, ["600", "11"]), done.stderr


def test_what_is_wrong() -> None:
    """The errors are msgspec's own."""
    assert decode_as(b"[1, 2]", list[int]) == [1, 2]
    with pytest.raises(msgspec.ValidationError, match="Expected `int`, got `str`"):
        decode_as('["a"]', list[int])
    with pytest.raises(msgspec.DecodeError, match="truncated"):
        decode_as(b"[", list[int])


def test_nobody_reads_otherwise() -> None:
    """All of our code reads types by that function, or by a decoder that is made when its module is imported."""
    roots = tuple(Path(__file__).parents[2] / name for name in ("include", "plugins"))
    code = {file: file.read_text("utf-8") for root in roots for file in root.rglob("*.py")}
    others = {
        file.name: found
        for file, text in code.items()
        if (
            found := re.findall(
                r"json\.decode\([^\n]*type=|msgspec\.convert\(|^ +.*msgspec\.json\.Decoder\(", text, re.MULTILINE
            )
        )
    }
    assert len(code) > 200
    assert list(others) == ["typed_json.py"]
