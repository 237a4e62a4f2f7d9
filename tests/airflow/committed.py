"""Commits as Spark writes them, put into the home of the tests' project by hand: another writer than Sluice."""

from __future__ import annotations

from pathlib import Path

from airflow_project import StreamProject

from tests.builders import QUERY_ID, commit_bytes, put


def commit(project: StreamProject, batch_id: int, *, watermark_ms: int = 0, query_id: str = QUERY_ID) -> Path:
    """Commit a batch of the stream `events`."""
    checkpoint = Path(project.home().checkpoint_location(1))
    # As Spark does: whoever looks meanwhile finds the whole file.
    put(checkpoint / ".metadata.tmp", f'{{"id":"{query_id}"}}').rename(checkpoint / "metadata")
    temporary = put(checkpoint / "commits" / f".{batch_id}.tmp", commit_bytes(watermark_ms))
    return temporary.rename(checkpoint / "commits" / str(batch_id))
