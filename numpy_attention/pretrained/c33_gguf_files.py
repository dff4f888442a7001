"""Chapter 33. A GGUF file: settings, tokenizer and weights in one

    bytes     what                                        for example
    4, 4      GGUF, the version                           3
    8, 8      number of tensors, number of settings       272, 33
    ...       each setting: name, kind, value             llama.block_count, 4 (32 bits), 30
    ...       each tensor: name, sizes, format, offset    blk.0.attn_q.weight, 576 576, 3 (Q4_1), 32020992
    ...       the numbers of each tensor, starting at a multiple of the alignment (32)

Integers are little-endian. A text is its length in 8 bytes, then its UTF-8 bytes. A list is the kind of its values,
their number, then the values.

Most files are quantized. In the number format Q4_1, a block of 32 numbers x shares two float16 numbers: a scale d and
a smallest value m. Each number is stored as an integer q of 4 bits, so a block takes 20 bytes instead of 128:

    x = d q + m        q = 0, 1, ..., 15

The package `gguf` (extra `pretrained`) reads this format and many others. This book converts every number back to
float32 when it reads the file, one tensor after the other. Then the model computes like any other. The file is mapped,
not copied into memory, and nothing in it is run as code.
"""

import contextlib
import importlib
from collections.abc import Iterator
from functools import partial
from os import PathLike
from typing import Any

import numpy as np

from numpy_attention.errors import InputError, install
from numpy_attention.files import StoredArray, reading

Arrays = dict[str, StoredArray]  # to read one raises InputError for a number format that cannot be read here


def read_gguf(path: str | PathLike[str]) -> tuple[dict[str, Any], Arrays]:
    """The settings of a file, and its tensors by name.

    Raises: InputError without the package gguf, or for a file that is damaged or not a GGUF file.
    """
    gguf = package("gguf", "GGUF files")
    with reading(path), refused(f"{path} cannot be read as a GGUF file"), np.errstate(over="raise"):
        reader = type("Reader", (_Checked, gguf.GGUFReader), {})(path)
        fields = {name: field for name, field in reader.fields.items() if not name.startswith("GGUF.")}
        settings = {name: field.contents() for name, field in fields.items()}
        if (parts := settings.get("split.count", 1)) > 1:
            number = settings.get("split.no", 0) + 1
            raise InputError(f"it is part {number} of {parts}; join them with llama-gguf-split --merge of llama.cpp")
        return settings, {tensor.name: _stored(gguf, tensor) for tensor in reader.tensors}


class _Checked:
    """A base class for the reader of the package, which does not check the sizes in a file. Here every size is compared
    with the size of the file before anything is read."""

    data: np.ndarray
    byte_order: str  # "S": the file is not in the byte order of this machine

    def _get(self, at: int, dtype: Any, count: int = 1, override_order: str | None = None) -> np.ndarray:
        if self.byte_order == "S":
            raise InputError("its numbers are big-endian, which cannot be read here")
        dtype = np.dtype(dtype).newbyteorder("<")
        end = int(at) + int(count) * dtype.itemsize
        if end > len(self.data):
            raise InputError(f"it claims at least {end:,} bytes and has {len(self.data):,}")
        return np.asarray(self.data)[int(at) : end].view(dtype)


def _stored(gguf: Any, tensor: Any) -> StoredArray:
    shape = tuple(reversed(tensor.shape.tolist()))  # in the file, the last axis comes first
    kind = tensor.tensor_type
    return StoredArray(shape, kind.name, partial(_read, gguf, tensor.name, tensor.data, kind))


def _read(gguf: Any, name: str, data: np.ndarray, kind: Any) -> np.ndarray:
    with refused(f"{name} holds numbers of the kind {kind.name}, which cannot be read here"):
        return np.asarray(gguf.dequantize(data, kind), np.float32)


@contextlib.contextmanager
def refused(what: str) -> Iterator[None]:
    """Turn every error of a package that reads a foreign file into an InputError of one line, except an OSError.

    Raises: InputError
    """
    try:
        yield
    except OSError:
        raise
    except BaseException as error:  # a damaged file can raise any error; a panic of Rust is not even an Exception
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise InputError(f"{what}: {' '.join(str(error).split()) or type(error).__name__}") from None


def package(name: str, needed_by: str) -> Any:
    """A package of the extra `pretrained`, or a module of such a package.

    Raises: InputError if the package is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError:
        root = name.partition(".")[0]
        raise InputError(f"{needed_by} need the package {root}: {install(root)}") from None
