"""Every error that Sluice raises on purpose, grouped by who can do something about it.

    SluiceError
    ├── DeclarationError      the project's author: fix a declaration, an option, a transform      exit 2
    │   ├── UnknownStreamError
    │   ├── NotThereError     what it reads may come, or come back: a retry may succeed            exit 2
    │   └── QueryRefusedError
    ├── RefusedError          an operator must decide: state on disk does not allow going on        exit 3
    │   ├── HeldError         what an earlier run published has failed its suite                    exit 4
    │   └── ContractError     a source has other columns than the suite's contract asks for         exit 4
    ├── QualityFailedError    the suite failed: correct the data, the suite, or release it          exit 4
    ├── LeaseTakenError       somebody else is running the stream                                   exit 5
    └── RunError              this run failed; a retry may succeed                                  exit 1
        ├── StorageError
        │   ├── TooLargeError
        │   └── UnansweredError
        ├── BatchFailedError
        ├── LeaseLostError
        ├── JarsError
        └── LaunchProfileError

Every message says what is wrong, where, and what to do, and no secret: what is one is masked when the error is made.
Errors carry plain values, so that they survive pickling on their way through Airflow and Spark.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from sluice.redaction import redacted


@dataclass(frozen=True)
class Problem:
    """Something wrong with files on disk: found by reading them, shown by `inspect`, and refused by planning."""

    code: str
    """A stable, upper-case name for the kind of problem, such as `OFFSETS_DAMAGED`."""
    file: str
    """The file or folder that is wrong."""
    cause: str
    """What is wrong with it."""
    consequence: str
    """What Spark would do with it."""
    remedy: str
    """What a person can do."""
    is_blocking: bool = True
    """Whether going on would lose or double rows, or can only fail."""

    def __post_init__(self) -> None:
        for name in ("cause", "consequence", "remedy"):
            object.__setattr__(self, name, redacted(getattr(self, name)))

    def as_json(self) -> dict[str, str]:
        """The five keys that `sluice inspect --json` prints."""
        document = asdict(self)
        del document["is_blocking"]
        return document


class SluiceError(Exception):
    """Base of every error that this package raises on purpose.

    Args:
        problem: What is wrong, in one sentence without a full stop.
        where: The file, line, option or table that is wrong.
        remedy: What to do about it.
    """

    exit_code: ClassVar[int] = 1
    """What the command line exits with."""
    retryable: ClassVar[bool] = False
    """Whether the same call may succeed later without a change by a person."""

    def __init__(self, problem: str, *, where: str | None = None, remedy: str | None = None) -> None:
        problem = redacted(problem)
        self.problem = problem
        self.where = redacted(where) if where is not None else None
        self.remedy = redacted(remedy) if remedy is not None else None
        self.run_id: str | None = None
        """The run that failed with it, whose record has the whole story; None outside of a run."""
        self.log: str | None = None
        """The file that has all of what was said, of errors of which the message masks something."""
        super().__init__(problem)

    def __str__(self) -> str:
        place = f" [{self.where}]" if self.where else ""
        advice = f"; {self.remedy}" if self.remedy else ""
        return f"{self.problem}{place}{advice}"

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.args, self.__dict__))


def _rebuild(kind: type[SluiceError], args: tuple[Any, ...], attributes: dict[str, Any]) -> SluiceError:
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(attributes)
    return error


class DeclarationError(SluiceError):
    """A project file, a stream declaration, an option or a transform is wrong."""

    exit_code = 2

    def at(self, line: str | None) -> DeclarationError:
        """The same error, with the `file:line` of the declaration that it is about in front of its place."""
        if line is None or (self.where is not None and self.where.startswith(line)):
            return self
        where = line if self.where is None else f"{line}: {self.where}"
        return type(self)(self.problem, where=where, remedy=self.remedy)


class UnknownStreamError(DeclarationError):
    """No declaration in the project has this name."""


class NotThereError(DeclarationError):
    """A folder, table or topic that a declaration reads is not there: misnamed, not made yet, or away for a moment."""

    retryable = True


class QueryRefusedError(DeclarationError):
    """Spark's analyser refuses the query that a declaration describes."""


class RefusedError(SluiceError):
    """What is on disk does not allow going on; a person must decide.

    Args:
        problem: The finding, with its file, cause, consequence and remedy.
    """

    exit_code = 3

    def __init__(self, problem: Problem) -> None:
        self.finding = problem
        super().__init__(f"{problem.cause}: {problem.consequence}", where=problem.file, remedy=problem.remedy)


class HeldError(RefusedError):
    """The stream is held: rows that an earlier run published have failed its suite."""

    exit_code = 4


class ContractError(RefusedError):
    """The columns of a source are not those that the suite's contract asks for."""

    exit_code = 4


class QualityFailedError(SluiceError):
    """The gate failed: an expectation with the policy `fail` is not met."""

    exit_code = 4


class LeaseTakenError(SluiceError):
    """Another run has taken the lease of the stream's generation.

    Args:
        problem: What is wrong.
        where: The file of the lease.
        remedy: What to do about it.
    """

    exit_code = 5
    retryable = True

    def __init__(self, problem: str, *, where: str | None = None, remedy: str | None = None) -> None:
        self.file = where
        """The file of the lease, for whoever waits for it: not a text that is shown."""
        super().__init__(problem, where=where, remedy=remedy)


class RunError(SluiceError):
    """A run failed; nothing is lost, and the next run goes on from what is on disk."""

    retryable = True


class StorageError(RunError):
    """A file or folder could not be listed, read or written."""


class UnansweredError(StorageError):
    """A service gave no answer, or let this user not in; its remedy is what helps, and no other way of reading."""


class TooLargeError(StorageError):
    """A file is larger than what is read of its kind.

    Args:
        problem: What is wrong.
        where: The file.
        remedy: What to do about it.
        size_bytes: How large it is.
    """

    def __init__(
        self, problem: str, *, where: str | None = None, remedy: str | None = None, size_bytes: int = 0
    ) -> None:
        self.size_bytes = size_bytes
        super().__init__(problem, where=where, remedy=remedy)


class BatchFailedError(RunError):
    """Spark failed a batch, or did something else than what was planned."""


class LeaseLostError(RunError):
    """Another run took the lease over; this run must not write any more."""


class JarsError(RunError):
    """A jar that Spark needs is not in the cache and could not be fetched, or has the wrong hash."""


class LaunchProfileError(RunError):
    """A launch profile could not be built or read; runs go on without it."""
