"""State that an edited transform would take for something else, though all types fit; and edits that leave it."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sluice import Stream, sinks, sources
from sluice.errors import BatchFailedError, QueryRefusedError, RefusedError
from sluice.generation_notes import KeptState, StatefulOperator
from sluice.runs.record import RunRecord
from sluice.sinks.contract import OutputMode
from sluice.spark.kept_state import read_kept_state, what_changed
from sluice.spark.query import build_query
from sluice.spark_setting import spark_setting
from tests.campaign import rarely
from tests.remedies import read_remedy
from tests.spark.lab import Lab, write_files
from tests.spark.power_cuts import Cut
from tests.spark.state_edits import (
    EXCHANGED,
    REFUSED,
    TAKEN,
    Make,
    adding,
    at,
    deduped,
    processed,
    renamed,
    totals,
)
from tests.spark.test_expired_transactions import cut_run

pytestmark = pytest.mark.spark

_MADE: dict[str, Make] = {}
"""What the transforms make now: an edit puts something else here."""
_SCHEMA = "n bigint, v bigint, u bigint, k string, j string"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def of_one(x: DataFrame) -> DataFrame:
    return _MADE["now"](x)


def of_two(x: DataFrame, y: DataFrame) -> DataFrame:
    return _MADE["now"](x, y)


def declared(make: Make, mode: OutputMode = "append", *, name: str = "s") -> Stream:
    """A stream of as many sources as it takes; each call is an edit of what was declared before."""
    _MADE["now"] = make
    is_of_two = make.__code__.co_varnames[: make.__code__.co_argcount] == ("x", "y")
    return Stream(
        name=name,
        sources={
            side: sources.files(f"land_{side}", format="json", schema=_SCHEMA) for side in ("xy" if is_of_two else "x")
        },
        transform=f"{__name__}:{'of_two' if is_of_two else 'of_one'}",
        sink=sinks.noop() if mode == "update" else sinks.delta("out"),
        output_mode=mode,
    )


def kept(lab: Lab, make: Make, mode: OutputMode) -> KeptState:
    for side in "xy":
        (lab.root / f"land_{side}").mkdir(exist_ok=True)
    stream = lab.project.resolve(declared(make, mode))
    return read_kept_state(build_query(lab.project, stream, lab.spark, {}))


def _shown(found: KeptState) -> list[str]:
    return [operator.shown for operator in found.operators]


@pytest.mark.parametrize("name", REFUSED)
def test_other_state(lab: Lab, name: str) -> None:
    """State that means something else is told from what it was."""
    before, after, mode = REFUSED[name]
    was, again, now = (kept(lab, make, mode) for make in (before, before, after))
    assert len(was.operators) >= 1
    assert was == again
    assert what_changed(was, now) is not None


@pytest.mark.parametrize("name", TAKEN)
def test_the_same_state(lab: Lab, name: str) -> None:
    """State that means the same is known again: nothing of it differs."""
    before, after, mode = TAKEN[name]
    was = kept(lab, before, mode)
    assert len(was.operators) >= 1
    assert was == kept(lab, before, mode)
    assert what_changed(was, kept(lab, after, mode)) is None


@pytest.mark.parametrize("name", EXCHANGED)
def test_operators_that_are_alike(lab: Lab, name: str) -> None:
    """Spark knows them by their places: in another order, each would go on with the other's state."""
    make, left, right, other = EXCHANGED[name]
    with spark_setting(lab.spark, "spark.sql.streaming.stateStore.providerClass", ROCKSDB):
        was, again, exchanged = (
            kept(lab, make(*sides), "append") for sides in ((left, right), (left, right), (right, left))
        )
        one_moved, one_edited, both_alike = (
            kept(lab, make(*sides), "append") for sides in ((right, other), (left, other), (right, right))
        )
    assert was == again
    for edited in (exchanged, one_moved):
        told = what_changed(was, edited)
        assert told is not None
        assert "was exchanged for what fed its like" in told[0]
    # What feeds one of them may be edited, as before any operator.
    assert what_changed(was, one_edited) is None
    assert what_changed(was, both_alike) is None


def test_sides_of_a_join(lab: Lab) -> None:
    """Of one source with itself, the sides are told apart."""

    def one_way(x: DataFrame) -> DataFrame:
        return renamed(x, "k", "x").join(renamed(x, "j", "y"), F.expr("x_key = y_key AND x_at = y_at"))

    def other_way(x: DataFrame) -> DataFrame:
        return renamed(x, "j", "y").join(renamed(x, "k", "x"), F.expr("x_key = y_key AND x_at = y_at"))

    assert kept(lab, one_way, "append").operators != kept(lab, other_way, "append").operators


def test_keys_of_a_processor(lab: Lab) -> None:
    """What a processor keeps is its code's; by what it is kept is the plan's."""
    with spark_setting(lab.spark, "spark.sql.streaming.stateStore.providerClass", ROCKSDB):
        was, again, other = (kept(lab, processed(key), "append") for key in ("k", "k", "j"))
    assert was == again
    assert _shown(was)[0].endswith(" by k")
    assert was.operators != other.operators


def arrive(lab: Lab, *times: int) -> None:
    """A file for each source with a row at each of those seconds."""
    for side in "xy":
        lines = [json.dumps({"n": n, "v": n * 7 % 100, "u": 1000 + n, "k": f"{n % 3}", "j": f"{n % 4}"}) for n in times]
        first = len(list((lab.root / f"land_{side}").glob("*")))
        write_files(lab.root / f"land_{side}", {f"{first:03d}.json": "\n".join(lines)}, first=first)


def run(lab: Lab, make: Make, mode: OutputMode = "append", **changes: Any) -> RunRecord:
    return lab.run(replace(declared(make, mode), **changes))


def table(lab: Lab, path: str = "out") -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in lab.table(path).collect())


def refused(lab: Lab, make: Make, mode: OutputMode, says: str) -> None:
    """An edit is refused with its reason, and nothing is planned by it."""
    offsets = lab.checkpoint(declared(make)) / "offsets"
    planned = sorted(file.name for file in offsets.iterdir())
    with pytest.raises(RefusedError, match=says) as told:
        run(lab, make, mode)
    read_remedy(told.value, "STATE_CHANGED", "restore the keys.*; or declare a new stream with a sink of its own")
    assert sorted(file.name for file in offsets.iterdir()) == planned


FIRST, SECOND = range(35), range(25, 60)
BY_ANOTHER_KEY = r"from `Aggregate by k: sum\(v\)` to `Aggregate by j: sum\(v\)`"
EDITS = {
    "key under one name": BY_ANOTHER_KEY,
    **dict(
        rarely(
            ("window's length", "10 seconds.* to .*20 seconds"),
            ("aggregated column", r"sum\(v\).* to .*sum\(u\)"),
            ("duplicates within", "by k.* to .*by j"),
            ("join's key", r"x\.k.* to .*x\.j"),
            ("key's literal", "in the literals or functions of"),
        )
    ),
}


@dataclass
class Twins:
    """A stream that somebody edits, and one that nobody does; both run the same batches."""

    lab: Lab
    make: Make
    mode: OutputMode

    def run(self) -> RunRecord:
        record = run(self.lab, self.make, self.mode)
        run(self.lab, self.make, self.mode, name="never_edited", sink=sinks.delta("never_edited"))
        assert table(self.lab) == table(self.lab, "never_edited")
        return record


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_and_its_remedies(lab: Lab, name: str) -> None:
    """Put back, the stream goes on as if nothing had been; a new stream computes everything by the edit."""
    before, after, mode = REFUSED[name]
    twins = Twins(lab, before, mode)
    arrive(lab, *FIRST)
    twins.run()
    arrive(lab, *SECOND)

    refused(lab, after, mode, EDITS[name])

    assert twins.run().status == "succeeded"
    assert lab.plan(declared(before, mode)).verdict == "skip"
    assert run(lab, after, mode, name="anew", sink=sinks.delta("anew")).status == "succeeded"


def test_branches_that_change_places(lab: Lab) -> None:
    """Refused, also where a batch waits that a kill has left; put back, it goes on."""
    make, left, right, _ = EXCHANGED["windows by filters"]
    twins = Twins(lab, make(left, right), "append")
    arrive(lab, *FIRST)
    twins.run()
    arrive(lab, *SECOND)
    cut_run(lab, declared(make(left, right)), Cut("Spark's commit", 1, "before"))
    refused(lab, make(right, left), "append", r"feeds `Aggregate by .*` was exchanged for what fed its like")
    assert twins.run().status == "succeeded"


@pytest.mark.parametrize("name", ["nothing of slides", *rarely("what differs at every start", "column computed now")])
def test_an_edit_that_is_taken(lab: Lab, name: str) -> None:
    """It goes on with the same state."""
    before, after, mode = TAKEN[name]
    arrive(lab, *FIRST)
    run(lab, before, mode)
    arrive(lab, *SECOND)
    assert run(lab, after, mode).status == "succeeded"


@pytest.mark.parametrize("is_there", [True, False])
def test_an_edit_after_a_kill(lab: Lab, *, is_there: bool) -> None:
    """A batch that is planned, in the sink or not, is not gone on with by other keys; the old ones finish it."""
    before, after, mode = REFUSED["duplicates within"]
    twins = Twins(lab, before, mode)
    arrive(lab, *FIRST)
    twins.run()
    arrive(lab, *SECOND)
    cut_run(lab, declared(before, mode), Cut("Spark's commit" if is_there else "commit out"))

    refused(lab, after, mode, "by k.* to .*by j")

    assert twins.run().batches[0].was_in_sink == is_there


def test_a_first_batch_that_failed(lab: Lab) -> None:
    """It has left no state that counts: keys may still be mended."""
    arrive(lab, *FIRST)
    failing = totals("k", add="sum(if(n > 30, raise_error('no'), v)) AS total")
    with pytest.raises(BatchFailedError):
        run(lab, failing, "complete")
    assert (lab.checkpoint(declared(failing)) / "state" / "0").is_dir()

    run(lab, totals("j"), "complete")

    assert [row[0] for row in table(lab)] == ["0", "1", "2", "3"]


@pytest.mark.parametrize("types", ["other", *rarely("none")])
def test_what_a_first_batch_that_failed_has_left(lab: Lab, types: str) -> None:
    """State of other types is gone with it, and so is that of a query that has none any more."""
    arrive(lab, *range(1, 36))
    with pytest.raises(BatchFailedError):
        run(lab, lambda x: deduped("k")(x.where("n < 30 OR raise_error('no')")))

    mended = deduped("n", "at") if types == "other" else at
    for number in range(3):
        assert run(lab, mended).status == "succeeded"
        arrive(lab, 60 + number)

    assert len(table(lab)) == 37


def test_a_query_that_spark_cannot_optimise(lab: Lab) -> None:
    """It is told before a batch is planned, of a first one and of a later one."""
    arrive(lab, *FIRST)
    wrong = deduped("k", make=adding("z", "cast('no number' AS int)"))
    with pytest.raises(QueryRefusedError, match=r"CAST_INVALID_INPUT.*; nothing was planned") as told:
        run(lab, wrong)
    assert "no number" not in str(told.value)
    assert not (lab.checkpoint(declared(wrong)) / "offsets").exists()

    run(lab, deduped("k"))
    planned = sorted((lab.checkpoint(declared(wrong)) / "offsets").iterdir())
    arrive(lab, 60)
    with pytest.raises(BatchFailedError, match=r"CAST_INVALID_INPUT.*; nothing is planned"):
        run(lab, wrong)
    assert sorted((lab.checkpoint(declared(wrong)) / "offsets").iterdir()) == planned


def test_another_time_zone(lab: Lab) -> None:
    """A day is another one there: what it has counted up to now would go on with other hours."""

    def days(x: DataFrame) -> DataFrame:
        return (
            x.select(F.timestamp_seconds(F.col("n") * 3600).alias("at")).groupBy(F.to_date("at").alias("day")).count()
        )

    arrive(lab, *FIRST)
    run(lab, days, "complete")
    arrive(lab, *SECOND)
    with (
        spark_setting(lab.spark, "spark.sql.session.timeZone", "America/New_York"),
        pytest.raises(RefusedError, match="time zone was UTC and is America/New_York") as told,
    ):
        run(lab, days, "complete")
    says = "set it back: `spark.sql.session.timeZone = UTC`; or declare a new stream with a sink of its own"
    read_remedy(told.value, "STATE_CHANGED", says)
    run(lab, days, "complete")
    assert sum(count for _, count in table(lab)) == len(FIRST) + len(SECOND)


def test_a_first_batch_in_the_sink(lab: Lab) -> None:
    """Its rows are there by the old keys, and nothing is committed."""
    before, after, mode = REFUSED["duplicates within"]
    arrive(lab, *FIRST)
    cut_run(lab, declared(before, mode), Cut("Spark's commit"))

    refused(lab, after, mode, "by k.* to .*by j")

    assert run(lab, before, mode).batches[0].was_in_sink


def _unknown(lab: Lab, **changes: Any) -> None:
    """Let the home know no more than an older Sluice has noted, or one with another Spark."""
    home = lab.project.stream_home(lab.project.resolve(declared(totals("k"), "complete")))
    generation = home.generation(1)
    assert generation is not None
    home.keep_generation(msgspec.structs.replace(generation, **changes))


def test_homes_that_have_not_noted_it(lab: Lab) -> None:
    """The first run notes it, and the next knows."""
    arrive(lab, *FIRST)
    run(lab, totals("k"), "complete")
    _unknown(lab, state=None)
    arrive(lab, *SECOND)

    assert run(lab, totals("k"), "complete").status == "succeeded"

    arrive(lab, 60)
    refused(lab, totals("j"), "complete", BY_ANOTHER_KEY)


def test_another_spark(lab: Lab) -> None:
    """It may show the same plan in other words: what it says is noted anew, and not compared."""
    arrive(lab, *FIRST)
    run(lab, totals("k"), "complete")
    other = StatefulOperator("Aggregate: k", "0")
    _unknown(lab, state=KeptState("1, Spark 3.5.0", (other,)))
    arrive(lab, *SECOND)

    assert run(lab, totals("k"), "complete").status == "succeeded"

    arrive(lab, 60)
    refused(lab, totals("j"), "complete", BY_ANOTHER_KEY)


def test_no_literal_is_told(lab: Lab) -> None:
    """A salt in a key is in no file of the home but Spark's own, and in no message."""
    salted, other = (totals(f"sha2(concat(k, '{salt}'), 256) AS c") for salt in ("SECRET-1", "SECRET-2"))
    arrive(lab, *FIRST)
    run(lab, salted, "complete")
    arrive(lab, *SECOND)
    with pytest.raises(RefusedError, match="in the literals or functions of `Aggregate by sha2") as told:
        run(lab, other, "complete")
    assert "SECRET" not in str(told.value)
    assert not [file for file in (lab.root / "home" / "s").rglob("*.json") if b"SECRET" in file.read_bytes()]
