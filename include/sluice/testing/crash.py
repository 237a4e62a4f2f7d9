"""Kills a run at a moment that has a name, and leaves on the disk what a kill then leaves.

The moment is found by what the run writes. There the disk is looked at, nothing is written any more from then on, and
once Spark is at rest, the disk is brought back to what it was, whatever was written meanwhile, by whomever. What a
process that ends forgets is forgotten, too, and the owner of its lease is dead.
"""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar, cast, get_args

from sluice.errors import DeclarationError
from sluice.locations import local_path
from sluice.sinks.bench import ReadBackSink
from sluice.sinks.contract import Sink
from sluice.storage import Storage
from sluice.testing.disk import DiskImage

Moment = Literal[
    "before the plan",
    "after the plan",
    "before the sink's commit",
    "between the sink's commit and Spark's",
    "after Spark's commit",
]
"""When a run is killed: around one of its batches.

- before the plan: the run has its lease, and nothing of the batch is written. It is planned anew.
- after the plan: the batch is in the offset log, and Spark has not begun it.
- before the sink's commit: its rows and its state are computed and written, and count nowhere.
- between the sink's commit and Spark's: its rows count; Spark does not know, and runs it again.
- after Spark's commit: all is done, and nothing is recorded.
"""
_OFFSETS = re.compile(r"/offsets/(\d+)\Z")
_PLANNED = re.compile(r"/(offsets|sources/\d+)/\d+(\.compact)?\Z")
"""What is written of a plan: the logs of sources, and then the batch."""
_Done = TypeVar("_Done")


class KilledError(BaseException):
    """The run is dead: no error of it that anybody may handle."""


@dataclass
class Kill:
    """A kill that is to come in a run."""

    moment: Moment
    nth: int
    """Of which batch of the run, from 1 on."""
    root: Path
    """The bench's folder."""
    checkpoint: str
    """The stream's, as a location."""
    sink: Sink
    holds: Callable[[int], bool]
    """Whether the sink has a batch, by its own log."""
    pending: int | None
    """A batch that the run begins with, planned before."""
    is_dead: bool = False
    _begun: int = 0
    _batch_id: int | None = None
    _before: DiskImage | None = None
    _kept_before: object = None
    """What the sink kept in this process."""
    _written: DiskImage | None = None
    """As the sink had the batch."""
    _end: DiskImage | None = None
    _kept_end: object = None

    def begin(self) -> None:
        """The run begins."""
        if self.pending is not None:
            self._begins(self.pending)

    def before_write(self, location: str) -> bool:
        """Something is about to be written; tells whether it is.

        Raises:
            KilledError: Now, or before.
        """
        if "/leases/" in location:
            # Written by a thread of its own, which a kill ends as well.
            return not self.is_dead
        if self.is_dead:
            raise KilledError
        if self.moment == "before the plan" and self._begun == self.nth - 1 and _PLANNED.search(location):
            self._die(DiskImage.of(self.root))
        if self._batch_id is not None and self.moment not in {"before the plan", "after the plan"}:
            if Path(local_path(self.checkpoint), "commits", str(self._batch_id)).exists():
                self._die(self._image())
            if self._written is None and self.holds(self._batch_id):
                self._written = DiskImage.of(self.root)
        return True

    def after_write(self, location: str) -> None:
        """Something was written.

        Raises:
            KilledError: Now.
        """
        planned = _OFFSETS.search(local_path(location))
        if planned is not None:
            self._begins(int(planned[1]))
            if self._batch_id is not None and self.moment == "after the plan":
                self._die(DiskImage.of(self.root))

    def leave(self) -> None:
        """Leave what a kill leaves."""
        if self._end is None:
            return
        self._end.bring_back()
        if isinstance(self.sink, ReadBackSink):
            self.sink.bring_back(self._kept_end)
        for lease in self.root.glob("home/*/leases/*/*.json"):
            _let_owner_be_dead(lease)

    def _begins(self, batch_id: int) -> None:
        """A batch is planned: it is the one, or another has to come first."""
        self._begun += 1
        self._batch_id = batch_id if self._begun == self.nth else None
        if self._batch_id is not None:
            self._before, self._kept_before = DiskImage.of(self.root), self._kept()

    def _image(self) -> DiskImage:
        """The disk at the moment, once Spark has committed the batch."""
        image = DiskImage.of(self.root)
        if self.moment == "after Spark's commit" or self._before is None:
            return image
        image = (self._written or image).without_new(self._before, self._from_root(f"{self.checkpoint}/commits"))
        sink, is_lost = self.sink, self.moment == "before the sink's commit"
        if is_lost and isinstance(sink, ReadBackSink) and sink.location is not None:
            log = f"{sink.location}/{sink.commits_folder}"
            image = image.without_new(self._before, self._from_root(log))
        return image

    def _kept(self) -> object:
        return self.sink.remember() if isinstance(self.sink, ReadBackSink) else None

    def _from_root(self, location: str) -> str:
        return os.path.relpath(local_path(location), self.root)

    def _die(self, image: DiskImage) -> None:
        is_lost = self.moment == "before the sink's commit"
        self._end, self._kept_end = image, self._kept_before if is_lost else self._kept()
        self.is_dead = True
        raise KilledError


@dataclass
class Watch:
    """Who is told of what a bench writes."""

    kill: Kill | None = None


class WatchedStorage(Storage):
    """Writes as any other, unless the run that writes is killed."""

    def __init__(self, watch: Watch) -> None:
        super().__init__()
        self._watch = watch

    def put_if_absent(self, location: str, content: bytes) -> bool:
        write = super().put_if_absent
        return self._watched(location, lambda: write(location, content), if_dead=False)

    def replace(self, location: str, content: bytes) -> None:
        write = super().replace
        self._watched(location, lambda: write(location, content), if_dead=None)

    def replace_aid(self, location: str, content: bytes) -> None:
        write = super().replace_aid
        self._watched(location, lambda: write(location, content), if_dead=None)

    def replace_if(self, location: str, content: bytes, may_replace: Callable[[bytes | None], bool]) -> bool:
        write = super().replace_if
        return self._watched(location, lambda: write(location, content, may_replace), if_dead=False)

    def delete(self, location: str) -> None:
        write = super().delete
        self._watched(location, lambda: write(location), if_dead=None)

    def delete_folder(self, location: str) -> None:
        write = super().delete_folder
        self._watched(location, lambda: write(location), if_dead=None)

    def copy_folder(self, location: str, target: str) -> None:
        write = super().copy_folder
        self._watched(target, lambda: write(location, target), if_dead=None)

    def _watched(self, location: str, write: Callable[[], _Done], *, if_dead: _Done) -> _Done:
        kill = self._watch.kill
        if kill is None:
            return write()
        if not kill.before_write(location):
            return if_dead
        done = write()
        kill.after_write(location)
        return done


def check_moment(moment: str, sink: Sink) -> Moment:
    """Make sure that there is such a moment.

    Raises:
        DeclarationError: There is not, or not with this sink.
    """
    moments = get_args(Moment)
    if moment not in moments:
        near = difflib.get_close_matches(str(moment), moments, n=1)
        told = "; ".join(f'"{found}"' for found in moments)
        raise DeclarationError(
            f"there is no moment {moment!r}",
            where="bench.crash(at=...)",
            remedy=f'did you mean "{near[0]}"?' if near else f"there are: {told}",
        )
    if moment == "before the sink's commit" and not isinstance(sink, ReadBackSink):
        raise DeclarationError(
            f"a sink of {sink.kind} commits nothing: its rows count as they are written",
            where="bench.crash(at=...)",
            remedy='take "after the plan" or "between the sink\'s commit and Spark\'s"',
        )
    return cast("Moment", moment)


def _let_owner_be_dead(lease: Path) -> None:
    """Let a lease name a process that has ended."""
    content = json.loads(lease.read_bytes())
    if not content.get("is_released"):
        for owner in content["processes"]:
            owner["started"] = -1
        lease.write_text(json.dumps(content), "utf-8")
