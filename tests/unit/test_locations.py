"""What is equal for all names of a file or folder."""

from __future__ import annotations

import pytest

from sluice.locations import below_folder, same_for_every_name


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("s3://lake/t", "s3a://lake/t/"),
        ("s3n://lake/t", "S3A://lake/t"),
        ("gs://lake/t", "gcs://lake/t"),
        ("abfss://c@lake/t", "abfs://c@lake/t"),
    ],
)
def test_names_of_a_store(one: str, other: str) -> None:
    """Hadoop's file systems have names of their own for some."""
    assert same_for_every_name(one) == same_for_every_name(other)


@pytest.mark.parametrize("other", ["s3://lake/u", "s3://sea/t", "gs://lake/t", "/lake/t", "s3x://lake/t", "s3alake/t"])
def test_other_places(other: str) -> None:
    """They are no names of the same."""
    assert same_for_every_name("s3a://lake/t") != same_for_every_name(other)


@pytest.mark.parametrize(
    ("location", "folder", "below"),
    [
        ("s3a://lake/t/q", "s3://lake/t", "q"),
        ("s3://lake/t/q", "s3a://lake/t/", "q"),
        ("s3://lake/t", "s3a://lake/t", None),
        ("s3://lake/tq", "s3a://lake/t", None),
    ],
)
def test_below_a_folder_of_s3(location: str, folder: str, below: str | None) -> None:
    """A quarantine below the sink is seen, whichever of the names each has."""
    assert below_folder(location, folder) == below
