"""Messages between the grader and the process that runs a student's file: JSON for the form, plain bytes for arrays.

    b"NAtt"   length of the JSON   length of all arrays   the JSON   the arrays, one after the other

Nothing is unpickled or evaluated, every length is looked at before it is believed, and dtypes are those of a list. The
JSON holds the dtype and shape of each array, and a tree in which an array stands as its number:

    {"tuple": [{"array": 0}, {"dict": [["w", {"array": 1}]]}, {"object": 7}]}

`object` is something that stays where it is, a cache say, and is spoken of by its number. What nobody asked for, a
module or a set, arrives as a `Foreign` that has the name of its type and nothing else.
"""

import json
import math
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

HEADER = struct.Struct(">4sIQ")
MAGIC = b"NAtt"
MOST_JSON = 1 << 20  # bytes
MOST_BYTES = 1 << 25  # of all arrays of a message
MOST_PARTS, DEEPEST, LONGEST = 10_000, 12, 2000  # of a tree: its nodes, its levels, the letters of a text in it
_KINDS = (
    np.bool_, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64, np.float16, np.float32,
    np.float64, np.longdouble, np.complex64, np.complex128,
)
DTYPES: dict[str, np.dtype[Any]] = {np.dtype(kind).str: np.dtype(kind) for kind in _KINDS}


class WireError(Exception):
    """What came is no message of ours, or what is to go is too large for one; the text says why."""


class Foreign:
    """Stands for what cannot travel; its type is named as the one that it stands for."""


@dataclass
class Parts:
    """What a tree refers to by number, in the order in which it came up: its arrays, and its random generators."""

    arrays: list[np.ndarray] = field(default_factory=list)
    generators: list[np.random.Generator] = field(default_factory=list)
    nodes: int = 0


def as_tree(value: Any, parts: Parts, number_of: Callable[[Any], int | None], depth: int = 0) -> Any:
    """The form of a value, whose arrays are added to the parts; `number_of` knows what travels as its number.

    Raises: WireError for what is too large.
    """
    parts.nodes += 1
    if parts.nodes > MOST_PARTS:
        raise WireError(f"more than {MOST_PARTS} things, lists in lists counted with what they hold; return arrays")
    number = number_of(value)
    if number is not None:
        return {"object": number}
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return value[:LONGEST]
    if isinstance(value, int):
        return int(value) if abs(value) < 1 << 64 else {"foreign": type(value).__name__}
    if isinstance(value, float) and not isinstance(value, np.generic):
        return {"float": value.hex()}
    if isinstance(value, (np.ndarray, np.generic)) and _native(value.dtype).str in DTYPES:
        if sum(array.nbytes for array in parts.arrays) + value.nbytes > MOST_BYTES:
            raise WireError(f"an array of shape {value.shape}, {value.nbytes / 1e6:.0f} MB; that is far too large")
        parts.arrays.append(np.asarray(value))
        return {"array" if isinstance(value, np.ndarray) else "scalar": len(parts.arrays) - 1}
    if isinstance(value, np.random.Generator) and type(value.bit_generator) is np.random.PCG64:
        parts.generators.append(value)
        return {"generator": value.bit_generator.state}
    if isinstance(value, (np.dtype, type)) and _is_dtype(value):
        return {"dtype": np.dtype(value).str}
    if depth < DEEPEST:
        if type(value) in (tuple, list):
            return {type(value).__name__: [as_tree(one, parts, number_of, depth + 1) for one in value]}
        if type(value) is dict and all(isinstance(key, str) for key in value):
            return {"dict": [[key[:LONGEST], as_tree(one, parts, number_of, depth + 1)] for key, one in value.items()]}
    name = f"array of {value.dtype}" if isinstance(value, np.ndarray) else type(value).__name__
    return {"foreign": name[:80]}


def from_tree(tree: Any, parts: Parts, object_of: Callable[[int], Any], depth: int = 0) -> Any:
    """The value that a tree describes; its generators are added to the parts.

    Raises: WireError for what describes nothing.
    """
    if tree is None or isinstance(tree, (bool, str, int)):
        return tree
    if depth > DEEPEST or not isinstance(tree, dict) or len(tree) != 1:
        raise WireError("a part of a message has no known form")
    (kind, inner), = tree.items()
    try:
        if kind in ("tuple", "list"):
            many = [from_tree(one, parts, object_of, depth + 1) for one in inner]
            return tuple(many) if kind == "tuple" else many
        if kind == "dict":
            return {str(key): from_tree(one, parts, object_of, depth + 1) for key, one in inner}
        if kind in ("array", "scalar"):
            array = parts.arrays[_count(inner)]
            return array if kind == "array" else array.reshape(())[()]
        if kind == "float":
            return float.fromhex(inner)
        if kind == "generator":
            bits = np.random.PCG64(0)
            bits.state = inner
            parts.generators.append(np.random.Generator(bits))
            return parts.generators[-1]
        if kind == "dtype":
            return DTYPES[inner].type
        if kind == "object":
            return object_of(_count(inner))
        if kind == "foreign":
            return type(str(inner)[:80], (Foreign,), {})()
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise WireError(f"a {kind} in a message is none: {error}") from None
    raise WireError("a part of a message has no known form")


def pack(form: dict[str, Any], arrays: list[np.ndarray]) -> bytes:
    """A whole message.

    Raises: WireError for one that would be refused at the other end.
    """
    native = [np.ascontiguousarray(array, dtype=_native(array.dtype)) for array in arrays]
    layout = [[array.dtype.str, list(shaped.shape)] for array, shaped in zip(native, arrays)]
    text = json.dumps({**form, "arrays": layout}).encode("ascii")
    size = sum(array.nbytes for array in native)
    if len(text) > MOST_JSON or size > MOST_BYTES:
        raise WireError(f"a message of {(len(text) + size) / 1e6:.0f} MB is too large")
    return b"".join([HEADER.pack(MAGIC, len(text), size), text, *(array.tobytes() for array in native)])


def unpack(read: Callable[[int], bytes]) -> tuple[dict[str, Any], list[np.ndarray]]:
    """The next message: its form and its arrays, which are fresh. `read(n)` gives n bytes, or raises EOFError.

    Raises: WireError for what is no message, and for one beyond the bounds.
    """
    magic, length, size = HEADER.unpack(read(HEADER.size))
    if magic != MAGIC or length > MOST_JSON or size > MOST_BYTES:
        raise WireError("what came is no message of the grader's")
    text, data = read(length), read(size)
    try:
        form = json.loads(text)
        arrays, at = [], 0
        for name, shape in form.pop("arrays"):
            dtype, shape = DTYPES[name], tuple(map(_count, shape))
            end = at + math.prod(shape) * dtype.itemsize
            arrays.append(np.frombuffer(data[at:end], dtype).reshape(shape).copy())
            at = end
        if at != size or not isinstance(form, dict):
            raise ValueError("lengths that do not agree")
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise WireError(f"what came is no message of the grader's: {error}") from None
    return form, arrays


def _count(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r} is no count")
    return value


def _native(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return dtype.newbyteorder("=")


def _is_dtype(value: Any) -> bool:
    return (isinstance(value, np.dtype) or issubclass(value, np.generic)) and np.dtype(value).str in DTYPES
