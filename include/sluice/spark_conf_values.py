"""What the values of Spark's well-known settings may be, as far as that can be told without a JVM.

The table is kept by hand: Spark has some 1,800 settings, of which people set these. What a check refuses, Spark 4.2
refuses too, most of it only when the JVM is up, and with a traceback of its own. A test with Spark walks through what
each takes and refuses. Settings that are not here are Spark's to judge.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping

from sluice.errors import DeclarationError
from sluice.option_values import Check, any_text, one_of, orc_codec, parquet_codec, time_zone

_BLANK = "".join(map(chr, range(33)))
"""What Java strips from both ends of a text."""
_WHOLE = re.compile(r"[+-]?\d{1,300}")
_NUMBER = re.compile(r"[+-]?((\d+\.?\d*|\.\d+)([eE][+-]?\d+)?[dDfF]?|NaN|Infinity|0[xX].+)")
_SIZE = re.compile(r"(-?)[\0- ]*([0-9]+)(b|[kmgtp](i?b)?)?[\0- ]*", re.IGNORECASE)
_TIME = re.compile(r"[\0- ]*(-?[0-9]+)(us|ms|s|m|min|h|d)?[\0- ]*", re.IGNORECASE)
_CLASS = re.compile(r"[^\W\d][\w$]*(\.[^\W\d][\w$]*)+")
_MOST = 2**31 - 1
_MOST_LONG = 2**63 - 1
_NEAR = 0.96
"""How alike a name must be to be a misspelt one: about one letter in 25. Real settings are alike, too."""


def boolean(value: str) -> str | None:
    """`true` or `false`."""
    return None if value.strip(_BLANK).lower() in {"true", "false"} else "give true or false"


def whole(least: int = -_MOST - 1, most: int = _MOST) -> Check:
    """A check for a whole number, given as digits alone."""
    remedies = {0: "give a whole number, 0 or more", 1: "give a whole number above 0"}

    def check(value: str) -> str | None:
        text = value.strip(_BLANK)
        is_right = _WHOLE.fullmatch(text) is not None and least <= int(text) <= most
        return None if is_right else remedies.get(least, "give a whole number")

    return check


def number(value: str) -> str | None:
    """A number, with a fraction or without."""
    return None if _NUMBER.fullmatch(value.strip(_BLANK)) else "give a number"


def size(least: int | None = None) -> Check:
    """A check for an amount of bytes, with a unit or without."""

    def check(value: str) -> str | None:
        found = _SIZE.fullmatch(value)
        if found is None:
            return 'give a whole number and a unit, as "64m" or "1g"'
        # Whichever unit it has, the sign and zero stay what they are.
        return None if least is None or int(f"{found[1]}{found[2][:300]}") >= least else _size_above(least)

    return check


def _size_above(least: int) -> str:
    return 'give a size above 0, as "64m"' if least else 'give a size, 0 or more, as "64m"'


def duration(value: str) -> str | None:
    """A time, with a unit or without."""
    return None if _TIME.fullmatch(value) else 'give a whole number and a unit, as "30s" or "5min"'


def duration_from_zero(value: str) -> str | None:
    """A time that is not below zero."""
    found = _TIME.fullmatch(value)
    # A minus in front of zeros alone is none.
    is_below = found is not None and found[1].startswith("-") and found[1].strip("-0") != ""
    return 'give a time, 0 or more, as "30s"' if is_below else duration(value)


def class_name(value: str) -> str | None:
    """The name of a class in a package."""
    return None if _CLASS.fullmatch(value) else "give the name of a class, with its package"


def serializer(value: str) -> str | None:
    """The class of a serializer."""
    ours = {"kryo": "Kryo", "kryoserializer": "Kryo", "java": "Java", "javaserializer": "Java"}.get(value.lower())
    meant = f"write it as org.apache.spark.serializer.{ours}Serializer" if ours else None
    return class_name(value) and (meant or class_name(value))


codec = one_of("lz4", "lzf", "snappy", "zstd", others=".")
"""A codec of Spark's own; others are given by their class."""
_rebase = one_of("EXCEPTION", "CORRECTED", "LEGACY")


def _each(prefix: str, names: str, check: Check) -> dict[str, Check]:
    return {f"spark.{prefix}{name}": check for name in names.split()}


SETTINGS: Mapping[str, Check] = {
    **_each(
        "", "broadcast.compress dynamicAllocation.enabled eventLog.compress eventLog.enabled rdd.compress", boolean
    ),
    **_each("", "memory.offHeap.enabled shuffle.compress shuffle.service.enabled shuffle.spill.compress", boolean),
    **_each("", "dynamicAllocation.shuffleTracking.enabled python.worker.reuse speculation", boolean),
    **_each("", "kryo.registrationRequired ui.enabled ui.showConsoleProgress", boolean),
    **_each("", "default.parallelism driver.cores executor.cores executor.instances task.maxFailures ui.port", whole()),
    **_each("", "driver.port rpc.message.maxSize ui.retainedJobs ui.retainedStages ui.retainedTasks", whole()),
    **_each("dynamicAllocation.", "initialExecutors maxExecutors minExecutors", whole()),
    **_each("", "task.cpus reducer.maxBlocksInFlightPerAddress", whole(1)),
    **_each("", "dynamicAllocation.executorAllocationRatio memory.fraction", number),
    **_each("", "speculation.multiplier speculation.quantile", number),
    **_each("", "driver.maxResultSize driver.memory driver.memoryOverhead", size()),
    **_each("", "executor.memory executor.memoryOverhead executor.pyspark.memory", size()),
    **_each("", "broadcast.blockSize kryoserializer.buffer kryoserializer.buffer.max reducer.maxSizeInFlight", size()),
    **_each("", "memory.offHeap.size", size(0)),
    **_each("", "shuffle.file.buffer", size(1)),
    **_each("", "executor.heartbeatInterval locality.wait network.timeout", duration),
    **_each("dynamicAllocation.", "schedulerBacklogTimeout sustainedSchedulerBacklogTimeout", duration),
    **_each("dynamicAllocation.", "cachedExecutorIdleTimeout executorIdleTimeout", duration_from_zero),
    "spark.io.compression.codec": codec,
    "spark.log.level": one_of("ALL", "DEBUG", "ERROR", "FATAL", "INFO", "OFF", "TRACE", "WARN"),
    "spark.scheduler.mode": one_of("FAIR", "FIFO", "NONE"),
    "spark.serializer": serializer,
    **_each("sql.", "adaptive.enabled adaptive.coalescePartitions.enabled adaptive.skewJoin.enabled", boolean),
    **_each("sql.", "adaptive.coalescePartitions.parallelismFirst adaptive.localShuffleReader.enabled", boolean),
    **_each("sql.", "ansi.enabled caseSensitive cbo.enabled codegen.wholeStage crossJoin.enabled", boolean),
    **_each("sql.", "execution.arrow.pyspark.enabled execution.arrow.pyspark.fallback.enabled", boolean),
    **_each("sql.", "execution.arrow.sparkr.enabled", boolean),
    **_each("sql.", "files.ignoreCorruptFiles files.ignoreMissingFiles legacy.javaCharsets", boolean),
    **_each("sql.", "inMemoryColumnarStorage.compressed inMemoryColumnarStorage.enableVectorizedReader", boolean),
    **_each("sql.", "parquet.binaryAsString parquet.enableVectorizedReader parquet.filterPushdown", boolean),
    **_each("sql.", "parquet.int96AsTimestamp parquet.mergeSchema parquet.writeLegacyFormat", boolean),
    **_each("sql.", "orc.filterPushdown orc.mergeSchema repl.eagerEval.enabled", boolean),
    **_each("sql.streaming.", "metricsEnabled noDataMicroBatches.enabled schemaInference", boolean),
    **_each("sql.streaming.", "forceDeleteTempCheckpointLocation stopActiveRunOnRestart", boolean),
    **_each("sql.streaming.stateStore.", "rowChecksum.enabled stateSchemaCheck unloadOnCommit", boolean),
    **_each("sql.", "shuffle.partitions files.minPartitionNum files.maxPartitionNum", whole(1)),
    **_each("sql.adaptive.coalescePartitions.", "initialPartitionNum minPartitionNum", whole(1)),
    **_each("sql.", "debug.maxToStringFields execution.arrow.maxRecordsPerBatch", whole()),
    **_each("sql.", "parquet.columnarReaderBatchSize sources.parallelPartitionDiscovery.parallelism", whole()),
    **_each("sql.", "codegen.cache.maxEntries sources.parallelPartitionDiscovery.threshold", whole(0)),
    **_each("sql.streaming.", "minBatchesToRetain numRecentProgressUpdates", whole()),
    **_each("sql.streaming.stateStore.", "minDeltasForSnapshot checkpointFormatVersion", whole()),
    **_each("sql.", "files.maxRecordsPerFile", whole(-_MOST_LONG - 1, _MOST_LONG)),
    **_each("sql.", "files.maxPartitionBytes files.openCostInBytes autoBroadcastJoinThreshold", size()),
    **_each("sql.adaptive.", "autoBroadcastJoinThreshold skewJoin.skewedPartitionThresholdInBytes", size()),
    **_each("sql.adaptive.", "advisoryPartitionSizeInBytes coalescePartitions.minPartitionSize", size(1)),
    **_each("sql.", "maxPlanStringLength", size(0)),
    **_each("sql.", "broadcastTimeout streaming.pollingDelay streaming.stopTimeout", duration),
    **_each("sql.streaming.", "noDataProgressEventInterval stateStore.maintenanceInterval", duration),
    "spark.sql.legacy.timeParserPolicy": _rebase,
    "spark.sql.mapKeyDedupPolicy": one_of("EXCEPTION", "LAST_WIN"),
    "spark.sql.orc.compression.codec": orc_codec,
    **_each("sql.parquet.", "datetimeRebaseModeInRead datetimeRebaseModeInWrite", _rebase),
    **_each("sql.parquet.", "int96RebaseModeInRead int96RebaseModeInWrite", _rebase),
    "spark.sql.parquet.compression.codec": parquet_codec,
    "spark.sql.parquet.outputTimestampType": one_of("INT96", "TIMESTAMP_MICROS", "TIMESTAMP_MILLIS"),
    "spark.sql.session.timeZone": time_zone,
    "spark.sql.sources.partitionOverwriteMode": one_of("STATIC", "DYNAMIC"),
    "spark.sql.storeAssignmentPolicy": one_of("ANSI", "LEGACY", "STRICT"),
    "spark.sql.streaming.multipleWatermarkPolicy": one_of("min", "max"),
    "spark.sql.streaming.stateStore.compression.codec": codec,
    "spark.sql.streaming.stateStore.encodingFormat": one_of("unsaferow", "avro"),
    "spark.sql.timestampType": one_of("TIMESTAMP_LTZ", "TIMESTAMP_NTZ"),
    # Of these, only the names are ours to know.
    **_each("", "driver.extraClassPath driver.extraJavaOptions driver.host executor.extraJavaOptions", any_text),
    **_each("", "jars jars.packages local.dir sql.extensions sql.warehouse.dir", any_text),
    **_each("sql.streaming.", "checkpointFileManagerClass stateStore.providerClass", any_text),
    "spark.databricks.delta.autoCompact.enabled": any_text,
    **_each("databricks.delta.", "checkLatestSchemaOnRead optimizeWrite.enabled", boolean),
    **_each("databricks.delta.", "merge.repartitionBeforeWrite.enabled retentionDurationCheck.enabled", boolean),
    **_each("databricks.delta.", "schema.autoMerge.enabled stats.collect stats.skipping", boolean),
    **_each("databricks.delta.", "vacuum.parallelDelete.enabled", boolean),
    **_each("databricks.delta.", "optimize.maxThreads snapshotPartitions", whole(1)),
}
"""Settings of Spark and Delta, with what their values may be."""
_BY_LOWER = {key.lower(): key for key in SETTINGS}


def meant_setting(key: str) -> str | None:
    """The setting that a misspelt name surely means; None for a name that may be right."""
    if key in SETTINGS:
        return None
    near = difflib.get_close_matches(key.lower(), _BY_LOWER, n=2, cutoff=_NEAR)
    return _BY_LOWER[near[0]] if len(near) == 1 else None


def check_name(key: str, *, place: str) -> None:
    """Refuse the misspelt name of a well-known setting, which Spark would pass over without a word.

    Raises:
        DeclarationError: It is one.
    """
    meant = meant_setting(key)
    if meant is not None:
        raise DeclarationError(f"unknown setting `{key}`", where=place, remedy=f"did you mean `{meant}`?")


def check_value(key: str, value: str, *, declared: str, place: str) -> None:
    """Refuse a value that Spark would refuse for a well-known setting.

    Args:
        key: The name of the setting.
        value: What Spark gets.
        declared: The same as somebody wrote it, which is what the message tells: a variable may hold a secret.
        place: Where it was written.

    Raises:
        DeclarationError: It is such a value.
    """
    # Spark replaces variables of its own, as `${spark.driver.host}`.
    if "${" in value:
        return
    remedy = SETTINGS.get(key, any_text)(value)
    if remedy is not None:
        raise DeclarationError(f"`{key}` is {declared!r}", where=place, remedy=remedy)
