"""`state/`: which stateful operators a checkpoint has, and whether their versions can be loaded."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated

import msgspec

from sluice.checkpoint.log import read_log_file
from sluice.checkpoint.places import state_folder
from sluice.errors import Problem, RefusedError
from sluice.locations import join
from sluice.storage import Storage
from sluice.typed_json import decode_as

_VERSIONED = re.compile(r"(\d+)(?:_[0-9a-f-]+)?\.(delta|snapshot|zip|changelog)")
_JOIN_STORE = re.compile(r"(left|right)-[A-Za-z]+")
_NO_KEYS = (b'{"type":"struct","fields":[]}', b'{"type":"struct","fields":[{"name":"key","type":"void"')
_STRUCT = '{"type":"struct"'
_NUMBER = re.compile(r"\d+")
_MAX_BYTES = 4 * 1024 * 1024


class _OperatorInfo(msgspec.Struct, rename="camel"):
    operator_id: int
    operator_name: str


class _StoreInfo(msgspec.Struct, rename="camel"):
    # It names a folder.
    store_name: Annotated[str, msgspec.Meta(pattern=r"^[^/\x00]{1,60}\Z")]
    # A cap, because every partition is looked for: a damaged number must not cost hours.
    num_partitions: Annotated[int, msgspec.Meta(ge=1, le=100_000)]


class _StateVariable(msgspec.Struct, rename="camel"):
    state_name: str


class _OperatorProperties(msgspec.Struct, rename="camel"):
    state_variables: list[_StateVariable] = []
    time_mode: str = ""


class _OperatorMetadata(msgspec.Struct, rename="camel"):
    operator_info: _OperatorInfo
    state_store_info: list[_StoreInfo]
    operator_properties_json: str = ""

    @property
    def properties(self) -> _OperatorProperties:
        """Those of a processor of `transformWithState`."""
        try:
            return decode_as(self.operator_properties_json or "{}", _OperatorProperties)
        except (msgspec.DecodeError, RecursionError):
            return _OperatorProperties()


def has_state(checkpoint: str, *, storage: Storage) -> bool:
    """Whether a query has kept state in a checkpoint."""
    state = storage.list_folder(state_folder(checkpoint))
    return state is not None and bool(state.folders)


def clear_state_of(batch_id: int, checkpoint: str, *, storage: Storage) -> None:
    """Delete the versions of state that a batch has left that is not committed, and is done again.

    Not every file system lets a file take the place of another: the second try's would be lost.

    Raises:
        StorageError: One can't be deleted.
    """
    state = state_folder(checkpoint)
    for operator in _numbered_folders(state, storage):
        for partition in _numbered_folders(operator, storage):
            _clear_versions(partition, batch_id, storage)


def _numbered_folders(location: str, storage: Storage) -> list[str]:
    listed = storage.list_folder(location)
    return [join(location, name) for name in (listed.folders if listed else ()) if _NUMBER.fullmatch(name)]


def _clear_versions(location: str, batch_id: int, storage: Storage) -> None:
    """Those of a partition's stores: one in it, or several in folders of their own."""
    listed = storage.list_folder(location)
    if listed is None:
        return
    for name in listed.files:
        match = _VERSIONED.fullmatch(name.removeprefix(".").removesuffix(".crc"))
        if match is not None and int(match[1]) > batch_id:
            storage.delete(join(location, name))
    for name in filter(_JOIN_STORE.fullmatch, listed.folders):
        _clear_versions(join(location, name), batch_id, storage)


@dataclass(frozen=True)
class Operator:
    """One stateful operator."""

    operator_id: int
    name: str | None
    """Spark's name of the operator, such as `stateStoreSave`; None when there is no metadata of it."""
    partitions: int
    stores: tuple[str, ...]
    latest_version: int | None
    """The newest version that every partition has: batch N leaves version N + 1."""
    variables: tuple[str, ...] = ()
    """The names of the variables of a processor of `transformWithState`; Spark's own, with a dollar, are left out."""
    time_mode: str = ""
    """Of such a processor: `None`, `ProcessingTime` or `EventTime`."""


@dataclass(frozen=True)
class StateLayout:
    """What `state/` holds."""

    operators: tuple[Operator, ...]
    problems: tuple[Problem, ...] = ()


def read_state_layout(
    location: str, needed_version: int | None, *, storage: Storage, has_metadata: bool = True
) -> StateLayout:
    """Read the layout of `state/`.

    Args:
        location: The `state` folder.
        needed_version: The version that the next batch loads; None when no batch was committed.
        storage: Where to read.
        has_metadata: Whether the Spark that wrote it keeps metadata of its operators, as 4.0 and later do.

    Raises:
        StorageError: A folder can't be listed.
    """
    root = storage.list_folder(location)
    if root is None:
        return StateLayout(())
    operators: list[Operator] = []
    problems: list[Problem] = []
    for name in sorted((name for name in root.folders if _NUMBER.fullmatch(name)), key=int):
        operator_location = join(location, name)
        metadata = _read_metadata(operator_location, storage, problems) if has_metadata else None
        operator, found = _read_operator(operator_location, int(name), metadata, needed_version, storage)
        operators.append(operator)
        problems += found
    return StateLayout(tuple(operators), tuple(problems))


def lacks_state_of(batch_id: int, checkpoint: str, *, storage: Storage) -> bool:
    """Whether a partition has no version of the state that a batch leaves: it was not computed, or not all of it.

    Raises:
        StorageError: A folder can't be listed.
    """
    found = read_state_layout(state_folder(checkpoint), None, storage=storage).operators
    return any(operator.latest_version is None or operator.latest_version <= batch_id for operator in found)


def read_state_schemas(location: str, *, storage: Storage) -> dict[str, bytes]:
    """What `state/` says of its operators and of the columns that they keep: files by their names below it, unparsed.

    A folder without such files is named with a `/` at its end, and is empty.

    Raises:
        StorageError: A folder or file can't be read.
    """
    found: dict[str, bytes] = {}
    root = storage.list_folder(location)
    for operator in filter(_NUMBER.fullmatch, root.folders if root is not None else ()):
        found[f"{operator}/"] = b""
        for below in ("_metadata", "_stateSchema", "0"):
            found |= _schema_files(location, f"{operator}/{below}", storage)
    return found


def nested_fields(schema: bytes) -> list[str]:
    """The names of fields within the columns of a file that says what a store keeps, in their order.

    Spark reads what is kept by the places of the fields.

    Args:
        schema: The file, with the structs of its keys and of its values, each as JSON.
    """
    text, found, at = schema.decode("utf-8", errors="replace"), list[str](), 0
    while (at := text.find(_STRUCT, at)) >= 0:
        try:
            struct, at = json.JSONDecoder().raw_decode(text, at)
        except (ValueError, RecursionError):
            # It is for Spark to say what is wrong with it.
            return []
        found += _names_within(struct, depth=0)
    return found


def _names_within(kind: object, depth: int) -> Iterator[str]:
    if not isinstance(kind, dict):
        return
    fields = kind.get("fields")
    for field in fields if isinstance(fields, list) else ():
        if isinstance(field, dict):
            if depth:
                yield str(field.get("name"))
            yield from _names_within(field.get("type"), depth + 1)
    for part in ("elementType", "keyType", "valueType"):
        yield from _names_within(kind.get(part), depth + 1)


def _schema_files(location: str, name: str, storage: Storage) -> dict[str, bytes]:
    folder = storage.list_folder(join(location, name))
    if folder is None:
        return {}
    found: dict[str, bytes] = {}
    if {"_metadata", "_stateSchema"} & set(name.split("/")):
        for file in folder.files:
            content = None if file.startswith(".") else storage.read(join(location, name, file), max_bytes=_MAX_BYTES)
            if content is not None:
                found[f"{name}/{file}"] = content
    for below in folder.folders:
        found |= _schema_files(location, f"{name}/{below}", storage)
    return found


def _read_operator(
    location: str, operator_id: int, metadata: _OperatorMetadata | None, needed_version: int | None, storage: Storage
) -> tuple[Operator, list[Problem]]:
    folder = storage.list_folder(location)
    found = [int(name) for name in (folder.folders if folder else []) if _NUMBER.fullmatch(name)]
    stores = [store.store_name for store in metadata.state_store_info] if metadata else _find_stores(location, storage)
    partitions = len(found)
    if metadata is not None and not (found == [0] and _has_no_keys(location, storage)):
        partitions = max([partitions, *(store.num_partitions for store in metadata.state_store_info)])
    newest: list[int | None] = []
    problems: list[Problem] = []
    for partition in range(partitions):
        for store in stores:
            place = join(location, str(partition)) if store == "default" else join(location, str(partition), store)
            versions = _versions(place, storage)
            newest.append(max(versions, default=None))
            if needed_version and not _can_load(versions, needed_version):
                problems.append(_unloadable(place, needed_version))
    latest = None if not newest or None in newest else min(version for version in newest if version is not None)
    name = metadata.operator_info.operator_name if metadata else None
    properties = metadata.properties if metadata else _OperatorProperties()
    variables = tuple(one.state_name for one in properties.state_variables if not one.state_name.startswith("$"))
    return Operator(operator_id, name, partitions, tuple(stores), latest, variables, properties.time_mode), problems


def _has_no_keys(location: str, storage: Storage) -> bool:
    """A limit or a total over all rows has one partition, while its metadata tells that of the shuffle's."""
    schema = storage.read(join(location, "0", "_metadata", "schema"), max_bytes=_MAX_BYTES) or b""
    return schema[max(0, schema.find(b"{")) :].startswith(_NO_KEYS)


def _find_stores(location: str, storage: Storage) -> list[str]:
    """Without metadata: a join has four stores, of these names; every other operator has one."""
    folder = storage.list_folder(join(location, "0"))
    return (sorted(filter(_JOIN_STORE.fullmatch, folder.folders)) if folder else []) or ["default"]


def _newest_metadata(operator: str, storage: Storage) -> str | None:
    """Where the metadata of a `transformWithState` is that is in force: it is written with every run, by its batch."""
    listed = storage.list_folder(join(operator, "_metadata", "v2"))
    batches = [int(name) for name in (listed.files if listed else ()) if _NUMBER.fullmatch(name)]
    return join(operator, "_metadata", "v2", str(max(batches))) if batches else None


def _read_metadata(operator: str, storage: Storage, problems: list[Problem]) -> _OperatorMetadata | None:
    location = join(operator, "_metadata", "metadata")
    try:
        file = read_log_file(location, storage=storage, max_version=2, max_bytes=_MAX_BYTES)
        if file is None and (newest := _newest_metadata(operator, storage)) is not None:
            location = newest
            file = read_log_file(location, storage=storage, max_version=2, max_bytes=_MAX_BYTES)
        if file is not None and file.lines:
            return decode_as(file.lines[0], _OperatorMetadata)
        cause = "the operator's metadata is missing" if file is None else "the operator's metadata is empty"
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, RefusedError) as exc:
        cause = f"the operator's metadata does not parse: {exc}"
    problems.append(
        Problem(
            code="OPERATOR_METADATA_LOST",
            file=location,
            cause=cause,
            consequence="Spark no longer notices when the query's operators change",
            remedy="restore it before changing the transform",
            is_blocking=False,
        )
    )
    return None


def _versions(location: str, storage: Storage) -> dict[int, set[str]]:
    folder = storage.list_folder(location)
    versions: dict[int, set[str]] = {}
    for name in folder.files if folder else []:
        match = _VERSIONED.fullmatch(name)
        if match:
            versions.setdefault(int(match[1]), set()).add(match[2])
    return versions


def _can_load(versions: dict[int, set[str]], needed: int) -> bool:
    """A version loads from a snapshot at or below it and every change file in between; version 0 is empty."""
    for version in range(needed, 0, -1):
        kinds: Iterable[str] = versions.get(version, ())
        if "snapshot" in kinds or "zip" in kinds:
            return True
        if not kinds:
            return False
    return True


def _unloadable(location: str, version: int) -> Problem:
    return Problem(
        code="STATE_VERSION_LOST",
        file=location,
        cause=f"version {version} of the state can't be built from the files here",
        consequence="Spark fails with CANNOT_LOAD_STATE_STORE when it opens this partition",
        remedy="restore the folder from a backup, or declare a new stream with a sink of its own",
    )
