"""Hypothesis strategies for damaged files: random bytes, and valid content that was cut, flipped, doubled or nested."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from hypothesis import strategies as st

from sluice.errors import SluiceError

T = TypeVar("T")

DEEP = b"[" * 100_000
"""More brackets than any parser may recurse into."""

_SCRAPS = (
    b"null",
    b"{",
    b"}",
    b"[]",
    b'"',
    b"-1",
    b"1e999",
    b"9" * 30,
    b"\n",
    b"\r\n",
    b"\0",
    b"\xff\xfe",
    b"v1\n",
    b"[" * 2000,
)


def damaged(valid: bytes) -> st.SearchStrategy[bytes]:
    """Random bytes, or a valid file with up to three injuries."""
    return st.binary(max_size=100) | _injured(valid)


@st.composite
def _injured(draw: st.DrawFn, valid: bytes) -> bytes:
    content = bytearray(valid)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(content)))
        injury = draw(st.sampled_from(["cut", "flip", "insert", "double", "drop"]))
        if injury == "cut":
            del content[at:]
        elif injury == "flip" and at < len(content):
            content[at] ^= draw(st.integers(1, 255))
        elif injury == "insert":
            content[at:at] = draw(st.sampled_from(_SCRAPS) | st.binary(max_size=8))
        elif injury == "double":
            content += content[at:]
        elif injury == "drop":
            del content[at : at + draw(st.integers(1, 20))]
    return bytes(content)


def outcome(call: Callable[[], T]) -> T | SluiceError:
    """What a call gives: its value, or an error of ours. Any other error is raised, and fails the test."""
    try:
        return call()
    except SluiceError as refused:
        return refused


def short(value: object) -> str:
    """An id for a parameter that may be long."""
    return repr(value)[:40]
