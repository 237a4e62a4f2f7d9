"""Where the parts of a checkpoint are, as Spark lays it out."""

from __future__ import annotations

from sluice.locations import join


def metadata_file(checkpoint: str) -> str:
    """The file with the query's id."""
    return join(checkpoint, "metadata")


def offsets_folder(checkpoint: str) -> str:
    """The log of planned batches."""
    return join(checkpoint, "offsets")


def offset_file(checkpoint: str, batch_id: int) -> str:
    """What is planned of one batch."""
    return join(checkpoint, "offsets", str(batch_id))


def commits_folder(checkpoint: str) -> str:
    """The log of batches that are done."""
    return join(checkpoint, "commits")


def commit_file(checkpoint: str, batch_id: int) -> str:
    """That one batch is done."""
    return join(checkpoint, "commits", str(batch_id))


def sources_folder(checkpoint: str) -> str:
    """The logs of the sources."""
    return join(checkpoint, "sources")


def source_log(checkpoint: str, name: str) -> str:
    """The log of one source."""
    return join(checkpoint, "sources", name)


def state_folder(checkpoint: str) -> str:
    """The state of the operators."""
    return join(checkpoint, "state")
