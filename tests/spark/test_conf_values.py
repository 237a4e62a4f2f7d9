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

LOOPS = """
public class Loops {
    /** Loads those of the classes that load. */
    public void load(String names, ClassLoader loader) {
        for (String name : names.split("\\0")) {
            try {
                Class.forName(name, true, loader);
            } catch (Throwable e) {
                continue;
            }
        }
    }

    /** For each value, whether a function throws. */
    public String refused(Object function, String values) {
        StringBuilder found = new StringBuilder();
        for (String value : values.split("\\0", -1)) {
            try {
                ((scala.Function1) function).apply(value);
                found.append(' ');
            } catch (Throwable e) {
                found.append('!');
            }
        }
        return found.toString();
    }
}
"""


@pytest.fixture(scope="module")
def loops(spark: SparkSession) -> Any:
    """`LOOPS` in the JVM: ten thousand calls one by one, of which each has a stack to tell of, take minutes."""
    jvm: Any = spark._jvm
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
    compiler.cook(LOOPS)
    return compiler.getClassLoader().loadClass("Loops").newInstance()


def entries(spark: SparkSession, loops: Any) -> Any:
    """Every setting that Spark and Delta know, by its name: all objects that declare some are loaded."""
    jvm: Any = spark._jvm
    own = Path(pyspark.__file__).parent / "jars"
    names = class_names([*own.glob("spark-*.jar"), *map(Path, jars.class_path())])
    loops.load("\0".join(names), jvm.java.lang.Thread.currentThread().getContextClassLoader())
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


def test_values(spark: SparkSession, loops: Any) -> None:
    """Of many values, what is refused is what Spark refuses, for every setting of the table."""
    known, wrong = entries(spark, loops), []
    seen: set[Check] = set()
    for key, check in SETTINGS.items():
        if key in NO_ENTRY or check in NO_CHECK_OF_SPARKS:
            continue
        converter = known.get(key).valueConverter()
        # What a check says of a value, it says for each setting of its row.
        values = SHORT if check in seen else PROBES
        for value, answer in zip(values, loops.refused(converter, "\0".join(values)), strict=True):
            is_ours, is_sparks = check(value) is not None, answer == "!"
            if is_ours != is_sparks and not (value in BIG_SIZES and check("1m") is None):
                wrong.append((key, value, "refused" if is_sparks else "taken"))
        seen.add(check)
    assert not wrong, wrong


def test_names(spark: SparkSession, loops: Any) -> None:
    """Every name is one of Spark's, and none of Spark's and Delta's is taken for a misspelt one."""
    jvm: Any = spark._jvm
    keys = jvm.java.lang.String.join("\n", entries(spark, loops).keySet()).split("\n")
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
