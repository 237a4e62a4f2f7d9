"""Two streams with one checkpoint: each would read what the other does not, so only one may have it."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from sluice.errors import LeaseTakenError, RefusedError, SluiceError
from sluice.planning.verdict import plan_stream
from sluice.runs.lease import acquire
from sluice.storage import Storage
from tests.builders import put
from tests.unit.engine_lab import Lab, make_lab


@pytest.fixture
def one(tmp_path: Path) -> Lab:
    """A stream whose checkpoint is elsewhere; two files have arrived."""
    lab = make_lab(tmp_path, max_files_per_batch=1)
    lab.stream = replace(lab.stream, checkpoint=str(tmp_path / "checkpoint"))
    for second in range(2):
        lab.arrive(second)
    return lab


def another(lab: Lab, checkpoint: Path, *, root: Path | None = None) -> Lab:
    """Another stream on the same files, maybe in another project, with a checkpoint of its choice."""
    other = Lab(root or lab.root, replace(lab.stream, name="others", checkpoint=str(checkpoint)), rows=lab.rows)
    other.stream = replace(other.stream, sink=type(lab.sink)(f"{lab.root}/others"))
    return other


@pytest.mark.parametrize("name", ["checkpoint", "link", "generation"])
@pytest.mark.parametrize("is_elsewhere", [False, True])
def test_the_second_one_is_refused(one: Lab, tmp_path: Path, name: str, *, is_elsewhere: bool) -> None:
    """Under whatever name, of whatever project; nothing of it is in its sink."""
    if name == "generation":
        one.stream = replace(one.stream, checkpoint=None)
    one.run()
    checkpoint = one.checkpoint
    if name == "link":
        checkpoint = tmp_path / "link"
        checkpoint.symlink_to(one.checkpoint)
    two = another(one, checkpoint, root=tmp_path / "project" if is_elsewhere else None)
    one.arrive(2)
    plan = plan_stream(two.project, two.request())
    assert plan.problem is not None
    assert (plan.problem.code, plan.problem.file) == ("CHECKPOINT_OF_ANOTHER_STREAM", str(checkpoint))
    assert str(one.home) in plan.problem.cause
    with pytest.raises(RefusedError, match="is that of the stream whose home is"):
        two.run()
    assert two.sink.ids() == Counter()

    one.run()
    assert one.sink.ids() == Counter(range(3))


@pytest.mark.parametrize("is_link", [False, True])
def test_both_at_once(one: Lab, tmp_path: Path, *, is_link: bool) -> None:
    """Neither has run before: the lease is the checkpoint's, and whoever comes second is held off at every step."""
    checkpoint = one.checkpoint
    if is_link:
        checkpoint.mkdir()
        (tmp_path / "link").symlink_to(checkpoint)
        checkpoint = tmp_path / "link"
    two = another(one, checkpoint)
    outcomes: list[str] = []

    def run_two(_: str) -> None:
        try:
            # Before its first change, the first one has no lease yet.
            outcomes.append(two.run().status if outcomes else "early")
        except SluiceError as exc:
            outcomes.append(type(exc).__name__)

    one.fault.beside = run_two
    one.run()
    assert set(outcomes) == {"early", "LeaseTakenError", "RefusedError"}
    assert (one.sink.ids(), two.sink.ids()) == (Counter(range(2)), Counter())


def test_a_stream_that_is_given_up(one: Lab) -> None:
    """What the message advises lets the other one have the checkpoint."""
    one.run()
    one.arrive(2)
    two = another(one, one.checkpoint)
    with pytest.raises(RefusedError) as refused:
        two.run()
    owner = one.checkpoint / "_sluice" / "owner.json"
    assert refused.value.finding.remedy.endswith(f"delete {owner}")
    owner.unlink()
    with pytest.raises(RefusedError) as refused:
        two.run()
    assert refused.value.finding.code == "SINK_LACKS_BATCHES"
    # What is to begin with what comes now is made, without rows.
    put(Path(two.sink.path) / "identity", "new")
    two.run()
    assert two.sink.ids() == Counter([2])
    assert json.loads(owner.read_bytes())["home"] == "../home/others"


def test_a_project_that_is_moved(one: Lab, tmp_path: Path) -> None:
    """Home and checkpoint keep their places to each other: it is the same stream."""
    one.run()
    assert one.project.stream_home(one.stream).foreign_owner() is None
    moved = tmp_path.rename(tmp_path.with_name("moved"))
    there = Lab(moved, replace(one.stream, checkpoint=str(moved / "checkpoint")))
    assert there.project.stream_home(there.stream).foreign_owner() is None
    moved.rename(tmp_path)


def test_the_generation_of_the_stream_itself(one: Lab) -> None:
    """Named as its checkpoint, it has the lease that it had before."""
    one.stream = replace(one.stream, checkpoint=None)
    one.run()
    one.stream = replace(one.stream, checkpoint=str(one.checkpoint))
    home = one.project.stream_home(one.stream)
    assert home.lease_folder(1) == f"{one.home}/leases/0001"
    assert home.foreign_owner() is None
    acquire(Storage(), f"{one.home}/leases/0001", run_id="another", sink_is_idempotent=True)
    one.arrive(2)
    with pytest.raises(LeaseTakenError):
        one.run()
