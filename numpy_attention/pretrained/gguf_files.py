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
float32 when it reads the file. Then the model computes like any other.

A file may come from anywhere, but nothing in it is run as code. The file is mapped, not copied into memory. The sizes
in the header are compared with the size of the file before anything is allocated: a list that claims 2^60 values is
refused, because the file ends first.
"""

import importlib
import math
from collections.abc import Callable
from functools import partial
from os import PathLike
from typing import Any, NamedTuple

import numpy as np

from numpy_attention.errors import MAX_SAID, InputError

TEXT, LIST = 8, 9  # the kinds of a setting that is not a number
NUMBERS = {0: "u1", 1: "i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 7: "?", 10: "<u8", 11: "<i8", 12: "<f8"}
MAX_HEADER = 64 * 2**20  # bytes; a vocabulary of 256,000 tokens takes a quarter of this
MAX_TENSORS = MAX_SETTINGS = 2**16
Reader = Callable[[], np.ndarray]


class Stored(NamedTuple):
    """A tensor in a file: its shape and number format according to the header, and a function that reads it."""

    shape: tuple[int, ...]
    kind: str  # number format
    read: Reader | None  # None: this number format cannot be read here


Arrays = dict[str, Stored]


def read_gguf(path: str | PathLike[str]) -> tuple[dict[str, Any], Arrays]:
    """The settings of a file, and its tensors by name. A list of texts becomes a list, a list of numbers an array.

    Raises: InputError without the package gguf, or for a file that is damaged or not a GGUF file.
    """
    gguf = package("gguf", "GGUF files")
    try:
        data = mapped(path)
        header = _Header(data)
        settings, tensors = header.read()
        start = header.at + -header.at % _alignment(settings)
        arrays = {name: _stored(gguf, data[start:], *about) for name, about in tensors.items()}
        claimed = sum(_bytes(gguf, kind, shape) for shape, kind, _ in tensors.values())
        if claimed > len(data):
            raise InputError(f"its tensors claim {claimed} bytes in a file of {len(data)}")
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None
    except ValueError as error:  # an InputError of this file, or text that is not UTF-8
        raise InputError(f"{path} is damaged or not a GGUF file ({str(error)[:MAX_SAID]})") from None
    return settings, arrays


def mapped(path: str | PathLike[str]) -> np.ndarray:
    """The bytes of a file, mapped: the system loads a part into memory when it is first used.

    Raises: OSError for a file that cannot be opened or is not a regular file; InputError for an empty file.
    """
    with open(path, "rb") as file:
        if not file.read(1):
            raise InputError("it is empty")
        return np.asarray(np.memmap(file, np.uint8, "r"))


class _Header:
    """The header of a file, read from start to end."""

    def __init__(self, data: np.ndarray) -> None:
        self.raw, self.at = data.data[:MAX_HEADER], 0

    def read(self) -> tuple[dict[str, Any], dict[str, tuple[tuple[int, ...], int, int]]]:
        """The settings; and the shape, number format and offset of every tensor."""
        magic, version = bytes(self.take(4)), self.integer(4)
        if magic != b"GGUF" or version not in (2, 3):
            raise InputError(f"it begins with {magic!r} and version {version}, not with b'GGUF' and 2 or 3")
        num_tensors, num_settings = self.integer(8), self.integer(8)
        if num_tensors > MAX_TENSORS or num_settings > MAX_SETTINGS:
            raise InputError(f"it claims {num_tensors} tensors and {num_settings} settings")
        settings: dict[str, Any] = {}
        for _ in range(num_settings):
            name = self.new_name(settings)
            settings[name] = self.value(self.integer(4))
        tensors: dict[str, tuple[tuple[int, ...], int, int]] = {}
        for _ in range(num_tensors):
            name, dimensions = self.new_name(tensors), self.integer(4)
            if not 1 <= dimensions <= 4:
                raise InputError(f"{name!r} has {dimensions} dimensions")
            sizes = [self.integer(8) for _ in range(dimensions)]  # the last axis comes first
            tensors[name] = tuple(reversed(sizes)), self.integer(4), self.integer(8)
        return settings, tensors

    def take(self, count: int) -> memoryview:
        start, self.at = self.at, self.at + count
        if self.at > len(self.raw):
            raise InputError("its header goes beyond its end")
        return self.raw[start : self.at]

    def integer(self, width: int) -> int:
        return int.from_bytes(self.take(width), "little")

    def text(self) -> str:
        return str(self.take(self.integer(8)), "utf-8")

    def new_name(self, known: dict[str, Any]) -> str:
        name = self.text()
        if name in known:
            raise InputError(f"the name {name[:80]!r} appears twice")
        return name

    def numbers(self, kind: int, count: int) -> np.ndarray:
        if kind not in NUMBERS:
            raise InputError(f"a setting has the unknown kind {kind}")
        dtype = np.dtype(NUMBERS[kind])
        return np.frombuffer(self.take(count * dtype.itemsize), dtype)

    def value(self, kind: int) -> Any:
        if kind == TEXT:
            return self.text()
        if kind != LIST:
            return self.numbers(kind, 1)[0].item()
        kind, count = self.integer(4), self.integer(8)
        return [self.text() for _ in range(count)] if kind == TEXT else self.numbers(kind, count)


def _alignment(settings: dict[str, Any]) -> int:
    alignment = settings.get("general.alignment", 32)
    if type(alignment) is not int or alignment < 1:
        raise InputError("its alignment is not an integer above 0")
    return alignment


def _stored(gguf: Any, data: np.ndarray, shape: tuple[int, ...], number: int, place: int) -> Stored:
    if number not in gguf.GGML_QUANT_SIZES:  # unknown format, so its size in bytes is unknown too
        return Stored(shape, f"no. {number}", None)
    kind = gguf.GGMLQuantizationType(number)
    end = place + _bytes(gguf, number, shape)
    if not math.prod(shape) or shape[-1] % gguf.GGML_QUANT_SIZES[kind][0] or end > len(data):
        raise InputError(f"a tensor of shape {shape} at {place} does not fit into the file")
    return Stored(shape, kind.name, partial(_read, gguf, data[place:end], shape, kind) if _known(gguf, kind) else None)


def _bytes(gguf: Any, kind: int, shape: tuple[int, ...]) -> int:
    block, size = gguf.GGML_QUANT_SIZES.get(kind, (1, 0))
    return math.prod(shape) // block * size


def _known(gguf: Any, kind: Any) -> bool:
    """Whether the package can dequantize this number format; found by a test with one block."""
    try:
        gguf.dequantize(np.zeros((1, gguf.GGML_QUANT_SIZES[kind][1]), np.uint8), kind)
    except NotImplementedError:
        return False
    return True


def _read(gguf: Any, raw: np.ndarray, shape: tuple[int, ...], kind: Any) -> np.ndarray:
    _, size = gguf.GGML_QUANT_SIZES[kind]
    together = math.gcd(len(raw) // size, 256)  # blocks in a row: any number is correct, long rows are fast
    return np.asarray(gguf.dequantize(raw.reshape(-1, together * size), kind), dtype=np.float32).reshape(shape)


def package(name: str, needed_by: str) -> Any:
    """A package of the extra `pretrained`, or a module of such a package.

    Raises: InputError if the package is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError:
        root = name.partition(".")[0]
        raise InputError(f"{needed_by} need the package {root}: pip install {root}") from None
