"""The judge of the attacks: what a child does wrong is seen."""

import os
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fuzz import processes
from tests.fuzz.processes import SECONDS, Child, command, judge

pytestmark = processes.here
HINT = ["sample", "nowhere"]  # refused in one line, unless something is done before


def hang() -> None:
    time.sleep(60)


def leave_somebody() -> None:
    if os.fork() == 0:
        os.close(1)
        os.close(2)
        time.sleep(60)
        os._exit(0)


def leave_somebody_with_the_streams() -> None:
    if os.fork() == 0:
        time.sleep(60)
        os._exit(0)


def eat() -> None:
    assert b"x" * 400_000_000


def fail() -> None:
    raise RuntimeError("by itself")


def warn() -> None:
    warnings.warn("of something", RuntimeWarning, stacklevel=1)


def say_much() -> None:
    sys.stderr.write("numpy-attention: " + "x" * 1000 + "\n")


def end_oddly() -> None:
    sys.exit(77)


def test_what_is_right_passes(tmp_path: Path) -> None:
    outcome = command(HINT, tmp_path)
    assert judge(outcome, {2}) == "refused"
    assert outcome.said().startswith("numpy-attention: there is no file")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [(hang, "still there"), (leave_somebody, "still there"), (leave_somebody_with_the_streams, "still there"),
     (eat, "took"), (fail, "RuntimeError: by itself"), (warn, "RuntimeWarning: of something"),
     (say_much, "a line of 1017 characters"), (end_oddly, "ended with 77")],
)  # fmt: skip
def test_what_is_wrong_is_found(tmp_path: Path, wrong: Callable[[], None], said: str) -> None:
    start = time.monotonic()
    outcome = Child(HINT, tmp_path, wrong).outcome(seconds=1.5 if said == "still there" else SECONDS)
    with pytest.raises(AssertionError, match=said):
        judge(outcome, {2})
    assert time.monotonic() - start < 10


def test_a_child_hears_the_signal_that_it_is_sent(tmp_path: Path) -> None:
    child = Child(HINT, tmp_path, hang)
    child.send(9)
    assert child.outcome().code == -9
