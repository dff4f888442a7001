"""The command line in a child process, where it may take neither long nor much, and writes nothing of ours.

The child is forked, so NumPy need not be imported again. It stands in a folder `work` of a copy of a small world: files
that a user might have by mistake in the place of the right ones. What it leaves, says and ends with is judged.
"""

import atexit
import contextlib
import os
import shutil
import signal
import stat
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from numpy_attention import cli, plots
from numpy_attention.catalogue import table
from numpy_attention.errors import InputError
from numpy_attention.grade import run as grading
from numpy_attention.pretrained import fetch
from numpy_attention.runs.trainer import Trainer
from tests.fuzz.attack import LINE
from tests.fuzz.judging import Finding

TRACEBACK = 70  # the exit code of a child that has ended with one
SECONDS, MEGABYTES = 10, 1500
SMALL = {
    "text": "text.txt", "steps": 2, "batch": 2, "layers": 1, "heads": 1, "d_model": 4, "context": 8, "workers": 1,
    "warmup": 0,
}
OPTIONS = [part for name, value in SMALL.items() for part in (f"--{name.replace('_', '-')}", str(value))]


class Enough(BaseException):
    """What would come now takes long, and was asked for."""


class Ending(NamedTuple):
    """What a command has left: its exit code, or None when it had to be ended, and what it said."""

    code: int | None
    out: str
    err: str


@cache
def world() -> Path:
    """A folder with everything that a command could be pointed at; made once.

    What the children would import and look for, they inherit: the catalogue, and matplotlib with its fonts.
    """
    folder = Path(tempfile.mkdtemp(prefix="fuzz-world-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    plots.save(plots.attention_map(np.eye(len(table.CATALOGUE))[:2, :2]), folder / "picture.png").unlink()
    work = folder / "work"
    for name in ("work", "tmp", "home", "work/folder"):
        (folder / name).mkdir()
    (work / "text.txt").write_text("The quick brown fox jumps over the lazy dog.\n" * 60)
    (work / "set.toml").write_text("steps = 2\n")
    (work / "ほ.txt").write_text("ほ" * 300)
    (work / "latin.txt").write_bytes(b"caf\xe9 " * 100)
    (work / "empty.txt").write_text("")
    (work / "pic.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(range(256)))
    (work / "zip.npz").write_bytes(b"PK\5\6" + bytes(18))
    (work / "softmax.py").write_text("def softmax(: pass\n")
    os.symlink("nowhere", work / "broken")
    ending = run(["train", "--out", "run", *OPTIONS], folder)
    assert ending.code == 0, ending.err
    return folder


@contextlib.contextmanager
def copy_of_the_world() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        copied = Path(folder) / "world"
        shutil.copytree(world(), copied, symlinks=True)
        os.mkfifo(copied / "work" / "fifo")
        yield copied


def run(argv: list[str], folder: Path, guarded: bool = True) -> Ending:
    """Run a command in the folder's `work`, with limits on time and memory."""
    files = [folder / name for name in ("out", "err")]
    child = os.fork()
    if child == 0:
        code = TRACEBACK
        try:
            code = _as_a_child(argv, folder, files, guarded)
        except BaseException:
            traceback.print_exc()
        finally:
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(OSError, ValueError):
                    stream.flush()
            os._exit(code)
    code = _ended(child)
    said = [file.read_text(encoding="utf-8", errors="backslashreplace") if file.exists() else "" for file in files]
    for file in files:
        file.unlink(missing_ok=True)
    return Ending(code, *said)


def _as_a_child(argv: list[str], folder: Path, files: list[Path], guarded: bool) -> int:
    import resource

    os.setsid()
    os.chdir(folder / "work")
    for number, path in enumerate([Path(os.devnull), *files]):
        os.dup2(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), number)
    sys.stdin = os.fdopen(0)
    sys.stdout, sys.stderr = os.fdopen(1, "w", encoding="utf-8"), os.fdopen(2, "w", errors="backslashreplace")
    os.environ.update(TMPDIR=str(folder / "tmp"), HOME=str(folder / "home"), MPLCONFIGDIR=str(folder / "home"))
    os.environ["NUMPY_ATTENTION_CACHE"] = str(folder / "home" / "cache")
    tempfile.tempdir = None
    for signum in (signal.SIGALRM, signal.SIGINT, signal.SIGTERM):
        signal.signal(signum, signal.SIG_DFL)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEGABYTES * 10**6,) * 2)
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    resource.setrlimit(resource.RLIMIT_FSIZE, (10**8, 10**8))
    if guarded:
        _guard()
    try:
        return cli.main(argv)
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else TRACEBACK
    except Enough:
        return 0


def _guard() -> None:
    """End what takes long when it has begun as it should: long trainings, all checks, gradings, downloads."""
    train, check, checked = Trainer.run, cli.gradcheck.importlib.import_module, []

    def some_steps(self: Trainer) -> str:
        if self.config.steps > 2:
            raise Enough
        return train(self)

    def one_check(name: str) -> object:
        table = check(name)
        if not name.endswith("table"):
            raise Enough
        first = table.check

        def once(*args: object, **more: object) -> object:
            if checked:
                raise Enough
            checked.append(first(*args, **more))
            return checked[0]

        table.check = once
        return table

    def no_network(*_: object) -> Path:
        raise InputError("there is no network here")

    def begun(*_: object, **__: object) -> object:
        raise Enough

    Trainer.run = some_steps
    cli.gradcheck.importlib = type("Stub", (), {"import_module": staticmethod(one_check)})
    grading.grade_file = begun
    fetch._downloaded = no_network


def _ended(child: int) -> int | None:
    """The exit code; None for a child that waits for something that does not come, and is ended."""
    worked, since = -1, time.monotonic()
    while time.monotonic() < since + SECONDS:  # of standing still: a busy machine may be slow
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
        if (now := int(fields[11]) + int(fields[12])) != worked:  # hundredths of a second, of the program and for it
            worked, since = now, time.monotonic()
        time.sleep(0.005)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def judged(ending: Ending, folder: Path) -> str:
    """The outcome: "done", "refused" or "not right".

    Raises: Finding.
    """
    code, _, err = ending
    last = err.strip().splitlines()[-1][:300] if err.strip() else ""
    if code is None or code < 0:
        raise Finding(f"no answer within {SECONDS} s and {MEGABYTES} MB (ended with {code}): {last}")
    if code not in (0, 1, 2) or "Traceback" in err or "Error:" in last:
        raise Finding(f"a traceback (exit code {code}): {last}")
    if "Warning" in err:
        raise Finding(f"a warning: {err[:300]}")
    refusals = [line for line in err.splitlines() if line.startswith("numpy-attention: ")]
    if code == 2 and (len(refusals) != 1 or not err.rstrip("\n").endswith(refusals[0]) or err.count("\n") > 2):
        raise Finding(f"exit code 2 with {err[:300]!r}")
    if code == 2 and len(refusals[0]) > LINE:
        raise Finding(f"a line of {len(refusals[0])} characters: {refusals[0][:100]}")
    if any(ord(c) < 32 for line in refusals for c in line):
        raise Finding(f"a control character in {refusals[0][:300]!r}")
    left = {path.name for path in folder.iterdir()} - {"work", "home", "tmp"}
    left |= {path.name for path in (folder / "tmp").iterdir()}
    left |= {path.name for path in (folder / "work").rglob("*") if ".tmp" in path.name and not _special(path)}
    if left:
        raise Finding(f"left behind: {sorted(left)}")
    return ("done", "not right", "refused")[code]


def _special(path: Path) -> bool:
    return not stat.S_ISREG(path.lstat().st_mode)
