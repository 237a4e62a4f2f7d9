"""Every error class is built, printed, pickled and has an exit code."""

from __future__ import annotations

import ast
import copy
import inspect
import pickle
from pathlib import Path

import pytest

from sluice import errors
from sluice.errors import Problem, RefusedError, SluiceError

PROBLEM = Problem(
    code="OFFSETS_GAP",
    file="/ckpt/offsets/4",
    cause="batch 4 is missing",
    consequence="Spark fails",
    remedy="restore it",
)
EXIT_CODES = {
    "SluiceError": 1,
    "DeclarationError": 2,
    "UnknownStreamError": 2,
    "NotThereError": 2,
    "QueryRefusedError": 2,
    "RefusedError": 3,
    "HeldError": 4,
    "ContractError": 4,
    "QualityFailedError": 4,
    "LeaseTakenError": 5,
    "RunError": 1,
    "StorageError": 1,
    "TooLargeError": 1,
    "UnansweredError": 1,
    "BatchFailedError": 1,
    "LeaseLostError": 1,
    "JarsError": 1,
    "LaunchProfileError": 1,
}
RETRYABLE = {
    "NotThereError",
    "LeaseTakenError",
    "RunError",
    "StorageError",
    "TooLargeError",
    "UnansweredError",
    "BatchFailedError",
    "LeaseLostError",
    "JarsError",
    "LaunchProfileError",
}


def every_class(base: type[SluiceError] = SluiceError) -> list[type[SluiceError]]:
    own = [base] if base.__module__.startswith("sluice.") else []
    return own + [found for child in base.__subclasses__() for found in every_class(child)]


def make_error(kind: type[SluiceError]) -> SluiceError:
    if issubclass(kind, RefusedError):
        return kind(PROBLEM)
    return kind("the file is gone", where="/data/a.json", remedy="bring it back")


def test_every_error_is_in_the_one_file() -> None:
    """No other module defines an error of ours."""
    assert {kind.__module__ for kind in every_class()} == {"sluice.errors"}


def test_every_class_is_known_here() -> None:
    """A new error class comes with its exit code in this test."""
    assert {kind.__name__ for kind in every_class()} == set(EXIT_CODES)


@pytest.mark.parametrize("kind", every_class(), ids=lambda kind: kind.__name__)
def test_exit_code(kind: type[SluiceError]) -> None:
    """The command line exits with the documented code for every class."""
    assert kind.exit_code == EXIT_CODES[kind.__name__]


@pytest.mark.parametrize("kind", every_class(), ids=lambda kind: kind.__name__)
def test_retryable(kind: type[SluiceError]) -> None:
    """Only what may go away without a person's change is worth a retry."""
    assert kind.retryable == (kind.__name__ in RETRYABLE)


@pytest.mark.parametrize("kind", every_class(), ids=lambda kind: kind.__name__)
def test_message_says_what_where_and_what_to_do(kind: type[SluiceError]) -> None:
    """Every error prints its problem, its place and its remedy."""
    error = make_error(kind)

    assert error.where is not None
    assert error.remedy is not None
    assert str(error) == f"{error.problem} [{error.where}]; {error.remedy}"


@pytest.mark.parametrize("copied", [lambda e: pickle.loads(pickle.dumps(e)), copy.copy, copy.deepcopy])
@pytest.mark.parametrize("kind", every_class(), ids=lambda kind: kind.__name__)
def test_survives_pickling(kind: type[SluiceError], copied) -> None:  # noqa: ANN001 - a lambda or a function
    """An error that went through pickle or copy has the same class, attributes and text."""
    error = make_error(kind)
    error.run_id = "20260131T120000000Z-00000000"
    twin = copied(error)

    assert type(twin) is kind
    assert twin.__dict__ == error.__dict__
    assert twin.args == error.args
    assert str(twin) == str(error)


@pytest.mark.parametrize("kind", every_class(), ids=lambda kind: kind.__name__)
def test_docstring(kind: type[SluiceError]) -> None:
    """Every class says what it means in its own words."""
    assert kind.__doc__
    assert kind.__doc__ != inspect.getdoc(kind.__mro__[1])


@pytest.mark.parametrize("kind", [kind for kind in every_class() if kind is not SluiceError])
def test_overview_lists_the_class(kind: type[SluiceError]) -> None:
    """The tree at the top of the module is complete."""
    assert kind.__name__ in (errors.__doc__ or "")


def test_message_without_place_and_remedy() -> None:
    """What is not known leaves no brackets behind."""
    assert str(SluiceError("it broke")) == "it broke"
    assert SluiceError("it broke").run_id is None


def test_refusal_carries_its_finding() -> None:
    """A refusal names the file, and joins cause and consequence."""
    error = RefusedError(PROBLEM)

    assert error.finding is PROBLEM
    assert error.where == "/ckpt/offsets/4"
    assert error.problem == "batch 4 is missing: Spark fails"
    assert error.remedy == "restore it"


def test_problem_prints_five_keys() -> None:
    """`inspect --json` shows what was found, not how planning weighs it."""
    assert PROBLEM.as_json() == {
        "code": "OFFSETS_GAP",
        "file": "/ckpt/offsets/4",
        "cause": "batch 4 is missing",
        "consequence": "Spark fails",
        "remedy": "restore it",
    }
    assert PROBLEM.is_blocking


def test_no_remedy_names_what_nobody_can_do() -> None:
    """There is no command for a new generation."""
    folder = Path(errors.__file__).parent
    calls = (node for file in folder.rglob("*.py") for node in ast.walk(ast.parse(file.read_text("utf-8"))))
    remedies = [ast.unparse(node.value) for node in calls if isinstance(node, ast.keyword) and node.arg == "remedy"]

    assert len(remedies) > 100
    assert [remedy for remedy in remedies if "generation" in remedy] == []
