r"""Chapter 33, continued. A folder in Hugging Face's layout

    config.json              the kind of model and its sizes
    tokenizer.json           the vocabulary
    model.safetensors        the parameters

A large model has several files of parameters, model-00001-of-00002.safetensors and so on. Then the table
model.safetensors.index.json lists which tensor is in which file.

A safetensors file is a length in 8 bytes, then a JSON header of this length, then the numbers:

    {"model.norm.weight": {"dtype": "BF16", "shape": [576], "data_offsets": [0, 1152]}, ...}

The package `safetensors` (extra `pretrained`) reads the file. It checks that the offsets fit the shapes, do not
overlap, and fill the file. The numbers may be float32, float16 or bfloat16. NumPy has no bfloat16, but a bfloat16
number is the upper half of a float32 number:

    bfloat16    s eeeeeeee mmmmmmm                        float32 = the same bits, and 16 zeros
"""

import json
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from numpy_attention.errors import InputError
from numpy_attention.files import StoredArray, reading
from numpy_attention.pretrained.c33_gguf_files import Arrays, package, refused

CONVERT = (
    "convert it: python -c \"import torch, safetensors.torch as s; s.save_file({n: w.clone() for n, w in "
    "torch.load('pytorch_model.bin', weights_only=True).items()}, 'model.safetensors')\""
)

POOLINGS = {  # two spellings of each, by the age of the file
    "pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "first_token", "mean": "mean", "cls": "first_token",
}


def read_folder(folder: str | PathLike[str]) -> tuple[dict[str, Any], Arrays]:
    """The settings of a folder, and its tensors by name.

    Raises: InputError for a missing or damaged file.
    """
    folder = Path(folder)
    if (folder / "adapter_config.json").exists() and not (folder / "config.json").exists():
        raise InputError(f"{folder} holds low-rank changes of another program; merge them into their model first")
    settings = read_json(folder / "config.json")
    index = folder / "model.safetensors.index.json"
    names = {"model.safetensors"}
    if index.exists():
        with refused(f"{index} does not list safetensors files"):
            names = {Path(name).name for name in read_json(index)["weight_map"].values()}  # in this folder
    elif not (folder / "model.safetensors").exists():
        if pickles := sorted(folder.glob("pytorch_model*.bin")):
            raise InputError(f"{pickles[0]} is a pickle, which can run code, and is not read; {CONVERT}")
        if any(folder.glob("model-*.safetensors")):
            raise InputError(f"{folder} has parts of a model, but lacks their table, {index.name}")
    arrays: Arrays = {}
    for name in sorted(names):
        arrays |= read_safetensors(folder / name)[1]
    return settings, arrays


def read_safetensors(path: str | PathLike[str]) -> tuple[dict[str, str], Arrays]:
    """The texts in the header of a safetensors file, and its tensors by name.

    Raises: InputError without the package safetensors, and for a missing or damaged file.
    """
    safetensors = package("safetensors", "safetensors files")
    with reading(path), refused(f"{path} is damaged or not a safetensors file"):
        file = safetensors.safe_open(path, framework="numpy")
        return file.metadata() or {}, {name: _stored(path, file, name) for name in list(file.keys())}


def read_pooling(folder: Path) -> str:
    """The pooling of a text encoder in the file of sentence-transformers; "mean" without this file.

    Raises: InputError for another pooling, and for a layer after the pooling.
    """
    path, dense = folder / "1_Pooling" / "config.json", folder / "2_Dense"
    if dense.exists():
        raise InputError(f"{dense} is one more layer on the vector of a text, which is not supported")
    about = read_json(path) if path.exists() else {"pooling_mode": "mean"}
    modes = [name for name, on in about.items() if name.startswith("pooling_mode_") and on]
    modes += [str(about["pooling_mode"])] if "pooling_mode" in about else []
    if len(modes) != 1 or modes[0] not in POOLINGS:
        raise InputError(f"{path} says {' and '.join(modes) or 'nothing'}, supported is {' or '.join(POOLINGS)}")
    return POOLINGS[modes[0]]


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file.

    Raises: InputError for a file that cannot be read or holds no JSON object.
    """
    with reading(path), refused(f"{path} is not readable JSON"):
        found = json.loads(path.read_bytes())
    if not isinstance(found, dict):
        raise InputError(f"{path} does not hold a JSON object")
    return found


def _stored(path: str | PathLike[str], file: Any, name: str) -> StoredArray:
    about = file.get_slice(name)
    shape, kind = tuple(about.get_shape()), about.get_dtype()
    np.broadcast_to(0, shape)  # raises ValueError for a shape that no array can have
    return StoredArray(shape, kind, partial(_read, path, file, name, kind))


def _read(path: str | PathLike[str], file: Any, name: str, kind: str) -> np.ndarray:
    if kind in ("F64", "F32", "F16", "I64", "BOOL"):
        return np.asarray(file.get_tensor(name))
    if kind != "BF16":
        raise InputError(f"{name} holds numbers of the kind {kind}, which cannot be read here")
    with reading(path), open(path, "rb") as raw:  # the bits, from where the header says
        size = int.from_bytes(raw.read(8), "little")
        start, end = json.loads(raw.read(size))[name]["data_offsets"]
        raw.seek(8 + size + start)
        bits = np.frombuffer(raw.read(end - start), "<u2").reshape(file.get_slice(name).get_shape())
    return (bits.astype(np.uint32) << 16).view(np.float32)
