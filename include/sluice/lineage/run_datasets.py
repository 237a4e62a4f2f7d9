"""The inputs and outputs of a run, by its plan and its record."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from msgspec import UNSET
from openlineage.client.event_v2 import InputDataset, OutputDataset
from openlineage.client.facet_v2 import (
    DatasetFacet,
    column_lineage_dataset,
    dataset_version_dataset,
    input_statistics_input_dataset,
    output_statistics_output_dataset,
    schema_dataset,
)

from sluice.amounts import Amount, count_in, known_sum
from sluice.datasets import Dataset, dataset_at
from sluice.gate.audit_record import counted
from sluice.lineage.quality_facets import assertions_facet, metrics_facet
from sluice.runs.record import BatchRecord, RunRecord
from sluice.runs.recorded_columns import ColumnOrigin, RecordedColumns, ResultColumn
from sluice.stream import Stream

_Field = column_lineage_dataset.InputField
_INDIRECT = {"filter": "FILTER", "join": "JOIN", "group_by": "GROUP_BY"}


def inputs_of(stream: Stream, record: RunRecord) -> list[InputDataset]:
    """What a run reads: its sources, and the tables that its query reads beside them."""
    found: dict[tuple[str, str], InputDataset] = {}
    columns = record.columns or RecordedColumns()
    for name, datasets in datasets_of(stream, record).items():
        statistics = _statistics(stream, record, list(_read(record, name)))
        for dataset in datasets:
            input_ = read_dataset(dataset, columns.sources.get(name))
            if statistics is not None and len(datasets) == 1:
                input_.inputFacets = {"inputStatistics": statistics}
            # What two sources read has one name: of neither the rows are told then.
            key = dataset.namespace, dataset.name
            found[key] = _without_statistics(found[key]) if key in found else input_
    for location, version in columns.tables.items():
        dataset = replace(dataset_at(location), version=version)
        found.setdefault((dataset.namespace, dataset.name), read_dataset(dataset))
    return list(found.values())


def datasets_of(stream: Stream, record: RunRecord) -> dict[str, tuple[Dataset, ...]]:
    """What each source is called outside, by the source's name."""
    found = {name: source.datasets(_end(record, name)) for name, source in stream.sources.items()}
    slices = {} if record.plan.sources is UNSET else record.plan.sources
    versions = {name: taken.version for name, taken in slices.items() if taken.version is not None}
    return {
        name: tuple(replace(one, version=versions.get(name, one.version)) for one in datasets)
        for name, datasets in found.items()
    }


def outputs_of(stream: Stream, record: RunRecord) -> list[OutputDataset]:
    """What a run writes: its sink, the tables beside it, and the quarantine, if it is declared or has got something."""
    dataset, found = stream.sink.dataset, list[OutputDataset]()
    if stream.outputs:
        return [
            written_dataset(output.sink.dataset, _rows_of(name, record))
            for name, output in stream.outputs.items()
            if output.sink.dataset is not None
        ]
    if dataset is not None:
        rows, version = _written(stream, record)
        output = written_dataset(replace(dataset, version=version), rows)
        output.facets = {**(output.facets or {}), **_told_of_result(stream, record)}
        found.append(output)
    found += [written_dataset(dataset_at(place), None) for place in stream.sink.side_tables.values()]
    quarantined = _quarantined(record)
    table = stream.quarantine_table if quarantined else stream.quarantine
    if table is not None and table.dataset is not None:
        found.append(written_dataset(table.dataset, quarantined if record.batches or record.backfill else None))
    return found


def read_dataset(dataset: Dataset, columns: Mapping[str, str] | None = None) -> InputDataset:
    """What is read, with its columns' types."""
    return InputDataset(dataset.namespace, dataset.name, facets=_facets(dataset, columns))


def written_dataset(dataset: Dataset, rows: int | None, columns: Mapping[str, str] | None = None) -> OutputDataset:
    """What is written, and how many rows of it."""
    output = OutputDataset(dataset.namespace, dataset.name, facets=_facets(dataset, columns))
    if rows is not None:
        output.outputFacets = {
            "outputStatistics": output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(rowCount=rows)
        }
    return output


def _without_statistics(found: InputDataset) -> InputDataset:
    """The same without a count of its rows."""
    return InputDataset(found.namespace, found.name, facets=found.facets)


def _facets(dataset: Dataset, columns: Mapping[str, str] | None) -> dict[str, DatasetFacet]:
    found: dict[str, DatasetFacet] = {}
    if columns:
        fields = [
            schema_dataset.SchemaDatasetFacetFields(name, type_ or None, ordinal_position=place)
            for place, (name, type_) in enumerate(columns.items(), 1)
        ]
        found["schema"] = schema_dataset.SchemaDatasetFacet(fields)
    if dataset.version is not None:
        found["version"] = dataset_version_dataset.DatasetVersionDatasetFacet(str(dataset.version))
    return found


def _read(record: RunRecord, name: str) -> Iterator[Amount | None]:
    """How much each batch that is done has taken of a source; None where its plan is no more known."""
    if record.plan.sources is not UNSET:
        yield record.plan.sources[name].amount if name in record.plan.sources else None
        return
    planned = {batch.batch_id: batch.sources for batch in record.plan.batches}
    for batch in record.batches:
        if batch.kind == "no_data":
            continue
        taken = planned.get(batch.batch_id, {}).get(name)
        if taken is None or taken.start != taken.end:
            yield None if taken is None else taken.amount


def _statistics(
    stream: Stream, record: RunRecord, read: Sequence[Amount | None]
) -> input_statistics_input_dataset.InputStatisticsInputDatasetFacet | None:
    if not read or record.status in {"planned", "running"}:
        return None
    amounts = [amount for amount in read if amount is not None]
    known: dict[str, Any] = {}
    if len(amounts) == len(read):
        known = {unit: count_in(amounts, unit) for unit in ("rows", "bytes", "files")}
    if len(stream.sources) == 1 and record.batches:
        # Spark counts them; of several sources it counts all together.
        counted_rows = known_sum(batch.input_rows for batch in record.batches)
        known["rows"] = known.get("rows") if counted_rows is None else counted_rows
    if all(count is None for count in known.values()):
        return None
    return input_statistics_input_dataset.InputStatisticsInputDatasetFacet(
        rowCount=known.get("rows"), size=known.get("bytes"), fileCount=known.get("files")
    )


def _end(record: RunRecord, name: str) -> Any:
    """The newest offset of a source that the plan has; None where it has none."""
    if record.plan.sources is not UNSET:
        taken = record.plan.sources.get(name)
        return None if taken is None else taken.end
    ends = [batch.sources[name].end for batch in record.plan.batches if name in batch.sources]
    return ends[-1] if ends else None


def _written(stream: Stream, record: RunRecord) -> tuple[int | None, int | None]:
    """How many rows the sink got, and the newest version of it; None for what is not known."""
    if record.backfill is not None:
        return record.backfill.rows_written, record.backfill.sink_version
    batches: Sequence[BatchRecord] = counted(record.batches, stream.output_mode)
    versions = [batch.sink_version for batch in record.batches if batch.sink_version is not None]
    rows = known_sum(batch.output_rows for batch in batches) if batches else None
    return rows, max(versions, default=None)


def _rows_of(sink: str, record: RunRecord) -> int | None:
    """How many rows one of several sinks got; None for what is not known."""
    return known_sum(batch.rows_by_sink.get(sink) for batch in record.batches) if record.batches else None


def _quarantined(record: RunRecord) -> int:
    if record.backfill is not None:
        return record.quality.quarantined if record.quality is not None else 0
    return sum(batch.quarantined_rows for batch in record.batches)


def _told_of_result(stream: Stream, record: RunRecord) -> dict[str, Any]:
    """What is known of the rows: their columns, of what these are made, and what the suite has found."""
    found: dict[str, Any] = {}
    if record.columns is not None:
        types = {column.name: column.type for column in record.columns.result}
        found |= _facets(Dataset("", ""), types)
        found["columnLineage"] = _column_lineage(stream, record, record.columns)
    elif record.quality is not None:
        found |= _facets(Dataset("", ""), record.quality.columns)
    if record.quality is not None and record.quality.checks:
        found["dataQualityAssertions"] = assertions_facet(record.quality)
        found["dataQualityMetrics"] = metrics_facet(record.quality)
    return found


def _column_lineage(
    stream: Stream, record: RunRecord, columns: RecordedColumns
) -> column_lineage_dataset.ColumnLineageDatasetFacet:
    datasets = datasets_of(stream, record)

    def fields(origins: Iterable[ColumnOrigin], kind: str, subtype: str) -> list[_Field]:
        how = column_lineage_dataset.Transformation(kind, subtype)
        return [
            _Field(dataset.namespace, dataset.name, origin.column, [how])
            for origin in origins
            for dataset in datasets.get(origin.source, ())
        ]

    def field(column: ResultColumn) -> column_lineage_dataset.Fields:
        how = "IDENTITY" if column.is_same else "TRANSFORMATION"
        return column_lineage_dataset.Fields(fields(column.origins, "DIRECT", how))

    made = {column.name: field(column) for column in columns.result if column.origins}
    rows = [
        found
        for how, origins in columns.rows_by.items()
        for found in fields(origins, "INDIRECT", _INDIRECT.get(how, how.upper()))
    ]
    return column_lineage_dataset.ColumnLineageDatasetFacet(
        {name: found for name, found in made.items() if found.inputFields}, rows
    )
