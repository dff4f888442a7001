"""Odd arguments for a function: arrays of other dtypes, shapes, layouts and kinds, and values that are not arrays.

Each odd value has a name, so a try can be stored as a few words: `("x", "big-endian")`. The odd value depends only on
the array and the name.
"""

import contextlib
import tempfile
import warnings
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

NATIVE = {"longdouble": np.longdouble, "float16": np.float16, "float32": np.float32, "float64": np.float64}
KINDS = {
    **NATIVE, "complex": np.complex128, "complex64": np.complex64, "object": object, "bool": bool, "int8": np.int8,
    "int64": np.int64, "uint8": np.uint8, "uint64": np.uint64, "text": np.str_, "bytes": np.bytes_,
}


class Subclass(np.ndarray):
    """A subclass of np.ndarray without other behaviour."""


def _cast(dtype: Any) -> Callable[[np.ndarray], Any]:
    def cast(a: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            return np.array(a, dtype=dtype)

    return cast


def _put(value: Any, everywhere: bool = False) -> Callable[[np.ndarray], Any]:
    """The array with a value in one place or everywhere, if its dtype can hold the value."""

    def put(a: np.ndarray) -> np.ndarray:
        a = a.copy()
        chosen = value(a) if callable(value) else value
        fits = a.dtype.kind == "f" or (a.dtype.kind in "iu" and isinstance(chosen, int))
        if fits and a.size:
            a.reshape(-1)[slice(None) if everywhere else a.size // 2] = chosen
        return a

    return put


def _limit(a: np.ndarray, least: bool = False) -> Any:
    """The largest or smallest number of the dtype."""
    if a.dtype.kind == "b":
        return 0
    about: Any = np.finfo(a.dtype) if a.dtype.kind == "f" else np.iinfo(a.dtype)
    return about.min if least else about.max


def _memmap(a: np.ndarray) -> np.ndarray:
    if a.size == 0:
        return a
    with tempfile.TemporaryFile() as file:  # the memory outlives the original array
        mapped = np.memmap(file, dtype=a.dtype, shape=a.shape, mode="w+")
    mapped[...] = a
    return mapped


def _unaligned(a: np.ndarray) -> np.ndarray:
    raw = np.zeros(a.nbytes + 1, np.uint8)
    raw[1:] = np.frombuffer(a.tobytes(), np.uint8)
    return np.frombuffer(raw.data, a.dtype, a.size, offset=1).reshape(a.shape)


def _read_only(a: np.ndarray) -> np.ndarray:
    a = a.copy()
    a.flags.writeable = False
    return a


def _reversed(a: np.ndarray) -> np.ndarray:
    along = (slice(None, None, -1),) * a.ndim
    return np.ascontiguousarray(a[along])[along]


def _every_second(a: np.ndarray) -> np.ndarray:
    wide = np.zeros((*a.shape, 2), a.dtype)
    wide[..., 0] = a
    return wide[..., 0]


def _if_it_has_axes(change: Callable[[np.ndarray], Any]) -> Callable[[np.ndarray], Any]:
    return lambda a: change(a) if a.ndim and a.shape[0] else a


LAYOUTS: dict[str, Callable[[np.ndarray], Any]] = {  # equal values
    "big-endian": lambda a: a.astype(a.dtype.newbyteorder(">")),
    "Fortran order": lambda a: np.asarray(a, order="F"),
    "negative strides": _reversed,
    "every second": _every_second,
    "read-only": _read_only,
    "unaligned": _unaligned,
    "memmap": _memmap,
    "subclass": lambda a: a.view(Subclass),
    "masked": lambda a: np.ma.masked_array(a, np.zeros(a.shape, bool)),
    "matrix": lambda a: np.asmatrix(a) if a.ndim == 2 else a,
    "list": lambda a: a.tolist(),
    "tuple": lambda a: tuple(a.tolist()) if a.ndim else a.item(),
    "list of arrays": lambda a: list(a) if a.ndim else [a],
}
VALUES: dict[str, Callable[[np.ndarray], Any]] = {  # equal shape and dtype
    "nan": _put(np.nan), "inf": _put(np.inf), "-inf": _put(-np.inf), "all nan": _put(np.nan, True),
    "all -inf": _put(-np.inf, True), "zeros": _put(0, True), "denormal": _put(1e-310, True), "-1": _put(-1),
    "largest": _put(_limit), "all largest": _put(_limit, True), "least": _put(lambda a: _limit(a, True)),
    "1000": _put(1000), "-100": _put(-100, True), "big": _put(1e4, True), "mixed": _put(-1e4),
    "hidden": lambda a: np.zeros_like(a) if a.dtype == bool else a,
    "a row again": _if_it_has_axes(lambda a: np.broadcast_to(a[:1], a.shape)),
}
SHAPES: dict[str, Callable[[np.ndarray], Any]] = {
    "0-D": lambda a: a.reshape(-1)[0].reshape(()) if a.size else a,
    "axis more": lambda a: a[None],
    "axis less": _if_it_has_axes(lambda a: a[0]),
    "last axis less": _if_it_has_axes(lambda a: a[..., 0] if a.shape[-1] else a),
    "flat": lambda a: a.reshape(-1),
    "no rows": _if_it_has_axes(lambda a: a[:0]),
    "no columns": _if_it_has_axes(lambda a: a[..., :0]),
    "one row": _if_it_has_axes(lambda a: a[:1]),
    "one column": _if_it_has_axes(lambda a: a[..., :1]),
    "row more": _if_it_has_axes(lambda a: np.concatenate([a, a[:1]])),
    "column more": _if_it_has_axes(lambda a: np.concatenate([a, a[..., :1]], axis=-1)),
    "transposed": lambda a: a.T,
}
SCALARS: dict[str, Callable[[np.ndarray], Any]] = {
    "NumPy scalar": lambda a: a.reshape(-1)[0] if a.size else a,
    "NumPy scalar -1": lambda a: a.dtype.type(-1) if a.dtype.kind in "fi" else a,
    "NumPy scalar 1000": lambda a: a.dtype.type(1000) if a.dtype.kind in "fi" else a,
    "Python number": lambda a: a.reshape(-1)[0].item() if a.size else a,
}
JUNK: dict[str, Any] = {
    "None": None, "text 'x'": "x", "a dict": {}, "an object": object(), "a type": np.float32, "0": 0, "1.5": 1.5,
    "[]": [], "[[1, 2], [3]]": [[1, 2], [3]], "empty array": np.zeros(0), "array of texts": np.array(["x", "y"]),
    "array of None": np.array([None, None]), "()": (), "nan": float("nan"), "a generator": range(3),
}
ARRAYS = {**{name: _cast(dtype) for name, dtype in KINDS.items()}, **LAYOUTS, **VALUES, **SHAPES, **SCALARS}

ANY_NUMBER: dict[str, Any] = {
    "nan": float("nan"), "inf": float("inf"), "-inf": -float("inf"), "-1": -1, "0": 0, "True": True, "1.5": 1.5,
    "0.5": 0.5, "1": 1, "1.0": 1.0, "-0.0": -0.0, "-0.5": -0.5, "2**63": 2**63, "-2**63": -(2**63), "10**400": 10**400,
    "text 'x'": "x", "text '3'": "3", "None": None, "[2]": [2], "complex": 1j, "np.float64(0.5)": np.float64(0.5),
    "np.float32(nan)": np.float32(np.nan), "np.int64(2)": np.int64(2), "np.uint8(1)": np.uint8(1),
    "np.bool_": np.True_, "0-D array": np.array(2), "Fraction": Fraction(1, 2),
    "np.longdouble": np.longdouble(0.5), "1e-320": 1e-320, "an object": object(),
}
HUGE = {"2**63", "-2**63", "10**400"}
BUILT_ONE_BY_ONE = {"num_layers", "num_decoder_layers"}  # until the memory is full
# A type checker would refuse these, so errors from Python itself are allowed. A list or None instead of an array is not
# included, since users often forget np.array or a return.
WILD = {
    "text 'x'", "text '3'", "None", "[2]", "complex", "Fraction", "an object", "True", "np.bool_",
    *(f"junk {name}" for name in ("text 'x'", "a dict", "an object", "a type", "a generator", "[[1, 2], [3]]")),
    "junk array of None", "junk ()",
}
ALL = "every array"  # instead of a name
TEXTS: dict[str, Any] = {
    "empty": "", "NUL": "a\0b", "surrogate": "\udc80", "long": "x" * 300, "unicode": "ほ\u202e", "None": None, "3": 3,
    "bytes": b"half", "a list": ["half"], "np.str_": np.str_("half"), "nan": float("nan"), "a folder": "/", "dot": ".",
}
OTHERS: dict[str, Any] = {
    **{f"np.{name}": kind for name, kind in KINDS.items()}, "text 'float32'": "float32", "text 'x'": "x",
    ">f4": np.dtype(">f4"), "None": None, "3": 3, "RandomState": np.random.RandomState(0),
    "a type": dict, "a dict": {}, "nan": float("nan"),
}


def odd_names(kind: str, value: Any, argument: str = "") -> list[str]:
    """The names of odd values for an argument of this kind."""
    if argument in BUILT_ONE_BY_ONE:
        return [name for name in ANY_NUMBER if name not in HUGE]
    if kind == ALL:
        return [*NATIVE, *LAYOUTS]
    if kind == "array":
        return [*(ARRAYS if isinstance(value, np.ndarray) else ()), *(f"junk {name}" for name in JUNK)]
    return list({"whole": ANY_NUMBER, "number": ANY_NUMBER, "text": TEXTS}.get(kind, OTHERS))


def make_odd(kind: str, value: Any, name: str) -> Any:
    """The odd value of this name, made from a good one."""
    if kind == "array":
        with warnings.catch_warnings(action="ignore"):
            return JUNK[name.removeprefix("junk ")] if name.startswith("junk ") else ARRAYS[name](value)
    return {"whole": ANY_NUMBER, "number": ANY_NUMBER, "text": TEXTS}.get(kind, OTHERS)[name]


def plain(odd: Any, good: Any) -> Any:
    """A plain version of a value: an array in native byte order and C order, or a Python number."""
    if isinstance(odd, (list, tuple)) and isinstance(good, np.ndarray):
        with contextlib.suppress(ValueError):  # prompts of different lengths are not an array
            return np.array(odd, dtype=good.dtype)
    if isinstance(odd, np.ndarray) and isinstance(good, np.ndarray):
        return np.array(odd, dtype=odd.dtype.newbyteorder("="), order="C", subok=False)
    if isinstance(good, np.ndarray) and isinstance(odd, (np.generic, int, float)):
        return np.array(odd, dtype=good.dtype if isinstance(odd, (int, float)) else None)
    if isinstance(odd, np.generic) or (isinstance(odd, np.ndarray) and odd.ndim == 0):
        return odd.item()
    return odd
