"""The kinds of sinks: one module per kind, each with everything about it."""

from sluice.sinks.console import console
from sluice.sinks.delta.changes import changes
from sluice.sinks.delta.sink import delta
from sluice.sinks.files import files
from sluice.sinks.foreach import foreach
from sluice.sinks.foreach_batch import foreach_batch
from sluice.sinks.kafka import kafka
from sluice.sinks.memory import memory
from sluice.sinks.noop import noop
from sluice.sinks.other import other

__all__ = ["changes", "console", "delta", "files", "foreach", "foreach_batch", "kafka", "memory", "noop", "other"]
