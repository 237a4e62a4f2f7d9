"""The state stores that a test can choose, by short names."""

from __future__ import annotations

from sluice.spark.first_batch_check import ROCKSDB, STATE_STORE

_CHANGELOG = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
_HDFS = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
STATE_STORES = {
    "hdfs": {STATE_STORE: _HDFS},
    "rocksdb": {STATE_STORE: ROCKSDB},
    "rocksdb-changelog": {STATE_STORE: ROCKSDB, _CHANGELOG: "true"},
}
"""By a short name, the settings of each kind of state store: `bench.open(..., state_store=NAME)`."""
