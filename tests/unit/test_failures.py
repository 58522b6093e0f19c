"""Failures as data: what is recorded of an exception raises the same one on every replay."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durable import codec, errors
from durable.errors import ChildFailed, StepFailed, StepTimeout, StepUncertain
from durable.failures import describe, raised
from durable.lanes import AttemptTimeout


class CardDeclined(ValueError):
    """An exception of a user."""


def caught(exc: BaseException) -> BaseException:
    try:
        raise exc
    except BaseException as found:
        return found


def test_a_failure_says_what_it_was_and_where_it_came_from() -> None:
    error = describe(caught(CardDeclined("no money")))
    assert (error["type"], error["message"]) == ("CardDeclined", "no money")
    assert "test_failures.py" in error["traceback"]


def test_a_recorded_failure_still_knows_its_kinds() -> None:
    """A workflow can ask whether the step's own exception was of a class, on the first run and on a replay."""
    failed = raised(json.loads(codec.encode(describe(caught(CardDeclined("no money"))))))
    assert [failed.is_a(kind) for kind in (CardDeclined, ValueError, Exception, OSError)] == [True, True, True, False]


@given(st.text())
def test_any_message_can_be_stored(message: str) -> None:
    """NUL and half surrogates in a message must not make the failure itself fail."""
    error = describe(caught(ValueError(message)))
    assert json.loads(codec.encode(error)) == error


def test_a_huge_message_is_cut() -> None:
    error = describe(caught(ValueError("x" * 1_000_000)))
    assert len(error["message"]) + len(error["traceback"]) <= 16_000


def test_a_failure_of_a_failure_is_the_first_one() -> None:
    """A workflow that lets a step's failure through fails with the step's own error."""
    error = {"type": "CardDeclined", "message": "no money", "step": "charge"}
    assert describe(caught(StepFailed(error))) == error


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"type": "ValueError"}, StepFailed),
        ({"type": "StepTimeout"}, StepTimeout),
        ({"type": "StepUncertain"}, StepUncertain),
        ({"type": "ValueError", "child": "c1"}, ChildFailed),
        ({}, StepFailed),
    ],
)
def test_a_replay_raises_the_same_class(error: dict[str, str], kind: type[StepFailed]) -> None:
    assert type(raised(error)) is kind


def test_an_attempt_that_took_too_long_is_a_step_timeout() -> None:
    assert type(raised(describe(caught(AttemptTimeout("took longer than 3 s"))))) is StepTimeout


def test_a_failed_child_names_itself() -> None:
    failed = raised({"type": "ValueError", "message": "x", "child": "c1"})
    assert isinstance(failed, ChildFailed)
    assert failed.child == "c1"


def test_the_tree_of_errors_is_the_one_that_is_drawn() -> None:
    """Every class of the module stands in its docstring, under its parent."""
    names = {name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, BaseException)}
    drawn = set(errors.__doc__.replace(",", " ").replace("(", " ").split()) if errors.__doc__ else set()
    assert names - drawn - {"Cancelled", "Evicted"} == set()


def test_control_flow_cannot_be_swallowed() -> None:
    """`except Exception` in a workflow catches failures, never a stop."""
    for kind in (errors.Stop, errors.Cancelled, errors.Evicted):
        assert not issubclass(kind, Exception)
    for kind in (errors.Refused, errors.StepFailed, errors.EventTimeout, errors.RunFailed, errors.LeaseLost):
        assert issubclass(kind, errors.DurableError)


def test_every_refusal_of_the_store_has_its_class() -> None:
    """DU0nn codes and classes are one to one."""
    assert len(set(errors.REFUSALS.values())) == len(errors.REFUSALS)


def test_a_failed_run_says_what_to_do_next() -> None:
    said = str(errors.RunFailed("r1", {"type": "CardDeclined", "message": "no money", "step": "charge"}))
    for part in ("run r1 failed in step 'charge'", "CardDeclined: no money", "durable runs retry r1"):
        assert part in said
