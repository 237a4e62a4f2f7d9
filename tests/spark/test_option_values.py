"""What is said of the values of Spark's options, without a JVM, is what the running Spark says."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from sluice import sinks, sources
from sluice.errors import DeclarationError
from sluice.option_values import (
    Check,
    above_zero,
    above_zero_or_none,
    avro_name,
    avro_namespace,
    avro_schema,
    boolean,
    character,
    charset,
    date_pattern,
    element,
    java_charset,
    letters,
    line_separator,
    no_brackets,
    number,
    pattern_to_read,
    separator,
    short_line_separator,
    some_text,
    time_zone,
    up_to_15,
)
from sluice.schema_text import schema_problem
from sluice.sources.files.source import FilesSource
from sluice.spark_options import FORMATS
from tests.builders import put

pytestmark = pytest.mark.spark

SCHEMA = "a string, n int, d date, t timestamp"
DAY, MOMENT = "2026-05-15", "2026-05-15 13:02:03"
ROW_TAG = {"xml": {"rowTag": "ROW"}}
ROW = {"a": "x", "n": 1, "d": DAY, "t": MOMENT}
SAMPLES: Mapping[Check, tuple[list[str], list[str]]] = {
    boolean: (["true", "FALSE"], ["yes", "1", ""]),
    character: (["'", ""], ["ab", "false"]),
    separator: (["||", r"\t", "\\\\"], ["", "\\", r"\x", r"\0"]),
    above_zero: (["20"], ["0", "-1", "ten", "1.5", ""]),
    above_zero_or_none: (["4000", "-1"], ["0", "ten"]),
    number: (["0.5", "2", "1e-2"], ["half", ""]),
    line_separator: (["\n", ";;"], [""]),
    short_line_separator: (["\n", "\r\n"], ["", ";;;"]),
    letters: (["csv", "", "text"], [".csv", "tsv1"]),
    time_zone: (
        ["UTC", "Europe/Vienna", "+01:00", "+1", "UTC+1", "GMT+01:00", "EST", "PST", "IST", "Z", "US/Pacific", "GMT0"],
        ["Mars/City", "utc", "europe/vienna", "", "America/New_York "],
    ),
    FORMATS["csv"]["compression"]: (
        ["uncompressed", "bzip2", "deflate", "GZIP", "lz4", "snappy", "org.apache.hadoop.io.compress.GzipCodec"],
        ["zip7", "gz", "zstd", "brotli", "", " gzip"],
    ),
    FORMATS["parquet"]["compression"]: (
        ["none", "uncompressed", "SNAPPY", "gzip", "lzo", "lz4", "lz4_raw", "brotli", "zstd"],
        ["zip7", "zlib", "gz", ""],
    ),
    FORMATS["orc"]["compression"]: (
        ["none", "uncompressed", "SNAPPY", "zlib", "lzo", "lz4", "brotli", "zstd"],
        ["zip7", "gzip", "lz4_raw", ""],
    ),
    FORMATS["avro"]["compression"]: (
        ["uncompressed", "deflate", "SNAPPY", "bzip2", "xz", "zstandard"],
        ["zstd", "gzip", "none", ""],
    ),
    avro_schema: (['{"type": "record", "name": "r", "fields": [{"name": "n", "type": "int"}]}'], ["nope", ""]),
    avro_name: (["Visit", "_a1"], ["", "1a", "a b", "a-b"]),
    avro_namespace: (["", "com.example", "a"], ["1", "a b", "a..b"]),
    up_to_15: (["-1", "0", "15"], ["16", "x", ""]),
    element: (["ROW", "a:b", "a-b.c", "zeile"], ["", "<row>", "row/"]),
    no_brackets: (["", 'version="1.1"'], ["<x>"]),
    some_text: (["_V", "#"], [""]),
    java_charset: (["UTF-8", "latin1", "utf8", "ISO-8859-1"], ["nope", ""]),
    FORMATS["csv"]["unescapedQuoteHandling"]: (
        ["STOP_AT_CLOSING_QUOTE", "back_to_delimiter", "STOP_AT_DELIMITER", "SKIP_VALUE", "RAISE_ERROR"],
        ["RAISE", ""],
    ),
}  # fmt: skip
BY_HAND = {
    *(FORMATS["csv"]["mode"], FORMATS["parquet"]["datetimeRebaseMode"], date_pattern),
    *(FORMATS["avro"]["mode"], FORMATS["avro"]["ignoreExtension"]),
}
"""Checks of options that Spark does not refuse at once; tests of their own show what it does."""
GOOD_PATTERNS = ["yyyy-MM-dd", "dd.MM.yyyy", "DDD yyyy", "yyyy-MM-dd'T'HH:mm:ss[.SSS][XXX]", "hh:mm a", "QQ yyyy", ""]
BAD_PATTERNS = [
    *("%Y-%m-%d", "%Y-%m", "%d/%m/%y", "YYYY-MM-DD", "yyyy-MM-DD", "uuuu-MM-dd", "yyyy-MM-ddTHH:mm", "yyyy-MM-dd'T"),
    *("iso", "unix", "abc", "yyyy/MM/dd b", "JJ", "ISO8601"),
]


@pytest.fixture(scope="module")
def land(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One row in a file of each format."""
    root = tmp_path_factory.mktemp("values")
    put(root / "json" / "a.json", json.dumps(ROW) + "\n")
    put(root / "csv" / "a.csv", ",".join(map(str, ROW.values())) + "\n")
    put(root / "text" / "a.txt", "x\n")
    frame = spark.read.schema(SCHEMA).option("timestampFormat", "yyyy-MM-dd HH:mm:ss").json(str(root / "json"))
    for file_format in ("avro", "orc", "parquet", "xml"):
        writer = frame.coalesce(1).write.format(file_format)
        writer.options(**ROW_TAG.get(file_format, {})).save(str(root / file_format))
    return root


def read(spark: SparkSession, land: Path, file_format: str, schema: str = SCHEMA, **options: str) -> str:
    """What Spark reads with an option: the rows, or `refused`."""
    reader = spark.read.format(file_format).options(**ROW_TAG.get(file_format, {}) | options)
    try:
        found = (reader if file_format == "text" else reader.schema(schema)).load(str(land / file_format))
        return str([tuple(map(str, row)) for row in found.collect()])
    except (PySparkException, Py4JJavaError):
        return "refused"


def write(spark: SparkSession, land: Path, file_format: str, **options: str) -> str:
    """What becomes of writing with an option: `written`, or `refused`."""
    frame = spark.read.parquet(str(land / "parquet"))
    try:
        chosen = frame.select("a") if file_format == "text" else frame
        writer = chosen.coalesce(1).write.format(file_format).options(**ROW_TAG.get(file_format, {}) | options)
        writer.mode("overwrite").save(str(land / "out"))
    except (PySparkException, Py4JJavaError):
        return "refused"
    return "written"


def cases() -> list[tuple[str, str]]:
    return [
        (file_format, option)
        for file_format, options in FORMATS.items()
        for option, check in options.items()
        if check in SAMPLES
    ]


def test_every_check_has_samples() -> None:
    """No kind of value is left out."""
    used = {check for options in FORMATS.values() for check in options.values()}
    assert used - set(SAMPLES) - BY_HAND == {FORMATS["csv"]["nullValue"]}


@pytest.mark.parametrize("file_format", FORMATS)
def test_values(spark: SparkSession, land: Path, file_format: str) -> None:
    """What is taken, Spark reads with; what is refused, Spark refuses when it reads or when it writes."""
    wrong = []
    for option in (option for found, option in cases() if found == file_format):
        taken, refused = SAMPLES[FORMATS[file_format][option]]
        check = FORMATS[file_format][option]
        wrong += [(option, value) for value in taken if check(value) is not None]
        wrong += [(option, value) for value in taken if read(spark, land, file_format, **{option: value}) == "refused"]
        for value in refused:
            said = {
                read(spark, land, file_format, **{option: value}),
                write(spark, land, file_format, **{option: value}),
            }
            if check(value) is None or "refused" not in said:
                wrong.append((option, value))
    assert wrong == []


@pytest.mark.parametrize("file_format", ["csv", "json", "xml"])
def test_modes(spark: SparkSession, land: Path, file_format: str) -> None:
    """A mode that there is not is read as PERMISSIVE, without a word: nulls are published."""
    check = FORMATS[file_format]["mode"]
    assert read(spark, land, file_format, "n date", mode="FAIL") == "[('None',)]"
    assert read(spark, land, file_format, "n date", mode="failfast") == "refused"
    assert read(spark, land, file_format, "n date", mode="dropMalformed") == "[]"
    assert check("FAIL") is not None
    assert [check(mode) for mode in ("failfast", "dropMalformed", "PERMISSIVE")] == [None] * 3


@pytest.mark.parametrize("option", ["dateFormat", "timestampFormat"])
def test_date_patterns(spark: SparkSession, land: Path, option: str) -> None:
    """A pattern that is refused is refused by Spark, or makes something else of a date, or nothing."""
    right = read(spark, land, "json", **{option: "yyyy-MM-dd" if option == "dateFormat" else "yyyy-MM-dd HH:mm:ss"})
    assert right == str([("x", "1", DAY, MOMENT)])
    for pattern in [*BAD_PATTERNS, "yyyy-mm-dd"]:
        assert date_pattern(pattern) is not None
        assert read(spark, land, "json", **{option: pattern}) != right
    for pattern in GOOD_PATTERNS:
        assert date_pattern(pattern) is None
        assert pattern_to_read(pattern) is None or "Q" in pattern
        assert read(spark, land, "json", **{option: pattern}) != "refused"


@pytest.mark.parametrize("option", ["timeFormat", "timestampNTZFormat"])
def test_patterns_of_other_types(spark: SparkSession, land: Path, option: str) -> None:
    """Letters that no pattern has are refused for every type."""
    for pattern in ("yyyy-MM-ddTHH:mm", "iso", "abc", "JJ", "yyyy-MM-dd'T", "uuuu"):
        assert FORMATS["json"][option](pattern) is not None
        assert write(spark, land, "json", **{option: pattern}) == "refused"


@pytest.mark.parametrize(
    "pattern", ["EEE, dd MMM yyyy", "ww yyyy", "ddd", "MMMMM", "yyyyyyyy", "ss.SSSSSSSSSS", "yyyy{", "yyyy]", "F"]
)
def test_former_patterns(spark: SparkSession, land: Path, pattern: str) -> None:
    """What Spark's earlier formatter took is refused, unless the project asks for that one."""
    assert read(spark, land, "json", timestampFormat=pattern) == "refused"
    source = sources.files("land", format="json", schema=SCHEMA, timestamp_format=pattern)
    with pytest.raises(DeclarationError, match="timestamp_format"):
        source.check_settings({}, place="here")
    source.check_settings({"spark.sql.legacy.timeParserPolicy": "legacy"}, place="here")


def test_hours_of_half_days(spark: SparkSession, land: Path) -> None:
    """`hh` without `a` reads no afternoon."""
    assert read(spark, land, "json", timestampFormat="yyyy-MM-dd hh:mm:ss").endswith("'None')]")
    assert pattern_to_read("yyyy-MM-dd hh:mm:ss") == "`h` needs `a`, for AM and PM: write `yyyy-MM-dd HH:mm:ss`"
    assert pattern_to_read("yyyy-MM-dd hh:mm:ss a") is None


@pytest.mark.parametrize("file_format", ["csv", "json"])
@pytest.mark.parametrize("name", ["latin1", "utf8", "windows-1252", "nope", ""])
def test_charsets(spark: SparkSession, land: Path, file_format: str, name: str) -> None:
    """Spark takes seven charsets, by these names; others when a setting says so."""
    assert charset(name) is not None
    assert read(spark, land, file_format, encoding=name, lineSep="\n") == "refused"
    source = sources.files("land", format=file_format, schema=SCHEMA, encoding=name, line_sep="\n")
    with pytest.raises(DeclarationError, match="encoding"):
        source.check_settings({}, place="here")
    source.check_settings({"spark.sql.legacy.javaCharsets": "true"}, place="here")


@pytest.mark.parametrize("name", ["UTF-8", "utf-16le", "UTF-16BE", "ISO-8859-1", "US-ASCII", "UTF-16", "UTF-32"])
def test_charsets_of_lines(spark: SparkSession, land: Path, name: str) -> None:
    """JSON by lines needs a charset in which Spark finds them."""
    for line_sep in (None, "\n"):
        options = {"encoding": name} if line_sep is None else {"encoding": name, "lineSep": line_sep}
        given = {"encoding": name} if line_sep is None else {"encoding": name, "line_sep": line_sep}
        assert charset(name) is None
        assert is_declared(given) == (read(spark, land, "json", **options) != "refused")
        assert is_declared(given | {"multi_line": "true"})
        assert read(spark, land, "json", multiLine="true", **options) != "refused"


def is_declared(given: dict[str, str], file_format: str = "json", schema: str = SCHEMA) -> bool:
    try:
        sources.files("land", format=file_format, schema=schema, **given)
    except DeclarationError:
        return False
    return True


@pytest.mark.parametrize("mode", ["LEGACY", "CORRECTED", "legacy", "corrected", "none"])
@pytest.mark.parametrize("option", ["datetimeRebaseMode", "int96RebaseMode"])
def test_rebase_modes(spark: SparkSession, tmp_path: Path, option: str, mode: str) -> None:
    """Spark knows the modes in capitals only, and says so when it meets a file of another writer."""
    (tmp_path / "parquet").mkdir()
    pq.write_table(pa.table({"d": [dt.date(1500, 1, 1)]}), tmp_path / "parquet" / "a.parquet")
    is_read = read(spark, tmp_path, "parquet", "d date", **{option: mode}) != "refused"
    assert is_read == (FORMATS["parquet"][option](mode) is None)


@pytest.mark.parametrize(
    ("schema", "options"),
    [
        ("a string, n int", {"columnNameOfCorruptRecord": "a"}),
        ("a string, n int", {"columnNameOfCorruptRecord": "N"}),
        ("a string, n int", {"columnNameOfCorruptRecord": "other"}),
        ("v variant", {"singleVariantColumn": "v"}),
        ("v variant, _corrupt_record string", {"singleVariantColumn": "v"}),
        ("v string", {"singleVariantColumn": "v"}),
        ("a array<string>", {}),
        ("a map<string, int>", {}),
        ("a struct<b: int>", {}),
        ("a binary", {}),
        ("a void", {}),
        ("a variant", {}),
        ("a timestamp_ntz", {}),
        ("a decimal(10,2)", {}),
    ],
)
@pytest.mark.parametrize("file_format", ["csv", "json"])
def test_schemas_and_options(
    spark: SparkSession, land: Path, file_format: str, schema: str, options: dict[str, str]
) -> None:
    """Options that don't go with the schema, and types that a format has not, are those that Spark refuses."""
    names = {
        "columnNameOfCorruptRecord": "column_name_of_corrupt_record",
        "singleVariantColumn": "single_variant_column",
    }
    given = {names[name]: value for name, value in options.items()}
    assert is_declared(given, file_format, schema) == (read(spark, land, file_format, schema, **options) != "refused")


@pytest.mark.parametrize(
    "schema",
    [
        *("id bigint, ID string", "s struct<a: int, A: int>", "x int, x int", "m map<string, struct<q: int, q: int>>"),
        *("a array<struct<q: int, Q: int>>", "id int, `id` int", "a int, s struct<a: int>"),
    ],
)
def test_names_alike(spark: SparkSession, land: Path, schema: str) -> None:
    """Two names that are one to Spark are refused, also in nested types; by case only when the project has it so."""
    for is_sensitive in ("false", "true"):
        spark.conf.set("spark.sql.caseSensitive", is_sensitive)
        try:
            is_read = read(spark, land, "json", schema) != "refused"
        finally:
            spark.conf.unset("spark.sql.caseSensitive")
        assert is_read == is_taken(schema, {"spark.sql.caseSensitive": is_sensitive})


def is_taken(schema: str, conf: Mapping[str, str]) -> bool:
    if schema_problem(schema) is not None:
        return False
    source = sources.files("land", format="json", schema=schema)
    assert isinstance(source, FilesSource)
    try:
        source.check_settings(conf, place="here")
    except DeclarationError:
        return False
    return True


@pytest.mark.parametrize("value", ["true", "yes", ""])
@pytest.mark.parametrize("option", ["overwriteSchema", "optimizeWrite"])
def test_options_of_delta_sinks(spark: SparkSession, tmp_path: Path, option: str, value: str) -> None:
    """Delta's writer takes the same booleans."""
    names = {"overwriteSchema": "overwrite_schema", "optimizeWrite": "optimize_write"}
    try:
        spark.range(1).write.format("delta").mode("append").option(option, value).save(str(tmp_path / "t"))
        is_written = True
    except (PySparkException, Py4JJavaError):
        is_written = False
    try:
        sinks.delta("t", **{names[option]: value})
        is_declared = True
    except DeclarationError:
        is_declared = False
    assert is_declared == is_written


@pytest.mark.parametrize("value", ["5", "0", "-1", "1e6", "many"])
def test_most_records_of_a_file(spark: SparkSession, tmp_path: Path, value: str) -> None:
    """Spark takes every whole number; 0 and less are no limit."""
    try:
        spark.range(1).write.format("delta").option("maxRecordsPerFile", value).save(str(tmp_path / "t"))
        is_written = True
    except (PySparkException, Py4JJavaError):
        is_written = False
    try:
        sinks.delta("t", max_records_per_file=value)
        is_declared = True
    except DeclarationError:
        is_declared = False
    assert is_declared == is_written


@pytest.mark.parametrize("glob", ["a[", "{a", "[]", "a\\", "[z-a]", "a]", "a}", "*.json"])
def test_name_globs(spark: SparkSession, land: Path, glob: str) -> None:
    """A pattern of names that can't be read is refused by planning, as by Spark."""
    from sluice.sources.files.listing import glob_pattern

    try:
        glob_pattern(glob)
        is_planned = True
    except DeclarationError:
        is_planned = False
    assert is_planned == (read(spark, land, "json", pathGlobFilter=glob) != "refused")


def test_extensions_of_avro(spark: SparkSession, tmp_path: Path) -> None:
    """A file that was planned, and has another name than Spark likes, would be passed over without a word."""
    (written,) = write_avro(spark, tmp_path / "aside")
    (tmp_path / "in").mkdir()
    written.rename(tmp_path / "in" / "1.data")
    reader = spark.read.format("avro").schema("id bigint")
    assert reader.load(str(tmp_path / "in")).count() == 1
    assert reader.option("ignoreExtension", "false").load(str(tmp_path / "in")).count() == 0
    check = FORMATS["avro"]["ignoreExtension"]
    assert (check("true"), check("false")) == (None, 'leave it out, and choose files by `path_glob_filter="*.avro"`')


def test_the_mode_of_avro(spark: SparkSession, tmp_path: Path) -> None:
    """Of files, Spark does not heed it: a broken one fails, whatever is declared."""
    write_avro(spark, tmp_path / "in")
    put(tmp_path / "in" / "broken.avro", "none")
    reader = spark.read.format("avro").schema("id bigint").option("mode", "DROPMALFORMED")
    with pytest.raises((PySparkException, Py4JJavaError)):
        reader.load(str(tmp_path / "in")).collect()
    assert FORMATS["avro"]["mode"]("DROPMALFORMED") is not None


def write_avro(spark: SparkSession, folder: Path) -> list[Path]:
    spark.range(1).coalesce(1).write.format("avro").save(str(folder))
    return list(folder.glob("*.avro"))
