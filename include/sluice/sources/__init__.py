"""The kinds of sources: one module per kind, each with everything about it."""

from sluice.sources.delta.declared import delta
from sluice.sources.files.declared import files
from sluice.sources.kafka.declared import kafka
from sluice.sources.other import other
from sluice.sources.python import python
from sluice.sources.rate_micro_batch import rate_micro_batch

__all__ = ["delta", "files", "kafka", "other", "python", "rate_micro_batch"]
