"""Part III, appendix. Arrays in a file

The file of arrays is a plain `.npz`: a zip whose members are `.npy` arrays, uncompressed. `np.load` can read it. It is
written in one atomic step (`whole.py`).

A file may come from anywhere, so loading checks everything. Pickle is refused, because a pickle can run code.
Compressed members are refused too: the members together cannot be larger than the file, so a small file cannot unpack
into a large one. The header of each array is compared with the size of its member before more than its first 10,000
bytes are read. The description is written last. It holds the checksum of every array by name, so loading notices
arrays that are swapped, missing, or from another file.
"""

import dataclasses
import json
import math
import os
import re
import typing
import zipfile
from typing import Any, BinaryIO

import numpy as np

from numpy_attention.backend import move, to_host
from numpy_attention.errors import MAX_SAID, InputError, mismatches, several
from numpy_attention.files.whole import atomic_write, open_regular
from numpy_attention.pieces import non_finite

VERSION = 2
MAX_META = 4 * 2**20  # bytes of configuration
# NumPy reads headers with ast.literal_eval, which at random raises SystemError in threads of Python 3.11
HEADER = re.compile(
    rb"\x93NUMPY\x01\x00..\{'descr': '([<|>]?\w+)', 'fortran_order': (\w+), 'shape': \(([\d, ]*)\), \} *\n", re.DOTALL
)
MAX_DIRECTORY = 8 * 2**20  # bytes of the zip's directory: some fifty thousand arrays


def save_arrays(path: str | os.PathLike[str], arrays: dict[str, np.ndarray], meta: dict[str, Any]) -> None:
    """Write arrays and a JSON description to `path`, in one atomic write."""
    with atomic_write(path) as temporary, zipfile.ZipFile(temporary, "w", zipfile.ZIP_STORED) as archive:
        checksums = {name: _write_array(archive, name, array) for name, array in move(arrays, to_host).items()}
        head = {"format": "numpy_attention checkpoint", "version": VERSION, "checksums": checksums}
        _write_array(archive, "meta", np.frombuffer(json.dumps(head | meta).encode(), dtype=np.uint8))


def load_arrays(path: str | os.PathLike[str]) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The arrays and the description in a checkpoint file.

    Raises: InputError for a file that is missing, damaged or not a checkpoint.
    """
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            _check_directory(file, size)
            with zipfile.ZipFile(file) as archive:
                members = _checked_members(archive, size)
                meta = _read_meta(archive, members)
                arrays = {name: _read_array(archive, info) for name, info in members.items() if name != "meta"}
        checksums = {name: members[name].CRC for name in arrays}
        if meta.pop("checksums", None) != checksums:
            raise InputError("its arrays are not the arrays that were saved with its description")
    except InputError as error:
        raise InputError(f"{path} cannot be loaded: {str(error)[:MAX_SAID]}") from None
    except FileNotFoundError:
        raise InputError(f"there is no checkpoint {path}") from None
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None
    except MemoryError:
        raise InputError(f"{path} is larger than the free memory") from None
    except Exception as error:  # a damaged zip or header can raise many kinds of errors in zipfile and NumPy
        reason = f"{type(error).__name__}: {error}"[:MAX_SAID]
        raise InputError(f"{path} is damaged or not a checkpoint ({reason})") from None
    return arrays, meta


def config_from(config_class: Any, values: dict[str, Any]) -> Any:
    """The configuration with these values. Each value must have the type that its field declares.

    Raises: TypeError or ValueError for values that this configuration does not allow.
    """
    for name, kind in typing.get_type_hints(config_class).items():
        allowed = [typing.get_origin(one) or one for one in typing.get_args(kind) or (kind,)]
        value = values.get(name, dataclasses.MISSING)
        if value is dataclasses.MISSING or type(value) in allowed:
            too_large = type(value) is int and abs(value) >= 2**63
            if too_large or (isinstance(value, float) and not math.isfinite(value)):
                raise ValueError(f"{name} is too large or not finite")
        elif not (type(value) is int and float in allowed and abs(value) < 2**63):
            raise TypeError(f"{name} must be {' or '.join(t.__name__ for t in allowed)}, got a {type(value).__name__}")
    return config_class(**values)


def read_into(mine: dict[str, np.ndarray], arrays: dict[str, np.ndarray], prefix: str, what: str) -> None:
    """Copy the arrays called `prefix` + name into `mine` in place.

    Raises: InputError for differences in names, shapes or dtypes, and for numbers that are not finite. In these cases
    nothing is copied.
    """
    theirs = {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
    if wrong := mismatches(mine, theirs, what):
        raise InputError(f"the checkpoint does not fit the {what}: {several(wrong)}")
    for name in mine:
        if value := non_finite(theirs[name]):
            raise InputError(f"the checkpoint cannot be used: {prefix}{name} holds {value}")
    for name, array in mine.items():
        array[...] = np.asarray(theirs[name], like=array)


def _write_array(archive: zipfile.ZipFile, name: str, array: np.ndarray) -> int:
    info = zipfile.ZipInfo(f"{name}.npy")
    with archive.open(info, "w", force_zip64=True) as member:
        np.lib.format.write_array(member, array, allow_pickle=False)
    return info.CRC


def _check_directory(file: BinaryIO, size: int) -> None:
    """Refuse a zip with a very large directory: the objects that zipfile makes from it are many times as large."""
    file.seek(max(0, size - 42))
    tail = file.read(42)
    length = 0
    if tail[-22:].startswith(b"PK\5\6"):  # the record at the end; it holds the length of the directory
        length = int.from_bytes(tail[-10:-6], "little")
    if tail.startswith(b"PK\6\7"):  # in a file larger than 4 GB: the position of a longer record
        file.seek(min(int.from_bytes(tail[8:16], "little"), size))
        length = max(length, int.from_bytes(file.read(56)[40:48], "little"))
    if length > MAX_DIRECTORY:
        raise InputError(f"its directory is {length} bytes long")


def _checked_members(archive: zipfile.ZipFile, size: int) -> dict[str, zipfile.ZipInfo]:
    members: dict[str, zipfile.ZipInfo] = {}
    total = 0
    for info in archive.infolist():
        name = info.filename.removesuffix(".npy")
        if name == info.filename or "/" in name or "\\" in name or name.startswith("."):
            raise InputError(f"the member name {info.filename!r} is not the name of an array")
        if name in members:
            raise InputError(f"member {info.filename!r} appears twice")
        if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size:
            raise InputError(f"member {info.filename!r} is compressed; checkpoints are stored uncompressed")
        total += info.file_size
        members[name] = info
    if total > size:
        raise InputError(f"its members claim {total} bytes in a file of {size}")
    return members


def _read_meta(archive: zipfile.ZipFile, members: dict[str, zipfile.ZipInfo]) -> dict[str, Any]:
    if "meta" not in members:
        raise InputError("it has no member 'meta.npy', so it is not a checkpoint of numpy_attention")
    if members["meta"].file_size > MAX_META:
        raise InputError(f"its description is {members['meta'].file_size} bytes long")
    meta = json.loads(_read_array(archive, members["meta"]).tobytes())
    if not isinstance(meta, dict) or meta.get("format") != "numpy_attention checkpoint":
        raise InputError("it is not a checkpoint of numpy_attention")
    if meta.get("version") != VERSION:
        raise InputError(f"it has format version {meta.get('version')!r}, but this program reads version {VERSION}")
    return meta


def _read_array(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> np.ndarray:
    with archive.open(info) as member:
        head = member.read(min(info.file_size, 10_000))
        found = HEADER.match(head)
        if found is None:
            raise InputError(f"member {info.filename!r} has an unknown array format")
        dtype, shape = np.dtype(found[1].decode()), tuple(int(size) for size in found[3].split(b",") if size.strip())
        if dtype.kind not in "fiub" or found[2] != b"False":
            raise InputError(f"member {info.filename!r} holds {dtype}, not numbers in C order")
        if math.prod(shape) * dtype.itemsize != info.file_size - found.end():
            raise InputError(f"member {info.filename!r} claims the shape {shape} in {info.file_size} bytes")
        data = bytearray(head[found.end() :])
        data += member.read()  # read to the end, so that zipfile compares the checksum
    return np.frombuffer(data, dtype=dtype).reshape(shape)
