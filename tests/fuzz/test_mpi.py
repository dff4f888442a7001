"""Two real ranks: one is killed or interrupted at any time, or both get odd arguments; they end together."""

import contextlib
import functools
import os
import signal
import subprocess
import time
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from numpy_attention.runs import checkpoint
from tests.fuzz import processes
from tests.fuzz.attack import LINE, attack, tally
from tests.fuzz.directories import RUN, Directory
from tests.fuzz.processes import SECONDS
from tests.runs.killed_runs import result, same
from tests.runs.test_mpiexec import ENVIRONMENT, PROGRAM, mpiexec, runs

pytestmark = processes.here
ODD = (
    ("--batch=1", "ranks cannot share a batch"), ("--steps=nan", "invalid int value"), ("--lora=3", "--from"),
    ("--text=/nowhere", "cannot read /nowhere"), ("--seed=-1", "--seed must be"), ("--out=letter", "is a file"),
    ("--backend=cupy", ""), ("--config=text.txt", "not TOML"), ("--heads=3", "heads"), ("--text=/dev/zero", ""),
)  # fmt: skip


class Ranks:
    """Two ranks that train in the directory of a story, and their process ids."""

    def __init__(self, place: Directory, *arguments: str) -> None:
        program, pids = place.top / "program.py", place.top / "rank"
        program.write_text(PROGRAM)
        self.files = [pids.with_name(f"rank.pid.{rank}") for rank in range(2)]
        self.start = time.monotonic()
        self.job = subprocess.Popen(
            mpiexec(2, program, pids, *arguments), env=ENVIRONMENT, cwd=place.top, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def pids(self) -> list[int]:
        """The processes of both ranks, after both have started."""
        while not all(file.exists() and file.read_text("utf-8") for file in self.files) and self.job.poll() is None:
            time.sleep(0.01)
        return [int(file.read_text("utf-8")) for file in self.files if file.exists()]

    def kill(self) -> None:
        """Kill both ranks and their children."""
        for pid in self.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.ended()

    def ended(self) -> tuple[int, str]:
        """The exit code and the output, after all processes have ended.

        Raises: TimeoutExpired or AssertionError when the ranks hang.
        """
        pids = self.pids()
        try:
            _, err = self.job.communicate(timeout=2 * SECONDS)
            end = time.monotonic() + SECONDS
            while any(map(runs, pids)):
                assert time.monotonic() < end, "a rank lives on"
                time.sleep(0.02)
        finally:
            for pid in [self.job.pid, *pids]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.job.communicate()
            for file in self.files:
                file.unlink(missing_ok=True)
        return self.job.returncode, err


def ours(said: str) -> list[str]:
    """The output of the program, without the lines that MPI adds when a rank is lost."""
    assert "Traceback" not in said, said[-1500:]
    lines = [line for line in said.splitlines() if line.startswith("numpy-attention: ")]
    assert all(len(line) <= LINE for line in lines), lines
    return lines


@functools.cache
def whole() -> Any:
    """The result of two undisturbed ranks: their sums are rounded differently than in one process."""
    place = Directory()
    assert Ranks(place, "train", "--out", "run", *RUN).ended()[0] == 0
    found = result(place.run)
    place.leave()
    return found


@attack(count=2, dear=True)
@given(rank=st.integers(0, 1), name=st.sampled_from(["SIGKILL", "SIGTERM", "SIGINT"]), seconds=st.floats(0, 1.5))
def test_ranks_resume_after_one_was_killed(rank: int, name: str, seconds: float) -> None:
    place = Directory()
    try:
        first = Ranks(place, "train", "--out", "run", *RUN)
        pids = first.pids()
        time.sleep(seconds)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pids[rank], signal.Signals[name])
        code, said = first.ended()
        ours(said)
        tally("ranks: killed", "right" if code == 0 else "killed")
        code, said = Ranks(place, *place.arguments()).ended()
        assert code == 0, said
        assert same(result(place.run), whole()), "the result differs from an undisturbed run"
        tally("ranks: go on", "right")
    finally:
        place.leave()


@attack(count=2, dear=True)
@given(argument=st.sampled_from(ODD))
@example(argument=ODD[0])
def test_ranks_report_odd_arguments_once(argument: tuple[str, str]) -> None:
    place = Directory()
    try:
        ranks = Ranks(place, "train", "--out", "run", *RUN, argument[0])
        code, said = ranks.ended()
        assert code == 2, said
        [line] = ours(said)
        assert argument[1] in line
        assert not (place.run / checkpoint.NAME).exists()
        tally("ranks: odd arguments", "refused")
    finally:
        place.leave()


@attack(count=2, dear=True)
@given(seconds=st.floats(0, 0.5))
def test_a_second_run_is_refused_while_two_ranks_train(seconds: float) -> None:
    place = Directory()
    try:
        first = Ranks(place, "train", "--out", "run", *RUN, "--steps=1000000")
        while not (place.run / checkpoint.NAME).exists() and first.job.poll() is None:
            time.sleep(0.01)
        time.sleep(seconds)
        place.children.append(second := processes.Child(place.arguments(), place.top))
        outcome = second.outcome(seconds=5)
        first.kill()
        tally("ranks: second", processes.judge(outcome, {2}))
        assert "cannot write" not in outcome.said(), outcome.said()
    finally:
        place.leave()
