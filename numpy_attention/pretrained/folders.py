"""Chapter 33, continued. A folder in Hugging Face's layout

    config.json              the kind of model and its sizes
    tokenizer.json           the vocabulary
    model.safetensors        the parameters

A large model has several files of parameters, model-00001-of-00002.safetensors and so on. Then the table
model.safetensors.index.json lists which tensor is in which file.

A safetensors file is a length in 8 bytes, then a JSON header of this length, then the numbers:

    {"model.norm.weight": {"dtype": "BF16", "shape": [576], "data_offsets": [0, 1152]}, ...}

The package `safetensors` checks that the offsets fit the shapes, do not overlap, and fill the file. The numbers may be
float32, float16 or bfloat16. NumPy has no bfloat16, but a bfloat16 number is the upper half of a float32 number:

    bfloat16    s eeeeeeee mmmmmmm                        float32 = the same bits, and 16 zeros
"""

import json
import re
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from numpy_attention.errors import MAX_SAID, InputError
from numpy_attention.pretrained.gguf_files import MAX_HEADER, MAX_TENSORS, Arrays, Stored, mapped, package

KINDS = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}
MAX_AXES = 8
MAX_JSON = 4 * 2**20  # bytes of a settings file; its Python objects can take thirty times as many


def read_folder(folder: str | PathLike[str]) -> tuple[dict[str, Any], Arrays]:
    """The settings of a folder, and its tensors by name.

    Raises: InputError for a missing or damaged file.
    """
    folder = Path(folder)
    settings = read_json(folder / "config.json")
    index = folder / "model.safetensors.index.json"
    names: list[str] = ["model.safetensors"]
    if index.exists():
        shards = read_json(index).get("weight_map")
        names = sorted({str(name) for name in shards.values()}) if isinstance(shards, dict) else []
        if not names or not all(re.fullmatch(r"[\w.-]+\.safetensors", name) for name in names):
            raise InputError(f"{index} does not list safetensors files in the same folder")
    arrays: Arrays = {}
    for name in names:
        more = _read_safetensors(folder / name)
        if twice := sorted(arrays.keys() & more.keys()):
            raise InputError(f"{folder / name} holds {twice[0][:80]!r}, which is also in another file")
        arrays |= more
    return settings, arrays


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file.

    Raises: InputError for a file that cannot be read or holds no JSON object.
    """
    raw = json_bytes(path, MAX_JSON)
    try:
        found = json.loads(raw.tobytes())
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not readable JSON: {str(error)[:MAX_SAID]}") from None
    if not isinstance(found, dict):
        raise InputError(f"{path} does not hold a JSON object")
    return found


def json_bytes(path: Path, most: int) -> np.ndarray:
    """The bytes of a JSON file, mapped into memory.

    Raises: InputError for a file that cannot be read or is longer than `most` bytes.
    """
    try:
        raw = mapped(path)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None
    except InputError as error:
        raise InputError(f"{path} is not readable JSON: {error}") from None
    if len(raw) > most:
        raise InputError(f"{path} is not readable JSON: it is longer than {most:,} bytes")
    return raw


def _read_safetensors(path: Path) -> Arrays:
    safetensors = package("safetensors", "safetensors files")
    try:
        raw = mapped(path)
        start = 8 + int.from_bytes(raw[:8].tobytes(), "little")
        if start > MAX_HEADER:
            raise InputError(f"its header claims to end at byte {start}")
        with safetensors.safe_open(path, framework="numpy"):
            header = json.loads(raw[8:start].tobytes())
        header.pop("__metadata__", None)
        if len(header) > MAX_TENSORS:
            raise InputError(f"it has {len(header)} tensors")
        return {name: _stored(raw[start:], about) for name, about in header.items()}
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None
    except (safetensors.SafetensorError, ValueError, RecursionError) as error:
        raise InputError(f"{path} is damaged or not a safetensors file ({str(error)[:MAX_SAID]})") from None


def _stored(data: np.ndarray, about: dict[str, Any]) -> Stored:
    kind, shape, (start, end) = about["dtype"], tuple(about["shape"]), about["data_offsets"]
    if len(shape) > MAX_AXES:
        raise InputError(f"a tensor has {len(shape)} axes, supported are {MAX_AXES}")
    if start == end:
        raise InputError(f"a tensor of shape {shape} has no numbers")
    return Stored(shape, kind, partial(_read, data[start:end], shape, kind) if kind in KINDS else None)


def _read(raw: np.ndarray, shape: tuple[int, ...], kind: str) -> np.ndarray:
    array = raw.view(KINDS[kind]).reshape(shape)
    return (array.astype(np.uint32) << 16).view(np.float32) if kind == "BF16" else array
