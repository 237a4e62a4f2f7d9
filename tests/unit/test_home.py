"""A stream's folder in the home: generations, leases, runs, skips."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from sluice.errors import RefusedError
from sluice.home import Generation, SourceLine, StreamHome, log_keys
from sluice.storage import Storage
from tests.builders import NOW, QUERY_ID, put


def make_home(folder: Path, checkpoint: str | None = None) -> StreamHome:
    return StreamHome(str(folder / "visits"), Storage(), checkpoint)


def make_generation(number: int = 1) -> Generation:
    return Generation(
        generation=number,
        query_id=QUERY_ID,
        created_at="2026-01-31T12:00:00.000Z",
        lines=(SourceLine("orders", "0"), SourceLine("visits", "1"), SourceLine("orders", "0")),
        sources={"visits": {"from_ms": 5}},
    )


def test_new_home(tmp_path: Path) -> None:
    """Before the first run the live generation is 1, and nothing is known of it."""
    home = make_home(tmp_path)

    assert home.current_generation() == 1
    assert home.generation(1) is None
    assert home.checked() is None
    assert not (tmp_path / "visits").exists()


def test_layout(tmp_path: Path) -> None:
    """Every place is where the design says."""
    home = make_home(tmp_path)

    assert home.checkpoint_location(2) == f"{tmp_path}/visits/generations/0002"
    assert home.lease_folder(2) == f"{tmp_path}/visits/leases/0002"
    assert home.runs_folder() == f"{tmp_path}/visits/runs"


def test_checkpoint_elsewhere(tmp_path: Path) -> None:
    """A declared checkpoint takes the place of a generation's; whoever names it finds its leases in it."""
    home = make_home(tmp_path, checkpoint="s3://lake/checkpoints/visits")

    assert home.checkpoint_location(1) == "s3://lake/checkpoints/visits"
    assert home.lease_folder(1) == "s3://lake/checkpoints/visits/_sluice/leases"


def test_keep_generation(tmp_path: Path) -> None:
    """What is known of a generation is kept beside its checkpoint, and the first one becomes the live one."""
    home = make_home(tmp_path)
    home.keep_generation(make_generation(3))

    assert home.generation(3) == make_generation(3)
    assert not make_generation(3).has_timers
    assert home.current_generation() == 3
    assert (tmp_path / "visits/generations/0003.json").is_file()
    assert json.loads((tmp_path / "visits/current.json").read_bytes()) == {"format": 1, "generation": 3}


def test_a_generation_that_nobody_has_kept(tmp_path: Path) -> None:
    """A driver that is killed before it gives the file its name has kept none: its query is nobody's."""
    home = make_home(tmp_path)
    home.keep_generation(make_generation())
    (file,) = (tmp_path / "visits" / "generations").glob("*.json")
    file.rename(file.with_name(f".{file.name}.0123.tmp"))

    assert home.known_queries() == {}


def test_keeping_another_generation_switches_nothing(tmp_path: Path) -> None:
    """Only the first generation becomes live by being kept."""
    home = make_home(tmp_path)
    home.keep_generation(make_generation(1))
    home.keep_generation(make_generation(2))

    assert home.current_generation() == 1
    assert home.generation(2) == make_generation(2)


def test_generation_of_another_checkpoint(tmp_path: Path) -> None:
    """What is known of a generation does not hold for a checkpoint that the stream was pointed at since."""
    make_home(tmp_path).keep_generation(make_generation())

    assert make_home(tmp_path, checkpoint="s3://lake/checkpoints/visits").generation(1) is None
    assert make_home(tmp_path).generation(1) == make_generation()


def test_keep_generation_again(tmp_path: Path) -> None:
    """What is learnt later replaces what was known."""
    home = make_home(tmp_path)
    home.keep_generation(make_generation())
    home.keep_generation(Generation(generation=1, query_id=QUERY_ID, created_at="x", lines=(), sink_identity="table"))

    found = home.generation(1)
    assert found is not None
    assert (found.sink_identity, found.lines) == ("table", ())


@pytest.mark.parametrize("file", ["current.json", "generations/0001.json", "checked.json", "started.json"])
def test_damage_is_refused(tmp_path: Path, file: str) -> None:
    """A damaged file of the home refuses and is named."""
    home = make_home(tmp_path)
    put(tmp_path / "visits" / file, "{")
    read: dict[str, Callable[[], object]] = {
        "current.json": home.current_generation,
        "checked.json": home.checked,
        "started.json": lambda: home.started(1),
    }

    with pytest.raises(RefusedError) as caught:
        read.get(file, lambda: home.generation(1))()

    assert caught.value.finding.file == f"{tmp_path}/visits/{file}"


def test_skips_are_counted(tmp_path: Path) -> None:
    """A skip leaves its time, its reason and how many there were; a run forgets them."""
    home = make_home(tmp_path)
    home.keep_skip("nothing new", NOW)
    home.keep_skip("still nothing new", NOW + timedelta(minutes=5))

    checked = home.checked()
    assert checked is not None
    assert (checked.checked_at, checked.reason, checked.skips) == ("2026-01-31T12:05:00.000Z", "still nothing new", 2)

    home.forget_skips()
    assert home.checked() is None


def test_where_the_sources_begin(tmp_path: Path) -> None:
    """It outlives skips, and belongs to a generation."""
    home = make_home(tmp_path)
    home.keep_started(1, {"files": {"from_ms": 1}})
    home.forget_skips()

    assert home.started(1) == {"files": {"from_ms": 1}}
    assert home.started(2) == {}


def test_forgetting_no_skips(tmp_path: Path) -> None:
    """A run after a run has nothing to forget."""
    make_home(tmp_path).forget_skips()

    assert make_home(tmp_path).checked() is None


def test_log_keys() -> None:
    """A source that the plan uses twice has two lines and one log."""
    assert log_keys(make_generation()) == {"0": "0", "1": "1", "2": "0"}
    assert log_keys(None) is None


def test_the_batches_of_a_run() -> None:
    """Those behind what was committed as it began, up to what was as the next one did; each of its tries has some."""
    known = Generation(generation=1, query_id="q", created_at="2026-01-01T00:00:00Z", lines=())
    assert known.batches_of("a") == ()
    for run_id, committed_id in (("a", None), ("b", 1), ("a", 1), ("c", 4)):
        known = known.begun_by(run_id, committed_id)
    assert [list(ids) for ids in known.batches_of("a")] == [[0, 1], [2, 3, 4]]
    assert [list(ids) for ids in known.batches_of("b")] == [[]]
    assert known.batches_of("c")[0].start == 5
    for number in range(49):
        known = known.begun_by(f"later {number}", 10 + number)
    assert (len(known.runs), known.batches_of("a"), list(known.batches_of("c")[0])) == (50, (), [5, 6, 7, 8, 9, 10])
