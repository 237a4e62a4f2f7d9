"""What other tools call things, and what to write here.

Who comes from Spark, Airflow, dbt or Great Expectations types their words first: each is answered with ours.
"""

from __future__ import annotations

from collections.abc import Mapping

_SCHEDULED = 'leave it out: a run takes what is there and stops; `stream_dag("NAME", schedule=...)` says when it begins'
_OF_THE_RUN = (
    'leave it out: a run takes what is there and stops; `sluice run --trigger`, or `stream_dag("NAME", trigger=...)`,'
    " has others"
)
_OF_THE_DAG = 'give it to the DAG: `stream_dag("NAME", ...)` takes what every DAG takes'
_OF_THE_TASKS = 'give it to the tasks of the DAG: `stream_dag("NAME", default_args={...})`'
_OF_A_CONNECTION = 'give it to the DAG: `stream_dag("NAME", conn_id=...)`'
_TASK_IS_STREAM = "leave it out: the task of a stream has its name"
_BESIDE = "leave it out: what is done before or after a run is a task of its own in the DAG"
_OF_A_PLACE = "give it to the source or the sink: `sources.files(PATH, ...)`, `sinks.delta(PATH)`"
_LIMITS = "limit the source: `max_files_per_batch`, `max_bytes_per_batch` or `max_offsets_per_batch`"
_LAG = "`sluice lag NAME` shows what waits, and `LagSensor` waits for it"
_OF_THE_SINK = 'give it to the sink: `sinks.delta(PATH, partition_by=["COLUMN"])`'
_HOME_KEEPS_IT = "leave it out: the home keeps the checkpoint; `Stream(checkpoint=...)` takes over one that Spark made"
_NO_CLEANING = "leave it out: a backfill reads files again that were taken; move old ones away by other means"
_OUTPUT_MODE = "say it by `Stream(output_mode=...)`"
_OURS_TO_SET = "leave it out: Sluice sets it with every batch"
_ALWAYS_INCREMENTAL = "leave it out: a stream takes only what is new; a backfill recomputes an interval"
_MERGE_ON = "write it as `merge_on`: a row of a batch replaces the one that has its keys"
_DEDUPLICATE = (
    "drop duplicates in the transform (`dropDuplicatesWithinWatermark`), or let rows replace others by their keys:"
    " `sinks.delta(PATH, merge_on=[...])`"
)
_IN_TRANSFORM = "call `withWatermark` in the transform"
_QUALITY = "write it as `quality`: a suite's JSON file, or `module:function`"
_INTERVAL = "write it as `interval_column`"
_DECLARED_SCHEMA = "leave it out: `schema` is declared, and no other is found out"
_OF_THE_TABLE = 'give it to the sink: `sinks.delta(PATH, schema_evolution="add")`'
_FOLLOWS = 'a Delta sink takes `schema_evolution="add"`: the table follows the result'
_STATIC = "leave it out: a stream reads changes; a table as it was can be read in the transform"


def _each(names: str, answer: str) -> dict[str, str]:
    return dict.fromkeys(names.split(), answer)


STREAM_WORDS: Mapping[str, str] = {
    **_each("trigger processing_time available_now once trigger_once continuous trigger_interval", _OF_THE_RUN),
    **_each("schedule schedule_interval cron timetable interval refresh", _SCHEDULED),
    **_each("catchup start_date end_date max_active_runs dag_id default_args on_failure_callback", _OF_THE_DAG),
    **_each("on_success_callback description doc doc_md params dagrun_timeout deadline", _OF_THE_DAG),
    **_each("depends_on_past retries retry_delay owner pool execution_timeout email queue", _OF_THE_TASKS),
    **_each("priority_weight weight_rule trigger_rule wait_for_downstream retry_exponential_backoff", _OF_THE_TASKS),
    **_each("depends_on upstream_streams", "leave it out: a source says it; a DAG orders tasks, and assets order DAGs"),
    **_each("enabled active is_active", "leave it out: pause its DAG, or take it out of there"),
    **_each("timeout run_timeout", "write it as `execution_timeout`, for the tasks: `default_args={...}` of the DAG"),
    **_each("sla", 'write it as `deadline`, and give it to the DAG: `stream_dag("NAME", ...)`'),
    **_each("conn_id spark_conn_id connection", _OF_A_CONNECTION),
    **_each("task_id task_group dag", _TASK_IS_STREAM),
    **_each("pre_hook post_hook on_start on_end before after hooks", _BESIDE),
    **_each("path location dir folder file files table_name table_path", _OF_A_PLACE),
    **_each("batch_size max_batch_size rows_per_batch limit max_rows", _LIMITS),
    **_each("begin since from_date start", "give `starting` to the source"),
    **_each("freshness warn_after error_after loaded_at_field", _LAG),
    **_each("constraints contract", "write it as `quality`: a suite may ask for columns and their types"),
    **_each("checkpoint_location checkpoint_dir checkpoint_path", _HOME_KEEPS_IT),
    **_each("query_name stream_name id", "write it as `name`"),
    **_each("mode write_mode save_mode", "write it as `output_mode`"),
    **_each("source input inputs read_from from_ upstream", 'write it as `sources={"NAME": sources.files(...)}`'),
    **_each("target destination output outputs write_to to table", "write it as `sink=sinks.delta(PATH)`"),
    **_each("function func fn transformation transformer model job", 'write it as `transform="module:function"`'),
    **_each("query sql_file", 'write it, or name its file: `sql="select ... from stream(NAME)"`'),
    **_each("partition_by partition_cols partition_columns partitioned_by cluster_by clustered_by", _OF_THE_SINK),
    **_each("schema columns format", 'give it to the source: `sources.files(PATH, format="json", schema="...")`'),
    **_each("options option", "give each option by its name to the source or the sink that it is for"),
    **_each("foreach_batch foreach", 'write it as `sink=sinks.foreach_batch("module:function")`'),
    **_each("watermark with_watermark watermark_delay watermark_column delay_threshold", _IN_TRANSFORM),
    **_each("max_files_per_trigger max_files", "give the source `max_files_per_batch`"),
    **_each("max_bytes_per_trigger", "give the source `max_bytes_per_batch`"),
    **_each("starting starting_offsets starting_version starting_timestamp", "give `starting` to the source"),
    **_each("materialized materialization incremental is_incremental incremental_strategy full_refresh strategy kind",
            _ALWAYS_INCREMENTAL),
    **_each("unique_key primary_key merge_keys keys dedup dedup_key deduplicate", _DEDUPLICATE),
    **_each("on_schema_change merge_schema schema_evolution schema_evolution_mode", _OF_THE_TABLE),
    **_each("event_time time_column date_column partition_column backfill_column batch_column", _INTERVAL),
    **_each("lookback allowed_lateness late_by", "write it as `lateness`"),
    **_each("expectations expectation_suite expectation_suite_name suite tests checks validations data_quality",
            _QUALITY),
    **_each("dead_letter dead_letters dlq bad_records bad_records_path rejects errors", "write it as `quarantine`"),
    **_each("config spark_conf spark_config settings spark_settings", "write it as `conf`"),
    **_each("driver_memory spark_driver_memory mem", "write it as `memory`"),
    **_each("master spark_master", "write it into `sluice.toml`, under [spark]"),
    **_each("home", "write it into `sluice.toml`, under [project]"),
}  # fmt: skip
"""What is typed into `Stream(...)`, in snake_case, and what to write there."""

SOURCE_WORDS: Mapping[str, str] = {
    **_each("max_files_per_trigger", "write it as `max_files_per_batch`"),
    **_each("max_bytes_per_trigger", "write it as `max_bytes_per_batch`"),
    **_each("max_versions_per_trigger max_offsets_per_trigger", "write it as `max_offsets_per_batch`"),
    **_each("starting_offsets starting_timestamp start_from starting_position", "write it as `starting`"),
    **_each("clean_source source_archive_dir", _NO_CLEANING),
    **_each("ignore_changes", "write it as `skip_change_commits`"),
    **_each("read_change_data", "write it as `read_change_feed`"),
    **_each("version_as_of timestamp_as_of", _STATIC),
    **_each("ending_version", "bound the run: `sluice run NAME --to-version N`"),
    **_each("ending_timestamp ending_offsets", "bound the run: `sluice run NAME --until TIME`"),
    **_each("columns fields", "write it as `schema`"),
    **_each("schema format", "leave it out: the table tells"),
    **_each("recursive", "write it as `recursive_file_lookup`"),
    **_each("modified_after include_existing_files", "write it as `starting`"),
    **_each("modified_before", "bound the run: `sluice run NAME --until TIME`"),
    **_each("schema_location schema_evolution_mode schema_hints infer_column_types", _DECLARED_SCHEMA),
    **_each("schema_evolution", _OF_THE_TABLE),
    **_each("rescued_data_column", "write it as `column_name_of_corrupt_record`, a string of the schema"),
    **_each("bad_records_path", "say by `mode` what becomes of rows that can't be parsed"),
    **_each("use_notifications use_incremental_listing backfill_interval", "leave it out: the folder is listed"),
    **_each("allow_overwrites", "leave it out: give new content a new name; a file is read once"),
    **_each("partition_columns", "leave it out: `k=v` in a path makes a column, if the schema has it"),
    **_each("glob pattern file_pattern", "write it into the path, or as `path_glob_filter`"),
    **_each("trigger schedule once available_now", _SCHEDULED),
    **_each("checkpoint_location", _HOME_KEEPS_IT),
    **_each("watermark with_watermark", _IN_TRANSFORM),
    **_each("options option", "give each option by its name, in snake_case"),
    **_each("table_name name identifier", "of a Delta table by its name, write it as `sources.delta(table=NAME)`"),
}
"""What is typed into `sources.files(...)` and `sources.delta(...)`."""

SINK_WORDS: Mapping[str, str] = {
    **_each("partition_cols partition_columns partitioned_by partitions", "write it as `partition_by`"),
    **_each("mode output_mode save_mode write_mode overwrite", _OUTPUT_MODE),
    **_each("checkpoint_location", _HOME_KEEPS_IT),
    **_each("trigger schedule once available_now", _SCHEDULED),
    **_each("replace_where txn_app_id txn_version", _OURS_TO_SET),
    **_each("partition_overwrite_mode", _ALWAYS_INCREMENTAL),
    **_each("unique_key merge_keys merge_key primary_key key keys upsert_on upsert_keys", _MERGE_ON),
    **_each(
        "z_order zorder cluster_by clustered_by", "leave it out: cluster the table by `ALTER TABLE`, then OPTIMIZE"
    ),
    **_each("options option", "give each option by its name, in snake_case"),
    **_each("query_name", "leave it out: `Stream(name=...)` names the query"),
    **_each("rows", "write it as `num_rows`"),
    **_each("format", "leave it out: other formats than Delta are written by `sinks.files(PATH, format=...)`"),
    **_each("schema", "leave it out: the result of the transform tells the columns"),
    **_each(
        "merge_schema auto_merge on_schema_change schema_evolution_mode evolve_schema with_schema_evolution", _FOLLOWS
    ),
    **_each("table_name name identifier", "of a Delta table by its name, write it as `sinks.delta(table=NAME)`"),
}
"""What is typed into `sinks.delta(...)`, `sinks.files(...)` and `sinks.console(...)`."""

CHANGES_WORDS: Mapping[str, str] = {
    **_each("except_column_list", "write it as `except_columns`"),
    **_each("column_list columns", "select them in the transform, or name the others: `except_columns`"),
    **_each("scd_type", "write it as `stored_as_scd_type`"),
    **_each("key primary_key unique_key", "write it as `keys`"),
    **_each("sequence sequence_col order_by", "write it as `sequence_by`"),
    **_each("target source name", "leave it out: the stream says it"),
    **_each("apply_as_truncates", "leave it out: a stream does not empty its table; delete the rows by hand"),
    **_each("ignore_null_updates", "leave it out: fill in what is null in the transform"),
    **_each(
        "track_history_column_list track_history_except_column_list",
        "leave it out: a history has every change; leave columns out by `except_columns`",
    ),
}
"""What is typed into `sinks.changes(...)`."""

_OF_THE_CLIENT = "give it to Kafka's client: `settings={...}`, by the name of the one in Java"
_KAFKA_SETTINGS = (
    "security_protocol sasl_mechanism sasl_mechanisms sasl_jaas_config sasl_username sasl_password ssl_ca_location"
    " ssl_truststore_location ssl_keystore_location isolation_level client_id kafka_options options conf config"
)
KAFKA_SOURCE_WORDS: Mapping[str, str] = {
    **SOURCE_WORDS,
    **_each(
        "brokers broker bootstrap_servers bootstrap hosts kafka_bootstrap_servers",
        'give the servers first: `sources.kafka("HOST:PORT", ...)`',
    ),
    **_each("topic subscribe", 'write it as `topics=["NAME"]`'),
    **_each("subscribe_pattern topic_pattern topics_pattern", "write it as `pattern`"),
    **_each("assign partition topic_partitions", 'write it as `partitions={"TOPIC": [0, 1]}`'),
    **_each(
        "group_id kafka_group_id consumer_group enable_auto_commit",
        "leave it out: the checkpoint knows how far a stream has read, and no group does",
    ),
    **_each("auto_offset_reset starting_offsets_by_timestamp", "write it as `starting`"),
    **_each(
        "schema format value_format value_schema key_format columns fields",
        'leave it out: `value` is binary; decode it in the transform, by `from_json(value.cast("string"), ...)`',
    ),
    **_each("batch_size max_poll_records max_records limit", "write it as `max_offsets_per_batch`"),
    **_each(_KAFKA_SETTINGS, _OF_THE_CLIENT),
}
"""What is typed into `sources.kafka(...)`."""
KAFKA_SINK_WORDS: Mapping[str, str] = {
    **SINK_WORDS,
    **_each(
        "brokers broker bootstrap_servers bootstrap hosts kafka_bootstrap_servers",
        'give the servers first: `sinks.kafka("HOST:PORT", ...)`',
    ),
    **_each("topics", "write it as `topic`; for several, give each row a column `topic`"),
    **_each(
        "key value key_column value_column headers partition",
        "name a column of the result so: `key`, `value`, `headers`, `partition`",
    ),
    **_each("acks compression_type linger_ms transactional_id", _OF_THE_CLIENT),
    **_each(_KAFKA_SETTINGS, _OF_THE_CLIENT),
}
"""What is typed into `sinks.kafka(...)`."""

_FILE_FORMATS = "avro", "csv", "json", "orc", "parquet", "text", "xml"
_OF_FILES = "write it as `sources.files(PATH, format={!r}, ...)`"
_INTO_FILES = "write it as `sinks.files(PATH, format={!r})`"
_LAND_IT = (
    "let its records land as files or in a Delta table, and read those: `sources.files`, `sources.delta`; or read them"
    ' by a data source of yours: `sources.python("module:Class")`'
)
_WRITE_IT = 'write each batch by a function of yours: `sinks.foreach_batch("module:function")`'
OTHER_SOURCE_WORDS: Mapping[str, str] = {
    **{name: _OF_FILES.format(name) for name in _FILE_FORMATS},
    "binaryfile": _OF_FILES.format("binaryFile"),
    "delta": "write it as `sources.delta(PATH)`",
    "kafka": 'write it as `sources.kafka("HOST:PORT", topics=["NAME"])`',
    "rate_micro_batch": "write it as `sources.rate_micro_batch(rows_per_batch=...)`",
}
"""What is given as the format of `sources.other(...)`."""
SPARKS_OWN_SOURCES = frozenset(
    [
        "avro",
        "binaryfile",
        "console",
        "csv",
        "delta",
        "hive",
        "image",
        "jdbc",
        "json",
        "kafka",
        "libsvm",
        "noop",
        "orc",
        "parquet",
        "rate",
        "rate-micro-batch",
        "socket",
        "state-metadata",
        "statestore",
        "text",
        "xml",
    ]
)
"""Formats, in lower case, which no data source in Python can be called."""
_PYTHON = 'write it as `sources.python("module:Class", ...)`, and put the class into a module of the project'
OTHER_SINK_WORDS: Mapping[str, str] = {
    **{name: _INTO_FILES.format(name) for name in _FILE_FORMATS},
    "delta": "write it as `sinks.delta(PATH)`",
    "kafka": 'write it as `sinks.kafka("HOST:PORT", topic="NAME")`',
    "console": "write it as `sinks.console()`",
    "memory": "write it as `sinks.memory()`",
    "noop": "write it as `sinks.noop()`",
}
"""What is given as the format of `sinks.other(...)`."""

KIND_WORDS: Mapping[str, Mapping[str, str]] = {
    "sluice": {
        **_each("source Source Sources input", "write `from sluice import sources`"),
        **_each("sink Sink Sinks output", "write `from sluice import sinks`"),
        **_each(
            "files delta csv json parquet", "it is one of the sources, or of the sinks: `sources.files(PATH, ...)`"
        ),
        **_each("foreach_batch console noop", "it is one of the sinks: `from sluice import sinks`"),
        **_each("stream_dag", "write `from sluice_airflow.stream_dag import stream_dag`"),
        **_each("outlets StreamAsset", "write `from sluice_airflow.assets import outlets`"),
        **_each(
            "RunStreamOperator StreamOperator SluiceOperator",
            "write `from sluice_airflow.operators.run_stream import RunStreamOperator`",
        ),
        **_each(
            "RunTogetherOperator RunStreamsOperator",
            'write `stream_dag("a", "b", together=True)`, of `from sluice_airflow.stream_dag import stream_dag`',
        ),
        **_each("AuditStreamOperator", "write `from sluice_airflow.operators.audit_stream import AuditStreamOperator`"),
        **_each("LagSensor StreamSensor", "write `from sluice_airflow.sensors.lag import LagSensor`"),
        **_each("BatchSensor", "write `from sluice_airflow.sensors.progress import BatchSensor`"),
        **_each("WatermarkSensor", "write `from sluice_airflow.sensors.progress import WatermarkSensor`"),
        **_each("QualitySensor", "write `from sluice_airflow.sensors.quality import QualitySensor`"),
        **_each("DAG dag task Asset Variable Connection", "it is Airflow's: import it from `airflow.sdk`"),
        **_each(
            "SparkSession DataFrame Column", "it is Spark's: import it from `pyspark.sql`, in the transform's module"
        ),
        **_each("F functions col types", "it is Spark's: import it from `pyspark.sql`, in the transform's module"),
        **_each(
            "Pipeline Flow Job Model Table Dataset StreamingTable streaming_table dlt model pipeline",
            "declare a stream: `from sluice import Stream`",
        ),
        **_each(
            "Suite Expectation ExpectationSuite expectations expect",
            "name a suite in the stream: `Stream(quality=...)`; it is a JSON file of Great Expectations",
        ),
        **_each("run run_pipeline execute", "write `run_stream(find_project(), Request(...))`, or `sluice run NAME`"),
        **_each("backfill", "type `sluice backfill NAME --start TIME --end TIME`"),
    },
    "sluice.sources": {
        **{name: _OF_FILES.format(name) for name in _FILE_FORMATS},
        **_each("binaryFile binary_file", _OF_FILES.format("binaryFile")),
        **_each("kinesis pubsub eventhubs event_hubs pulsar jdbc postgres mysql mongo", _LAND_IT),
        **_each("iceberg hudi snowflake bigquery memory http rest api excel protobuf redis", _LAND_IT),
        **_each(
            "file folder s3 cloud_files cloudfiles autoloader auto_loader", "write it as `sources.files(PATH, ...)`"
        ),
        **_each("table delta_table", "write it as `sources.delta(table=NAME)`, or `sources.delta(PATH)`"),
        **_each("custom datasource data_source DataSource python_data_source pyspark user_defined function", _PYTHON),
        **{name: f"write it as `sources.other({name!r}, ...)`" for name in ("rate", "socket")},
        **_each("foreach_batch console noop", "it is a sink"),
    },
    "sluice.sinks": {
        **{name: _INTO_FILES.format(name) for name in _FILE_FORMATS},
        **_each("kinesis pubsub eventhubs jdbc postgres mysql mongo iceberg hudi snowflake bigquery", _WRITE_IT),
        **_each("redis cassandra", _WRITE_IT),
        **_each("elasticsearch opensearch http rest api email slack webhook excel", _WRITE_IT),
        **_each("foreach_function merge upsert function", _WRITE_IT),
        **_each("file folder s3", "write it as `sinks.files(PATH, format=...)`"),
        **_each("table delta_table", "write it as `sinks.delta(table=NAME)`, or `sinks.delta(PATH)`"),
        **_each("print stdout show", "write it as `sinks.console()`"),
        **_each("none null nothing black_hole", "write it as `sinks.noop()`"),
    },
}
"""What is looked for in this package, and in its modules of sources and of sinks."""


FORMAT_WORDS: Mapping[str, str] = {
    "delta": "write it as `sources.delta(PATH)`",
    "kafka": 'write it as `sources.kafka("HOST:PORT", topics=["NAME"])`',
    **_each("jsonl ndjson json_lines", "write it as `json`: that reads one document per line"),
    **_each("tsv psv", 'write it as `csv`, with `sep="\\t"` or another one'),
    **_each("txt log", "write it as `text`"),
    **_each("pq parq", "write it as `parquet`"),
    **_each("binary binaryfile binary_file bytes image pdf", "write it as `binaryFile`: a row for each file"),
}
"""What is given as the format of files."""
