"""What is said of the values of Spark's settings, without a JVM, is what the running Spark says."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from sluice.option_values import Check, any_text
from sluice.spark import jars
from sluice.spark_conf_values import SETTINGS, codec, meant_setting, serializer

pytestmark = pytest.mark.spark

PROBES = [
    *(
        "true",
        "FALSE",
        " true ",
        "yes",
        "maybe",
        "",
        "x",
        "1",
        "0",
        "-1",
        "5",
        "+5",
        " 5",
        "05",
        "1.5",
        "1e2",
        ".5",
        "2d",
    ),
    *(
        "NaN",
        "64m",
        "64MB",
        "64mib",
        "-64m",
        "- 64m",
        " 64m ",
        "64 m",
        "0b",
        "1.5g",
        "0.5m",
        "30s",
        "5min",
        "5 s",
        "1w",
    ),
    *(
        "+01:00",
        "+1:00",
        "+18:00",
        "+18:01",
        "+25:00",
        "UTC+99",
        "-17:59:59",
        "+01:60",
        "GMT+8",
    ),
    *(
        "100ms",
        "2H",
        "1d",
        "0s",
        "-30s",
        "-0",
        "2147483647",
        "2147483648",
        "legacy",
        "CORRECTED",
        "exception",
        "LAST_WIN",
    ),
    *(
        "dynamic",
        "STATIC",
        "ansi",
        "STRICT",
        "min",
        "MAX",
        "avro",
        "UnsafeRow",
        "fair",
        "FIFO",
        "warn",
        "WARNING",
        "Off",
    ),
    *(
        "snappy",
        "ZSTD",
        "gzip",
        "zlib",
        "lz4_raw",
        "brotli",
        "lzo",
        "none",
        "uncompressed",
        "zip",
        "int96",
        "timestamp_ntz",
    ),
    *(
        "TIMESTAMP_MICROS",
        "TIMESTAMP_LTZ",
        "TIMESTAMP",
        "UTC",
        "UT",
        "Europe/Vienna",
        "Europe/Berlim",
        "CET+1",
        "+01:00",
        "+5",
        "EST",
    ),
]
SHORT = ["true", " true ", "", "x", "1", "0", "-1", " 5", "1.5", "64m", "30s", "2147483648"]
BIG_SIZES = {"2147483647", "2147483648"}
"""How large a size may be is Spark's to say."""
NO_ENTRY = {"spark.local.dir", "spark.sql.streaming.checkpointFileManagerClass"}
NO_CHECK_OF_SPARKS = {any_text, codec, serializer}
"""Of these values, Spark's setting takes all; what takes them in the end does not."""
OBJECTS = re.compile(r"(?i)(internal/config/[^/]*\$|/\w*(SQLConf|Conf|Config|HiveUtils|config/package))\$?\.class")


def entries(spark: SparkSession) -> Any:
    """Every setting that Spark and Delta know, by its name: all objects that declare some are loaded."""
    jvm: Any = spark._jvm
    own = Path(pyspark.__file__).parent / "jars"
    for name in class_names([*own.glob("spark-*.jar"), *map(Path, jars.class_path())]):
        try:
            jvm.java.lang.Class.forName(name)
        except (Py4JJavaError, PySparkException):
            continue
    known = jvm.java.lang.Class.forName("org.apache.spark.internal.config.ConfigEntry$")
    field = known.getDeclaredField("knownConfigs")
    field.setAccessible(True)
    return field.get(None)


def class_names(files: list[Path]) -> Iterator[str]:
    for file in files:
        with zipfile.ZipFile(file) as jar:
            names = [name for name in jar.namelist() if OBJECTS.search(name) and name.endswith("$.class")]
        yield from (name.removesuffix(".class").replace("/", ".") for name in names)


def is_refused(call: Callable[..., object], *args: object) -> bool:
    try:
        call(*args)
    except (Py4JJavaError, PySparkException):
        return True
    return False


def test_values(spark: SparkSession) -> None:
    """Of many values, what is refused is what Spark refuses, for every setting of the table."""
    known, wrong = entries(spark), []
    seen: set[Check] = set()
    for key, check in SETTINGS.items():
        if key in NO_ENTRY or check in NO_CHECK_OF_SPARKS:
            continue
        converter = known.get(key).valueConverter()
        # What a check says of a value, it says for each setting of its row.
        for value in SHORT if check in seen else PROBES:
            is_ours, is_sparks = check(value) is not None, is_refused(converter.apply, value)
            if is_ours != is_sparks and not (value in BIG_SIZES and check("1m") is None):
                wrong.append((key, value, "refused" if is_sparks else "taken"))
        seen.add(check)
    assert not wrong, wrong


def test_names(spark: SparkSession) -> None:
    """Every name is one of Spark's, and none of Spark's and Delta's is taken for a misspelt one."""
    jvm: Any = spark._jvm
    keys = jvm.java.lang.String.join("\n", entries(spark).keySet()).split("\n")
    assert len(keys) > 1700
    assert set(SETTINGS) - set(keys) == NO_ENTRY
    assert {key: meant for key in [*keys, *earlier(jvm)] if (meant := meant_setting(key)) is not None} == {}


def earlier(jvm: Any) -> list[str]:
    """Names that settings had in earlier versions, which Spark takes still or answers."""
    holder = jvm.java.lang.Class.forName("org.apache.spark.SparkConf$")
    field = next(field for field in holder.getDeclaredFields() if field.getName().endswith("allAlternatives"))
    field.setAccessible(True)
    found = field.get(holder.getField("MODULE$").get(None)).keys().mkString("\n").split("\n")
    sql = jvm.org.apache.spark.sql.internal.SQLConf
    dropped = [*sql.removedSQLConfigs().keys().mkString("\n").split("\n")]
    dropped += sql.deprecatedSQLConfigs().keys().mkString("\n").split("\n")
    assert len(found) > 20
    assert len(dropped) > 20
    return [*found, *dropped]


def test_codecs(spark: SparkSession) -> None:
    """A codec that is refused is none to Spark."""
    jvm: Any = spark._jvm
    factory, conf = jvm.org.apache.spark.io.CompressionCodec, jvm.org.apache.spark.SparkConf()
    for value in [*PROBES, "lzf", "LZ4", "org.apache.spark.io.LZFCompressionCodec"]:
        is_sparks = is_refused(factory.createCodec, conf, value)
        assert (codec(value) is not None) == is_sparks or "." in value, value


def test_serializers(spark: SparkSession) -> None:
    """A serializer that is refused is no class."""
    jvm: Any = spark._jvm
    for name in ("Kryo", "Java"):
        full = f"org.apache.spark.serializer.{name}Serializer"
        assert serializer(full) is None
        assert not is_refused(jvm.java.lang.Class.forName, full)
    for value in ("kryo", "KryoSerializer", "java", "x", ""):
        assert serializer(value) is not None
        assert is_refused(jvm.java.lang.Class.forName, value)
