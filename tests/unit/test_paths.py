"""Declared paths become locations, and relative ones stay in the project."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.declaration_checks import check_path
from sluice.errors import DeclarationError
from sluice.paths import resolve_path
from tests.fuzzing import outcome


@pytest.mark.parametrize(
    ("path", "location"),
    [
        ("data/visits", "{root}/data/visits"),
        ("data/../data/visits/", "{root}/data/visits"),
        ("data/2026-*/{a,b}", "{root}/data/2026-*/{{a,b}}"),
        ("/data/visits/", "/data/visits"),
        ("/", "/"),
        ("file:///data/visits", "/data/visits"),
        ("file:/data/a%20b", "/data/a%20b"),
        ("s3://bucket/visits/", "s3://bucket/visits"),
        ("data/day?token=1/*.json", "{root}/data/day?token=1/*.json"),
        ("s3://bucket/day=?/token=1", "s3://bucket/day=?/token=1"),
    ],
)
def test_locations(tmp_path: Path, path: str, location: str) -> None:
    """Relative paths lie below the project; absolute ones and URLs are taken as they are."""
    assert resolve_path(path, str(tmp_path), place="here") == location.format(root=tmp_path)


@pytest.mark.parametrize("path", ["..", "../other", "data/../../other", "a/b/../../../x", "../*/visits", "*/../../x"])
def test_dots_that_leave_the_project(tmp_path: Path, path: str) -> None:
    """`..` may not lead out, also not behind a glob."""
    with pytest.raises(DeclarationError, match="leaves the project"):
        resolve_path(path, str(tmp_path / "project"), place="here")


@pytest.mark.parametrize("path", ["link", "link/visits", "link/*.json", "data/../link/{a,b}"])
def test_links_that_leave_the_project(tmp_path: Path, path: str) -> None:
    """A link inside the project to a folder outside is refused."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "link").symlink_to(tmp_path / "outside")

    with pytest.raises(DeclarationError, match="leaves the project"):
        resolve_path(path, str(tmp_path / "project"), place="here")


def test_links_inside_the_project(tmp_path: Path) -> None:
    """A link to another folder of the project is fine, also when the project itself is reached by a link."""
    (tmp_path / "project" / "data").mkdir(parents=True)
    (tmp_path / "project" / "link").symlink_to("data")
    (tmp_path / "by_link").symlink_to("project")

    assert resolve_path("link/a", str(tmp_path / "by_link"), place="here") == f"{tmp_path}/by_link/link/a"


def test_a_sibling_with_the_same_beginning(tmp_path: Path) -> None:
    """`project2` is not inside `project`."""
    with pytest.raises(DeclarationError, match="leaves the project"):
        resolve_path("../project2", str(tmp_path / "project"), place="here")


def test_expansion_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable may hold a URL, and its `..` is not overlooked."""
    monkeypatch.setenv("LANDING", "s3://bucket/landing")
    assert resolve_path("${LANDING}/visits", str(tmp_path), place="here") == "s3://bucket/landing/visits"

    monkeypatch.setenv("LANDING", "..")
    with pytest.raises(DeclarationError, match="leaves the project"):
        resolve_path("${LANDING}/visits", str(tmp_path), place="here")


@pytest.mark.parametrize("path", ["", "a\0b", None, 5])
def test_no_path(tmp_path: Path, path: str) -> None:
    """What can't be a path is refused with its place."""
    with pytest.raises(DeclarationError, match="is not a path") as caught:
        resolve_path(path, str(tmp_path), place="sources.files(...)")

    assert caught.value.where == "sources.files(...)"


@given(path=st.text(min_size=1, max_size=30) | st.text("./*{}[]ab:$%\\", min_size=1, max_size=20))
def test_any_text_stays_inside(path: str) -> None:
    """Whatever is written, a location that is neither absolute nor a URL lies below the project."""
    found = outcome(lambda: resolve_path(path, "/srv/shop", place="here"))

    is_open = path.startswith(("/", "file:")) or ":" in path
    assert isinstance(found, DeclarationError) or is_open or f"{found}/".startswith("/srv/shop/")


@pytest.mark.parametrize("path", ["data/day?token=1/*.json", "s3://bucket/day=?/token=1", "s3://bucket/token=1"])
def test_patterns_have_no_parameters(path: str) -> None:
    """What stands behind the `?` of a pattern is the name of a folder, and no secret of a URL."""
    check_path(path, "here")
