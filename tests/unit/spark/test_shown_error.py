"""Errors of which only the text is known: what stands in quotes and brackets is masked, unless it is known."""

from __future__ import annotations

import gc
import re
import socket
import warnings

import grpc
import pytest
from py4j.java_gateway import GatewayParameters, JavaGateway
from py4j.protocol import Py4JNetworkError

from sluice.spark.query_words import QueryWords
from sluice.spark.shown_error import shown_text, spark_message

WORDS = QueryWords.of(["id", "text"], ["hush4canary", "text", "bigint", "the"])
CAST = '[CAST_INVALID_INPUT] The value {} of the type "STRING" cannot be cast to "BIGINT". SQLSTATE: 22018'

SQL = (
    "[PARSE_SYNTAX_ERROR] Syntax error at or near 'FORM'. SQLSTATE: 42601 (line 1, pos 9)\n\n== SQL ==\n"
    "SELECT 'r0w' FORM x\n---------^^^\n\n== DataFrame ==\n\"sql\" was called from\n/x/jobs.py:3\n"
)
SHOWN_SQL = (
    "[PARSE_SYNTAX_ERROR] Syntax error at or near '?'. SQLSTATE: 42601 (line 1, pos 9)"
    ' == DataFrame == "sql" was called from /x/jobs.py:3'
)
TRACE = (
    "An exception was raised. Traceback (most recent call last):\n"
    '  File "/x/py4j.py", line 7, in call\n    self.func()\n'
    '  File "/x/jobs.py", line 3, in f\n    raise ValueError(x)\nValueError: bad r0w\nof hush4canary\n'
)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (CAST.format("'hush4canary1'"), CAST.format("'?'")),
        (CAST.format("'it's r0w'"), CAST.format("'?'")),
        (
            'Cannot resolve "(concat(hush4canary, id) AND text)" due to data type mismatch',
            'Cannot resolve "(concat(?, id) AND text)" due to data type mismatch',
        ),
        (SQL, SHOWN_SQL),
        ("Unclosed group near index 12\n(r0w", "Unclosed group near index 12"),
        ("Invalid column names: hush4canary, concat(r0w, id).", "Invalid column names: ***, concat(?, id)."),
        ("Did you mean [`id`, `hush4canary`]?", "Did you mean [`id`, `***`]?"),
        ("Set \"spark.sql.ansi.enabled\" to 'false'.", "Set \"spark.sql.ansi.enabled\" to '?'."),
        ("[USER_RAISED_EXCEPTION] hush4canary r0w SQLSTATE: P0001", "[USER_RAISED_EXCEPTION] ?"),
        (TRACE, "An exception was raised. ValueError: ? at /x/jobs.py:3"),
        ("An unclosed 'r0w", "An unclosed '?'"),
        (
            "[DELTA_VIOLATE_CONSTRAINT_WITH_VALUES] CHECK constraint c violated by row with values:\n - text : r0w\n",
            "[DELTA_VIOLATE_CONSTRAINT_WITH_VALUES] CHECK constraint c violated by row with values: ?",
        ),
        (
            "Sorting is not supported on streaming DataFrames;\n~Sort [r0w]",
            "Sorting is not supported on streaming DataFrames",
        ),
        ("file:/in/hush4canary.json is no hush4canary", "file:/in/hush4canary.json is no ***"),
        ("No space left on device", "No space left on device"),
        (
            "Mkdirs failed to create file:/lake/out/v=A R0W (5)/w=x (exists=false, cwd=file:/home/airflow)",
            "Mkdirs failed to create file:/lake/out/v=?/w=?",
        ),
        ("Reading v=R0W/w=R0W2/part-0 failed, mode=x", "Reading v=?/w=?/part-0 failed, mode=x"),
        (
            'The value "RAWROW" of "TIMESTAMP_NTZ" or "DECIMAL(3,1)"',
            'The value "?" of "TIMESTAMP_NTZ" or "DECIMAL(3,1)"',
        ),
    ],
)
def test_a_text(text: str, told: str) -> None:
    """Neither literals nor rows are told; classes, types, columns and places are."""
    assert shown_text(text, WORDS) == told


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("Use '[Dataset/DataFrame].withWatermark()' for it", "Use '[Dataset/DataFrame].withWatermark()' for it"),
        ('Set a host with option("host", ...) of (r0w, ...)', 'Set a host with option("host", ...) of (?, ?)'),
        (
            "Invalid value '-1s'. The option 'rampUpTime' is 'r0w'",
            "Invalid value '-1s'. The option 'rampUpTime' is '?'",
        ),
        ("Invalid value 'r0w'. The option 'hush4canary' must be", "Invalid value '?'. The option '***' must be"),
        ("Invalid value '1234' in a row", "Invalid value '?' in a row"),
        ("'path' is not specified, and 'r0w' is", "'path' is not specified, and '?' is"),
        ('a \'correctness\' issue of "late rows" and "r0w"', 'a \'correctness\' issue of "late rows" and "?"'),
    ],
)
def test_words_of_sparks_own_in_quotes(text: str, told: str) -> None:
    """They are told of what Spark has raised; of what somebody's function has, nothing that stands in quotes is."""
    assert shown_text(text, WORDS, is_of_spark=True) == told
    assert not re.findall(r"'\w+'|\"\w", shown_text(text, WORDS))


@pytest.mark.parametrize(
    ("raised", "told"),
    [
        ("pyspark.errors.exceptions.base.PySparkValueError: [CANNOT_BE_NONE] r0w", ": [CANNOT_BE_NONE] ?"),
        ("shop.Error: [CANNOT_BE_NONE] r0w", "shop.Error: ?"),
        ("pyspark.errors.exceptions.base.PySparkValueError: r0w", "PySparkValueError: ?"),
    ],
)
def test_what_pyspark_raises_in_a_function(raised: str, told: str) -> None:
    """Its condition is told, and the line of the function that called pyspark."""
    trace = (
        'Traceback (most recent call last):\n  File "/x/jobs.py", line 3, in f\n    state.update(None)\n'
        f'  File "/venv/lib/site-packages/pyspark/sql/streaming/state.py", line 9, in update\n    raise it\n{raised}\n'
    )
    assert shown_text(trace, WORDS).endswith(f"{told} at /x/jobs.py:3")


def test_words_that_tell_nothing() -> None:
    """A literal that is a column, a type or shorter than four characters would garble every message."""
    assert WORDS.literals == ("hush4canary",)
    assert QueryWords.of([], ["data"]).masked("the data of a DataFrame, metadata") == "the *** of a DataFrame, metadata"


def closed_port() -> int:
    """One that nobody listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def test_a_jvm_that_is_gone() -> None:
    """Python's words, of a port that refuses, say nothing of what has happened."""
    with warnings.catch_warnings():
        # py4j leaves its socket to the garbage collector.
        warnings.simplefilter("ignore", ResourceWarning)
        gateway = JavaGateway(gateway_parameters=GatewayParameters(port=closed_port()))
        with pytest.raises(Py4JNetworkError) as gone:
            gateway.jvm.System.currentTimeMillis()
        told = [spark_message(gone.value, is_of_rows=is_of_rows) for is_of_rows in (False, True)]
        del gateway, gone
        gc.collect()
    assert all(text.startswith("Spark's JVM is gone: it was killed") for text in told)


def test_a_server_that_is_gone() -> None:
    """Likewise those of a call."""
    with grpc.insecure_channel(f"127.0.0.1:{closed_port()}") as channel, pytest.raises(grpc.RpcError) as gone:
        channel.unary_unary("/a/b")(b"", timeout=30)
    assert spark_message(gone.value).startswith("the Spark Connect server can't be reached any more")


def test_a_connection_of_somebody_else() -> None:
    """A function of the user's that has no answer is no JVM that is gone."""
    with pytest.raises(ConnectionRefusedError) as refused:
        socket.create_connection(("127.0.0.1", closed_port()))
    assert "JVM" not in spark_message(refused.value)
