"""A directory with a run, and actions on the files in it; `test_runs.py` builds its attacks from these."""

import contextlib
import functools
import json
import os
import shutil
import signal
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from numpy_attention.runs import checkpoint
from numpy_attention.runs.trainer import Trainer
from numpy_attention.tasks import text
from tests.fuzz.processes import Child, command, folder, nothing
from tests.runs import corruptions
from tests.runs.killed_runs import deadly, result, same

STEPS, SAVE_EVERY = 12, 4
RUN = ["--layers=1", "--heads=2", "--d-model=8", "--batch=4", "--warmup=3", f"--steps={STEPS}", "--learning-rate=1e-2"]
RUN += ["--workers=1", "--log-every=1", "--eval-every=6", f"--save-every={SAVE_EVERY}", "--context=8"]
RUN += ["--text=text.txt"]
TEXT = "one fish two fish red fish blue fish. " * 10
LETTER = "private\n"  # a file outside the directory of the run
ODD_LINES: tuple[object, ...] = (
    [], 7, "step", *({"step": step, "loss": 1.0} for step in (10**400, 2**63, -5, True, "6", None, 0, 3)), {"step": 4},
    *({"step": 3, "loss": loss} for loss in ("x", None, [1], {"a": 1}, 10**400, 1e308, -1e308, float("nan"), True)),
    {"step": 1, "loss": float("inf")}, {"step": 6, "val_loss": "x" * 9}, {"step": 6, "skipped": [1]},
    {"step": 6, "loss": 2.0, "learning_rate": "high", "grad_norm": []},
)  # fmt: skip
FILES = ("checkpoint.npz", "checkpoint.previous.npz", "checkpoint.best.npz", "log.jsonl", "config.json", "loss.png")


def short_texts() -> None:
    """Store the ids of short texts in a file too, as for long texts."""
    text.IN_MEMORY = 100


def kill_during_save(number: int, line: int) -> Callable[[], None]:
    """A child kills itself at this line of this save."""

    def prepare() -> None:
        Trainer.save = deadly(Trainer.save, number, line)  # type: ignore[method-assign]

    return prepare


def link_in_time(target: Path) -> Callable[[], None]:
    """Another user of the directory guesses each temporary name, and creates a link of this name in time."""

    def prepare() -> None:
        unlink = Path.unlink

        def unlink_and_link(self: Path, missing_ok: bool = False) -> None:
            unlink(self, missing_ok)
            if f".{os.getpid()}.tmp" in self.name:
                self.symlink_to(target)

        Path.unlink = unlink_and_link  # type: ignore[method-assign]

    return prepare


def slow_start() -> None:
    """Slow down the code before a run has its directory, so that other runs can interfere."""
    make = Trainer.__init__

    def slowly(self: Trainer, *arguments: Any) -> None:
        time.sleep(0.1)
        make(self, *arguments)

    Trainer.__init__ = slowly  # type: ignore[method-assign]


class Directory:
    """A folder with a text, a letter, and at most one run."""

    def __init__(self) -> None:
        self.top = folder()
        self.run = self.top / "run"
        (self.top / "text.txt").write_text(TEXT, encoding="utf-8")
        (self.top / "letter").write_text(LETTER)
        self.children: list[Child] = []

    def arguments(self) -> list[str]:
        """The arguments of a new or a resumed run."""
        begun = os.path.lexists(self.run / checkpoint.NAME)
        return ["train", "--resume", "run"] if begun else ["train", "--out", "run", *RUN]

    def start(self, prepare: Callable[[], None] = nothing, arguments: list[str] | None = None) -> Child:
        """Start a new run, a resumed run, or a run with the given arguments."""

        def both() -> None:
            short_texts()
            prepare()

        self.children.append(Child(arguments or self.arguments(), self.top, both))
        return self.children[-1]

    def steps_in_log(self) -> list[int]:
        lines = (self.run / "log.jsonl").read_text("utf-8").splitlines() if (self.run / "log.jsonl").is_file() else []
        whole = [line for line in lines if line.endswith("}")]
        return [json.loads(line)["step"] for line in whole]

    def assert_all_is_well_outside(self) -> None:
        assert {path.name for path in self.top.iterdir()} <= {"run", "runs", "text.txt", "letter"}
        for name, content in (("letter", LETTER), ("text.txt", TEXT)):
            assert (self.top / name).read_bytes() == content.encode(), f"{name} has been overwritten"

    def leave(self) -> None:
        """Stop all processes and remove all files."""
        for child in self.children:
            if child.found is None:
                child.send(signal.SIGKILL)
                child.outcome()
        shutil.rmtree(self.top)

    def ids_file(self) -> Path | None:
        return next(self.run.glob("ids-*.npy"), None)


@functools.cache
def whole() -> Any:
    """The result of an undisturbed run."""
    directory = Directory()
    ended = command(["train", "--out", "run", *RUN], directory.top, short_texts)
    assert ended.code == 0, ended.said()
    found = result(directory.run)
    directory.leave()
    return found


def same_as_undisturbed(run: Path, log: bool = True) -> bool:
    """Whether the result of a run is equal, bit for bit; without a log, only in the last checkpoint."""
    if log:
        return same(result(run), whole())
    ours, theirs = (checkpoint.load_arrays(run / checkpoint.NAME), whole()[0][checkpoint.NAME])
    return same(({checkpoint.NAME: ours}, []), ({checkpoint.NAME: theirs}, []))


def damage(path: Path, kind: int, seed: int) -> None:
    """Change bytes of an existing file."""
    if path.is_file() and (data := path.read_bytes()):
        kinds = corruptions.OF_A_CHECKPOINT if zipfile.is_zipfile(path) else corruptions.OF_ANY_FILE
        changed = data
        with contextlib.suppress(zipfile.BadZipFile):  # it was damaged before
            changed = kinds[kind % len(kinds)](data, np.random.default_rng(seed))
        os.unlink(path)  # it may have other names
        path.write_bytes(changed)


def other_ids(path: Path, seed: int) -> None:
    """Replace ids by other ids of the vocabulary, as after the loss of a disk page."""
    data = bytearray(path.read_bytes())
    rng = np.random.default_rng(seed)
    for i in rng.integers(len(TEXT) // 2, size=60):
        data[-1 - i] = rng.integers(10)
    path.write_bytes(bytes(data))


def fewer_ids(path: Path) -> None:
    """A header with half of the number of ids."""
    found = np.load(path)
    data = path.read_bytes()
    path.write_bytes(data.replace(b"(%d,)" % len(found), b"(%d,) " % (len(found) // 2), 1)[: len(data)])


def odd_line(path: Path, line: object) -> None:
    """Add a line to a log that no run has written."""
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


REPLACEMENTS: dict[str, Callable[[Path], None]] = {
    "a link to a letter": lambda path: path.symlink_to("../letter"),
    "a link to nowhere": lambda path: path.symlink_to("nowhere"),
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a link to /dev/zero": lambda path: path.symlink_to("/dev/zero"),
    "a link to /dev/full": lambda path: path.symlink_to("/dev/full"),
    "a link to /proc/self/mem": lambda path: path.symlink_to("/proc/self/mem"),
    "a pipe": os.mkfifo,
    "a directory": lambda path: (path / "in it").mkdir(parents=True),
    "nothing": lambda path: None,
    "an empty file": Path.touch,
}


def replace(path: Path, by: str) -> None:
    """Replace a file in the directory by something else."""
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    REPLACEMENTS[by](path)
