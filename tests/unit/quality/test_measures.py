"""Measures: what Spark observed is untrusted, sketches merge by their rule, samples stay bounded."""

from __future__ import annotations

import base64
import json
import random
import struct
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.quality.compile import compile_suite
from sluice.quality.distinct_sketch import DistinctSketch
from sluice.quality.measures import Measure, merge_batches
from sluice.quality.results import CheckResult, check_results
from tests.unit.quality.suites import row, suite

APPROXIMATE = {"sluice": {"approximate": True}}
EVERY_KIND = compile_suite(
    suite(
        row("expect_multicolumn_values_to_be_equal", column_list=["n", "m"]),
        row("expect_column_distinct_values_to_equal_set", column="d", value_set=["2026-01-01"]),
        row("expect_column_unique_value_count_to_be_between", column="n", meta=APPROXIMATE),
        row("expect_column_stdev_to_be_between", column="x"),
        row("expect_column_max_to_be_between", column="at"),
        row("expect_column_sum_to_be_between", column="x"),
        row("expect_column_min_to_be_between", column="d"),
    ),
    "n INT, m INT, x DOUBLE, d DATE, at TIMESTAMP",
    sample=3,
)
ANYTHING = st.recursive(
    st.none()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["[]", '[["1"]]', '[["1","2"]]', '["x"]']),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
SKETCH = bytes.fromhex("0104033f011acc9302b06af2b3b61cd8ae9c3ea41b13d5ac30")
"""Two values, as Spark 4.2 wrote them."""


@given(st.data())
def test_whatever_was_observed(data: st.DataObject) -> None:
    """Values that no measure has fail the checks that need them, and nothing else goes wrong."""
    batches = [{measure.name: data.draw(ANYTHING) for measure in EVERY_KIND.measures} for _ in range(2)]

    found = check_results(EVERY_KIND, batches)

    assert all(isinstance(result, CheckResult) for result in found)
    json.dumps([msgspec.to_builtins(result.record) for result in found])


def test_spark_s_sketch() -> None:
    """The bytes of Spark's sketch hold the hashes in order, as packed differences."""
    found = DistinctSketch.read(SKETCH)

    assert (found.count, found.is_exact) == (2, True)
    assert min(found.hashes) == int.from_bytes(SKETCH[9:17], "big") >> 1


@pytest.mark.parametrize(
    "content", [b"", b"1234567", SKETCH[:-1], SKETCH + b"0", b"\x03" + SKETCH[1:], SKETCH[:3] + b"\0" + SKETCH[4:]]
)
def test_no_sketch(content: bytes) -> None:
    """Bytes that are no sketch are refused."""
    with pytest.raises(ValueError, match="sketch"):
        DistinctSketch.read(content)


@given(st.binary(max_size=60) | st.binary(max_size=20).map(lambda tail: SKETCH[:10] + tail))
def test_any_bytes(content: bytes) -> None:
    """Any bytes are a sketch or a ValueError."""
    try:
        assert DistinctSketch.read(content).count >= 0
    except ValueError:
        assert content != SKETCH


def test_sketches_merge() -> None:
    """The order of merging does not matter, exact stays exact, and beyond its size a sketch estimates."""
    draw = random.Random(1)
    parts = [frozenset(draw.randrange(1, 2**63 - 1) for _ in range(3000)) for _ in range(4)]
    sketches = [DistinctSketch(hashes=part) for part in parts]

    forward, backward = DistinctSketch(), DistinctSketch()
    for sketch in sketches:
        forward = forward.union(sketch)
    for sketch in reversed(sketches):
        backward = backward.union(sketch)

    assert forward == backward
    assert forward.union(forward) == forward
    assert sketches[0].union(DistinctSketch()) == sketches[0]
    assert not forward.is_exact
    assert len(forward.hashes) == 4096
    assert forward.count == pytest.approx(12_000, rel=0.064)


def test_plain_sketch_of_one() -> None:
    """A sketch of a single value may come in the plain form."""
    assert DistinctSketch.read(struct.pack("<BBBBBBHQ", 1, 3, 3, 0, 0, 0x3A, 0, 77)).hashes == frozenset([77])
    assert DistinctSketch.read(bytes([1, 3, 3, 0, 0, 0x1E, 0, 0])).count == 0


@given(st.lists(st.lists(st.integers(-5, 5) | st.none(), max_size=6), max_size=5))
def test_samples_keep_the_smallest(batches: list[list[int | None]]) -> None:
    """A sample of a run is the smallest values of its batches' samples, however they were cut."""
    measure = Measure("s", "", "sample", ("integer",), limit=3)
    order = [value for batch in batches for value in batch]
    order.sort(key=lambda value: (value is not None, value or 0))

    def sample(values: list[int | None]) -> str:
        kept = sorted(values, key=lambda value: (value is not None, value or 0))[:3]
        return "[" + ",".join("[null]" if value is None else f'["{value}"]' for value in kept) + "]"

    merged = merge_batches([measure], [{"s": sample(batch)} for batch in batches])

    assert merged["s"] == [(value,) for value in order[:3]]


def test_sketch_in_base64() -> None:
    """A sketch comes as base64, as Spark breaks it into lines."""
    measure = Measure("k", "", "distinct")
    text = base64.encodebytes(SKETCH).decode().replace("\n", "\r\n")
    observed: dict[str, Any] = {"k": text}

    assert merge_batches([measure], [observed, {"k": None}])["k"].count == 2
