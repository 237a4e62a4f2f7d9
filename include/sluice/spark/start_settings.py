"""Which settings only a start of Spark can set, and which each session has for itself."""

from __future__ import annotations

from collections.abc import Mapping

_OF_SESSIONS = ("spark.sql.", "spark.databricks.delta.")
OF_THE_START = (
    "spark.databricks.delta.merge.materializeSource.maxAttempts",
    "spark.sql.broadcastExchange.maxThreadThreshold",
    "spark.sql.cache.serializer",
    "spark.sql.catalog",
    "spark.sql.codegen.cache.maxEntries",
    "spark.sql.codegen.comments",
    "spark.sql.debug",
    "spark.sql.defaultUrlStreamHandlerFactory.enabled",
    "spark.sql.event.truncate.length",
    "spark.sql.extensions",
    "spark.sql.filesourceTableRelationCacheSize",
    "spark.sql.globalTempDatabase",
    "spark.sql.hive.",
    "spark.sql.legacy.sessionInitWithConfigDefaults",
    "spark.sql.metadataCacheTTLSeconds",
    "spark.sql.queryExecutionListeners",
    "spark.sql.resultQueryStage.maxThreadThreshold",
    "spark.sql.shuffleExchange.maxThreadThreshold",
    "spark.sql.sources.disabledJdbcConnProviderList",
    "spark.sql.sources.schemaStringLengthThreshold",
    "spark.sql.streaming.streamingQueryListeners",
    "spark.sql.streaming.ui.",
    "spark.sql.subquery.maxThreadThreshold",
    "spark.sql.ui.",
    "spark.sql.warehouse.dir",
    # A session takes these, and a process keeps the first that it has seen.
    "spark.sql.streaming.stateStore.maintenance",
    "spark.sql.streaming.stateStore.numStateStoreMaintenanceThreads",
    "spark.sql.streaming.stateStore.rocksdb.boundedMemoryUsage",
    "spark.sql.streaming.stateStore.rocksdb.highPriorityPoolRatio",
    "spark.sql.streaming.stateStore.rocksdb.maxMemoryUsageMB",
    "spark.sql.streaming.stateStore.rocksdb.writeBufferCacheRatio",
)
"""How the settings of SQL begin that are Spark's own and no session's: those that are static in 4.2, and a few more."""


def is_of_session(key: str) -> bool:
    """Whether a session can have a setting for itself, beside others of one Spark."""
    return key.startswith(_OF_SESSIONS) and not key.startswith(OF_THE_START)


def of_session(conf: Mapping[str, str]) -> dict[str, str]:
    """Those that a session can have for itself."""
    return {key: value for key, value in conf.items() if is_of_session(key)}


def of_start(conf: Mapping[str, str]) -> dict[str, str]:
    """Those that only Spark's start can set."""
    return {key: value for key, value in conf.items() if not is_of_session(key)}
