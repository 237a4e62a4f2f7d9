"""What a batch that was planned and not committed has lost of its input, and whether it can do without.

A batch that the sink holds is passed over: Spark plans it as logged and reads nothing of it, unless a state has to go
on with its rows, or a suite to measure them. Where there is state, its files must be those that were read: of others,
the state and the watermarks would not be those of the rows that count. So with a batch whose rows are decided: they are
staged, and whoever finishes it takes them from there.
"""

from __future__ import annotations

from dataclasses import replace

from sluice.errors import Problem
from sluice.sources.contract import LoggingSource, Position, Source
from sluice.storage import Storage
from sluice.stream import Stream

_LACKS_STATE = "the sink has the batch's rows; it is the state that would go on without them"
_LACKS_MEASURES = "the sink has the batch's rows; it is the suite that would measure the batch without them"
_PASSED_OVER = "none for the sink, which has the batch's rows: the run commits the batch without reading it"
_STAGED = "none: the batch's rows are decided and staged, and the run finishes it from there without reading it again"
_DOUBTFUL = (
    "the sink has the batch, and the run commits it without reading it again: if the file was away when the batch was"
    " read, its rows are missing"
)
_NOT_NEEDED = "nothing, for the stream; a backfill would need it"
_LOOK_FOR_ROWS = (
    "look for its rows in the sink; where they are missing, bring the file back under a new name, and the next run"
    " reads it"
)


def pending_problems(
    stream: Stream,
    source: Source,
    position: Position,
    end: str,
    *,
    is_in_sink: bool,
    is_decided: bool,
    has_state: bool,
    changed: tuple[Problem, ...],
    storage: Storage,
) -> tuple[Problem, ...]:
    """What is gone of what a planned batch reads of a source.

    Args:
        stream: The declaration.
        source: One of its sources.
        position: Where the batch begins to read it.
        end: Where it ends.
        is_in_sink: Whether the sink holds the batch.
        is_decided: Whether its rows are staged, with where each goes; a run refuses those that are not whole.
        has_state: Whether the checkpoint has state that is to be that of rows which count already.
        changed: What of the batch has changed since these were read.
        storage: Where to look.
    """
    changed = changed if has_state else ()
    problems = (*source.check_inputs(position, end, storage=storage), *changed)
    if not problems or not (is_in_sink or (is_decided and not has_state)):
        return problems
    needed = source.check_inputs(position, end, storage=storage, is_read=False)
    told = {(problem.code, problem.file) for problem in needed}
    others = [problem for problem in problems if (problem.code, problem.file) not in told and problem not in changed]
    # A suite has measured a batch before it was decided.
    if has_state or (stream.quality is not None and not is_decided):
        lacking = _LACKS_STATE if has_state else _LACKS_MEASURES
        return (*needed, *(replace(problem, consequence=lacking) for problem in others), *changed)
    # Spark takes a file that is away for empty; of a table it reads all, or fails.
    is_doubtful = isinstance(source, LoggingSource) and not source.ignores_missing
    consequence, remedy = (_DOUBTFUL, _LOOK_FOR_ROWS) if is_doubtful else (_PASSED_OVER, _NOT_NEEDED)
    if is_decided:
        # Before it was, each of its files was found.
        consequence, remedy = _STAGED, _NOT_NEEDED
    passed_over = (replace(found, consequence=consequence, remedy=remedy, is_blocking=False) for found in others)
    return (*needed, *passed_over)
