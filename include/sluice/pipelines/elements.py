"""What the files of a pipeline define, whichever language they are in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

OutputKind = Literal["streaming table", "materialized view", "temporary view", "sink"]


class Read(msgspec.Struct, frozen=True):
    """What a flow reads as a stream: a table by its name, or what a format's options say."""

    table: str | None = None
    format: str | None = None
    schema: str | None = None
    paths: tuple[str, ...] = ()
    options: Mapping[str, str] = {}


class OutputElement(msgspec.Struct, frozen=True):
    """A table, view or sink that a file defines."""

    kind: OutputKind
    name: str
    file: str
    line: int | None = None
    format: str | None = None
    """None where the file leaves it to Spark."""
    options: Mapping[str, str] = {}
    partition_by: tuple[str, ...] = ()


class FlowElement(msgspec.Struct, frozen=True):
    """A flow that a file defines."""

    name: str
    target: str
    file: str
    line: int | None = None
    function: str | None = None
    """The name of its Python function; None for SQL, and for an auto CDC flow."""
    sql: str | None = None
    """Its query."""
    is_auto_cdc: bool = False
    reads: tuple[Read, ...] = ()
    """What it reads as streams."""
    tables: tuple[str, ...] = ()
    """The names of what it reads whole, at each batch."""
    conf: Mapping[str, str] = {}
    error: str | None = None
    """Why what it reads is not known."""


class Elements(msgspec.Struct, frozen=True):
    """What one file defines."""

    outputs: tuple[OutputElement, ...] = ()
    flows: tuple[FlowElement, ...] = ()
    error: str | None = None
    """Why the file can't be read; the rest is empty then."""
    line: int | None = None
