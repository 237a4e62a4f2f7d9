"""Planning in the background."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sluice.home import StreamHome
from sluice.sources.files import FilesSource
from sluice.storage import Storage
from sluice_airflow.ui.outlook import look_ahead
from tests.builders import NOW, make_checkpoint, make_files_source, make_stream, put, put_files


def home_of(tmp_path: Path) -> StreamHome:
    return StreamHome(str(tmp_path / "home"), Storage())


def test_a_stream_that_has_something_to_do(tmp_path: Path) -> None:
    """The plan, what waits, and how far the two logs are."""
    home = home_of(tmp_path)
    root = make_checkpoint(Path(home.checkpoint_location(1)), planned=3, committed=2)
    put_files(root.parent / "landing", ["new.json"])
    stream = make_stream(sources={"visits": make_files_source(root.parent / "landing", max_files_per_batch=1)})

    outlook = look_ahead(stream, home, NOW)

    assert outlook.error is None
    assert outlook.plan is not None
    assert outlook.plan.verdict == "resume"
    assert (outlook.planned_id, outlook.committed_id) == (2, 1)
    assert outlook.planned_offsets == {"visits": '{"logOffset":2}'}
    assert outlook.committed_offsets == {"visits": '{"logOffset":1}'}
    assert outlook.lags["visits"].files == 1


def test_a_damaged_checkpoint_is_a_refusal(tmp_path: Path) -> None:
    """With the problem that says what to do, once."""
    home = home_of(tmp_path)
    root = make_checkpoint(Path(home.checkpoint_location(1)), planned=3)
    put(root / "offsets" / "2", "v1")

    outlook = look_ahead(make_stream(), home, NOW)

    assert outlook.plan is not None
    assert outlook.plan.verdict == "refuse"
    assert [problem.code for problem in outlook.problems].count("FILE_DAMAGED") == 1


def test_a_damaged_home_is_an_error(tmp_path: Path) -> None:
    """Without a plan, with the file's name."""
    home = home_of(tmp_path)
    put(Path(home.location) / "current.json", "{")

    outlook = look_ahead(make_stream(), home, NOW)

    assert outlook.plan is None
    assert "current.json" in (outlook.error or "")


def test_a_source_of_a_users_own_may_raise_anything(tmp_path: Path) -> None:
    """One stream's fault is said in its row."""

    @dataclass(frozen=True)
    class Broken(FilesSource):
        def available(self, *_: Any, **__: Any) -> Any:
            raise KeyError("oops")

    broken = Broken(**vars(make_files_source(tmp_path)))
    outlook = look_ahead(make_stream(sources={"visits": broken}), home_of(tmp_path), NOW)

    assert outlook.error == "KeyError: 'oops'"
