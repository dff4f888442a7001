"""Run commands in forked children, and check the rules that every command must follow.

A new Python process needs half a second to start, a forked child starts at once, since all modules are loaded. A child
has a separate process group, so all processes in it can be found. `inside.py` has the code of the child.
"""

import atexit
import contextlib
import functools
import importlib
import io
import os
import select
import shutil
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from numpy_attention.cli import main
from tests.fuzz.attack import LINE
from tests.fuzz.inside import LIMIT, STOPS, held, in_child

SECONDS = 20.0  # seconds without CPU time, for a command of half a second: a busy machine may be slow
MEGABYTES = 300  # for a command of ten seconds
ENDINGS = {0: "right", 1: "stopped", 2: "refused", 130: "interrupted", 143: "stopped", -9: "killed", -15: "killed"}

here = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="forks, and looks into /proc")


def nothing() -> None:
    """The default preparation of a child: nothing."""


class Outcome(NamedTuple):
    """The end of a command: `code` is negative for a signal, None if the command had to be stopped."""

    code: int | None
    out: bytes
    err: bytes
    seconds: float
    megabytes: float  # at most at once, in addition to the memory at the start

    def said(self) -> str:
        return self.err.decode("utf-8", "replace")


class Child:
    """A command in a separate process, which first calls `prepare`; `ends` replace its standard streams."""

    def __init__(
        self, arguments: list[Any], cwd: Path, prepare: Callable[[], None] = nothing, ends: Callable[[], None] = nothing
    ) -> None:
        self.arguments = [str(argument) for argument in arguments]
        out, err = os.pipe(), os.pipe()
        self.start = time.monotonic()
        signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of 3.12, where the parent has threads
            self.pid = os.fork()
        if self.pid == 0:
            os.close(out[0])  # otherwise the error stream would always have a reader
            os.close(err[0])
            in_child(self.arguments, cwd, prepare, ends, (out[1], err[1]))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)
        os.close(out[1])
        os.close(err[1])
        self.pipes = {out[0]: b"", err[0]: b""}
        self.order = [out[0], err[0]]
        self.found: Outcome | None = None
        own = held()
        self.before = own.resident - own.shared  # a fork leaves the pages of files behind

    def send(self, number: int) -> None:
        """Send a signal to the command, not to its children."""
        if self.found is None:
            os.kill(self.pid, number)  # the process exists until it is waited for

    def ends(self) -> bool:
        """Whether the command has ended, even if its outcome was not read."""
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def outcome(self, hear: int | None = None, seconds: float = SECONDS) -> Outcome:
        """Wait for the end of the command and of all processes with its streams; read at most `hear` bytes of output.

        The command is stopped if it used no CPU for some seconds, since a busy machine may be slow; or after many times
        this limit, since it may poll forever.
        """
        open_, status, worked, since = set(self.order), None, 0, time.monotonic()
        while time.monotonic() < min(since + seconds, self.start + 6 * seconds):
            if status is None and (now := work_of(self.pid)) != worked:
                worked, since = now, time.monotonic()
            ready = select.select(open_, [], [], 0.02)[0] if open_ else time.sleep(0.002) or []
            for pipe in ready:
                want = 65536 if hear is None or pipe != self.order[0] else min(hear - len(self.pipes[pipe]), 65536)
                piece = os.read(pipe, want) if want else b""
                self.pipes[pipe] += piece
                if not piece:
                    os.close(pipe)
                    open_.remove(pipe)
            if status is None:
                pid, ended, used = os.wait4(self.pid, os.WNOHANG)
                status = (os.waitstatus_to_exitcode(ended), used.ru_maxrss * 1024) if pid else None
            if status and not open_:
                break
        for pipe in open_:
            os.close(pipe)
        if status is not None and not open_ and not lives(self.pid):
            code, peak = status
        else:  # the command hangs, or a child still runs
            with contextlib.suppress(ProcessLookupError):  # the child may not have its own process group yet
                os.killpg(self.pid, signal.SIGKILL)
            code, peak = None, 0
        if status is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        spent = time.monotonic() - self.start
        self.found = Outcome(code, *(self.pipes[p] for p in self.order), spent, max(0, peak - self.before) / 1e6)
        return self.found


def work_of(pid: int) -> int:
    """The CPU time of a process and its ended children, in hundredths of a second."""
    return sum(map(int, Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[11:15]))


def lives(group: int) -> bool:
    """Whether a process of a group still runs; zombies do not count."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    states = [path.read_text("utf-8").rpartition(")")[2].split() for path in Path("/proc").glob("[0-9]*/stat")]
    return any(int(of) == group and state != "Z" for state, _, of, *_ in states)


def command(arguments: list[Any], cwd: Path, prepare: Callable[[], None] = nothing) -> Outcome:
    """Run a command to its end."""
    return Child(arguments, cwd, prepare).outcome()


def judge(
    outcome: Outcome, allowed: set[int], heard: bool = True, asides: bool = False, asked: bool = False
) -> str:
    """Refuse a traceback, a warning, a hang, unbounded memory, and a long error message or one with control characters.

    Return the outcome in a word. `heard`: the error stream was read; `asides`: the command may write to it without an
    error; `asked`: the user may have requested more memory than exists.
    """
    code, said = outcome.code, outcome.said()
    assert code not in (None, -signal.SIGXCPU), f"still there after {outcome.seconds:.0f} s, said {said[-300:]!r}"
    lines = said.splitlines()
    assert "Traceback" not in said, f"{lines[-1][:300]}\n{said[-1500:]}"
    assert code in allowed, f"ended with {code}: {said[-600:]}"
    if not asked:
        assert outcome.megabytes < MEGABYTES, f"took {outcome.megabytes:.0f} MB: {said[:300]}"
        assert "out of memory" not in said, f"asked for more than {LIMIT:,} bytes: {said[:300]}"
    for line in said.split("\n"):
        assert all(" " <= letter != "\x7f" for letter in line), f"a control character in {line[:600]!r}"
    for line in lines:
        assert asides or line.startswith("numpy-attention: "), line[:600]
        assert "Warning: " not in line, line[:600]
        assert len(line) <= LINE, f"a line of {len(line)} characters: {line[:200]} ..."
    if heard and code == 2:
        assert said.rpartition("\n")[0].rpartition("\n")[2].startswith("numpy-attention: "), f"no refusal: {said[:600]}"
    if heard and not asides:  # one line for the error, and one for a notice before it
        assert (code in (1, 2)) <= len(lines) <= 2, f"{len(lines)} lines: {said[:600]}"
    return ENDINGS[code]


def folder() -> Path:
    """A new directory that other users may enter."""
    warm()
    path = Path(tempfile.mkdtemp(dir=ground()))
    path.chmod(0o755)
    return path


@functools.cache
def ground() -> Path:
    """The directory for all files, until this process ends."""
    path = Path(tempfile.mkdtemp(prefix="attack-")).resolve()
    path.chmod(0o755)
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


@functools.cache
def warm() -> None:
    """Load everything once before the fork: a child may have no right to read modules, and would be slower."""
    importlib.import_module("mmap")
    with tempfile.TemporaryDirectory() as place, contextlib.redirect_stdout(io.StringIO()):
        (Path(place) / "text").write_text("one two " * 20)
        tiny = ["--steps=2", "--layers=1", "--d-model=8", "--workers=1", "--context=4"]
        for command in (
            ["train", "--task=copy", *tiny, "--out", f"{place}/copy"],
            ["train", "--text", f"{place}/text", *tiny, "--out", f"{place}/run"],
            ["attend", f"{place}/run", "--text=one"],
            ["sample", f"{place}/run", "--prompt=one", "--tokens=2"],
            ["gradcheck", "softmax"],
        ):
            assert main(command) == 0
