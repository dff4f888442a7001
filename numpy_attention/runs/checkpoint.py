"""Chapter 30. Checkpoints: saving a run so that nothing can half-happen.

A checkpoint holds all that the next step depends on: parameters, the optimizer's moments, the number of steps done,
and the configuration. There is no state of a random generator in it, because the loop has none: the numbers of step
t come from a generator seeded with (seed, t).

The file is written whole or not at all, and read with suspicion (`numpy_attention.files`). The one before it
stays as `checkpoint.previous.npz`, so a run that went wrong can be taken up a little earlier.
"""

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from numpy_attention import files
from numpy_attention.errors import InputError
from numpy_attention.files import VERSION, read_into, save_arrays

__all__ = ["BEST", "NAME", "PREVIOUS", "VERSION", "keep_as", "load_arrays", "read_into", "save_arrays", "sweep"]

NAME = "checkpoint.npz"
PREVIOUS = "checkpoint.previous.npz"
BEST = "checkpoint.best.npz"


def keep_as(path: Path, name: str) -> None:
    """Give the file a second name beside it, atomically; later saves replace the first name and leave the second."""
    temporary = path.with_name(f"{name}.{os.getpid()}.tmp")
    try:
        temporary.unlink(missing_ok=True)
        try:
            os.link(path, temporary)
        except OSError:  # a file system without hard links
            shutil.copyfile(path, temporary)
        os.replace(temporary, path.with_name(name))
    finally:
        temporary.unlink(missing_ok=True)


def sweep(directory: Path) -> None:
    """Remove what interrupted saves have left behind."""
    for stale in directory.glob("*.np[yz].*.tmp"):
        stale.unlink(missing_ok=True)


def load_arrays(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The arrays and the description in a checkpoint file; InputError, in one line, for anything but a whole one."""
    try:
        return files.load_arrays(path)
    except InputError as error:
        raise InputError(f"{error}{_advice(path)}") from None


def _advice(path: Path) -> str:
    previous = path.with_name(PREVIOUS)
    if path.name != NAME or not previous.exists():
        return ""
    return f"; the one saved before it is {previous}: to go on from there, mv {previous} {path}"
