"""A folder of files for each try: also files that a user might choose by mistake instead of the right ones.

A command runs in the folder `work`. After its end, the new files in `work` and next to it are examined.
"""

import contextlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from numpy_attention import cli
from numpy_attention.errors import InputError
from numpy_attention.grade import run as grading
from numpy_attention.pretrained import fetch
from numpy_attention.runs.trainer import Trainer
from tests.fuzz.processes import command, folder, judge

SMALL = {
    "text": "text.txt", "steps": 2, "batch": 2, "layers": 1, "heads": 1, "d_model": 4, "context": 8, "workers": 1,
    "warmup": 0,
}
OPTIONS = [part for name, value in SMALL.items() for part in (f"--{name.replace('_', '-')}", str(value))]


@cache
def world() -> Path:
    """A folder with all kinds of files that a command can get; created once."""
    top = folder()
    work = top / "work"
    for name in ("work", "tmp", "home", "work/folder"):
        (top / name).mkdir()
    (work / "text.txt").write_text("The quick brown fox jumps over the lazy dog.\n" * 60)
    (work / "set.toml").write_text("steps = 2\n")
    (work / "ほ.txt").write_text("ほ" * 300)
    (work / "latin.txt").write_bytes(b"caf\xe9 " * 100)
    (work / "empty.txt").write_text("")
    (work / "pic.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(range(256)))
    (work / "zip.npz").write_bytes(b"PK\5\6" + bytes(18))
    (work / "softmax.py").write_text("def softmax(: pass\n")
    os.symlink("nowhere", work / "broken")
    ended = command(["train", "--out", "run", *OPTIONS], work)
    assert ended.code == 0, ended.said()
    return top


@contextlib.contextmanager
def copy_of_the_world() -> Iterator[Path]:
    """A copy of the world: `work` is for the command, the other folders for its caches and temporary files."""
    top = folder()
    try:
        shutil.copytree(world(), top, symlinks=True, dirs_exist_ok=True)
        os.mkfifo(top / "work" / "fifo")
        yield top
    finally:
        shutil.rmtree(top)


def tried(argv: list[str], top: Path) -> str:
    """Run a command there, and judge its output and its files; return the outcome in a word.

    If the arguments set sizes explicitly, a refusal for lack of memory is allowed.
    """

    def prepare() -> None:
        at_home(top)
        guard()

    outcome = command(argv, top / "work", prepare)
    word = judge(outcome, {0, 1, 2}, asides=argv[0] != "train", asked=True)
    assert (left := left_behind(top)) == [], f"left behind: {left}"
    return word


def at_home(top: Path) -> None:
    """Give the child separate folders for caches and for temporary files."""
    os.environ.update(TMPDIR=str(top / "tmp"), HOME=str(top / "home"), MPLCONFIGDIR=str(top / "home"))
    os.environ["NUMPY_ATTENTION_CACHE"] = str(top / "home" / "cache")
    tempfile.tempdir = None


def guard() -> None:
    """Stop long work after a correct start: long trainings, full checks, gradings, downloads."""
    train, check, checked = Trainer.run, cli.gradcheck.importlib.import_module, []

    def some_steps(self: Trainer) -> str:
        if self.config.steps > 2:
            raise SystemExit(0)
        return train(self)

    def one_check(name: str) -> object:
        table = check(name)
        if not name.endswith("table"):
            raise SystemExit(0)
        first = table.check

        def once(*args: object, **more: object) -> object:
            if checked:
                raise SystemExit(0)
            checked.append(first(*args, **more))
            return checked[0]

        table.check = once
        return table

    def no_network(*_: object) -> Path:
        raise InputError("there is no network here")

    def begun(*_: object, **__: object) -> object:
        raise SystemExit(0)

    Trainer.run = some_steps
    cli.gradcheck.importlib = type("Stub", (), {"import_module": staticmethod(one_check)})
    grading.grade_file = begun
    fetch._downloaded = no_network


def left_behind(top: Path) -> list[str]:
    """Temporary files that were not removed."""
    unfinished = [path for path in (top / "work").rglob("*.tmp*") if stat.S_ISREG(path.lstat().st_mode)]
    beside = [path for path in top.iterdir() if path.name not in ("work", "home", "tmp")]
    return sorted(path.name for path in [*unfinished, *beside, *(top / "tmp").iterdir()])
