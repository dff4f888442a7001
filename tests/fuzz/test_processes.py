"""The judge of the attacks finds everything that a child does wrong."""

import mmap
import os
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fuzz import processes, worlds
from tests.fuzz.inside import resource
from tests.fuzz.processes import MEGABYTES, SECONDS, Child, command, judge

pytestmark = processes.here
HINT = ["sample", "nowhere"]  # refused in one line, unless the preparation changes this


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
    assert b"x" * 600_000_000


def fail() -> None:
    raise RuntimeError("by itself")


def warn() -> None:
    warnings.warn("of something", RuntimeWarning, stacklevel=1)


def say_much() -> None:
    sys.stderr.write("numpy-attention: " + "x" * 1000 + "\n")


def say_it_in_red() -> None:
    sys.stderr.write("numpy-attention: \x1b[31mno\n")


def compute() -> None:
    while True:
        pass


def compute_too_long() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (1, 2))
    compute()


def end_oddly() -> None:
    sys.exit(77)


def test_the_judge_accepts_correct_children(tmp_path: Path) -> None:
    outcome = command(HINT, tmp_path)
    assert judge(outcome, {2}) == "refused"
    assert outcome.said().startswith("numpy-attention: there is no file")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [(hang, "still there"), (compute, "still there"), (compute_too_long, "still there"),
     (leave_somebody, "still there"), (leave_somebody_with_the_streams, "still there"), (eat, "took"),
     (fail, "RuntimeError: by itself"), (warn, "RuntimeWarning: of something"), (end_oddly, "ended with 77"),
     (say_much, "a line of 1017 characters"), (say_it_in_red, "a control character")],
)  # fmt: skip
def test_the_judge_finds_faulty_children(tmp_path: Path, wrong: Callable[[], None], said: str) -> None:
    start = time.monotonic()
    seconds = 0.1 if wrong is compute else 0.5 if said == "still there" and wrong is not compute_too_long else SECONDS
    outcome = Child(HINT, tmp_path, wrong).outcome(seconds=seconds)
    with pytest.raises(AssertionError, match=said):
        judge(outcome, {2})
    assert time.monotonic() - start < 10


def test_memory_is_counted_without_file_pages_of_the_parent(tmp_path: Path) -> None:
    """A fork does not copy pages of files, so the file pages of a parent must not hide the memory of its child."""
    with open(tmp_path / "read", "w+b") as file:
        file.truncate(350_000_000)
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as pages:
            assert not any(pages[:: mmap.PAGESIZE])
            assert command(HINT, tmp_path, eat).megabytes > MEGABYTES


def test_a_child_receives_a_signal(tmp_path: Path) -> None:
    child = Child(HINT, tmp_path, hang)
    child.send(9)
    assert child.outcome().code == -9


def test_files_that_a_command_leaves_are_found() -> None:
    with worlds.copy_of_the_world() as top:
        assert worlds.tried(["attend", "run", "--text", "The", "--out", "picture.png"], top) == "right"
        (top / "work" / "run" / "log.jsonl.7.tmp").touch()
        (top / "tmp" / "made").touch()
        assert worlds.left_behind(top) == ["log.jsonl.7.tmp", "made"]


def test_a_long_training_is_stopped_after_its_start() -> None:
    with worlds.copy_of_the_world() as top:
        assert worlds.tried(["train", *worlds.OPTIONS, "--steps", "1000000000", "--out", "long"], top) == "right"
