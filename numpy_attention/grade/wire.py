"""Messages between the grader and the process of a student's file: each is a dict, written as one line of JSON.

Numbers, texts and None are not changed. Every other value is written as {kind: content}:

    (x, [x, 2], np.float32)  ->  {"tuple": [{"array": ["<f8", [3], "AAAA..."]},         dtype, shape, bytes in base64
                                            {"list": [{"again": 0}, 2]},                x, which is array number 0
                                            {"dtype": "<f4"}]}

A function can change an array or a random generator in place. Both processes number these `mutables` in the order of
their first occurrence. A cache or a layer stays in the student's process; a `Reference` contains its number. A value
of any other type, for example a module, arrives as an empty object of a class with the name of this type.

Nothing is unpickled or evaluated. The length of a line and the number of its parts are checked before it is parsed.
"""

import base64
import json
from collections.abc import Callable
from typing import Any, BinaryIO

import numpy as np

MAX_BYTES = 1 << 25  # of all arrays of a message
MAX_LINE = 1 << 26  # bytes
MAX_PARTS, MAX_DEPTH, MAX_TEXT = 10_000, 12, 2000  # values in a message, levels of nesting, characters of a text
NUMBERS = "biufc"  # the kinds of dtype that are sent

Mutable = np.ndarray | np.random.Generator


class InvalidMessage(Exception):
    """A line that is not a message, or a value that is too large for a message; the text gives the reason."""


class Reference:
    """The number of a value that stays in the student's process."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number


class Encoder:
    """One message, and the arrays, generators and references in it.

    Raises: InvalidMessage for a value that is too large.
    """

    def __init__(self, message: dict[str, Any]) -> None:
        self.mutables: list[Mutable] = []
        self.references: list[Any] = []
        self._parts = self._bytes = 0
        self.line = json.dumps(self._tree(message, 0)).encode("ascii") + b"\n"
        if not _fits(self.line):
            raise InvalidMessage(f"a message of {len(self.line) / 1e6:.0f} MB, which is too large")

    def _tree(self, value: Any, depth: int) -> Any:
        self._parts += 1
        if self._parts > MAX_PARTS:
            raise InvalidMessage(f"more than {MAX_PARTS} values, counting the values of inner lists; return arrays")
        kind = type(value)
        if value is None or kind in (bool, float) or (kind is int and abs(value) < 1 << 64):
            return value
        if isinstance(value, str):
            return value[:MAX_TEXT]
        if isinstance(value, Reference):
            self.references.append(value)
            return {"stored": value.number}
        if isinstance(value, np.ndarray) and value.dtype.kind in NUMBERS:
            return self._again(value) or {"array": self._content(value)}
        if isinstance(value, np.generic) and value.dtype.kind in NUMBERS:
            return {"scalar": self._content(np.asarray(value))}
        if isinstance(value, np.random.Generator) and type(value.bit_generator) is np.random.PCG64:
            return self._again(value) or {"generator": json.dumps(value.bit_generator.state)}
        if (isinstance(value, np.dtype) and value.kind in NUMBERS) or (kind is type and issubclass(value, np.number)):
            return {"dtype": np.dtype(value).str}
        if depth < MAX_DEPTH and kind in (tuple, list):
            return {kind.__name__: [self._tree(one, depth + 1) for one in value]}
        if depth < MAX_DEPTH and kind is dict and all(isinstance(key, str) for key in value):
            return {"dict": [[key[:MAX_TEXT], self._tree(one, depth + 1)] for key, one in value.items()]}
        return {"foreign": f"array of {value.dtype}" if isinstance(value, np.ndarray) else kind.__name__}

    def _again(self, value: Mutable) -> dict[str, int] | None:
        """The number of a value that occurred before; for a new value None, and the value is counted."""
        for i, one in enumerate(self.mutables):
            if one is value:
                return {"again": i}
        self.mutables.append(value)
        return None

    def _content(self, array: np.ndarray) -> list[Any]:
        self._bytes += array.nbytes
        if self._bytes > MAX_BYTES:
            raise InvalidMessage(f"an array of shape {array.shape}, {array.nbytes / 1e6:.0f} MB, which is too large")
        native = array.dtype.newbyteorder("=")
        return [native.str, list(array.shape), base64.b64encode(np.asarray(array, native).tobytes()).decode("ascii")]


def decode(line: bytes, stored: Callable[[int], Any]) -> tuple[dict[str, Any], list[Mutable]]:
    """The message of a line, and its new arrays and generators; `stored` returns the value for a reference.

    Raises: InvalidMessage for a line that is not a message.
    """
    mutables: list[Mutable] = []

    def met(value: Any) -> Any:
        mutables.append(value)
        return value

    values: dict[str, Callable[[Any], Any]] = {
        "tuple": tuple, "list": list, "dict": dict,
        "array": lambda content: met(_array(content)), "generator": lambda state: met(_generator(state)),
        "again": lambda number: mutables[_count(number)], "stored": lambda number: stored(_count(number)),
        "scalar": lambda content: _array(content).reshape(())[()], "dtype": lambda name: _dtype(name).type,
        "foreign": lambda name: type(str(name)[:80], (), {})(),
    }

    def value(node: dict[str, Any]) -> Any:
        (kind, content), = node.items()
        return values[kind](content)

    try:
        if not _fits(line):
            raise ValueError("it is too large")
        message = json.loads(line, object_hook=value)  # the innermost nodes come first
        if not isinstance(message, dict):
            raise ValueError("it is not a dict")
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise InvalidMessage(f"this line is not a message of the grader: {error}") from None
    return message, mutables


def read_line(stream: BinaryIO) -> bytes:
    """The next line; if it is too long, only its first MAX_LINE + 1 bytes.

    Raises: EOFError at the end of the stream.
    """
    line = stream.readline(MAX_LINE + 1)
    if len(line) <= MAX_LINE and not line.endswith(b"\n"):
        raise EOFError
    return line


def _fits(line: bytes) -> bool:
    """Whether a line is short enough and has few values: each value of a list or dict needs a comma or a bracket."""
    return len(line) <= MAX_LINE and sum(map(line.count, (b"[", b"{", b","))) <= 20 * MAX_PARTS


def _array(content: Any) -> np.ndarray:
    dtype, shape, data = content
    return np.frombuffer(base64.b64decode(data), _dtype(dtype)).reshape(shape).copy()


def _generator(state: Any) -> np.random.Generator:
    bits = np.random.PCG64(0)
    bits.state = json.loads(state)
    return np.random.Generator(bits)


def _count(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r} is not a count")
    return value


def _dtype(name: Any) -> np.dtype[Any]:
    found = np.dtype(name) if isinstance(name, str) else None
    if found is None or found.kind not in NUMBERS:
        raise ValueError(f"{name!r} is not a dtype of numbers")
    return found
