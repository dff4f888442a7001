"""Files: atomic writes, and arrays in a file together with a description.

A process can be killed in the middle of a write. So a file is first written under another name and forced to the disk
(fsync); then it gets its real name. Renaming is atomic: a reader finds the complete old file or the complete new file.

    .model.tmp.npz   ->   fsync   ->   model.npz

The file of arrays is a plain `.npz`: a zip of `.npy` arrays, uncompressed, with a checksum for each, so `np.load` reads
it, too. Pickle is refused, because a pickle can run code.
"""

import contextlib
import json
import math
import os
import typing
import zipfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from numpy_attention.backend import move, to_host
from numpy_attention.errors import MAX_SAID, InputError, mismatches, several
from numpy_attention.pieces import non_finite

FORMAT, VERSION = "numpy_attention checkpoint", 2


@contextlib.contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a temporary path with the same ending; at the end of the block the file there gets the name `path`.

    Raises: OSError if the file cannot be written; then the old file remains.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.stem}.tmp{path.suffix}")
    temporary.unlink(missing_ok=True)  # a killed process may have left it as a second name of another file
    try:
        yield temporary
        with open(temporary, "r+b") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def writing(place: object) -> AbstractContextManager[None]:
    """Inside this context an error of the operating system becomes one line: cannot write to `place`."""
    return _one_line(f"cannot write to {place}")


def reading(path: object) -> AbstractContextManager[None]:
    """Inside this context an error of the operating system becomes one line: cannot read `path`."""
    return _one_line(f"cannot read {path}")


@contextlib.contextmanager
def _one_line(problem: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputError(f"{problem}: {error.strerror or error}") from None


def save_arrays(path: str | os.PathLike[str], arrays: dict[str, np.ndarray], meta: dict[str, Any]) -> None:
    """Write arrays and a JSON description to `path`, in one atomic write."""
    description = json.dumps({"format": FORMAT, "version": VERSION} | meta).encode()
    members = {"meta": np.frombuffer(description, dtype=np.uint8), **move(arrays, to_host)}
    with atomic_write(path) as temporary, zipfile.ZipFile(temporary, "w") as archive:
        for name, array in members.items():  # np.savez cannot store an array called `file`
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


class StoredArray(NamedTuple):
    """An array in a file: its header is read, its numbers are not read yet."""

    shape: tuple[int, ...]
    dtype: Any  # of NumPy, or the name of another number format
    read: Callable[[], np.ndarray]  # raises InputError for a damaged file

    @property
    def size(self) -> int:
        return math.prod(self.shape)


def load_arrays(path: str | os.PathLike[str]) -> tuple[dict[str, StoredArray], dict[str, Any]]:
    """The arrays and the description in a file that `save_arrays` wrote. The caller compares the description with the
    shapes before it reads an array, so a file cannot take more memory than its model.

    Raises: InputError for a file that is missing, damaged or not a checkpoint.
    """
    with _undamaged(path), zipfile.ZipFile(path) as archive:
        claimed, size = sum(info.file_size for info in archive.infolist()), os.path.getsize(path)
        if claimed > size:  # checkpoints are not compressed
            raise ValueError(f"its members claim {claimed} bytes in a file of {size}")
        arrays = {name.removesuffix(".npy"): _header(path, archive, name) for name in archive.namelist()}
        meta = json.loads(arrays.pop("meta").read().tobytes())
        if (found := (meta["format"], meta["version"])) != (FORMAT, VERSION):
            raise ValueError(f"it is a {' of version '.join(map(str, found))}")
    return arrays, meta


def _header(path: str | os.PathLike[str], archive: zipfile.ZipFile, name: str) -> StoredArray:
    with archive.open(name) as member:
        np.lib.format.read_magic(member)
        shape, _, dtype = np.lib.format.read_array_header_1_0(member)
    return StoredArray(shape, dtype, partial(_read, path, name))


def _read(path: str | os.PathLike[str], name: str) -> np.ndarray:
    with _undamaged(path), zipfile.ZipFile(path) as archive, archive.open(name) as member:
        array = np.lib.format.read_array(member, allow_pickle=False)
        if member.read(1):  # a wrong shape; also, zipfile compares the checksum only at the end
            raise ValueError(f"{name} is longer than its shape")
    return np.asarray(array)


@contextlib.contextmanager
def _undamaged(path: object) -> Iterator[None]:
    """Turn the errors of zipfile and NumPy for a damaged file, which are of many kinds, into one line."""
    try:
        with reading(path):
            yield
    except (InputError, MemoryError):
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"[:MAX_SAID]
        raise InputError(f"{path} is damaged or not a {FORMAT} of version {VERSION} ({reason})") from None


def config_from(config_class: Any, values: dict[str, Any]) -> Any:
    """The configuration with these values. Each value must have the type that its field declares.

    Raises: TypeError or ValueError for values that this configuration does not allow.
    """
    for name, kind in typing.get_type_hints(config_class).items():
        allowed = [typing.get_origin(one) or one for one in typing.get_args(kind) or (kind,)]
        value: Any = values.get(name)
        if name in values and type(value) not in allowed and not (type(value) is int and float in allowed):
            raise TypeError(f"{name} must be {' or '.join(t.__name__ for t in allowed)}, got a {type(value).__name__}")
    return config_class(**values)


def read_into(mine: dict[str, np.ndarray], arrays: dict[str, StoredArray], prefix: str, what: str) -> None:
    """Read the arrays called `prefix` + name into `mine` in place.

    Raises: InputError for differences in names, shapes or dtypes (before an array is read), for a damaged file, and for
    numbers that are not finite. In these cases nothing is copied.
    """
    theirs = {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
    if wrong := mismatches(mine, theirs, what):
        raise InputError(f"the checkpoint does not fit the {what}: {several(wrong)}")
    found = {name: theirs[name].read() for name in mine}
    for name, array in found.items():
        if value := non_finite(array):
            raise InputError(f"the checkpoint cannot be used: {prefix}{name} holds {value}")
    for name, array in mine.items():
        array[...] = np.asarray(found[name], like=array)
