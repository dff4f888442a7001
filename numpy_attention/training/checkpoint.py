"""Chapter 30. Checkpoints: saving a run completely or not at all

A checkpoint holds everything that the next step depends on: the parameters, the moments of the optimizer, the number
of finished steps, and the configuration. It holds no state of a random generator, because a run has none (Chapter 29).

The files in the directory of a run, and what a save does to them. Every arrow is one rename; a rename happens
completely or not at all:

    config.json                 the settings, for people; a resumed run reads them from checkpoint.npz
    log.jsonl                   a line every few steps (training/log.py)
    run.lock                    locked while a run trains here; a second run is refused
    checkpoint.npz              step 600  <-  .checkpoint.tmp.npz, when all of it is on the disk
    checkpoint.previous.npz     step 400  <-  .checkpoint.previous.tmp.npz, after that
    checkpoint.best.npz         step 400  <-  a second name of checkpoint.npz, given after the best evaluation so far
    ids-....bin                 the ids of a text too long for memory (training/long_texts.py)
    loss.png, ...               pictures of the log, with matplotlib, at the end (app/pictures.py)
    adapter.safetensors         the result of fine-tuning, or merged.safetensors, at the end (pretrained/fine_tuning.py)

Before the save, the file of step 400 gets a second, temporary name. This name stays when step 600 becomes
`checkpoint.npz`; after that it becomes `checkpoint.previous.npz`. So the two are never the same file, and a save that
fails or is killed changes neither. A second name (a hard link) needs no copy.

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
from numpy_attention.files import atomic_write, save_arrays, writing

NAME = "checkpoint.npz"
PREVIOUS = "checkpoint.previous.npz"
BEST = "checkpoint.best.npz"
LOCK = "run.lock"


def save(directory: Path, arrays: dict[str, np.ndarray], meta: dict[str, Any], best: bool = False) -> None:
    """Write the checkpoint; the previous checkpoint and the best checkpoint so far stay under other names.

    Raises: InputError if the file cannot be written.
    """
    path = directory / NAME
    with writing(directory):
        with _second_name(path, PREVIOUS) if path.exists() else contextlib.nullcontext():
            save_arrays(path, arrays, meta)
        if best:
            keep_as(path, BEST)


def keep_as(path: Path, name: str) -> None:
    """Give the file a second name in its folder, atomically; later saves replace only the first name."""
    with writing(path.parent), _second_name(path, name):
        pass


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


def write_config(directory: Path, meta: dict[str, Any]) -> None:
    """Write config.json for people; a resumed run reads its checkpoint instead."""
    text = json.dumps({**meta["config"], "model": meta["model"]}, indent=2)
    with writing(directory), atomic_write(directory / "config.json") as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")


def load_arrays(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The arrays and the description in a checkpoint file.

    Raises: InputError if the file is not a complete checkpoint.
    """
    try:
        return files.load_arrays(path)
    except InputError as error:
        raise InputError(f"{error}{_advice(path)}") from None


@contextlib.contextmanager
def _second_name(path: Path, name: str) -> Iterator[None]:
    """The present file also gets this name, if the body of the with statement does not fail."""
    with atomic_write(path.with_name(name)) as temporary:
        temporary.unlink(missing_ok=True)  # a killed run may have left it: a second name, so it must not be written to
        try:
            os.link(path, temporary)
        except OSError:  # a file system without hard links
            shutil.copyfile(path, temporary)
        yield


def _advice(path: Path) -> str:
    previous = path.with_name(PREVIOUS)
    if path.name != NAME or not previous.exists():
        return ""
    return f"; the previous checkpoint is {previous}: to continue from it, mv {shell_path(previous)} {shell_path(path)}"
