"""What goes wrong with files, and in the libraries that read and write them, as errors of ours."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

from sluice.errors import SluiceError, StorageError, TooLargeError
from sluice.foreign_code import described, is_failure

_REMEDY = "check that it exists, its permissions and free space"
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_FRAMES = re.compile(r"\s+0: .*\n\s+1: ")
"""Where a backtrace of Rust's begins."""
_MOST_WORDS = 500


@contextlib.contextmanager
def library_call(
    fails: str,
    location: str,
    *,
    passing: type[Exception] | tuple[type[Exception], ...] = FileNotFoundError,
    remedy: str = _REMEDY,
) -> Iterator[None]:
    """While obstore or delta-rs is called: whatever goes wrong in there becomes our error, also a panic of Rust's.

    Args:
        fails: What is wrong then, such as "could not read it"; the library's words follow.
        location: What it is about.
        passing: What the caller wants to see as it is.
        remedy: What to do about it.

    Raises:
        StorageError: It did not work.
    """
    try:
        yield
    except SluiceError:
        raise
    except BaseException as exc:
        if isinstance(exc, passing) or not is_failure(exc):
            raise
        raise StorageError(f"{fails}: {_library_words(exc)}", where=location, remedy=remedy) from exc


def _library_words(exc: BaseException) -> str:
    """What a library says, in one line: colours, a dump of what it holds, or a backtrace may be in its words."""
    words = _COLOUR.sub("", described(exc)).replace("\u21b3", "")
    for end in ("\n\nDebug source:", "\n\nstack backtrace", "\nBacktrace:"):
        words = words.partition(end)[0]
    words = _FRAMES.split(words)[0]
    return " ".join(words.split())[:_MOST_WORDS]


def failed(verb: str, location: str, exc: Exception) -> StorageError:
    """The error for something that could not be done with a file."""
    if isinstance(exc, StorageError):
        return exc
    reason = exc.strerror if isinstance(exc, OSError) and exc.strerror else _library_words(exc)
    return StorageError(f"could not {verb} it: {reason}", where=location, remedy=_REMEDY)


def too_large(location: str, size: int, max_bytes: int) -> TooLargeError:
    """The error for a file that is larger than what is read of such files."""
    return TooLargeError(
        f"the file has {size:,} bytes, more than the {max_bytes:,} that are read",
        where=location,
        remedy="such files are far smaller; look at what it is before anything is done with it",
        size_bytes=size,
    )
