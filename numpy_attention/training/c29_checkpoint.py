"""Chapter 29. Checkpoints: saving a run completely or not at all

A checkpoint holds everything that the next step depends on: the parameters, the moments of the optimizer, the number
of finished steps, and the configuration. It holds no state of a random generator, because a run has none (Chapter 32).

The files in the directory of a run:

    config.json                 the settings, for people; a resumed run reads them from checkpoint.npz
    log.jsonl                   a line every few steps (training/log.py)
    run.lock                    locked while a run trains here; a second run is refused
    checkpoint.npz              step 600
    checkpoint.previous.npz     step 400: first it gets this second name, then step 600 takes its old name
    checkpoint.best.npz         step 400: also this name, after the best evaluation so far
    loss.png                    a picture of the log, with matplotlib, at the end (app/train.py)
    adapter.safetensors         the result of fine-tuning, or merged.safetensors, at the end (pretrained/fine_tuning.py)

A name is given by one rename, which happens completely or not at all, when all of the file is on the disk. So a save
that fails or is killed leaves a complete checkpoint under each name. A second name (a hard link) needs no copy.

The lock is the kernel's: only one of many processes gets it, and the kernel releases it when the process ends or is
killed. The file remains; without a lock it means nothing.
"""

import contextlib
import importlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from numpy_attention import files
from numpy_attention.errors import InputError, shell_path
from numpy_attention.files import StoredArray, atomic_write, save_arrays, writing

NAME = "checkpoint.npz"
PREVIOUS = "checkpoint.previous.npz"
BEST = "checkpoint.best.npz"
LOCK = "run.lock"


def save(directory: Path, arrays: dict[str, np.ndarray], meta: dict[str, Any], best: bool = False) -> None:
    """Write the checkpoint; the previous checkpoint and the best checkpoint so far stay under other names.

    Raises: InputError if the file cannot be written.
    """
    with writing(directory):
        if (directory / NAME).exists():
            _second_name(directory / NAME, PREVIOUS)
        save_arrays(directory / (BEST if best else NAME), arrays, meta)
        if best:  # this order: a run killed between the two lines repeats the steps up to its best evaluation
            _second_name(directory / BEST, NAME)


def _second_name(path: Path, name: str) -> None:
    """The file also gets this name; what is written to the first name later does not change it."""
    with atomic_write(path.with_name(name)) as temporary:
        try:
            os.link(path, temporary)
        except OSError:  # a file system without hard links
            shutil.copyfile(path, temporary)


def write_config(directory: Path, meta: dict[str, Any]) -> None:
    """Write config.json for people; a resumed run reads its checkpoint instead."""
    text = json.dumps({**meta["config"], "model": meta["model"]}, indent=2)
    with writing(directory), atomic_write(directory / "config.json") as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")


def load_arrays(path: Path) -> tuple[dict[str, StoredArray], dict[str, Any]]:
    """The arrays and the description in a checkpoint file.

    Raises: InputError if the file is not a complete checkpoint; reading an array may raise it, too.
    """
    with _advice(path):
        arrays, meta = files.load_arrays(path)
    return {name: array._replace(read=_advice(path)(array.read)) for name, array in arrays.items()}, meta


@contextlib.contextmanager
def _advice(path: Path) -> Iterator[None]:
    """The message about a damaged file also says how to continue from the previous checkpoint."""
    try:
        yield
    except InputError as error:
        other = path.with_name(PREVIOUS)
        advice = f"; to continue from the previous checkpoint, mv {shell_path(other)} {shell_path(path)}"
        raise InputError(f"{error}{advice if path.name == NAME and other.exists() else ''}") from None


@contextlib.contextmanager
def hold(directory: Path) -> Iterator[None]:
    """Inside this context no other process trains in the directory, if the system has `flock`.

    Raises: InputError if another run trains there.
    """
    with writing(directory):
        handle = os.open(directory / LOCK, os.O_CREAT | os.O_RDWR)
    try:
        with contextlib.suppress(ImportError, OSError):  # Windows and some file systems have no such lock
            fcntl = importlib.import_module("fcntl")
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                why = "another run trains there; wait until it ends, or use another directory"
                raise InputError(f"{directory} is in use: {why}") from None
        yield
    finally:
        os.close(handle)
