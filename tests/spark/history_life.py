"""The life of one stream of a history: what it declares, what was done, and what every step ends with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake

from sluice.errors import DeclarationError, HeldError, QualityFailedError, SluiceError
from tests.spark.history_inputs import DAYS, Inputs
from tests.spark.history_oracle import Oracle
from tests.spark.history_readers import Reader
from tests.spark.history_steps import Step, as_json
from tests.spark.history_streams import Declared, Place
from tests.spark.lab import Lab
from tests.spark.power_cuts import Cut, let_leases_run_out, power_cut


@dataclass
class Life:
    """One stream's life."""

    lab: Lab
    steps: Sequence[Step]
    declared: Declared = Declared()
    followed: Declared | None = None
    """What was declared when the first batch was planned; its sink is the stream's for good."""
    let_through: set[int] = field(default_factory=set)
    """The batches that somebody has released."""
    releasing: dict[int, Place] | None = None
    """The rows that a killed release was to send, and where to."""
    told: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.inputs = Inputs(self.lab.root, self.lab.checkpoint(self.declared.stream()))
        self.oracle = Oracle(self.lab.root, self.inputs.days, self.story)
        self.reader = Reader(self.lab, self.inputs.days, self.story)

    def story(self) -> str:
        """What was done, and the steps to do it again."""
        return "\n".join([*self.told, as_json(self.steps)])

    def edit(self, **changes: Any) -> None:
        self.declared = replace(self.declared, **changes)
        if self.declared.shape != "static":
            self.declared = replace(self.declared, shift=0)
        self.told.append(f"edit: {self.declared}")

    def declare(self) -> None:
        if self.declared.policy != "none":
            self.declared.write_suite(self.lab.root / "suite.json")
        if self.declared.shape == "static":
            rows = pa.table(
                {"day": pa.array(DAYS, pa.date32()), "shift": pa.array([self.declared.shift] * 2, pa.int32())}
            )
            write_deltalake(str(self.lab.root / "static"), rows, mode="overwrite")

    def cut(self, what: str, cut: Cut, work: Callable[[], object]) -> None:
        """Let the power go at some write, if the work gets that far; who had the lease is dead then."""
        self.declare()
        with power_cut(cut, self.lab.root) as writes:
            try:
                work()
            except (QualityFailedError, HeldError, DeclarationError) as exc:
                self.told.append(f"{what} refused: {exc}")
                if writes.at is None and what != "backfill":
                    self.check_stop(exc)
            except Exception:
                if writes.at is None:
                    raise
        done = f"not cut: {len(writes.seen)} writes" if writes.at is None else f"cut {cut.moment} {writes.at}"
        self.told.append(f"{what} {done}")
        let_leases_run_out(self.lab.root / "home")

    def look(self, *, is_complete: bool) -> None:
        self.note()
        self.oracle.check(self.inputs.batches(), is_complete=is_complete, dropped=self.inputs.late())

    def note(self) -> None:
        """Note what was decided, by what is declared."""
        inputs = self.inputs
        if self.followed is None and inputs.newest("offsets") >= 0:
            self.followed = self.declared
        self.reader.note(self.followed.sink if self.followed else self.declared.sink)
        staged = self.lab.root / "home" / "s" / "staged" / "0001"
        self.oracle.note_step(
            self.declared,
            inputs.batches(),
            committed=inputs.newest("commits"),
            staged={int(file.stem) for file in staged.glob("[0-9]*.json")},
            query_id=inputs.query_id(),
            let_through=self.let_through,
        )

    def is_stopped_by(self, exc: SluiceError) -> bool:
        """Whether quality has stopped a run for a reason: a bad row that nobody has let through."""
        if not isinstance(exc, (QualityFailedError, HeldError)):
            return False
        assert self.declared.is_stopping, "nothing stops a run"
        decided = {batch: self.oracle.decided.get(batch, self.declared) for batch in self.inputs.batches()}
        may_be_bad = (
            True in decided[batch].may_be_bad(number)
            for batch, numbers in self.inputs.batches().items()
            for number in numbers
            if batch not in self.let_through
        )
        assert any(may_be_bad), "no row is bad"
        return True

    def check_stop(self, exc: SluiceError) -> None:
        if not self.is_stopped_by(exc):
            raise exc

    def bring_back(self) -> None:
        if brought := self.inputs.bring_back():
            self.told.append(f"bring back {brought}")

    def heed_tables(self) -> None:
        """Let the sink be declared as it is: what is refused otherwise is for a run to say."""
        if self.followed is not None and self.followed.sink != self.declared.sink:
            self.edit(sink=self.followed.sink)
        if self.is_partitioned_otherwise():
            self.edit(is_partitioned=False)

    def is_partitioned_otherwise(self) -> bool:
        there = self.oracle.partitions(self.declared.sink)
        return self.declared.is_partitioned and there is not None and there != ["day"]
