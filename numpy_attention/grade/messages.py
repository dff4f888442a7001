"""What travels between the grader and the process of a student's file: JSON for the form, plain bytes for arrays.

    length of the JSON   length of all arrays   the JSON   the arrays, one after the other

Nothing is unpickled or evaluated, every length is looked at before it is believed, and an array holds numbers. In the
form a value is written as a tree, in which an array or a random generator stands as its number among the message's
things: {"tuple": [{"thing": 0}, {"dict": {"w": {"thing": 1}}}, {"kept": 7}]}. What is kept is a cache or a layer that
stays in the student's process. Whatever nobody asked for, a module say, arrives as an object of a class of that name.
"""

import json
import math
import struct
from collections.abc import Callable, Iterable
from typing import Any, BinaryIO

import numpy as np

HEADER = struct.Struct(">IQ")
MOST_JSON = 1 << 20  # bytes
MOST_BYTES = 1 << 25  # of all arrays of a message
MOST_PARTS, DEEPEST, LONGEST = 10_000, 12, 2000  # of a tree: its nodes, its levels, the letters of a text in it

NUMBERS = "biufc"  # the kinds of their dtypes

Thing = np.ndarray | np.random.Generator


class Garbled(Exception):
    """What came is no message, or what is to go is too large for one; the text says why."""


class Things:
    """The arrays and generators of a message, and the trees that refer to them; both sides know what is kept by number.

    `number_of` gives the number of a value that stays, None for any other; `kept_as` is the way back.
    """

    def __init__(
        self, things: Iterable[Thing] = (), number_of: Callable[[Any], int | None] | None = None,
        kept_as: Callable[[int], Any] | None = None,
    ) -> None:
        self.things, self.number_of, self.kept_as = list(things), number_of, kept_as
        self.nodes = 0

    def tree(self, value: Any, depth: int = 0) -> Any:
        """The form of a value, whose arrays are added to the things.

        Raises: Garbled for what is too large.
        """
        self.nodes += 1
        if self.nodes > MOST_PARTS:
            raise Garbled(f"more than {MOST_PARTS} things, lists in lists counted with what they hold; return arrays")
        number, kind = self.number_of(value) if self.number_of is not None else None, type(value)
        if number is not None:
            return {"kept": number}
        if value is None or kind in (bool, float) or (kind is int and abs(value) < 1 << 64):
            return value
        if isinstance(value, str):
            return value[:LONGEST]
        if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in NUMBERS:
            return {"thing" if isinstance(value, np.ndarray) else "scalar": self._add(np.asanyarray(value))}
        if isinstance(value, np.random.Generator) and type(value.bit_generator) is np.random.PCG64:
            return {"thing": self._add(value)}
        if (isinstance(value, np.dtype) and value.kind in NUMBERS) or (kind is type and issubclass(value, np.number)):
            return {"dtype": np.dtype(value).str}
        if depth < DEEPEST and kind in (tuple, list):
            return {kind.__name__: [self.tree(one, depth + 1) for one in value]}
        if depth < DEEPEST and kind is dict and all(isinstance(key, str) for key in value):
            return {"dict": {key[:LONGEST]: self.tree(one, depth + 1) for key, one in value.items()}}
        return {"foreign": f"array of {value.dtype}" if isinstance(value, np.ndarray) else kind.__name__}

    def _add(self, value: Any) -> int:
        for i, thing in enumerate(self.things):
            if thing is value:
                return i
        arrays = [one for one in (*self.things, value) if not isinstance(one, np.random.Generator)]
        if sum(array.nbytes for array in arrays) > MOST_BYTES:
            raise Garbled(f"an array of shape {value.shape}, {value.nbytes / 1e6:.0f} MB; that is far too large")
        self.things.append(value)
        return len(self.things) - 1

    def value(self, tree: Any, depth: int = 0) -> Any:
        """The value that a tree describes.

        Raises: Garbled for what describes nothing.
        """
        if tree is None or isinstance(tree, bool | str | int | float):
            return tree
        try:
            if depth > DEEPEST:
                raise ValueError("it is too deep")
            (kind, inner), = tree.items()
            if kind in ("tuple", "list"):
                many = [self.value(one, depth + 1) for one in inner]
                return tuple(many) if kind == "tuple" else many
            if kind == "dict":
                return {key: self.value(one, depth + 1) for key, one in inner.items()}
            if kind in ("thing", "scalar"):
                thing: Any = self.things[_count(inner)]
                return thing if kind == "thing" else thing.reshape(())[()]
            if kind == "dtype":
                return _dtype(inner).type
            if kind == "kept" and self.kept_as is not None:
                return self.kept_as(_count(inner))
            if kind == "foreign":
                return type(str(inner)[:80], (), {})()
            raise ValueError("it has no known form")
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise Garbled(f"a part of a message is none: {error}") from None


def pack(form: dict[str, Any], things: Iterable[Thing] = ()) -> bytes:
    """A whole message.

    Raises: Garbled for one that would be refused at the other end.
    """
    layout: list[Any] = []
    data = []
    for thing in things:
        if isinstance(thing, np.random.Generator):
            layout.append(thing.bit_generator.state)
            continue
        native = thing.dtype.newbyteorder("=")
        layout.append([native.str, list(thing.shape)])
        data.append(np.asarray(thing, native).tobytes())
    text, size = json.dumps({**form, "things": layout}).encode("ascii"), sum(map(len, data))
    if len(text) > MOST_JSON or size > MOST_BYTES:
        raise Garbled(f"a message of {(len(text) + size) / 1e6:.0f} MB is too large")
    return b"".join([HEADER.pack(len(text), size), text, *data])


def unpack(stream: BinaryIO) -> tuple[dict[str, Any], list[Thing]]:
    """The next message of a stream: its form and its things, which are fresh.

    Raises: EOFError where the stream ends; Garbled for what is no message, and for one beyond the bounds.
    """

    def read(n: int) -> bytes:
        data = stream.read(n)
        if len(data) < n:
            raise EOFError
        return data

    length, size = HEADER.unpack(read(HEADER.size))
    if length > MOST_JSON or size > MOST_BYTES:
        raise Garbled("what came is no message of the grader's")
    text, data, at = read(length), read(size), 0
    things: list[Thing] = []
    try:
        form = json.loads(text)
        for layout in form.pop("things"):
            if isinstance(layout, dict):
                bits: Any = np.random.PCG64(0)
                bits.state = layout
                things.append(np.random.Generator(bits))
                continue
            dtype, shape = _dtype(layout[0]), tuple(map(_count, layout[1]))
            end = at + math.prod(shape) * dtype.itemsize
            things.append(np.frombuffer(data[at:end], dtype).reshape(shape).copy())
            at = end
        if at != size or not isinstance(form, dict):
            raise ValueError("lengths that do not agree")
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise Garbled(f"what came is no message of the grader's: {error}") from None
    return form, things


def _count(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r} is no count")
    return value


def _dtype(name: Any) -> np.dtype[Any]:
    found = np.dtype(name) if isinstance(name, str) else None
    if found is None or found.kind not in NUMBERS:
        raise ValueError(f"{name!r} is no dtype of numbers")
    return found
