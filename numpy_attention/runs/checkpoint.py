"""Chapter 30. Checkpoints: saving a run so that nothing can half-happen

A checkpoint holds all that the next step depends on: parameters, the optimizer's moments, the number of steps done,
and the configuration. There is no state of a random generator in it, because a run has none: the numbers of step t
come from a generator seeded with the run's seed, a purpose and t (Chapter 29). So a run that is stopped and goes on is
the same run, bit for bit, if it goes on with as many threads and ranks.

What lies in the directory of a run, and how a save moves it on; every arrow is one rename, which happens or does not:

    config.json                 the settings, for people; a run goes on from checkpoint.npz
    log.jsonl                   a line every few steps
    checkpoint.npz              step 600  <-  checkpoint.npz.4711.tmp.npz, when all of it is on the disk
    checkpoint.previous.npz     step 400  <-  a second name of checkpoint.npz, given before the save
    checkpoint.best.npz         step 400  <-  a second name of checkpoint.npz, given after the best evaluation so far

A second name (a hard link) costs no copy: the next save gives the name `checkpoint.npz` to another file, and the old
one keeps the other. The files are read with suspicion; how is told in `numpy_attention/files.py`.
"""

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from numpy_attention import files
from numpy_attention.errors import InputError
from numpy_attention.files import whole_or_not_at_all

NAME = "checkpoint.npz"
PREVIOUS = "checkpoint.previous.npz"
BEST = "checkpoint.best.npz"


def keep_as(path: Path, name: str) -> None:
    """Give the file a second name beside it, atomically; later saves replace the first name and leave the second."""
    with whole_or_not_at_all(path.with_name(name)) as temporary:
        try:
            os.link(path, temporary)
        except OSError:  # a file system without hard links
            shutil.copyfile(path, temporary)


def load_arrays(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The arrays and the description in a checkpoint file.

    Raises: InputError, in one line, for anything but a whole one.
    """
    try:
        return files.load_arrays(path)
    except InputError as error:
        raise InputError(f"{error}{_advice(path)}") from None


def _advice(path: Path) -> str:
    previous = path.with_name(PREVIOUS)
    if path.name != NAME or not previous.exists():
        return ""
    return f"; the one saved before it is {previous}: to go on from there, mv {previous} {path}"
