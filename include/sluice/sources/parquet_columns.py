"""The columns of a Parquet file, from its footer."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

from sluice.errors import StorageError
from sluice.locations import is_local, local_path
from sluice.storage import Storage

_NAMES = {
    "int8": "tinyint",
    "int16": "smallint",
    "int32": "int",
    "int64": "bigint",
    "halffloat": "float",
    "float": "float",
    "double": "double",
    "bool": "boolean",
    "string": "string",
    "large_string": "string",
    "binary": "binary",
    "large_binary": "binary",
    "date32[day]": "date",
}


def parquet_columns(uri: str, root: str, *, storage: Storage) -> dict[str, str]:
    """The columns of a file with their types as Spark reads them; those of its folders (`k=v`) are strings.

    Args:
        uri: The file.
        root: The folder, or glob of folders, below which folders make columns.
        storage: Where it is.

    Raises:
        StorageError: It can't be read, or is no Parquet file.
    """
    import pyarrow as pa
    from pyarrow import parquet

    stat = storage.stat(uri)
    try:
        if stat is None:
            raise FileNotFoundError(uri)
        if is_local(uri):
            schema = parquet.read_schema(local_path(uri))
        else:
            schema = parquet.read_schema(pa.BufferReader(storage.read(uri, max_bytes=stat.size_bytes) or b""))
        columns = {field.name: _spark_type(field.type) for field in schema}
    except (OSError, pa.ArrowException, RecursionError) as exc:
        raise StorageError(
            f"the columns of the file can't be read: {exc}", where=uri, remedy="look at the file, then try again"
        ) from exc
    place = local_path(uri) if is_local(uri) else unquote(uri)
    folders = (part.partition("=") for part in place.split("/")[len(root.rstrip("/").split("/")) : -1])
    return columns | {name: "string" for name, separator, _ in folders if separator}


def _spark_type(kind: Any) -> str:
    import pyarrow as pa

    types = pa.types
    if types.is_timestamp(kind):
        return "timestamp" if kind.tz is not None else "timestamp_ntz"
    if types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if types.is_struct(kind):
        return f"struct<{','.join(f'{field.name}:{_spark_type(field.type)}' for field in kind)}>"
    if types.is_list(kind) or types.is_large_list(kind):
        return f"array<{_spark_type(kind.value_type)}>"
    if types.is_map(kind):
        return f"map<{_spark_type(kind.key_type)},{_spark_type(kind.item_type)}>"
    return _NAMES.get(str(kind), str(kind))
