"""Chapter 30. Checkpoints: saving a run so that nothing can half-happen

A checkpoint holds all that the next step depends on: parameters, the optimizer's moments, the number of steps done,
and the configuration. There is no state of a random generator in it, because a run has none: the numbers of step t
come from a generator seeded with the run's seed, a purpose and t (Chapter 29). So a run that is stopped and goes on is
the same run, bit for bit, if it goes on with as many threads and ranks.

What lies in the directory of a run, and how a save moves it on; every arrow is one rename, which happens or does not:

    config.json                 the settings, for people; a run goes on from checkpoint.npz
    log.jsonl                   a line every few steps (runs/log.py)
    run.lock                    the run that trains here holds it, and a second run is refused (runs/lock.py)
    checkpoint.npz              step 600  <-  .93b1f0c2a4d85e67.tmp/checkpoint.npz, when all of it is on the disk
    checkpoint.previous.npz     step 400  <-  .0c58e1d77b90a3f2.tmp/checkpoint.previous.npz, after that
    checkpoint.best.npz         step 400  <-  a second name of checkpoint.npz, given after the best evaluation so far
    ids-....npy                 the ids of a text too long for memory (training/long_texts.py)
    loss.png, ...               pictures of the log, with matplotlib, at the end (runs/plot.py and the task)
    adapter.safetensors         what fine-tuning has learned, or merged.safetensors, at the end (tasks/fine_tuning.py)

Before the save the file of step 400 gets a second name, out of the way, and keeps it when `checkpoint.npz` becomes
that of step 600. Only then does it become the previous one. So these two are never the same file, and a save that
fails, or is cut short by a kill, leaves each as it was. A second name (a hard link) costs no copy.

The files are read with suspicion; how is told in `numpy_attention/files/arrays.py`.
"""

import contextlib
import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from numpy_attention import files
from numpy_attention.errors import InputError, shell_path
from numpy_attention.files import save_arrays, sweep, whole_or_not_at_all, writing

NAME = "checkpoint.npz"
PREVIOUS = "checkpoint.previous.npz"
BEST = "checkpoint.best.npz"
OF_A_RUN = re.compile(
    r"checkpoint(\.previous|\.best)?\.npz|ids-\w+\.npy|config\.json|log\.jsonl|(adapter|merged)\.safetensors"
    r"|(loss|positions|heads)\.png"
)


def save(directory: Path, arrays: dict[str, np.ndarray], meta: dict[str, Any], best: bool = False) -> None:
    """Write the checkpoint; the one before it and the best so far stay under other names.

    Raises: InputError, in one line, where that cannot be done.
    """
    path = directory / NAME
    with writing(directory):
        with _second_name(path, PREVIOUS) if path.exists() else contextlib.nullcontext():
            save_arrays(path, arrays, meta)
        tidy(directory, best)


def keep_as(path: Path, name: str) -> None:
    """Give the file a second name beside it, atomically; later saves replace the first name and leave the second."""
    with _second_name(path, name):
        pass


def tidy(directory: Path, best: bool) -> None:
    """What a kill may have come before: remove what is unfinished, and keep the checkpoint if it is the best."""
    with writing(directory):
        sweep(directory, OF_A_RUN)
        if best:
            keep_as(directory / NAME, BEST)


def write_config(directory: Path, meta: dict[str, Any]) -> None:
    """config.json, for people; a run goes on from its checkpoint."""
    text = json.dumps({**meta["config"], "model": meta["model"]}, indent=2)
    with writing(directory), whole_or_not_at_all(directory / "config.json") as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")


def load_arrays(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The arrays and the description in a checkpoint file.

    Raises: InputError, in one line, for anything but a whole one.
    """
    try:
        return files.load_arrays(path)
    except InputError as error:
        raise InputError(f"{error}{_advice(path)}") from None


@contextlib.contextmanager
def _second_name(path: Path, name: str) -> Iterator[None]:
    """The file as it is now has this name too when what is done within has not failed."""
    with whole_or_not_at_all(path.with_name(name)) as temporary:
        try:
            os.link(path, temporary)
        except OSError:  # a file system without hard links
            shutil.copyfile(path, temporary)
        yield


def _advice(path: Path) -> str:
    previous = path.with_name(PREVIOUS)
    if path.name != NAME or not previous.exists():
        return ""
    return f"; the one saved before it is {previous}: to go on from there, mv {shell_path(previous)} {shell_path(path)}"
