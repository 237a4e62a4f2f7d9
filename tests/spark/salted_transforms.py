"""Transforms that hold a salt, and fail: whatever Spark says of them then must not tell it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

SALT = "hush4canary"


def type_mismatch(numbers: DataFrame) -> DataFrame:
    return numbers.select(F.concat(F.lit("hush4canary"), F.col("id")) & F.col("id"))


def broken_sql(numbers: DataFrame) -> DataFrame:
    numbers.createOrReplaceTempView("numbers_broken")
    return numbers.sparkSession.sql("SELECT sha2(concat('hush4canary', id), 256 FORM numbers_broken")


def broken_expression(numbers: DataFrame) -> DataFrame:
    return numbers.select(F.expr("concat(id, 'x') AS AS 'hush4canary'"))


def unterminated_sql(numbers: DataFrame) -> DataFrame:
    return numbers.where(F.expr("text <> hush4canary' AND true"))


def missing_column(numbers: DataFrame) -> DataFrame:
    return numbers.select(F.concat(F.lit("hush4canary"), F.col("idd")).alias("salted"))


def missing_beside_unnamed(numbers: DataFrame) -> DataFrame:
    return numbers.select("id", F.lit(SALT), F.concat(F.lit("hush4canary"), F.col("text"))).select("idd")


def missing_beside_another_salt(numbers: DataFrame) -> DataFrame:
    return numbers.select("id", F.lit(os.environ["SALT_OF_TEST"])).select("idd")


def missing_function(numbers: DataFrame) -> DataFrame:
    return numbers.select(F.call_function("shaa", F.lit("hush4canary"), F.col("id")))


def mixed_types(numbers: DataFrame) -> DataFrame:
    return numbers.select(F.when(F.col("text") == "hush4canary", F.array("id")).otherwise(F.col("id")).alias("x"))


def bad_cast(numbers: DataFrame) -> DataFrame:
    return numbers.select(F.concat(F.lit("hush4canary"), F.col("text")).cast("bigint").alias("id"))


def bad_date(numbers: DataFrame) -> DataFrame:
    return numbers.select(F.to_date(F.concat(F.lit("hush4canary"), F.col("text")), "yyyy-MM-dd").alias("day"))


def bad_pattern(numbers: DataFrame) -> DataFrame:
    return numbers.select(F.regexp_replace("text", "(hush4canary", "x").alias("text"))


def bad_url(numbers: DataFrame) -> DataFrame:
    return numbers.select(F.parse_url(F.concat(F.lit("hush4canary "), F.col("text")), F.lit("HOST")).alias("text"))


def bad_variant(numbers: DataFrame) -> DataFrame:
    return numbers.select(F.expr("variant_get(parse_json('1'), concat('hush4canary', text), 'int')").alias("id"))


def bad_variant_cast(numbers: DataFrame) -> DataFrame:
    return numbers.select(F.expr("variant_get(to_variant_object(array(text)), '$[0]', 'int')").alias("id"))


def bad_mode(numbers: DataFrame) -> DataFrame:
    return numbers.select(F.expr("aes_encrypt('a', '0123456789abcdef', text)").alias("id"))


def raised_error(numbers: DataFrame) -> DataFrame:
    raised = F.raise_error(F.concat(F.lit("hush4canary "), F.col("text"))).cast("string")
    return numbers.select(raised.alias("text"))


def bad_number(numbers: DataFrame) -> DataFrame:
    return numbers.select(F.udf(lambda text: int("hush4canary" + text), T.LongType())("text").alias("id"))


def bad_function(numbers: DataFrame) -> DataFrame:
    return numbers.select(F.udf(lambda text: refuse(text) + 1, T.LongType())("text").alias("id"))


def refuse(text: str) -> int:
    raise ValueError("can't use hush4canary with " + text)


def bad_pandas(numbers: DataFrame) -> DataFrame:
    def fail(pieces: Iterator[Any]) -> Iterator[Any]:
        for piece in pieces:
            raise KeyError("hush4canary", list(piece["text"]))
        yield from ()

    return numbers.mapInPandas(fail, "id bigint")


def unnamed_column(numbers: DataFrame) -> DataFrame:
    return numbers.select("id", F.concat(F.lit("hush4canary"), F.col("text")))


def unnamed_twice(numbers: DataFrame) -> DataFrame:
    return numbers.select(F.lit("hush4canary"), F.lit("hush4canary"))


def wrong_key(numbers: DataFrame) -> DataFrame:
    salts: dict[str, Any] = {}
    return numbers.where(F.col("text") != salts["hush4canary"])


def hostile(numbers: DataFrame) -> DataFrame:
    raise HostileError(SALT)


class HostileError(Exception):
    def __str__(self) -> str:
        raise SystemExit(4)


def sorted_rows(numbers: DataFrame) -> DataFrame:
    return numbers.withColumn("salted", F.concat(F.lit("hush4canary"), "text")).orderBy("salted").limit(3)


def fine(numbers: DataFrame) -> DataFrame:
    return numbers.where(F.col("text") != "hush4canary")


def fail_with_a_row(frame: DataFrame, batch_id: int) -> None:
    for row in frame.collect():
        raise ValueError("hush4canary is not " + row.text)


def cast_in_batch(frame: DataFrame, batch_id: int) -> None:
    frame.select(F.concat(F.lit("hush4canary"), "text").cast("int")).collect()
