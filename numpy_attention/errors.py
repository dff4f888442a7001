"""Error messages that help: function, argument, expected value, received value, and the likely fix.

    >>> raise shape_error("linear", "w", "(d_in, d_out) with d_in = 3", (4, 3), "did you pass w transposed?")
    Traceback (most recent call last):
    ...
    ValueError: linear: w must be (d_in, d_out) with d_in = 3, got (4, 3); did you pass w transposed?
"""

import os
import shlex
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from numpy_attention.backend import COMPLEX, on_host

MAX_SAID = 300  # characters of a list in a message
FLOATS = frozenset(map(np.dtype, (np.float32, np.float64)))  # in the byte order of this machine


class InputError(ValueError):
    """A file or an option of the user is invalid; the message is one line and needs no traceback."""


def value_error(op: str, argument: str, expected: str, got: object, fix: str = "") -> ValueError:
    """The error for an impossible value: a wrong shape, a rate of 2, a negative eps; the caller raises it."""
    return ValueError(_sentence(op, argument, expected, got, fix))


def dtype_error(op: str, argument: str, expected: str, got: object, fix: str = "") -> TypeError:
    """The error for an argument of the wrong type or dtype; the caller raises it."""
    return TypeError(_sentence(op, argument, expected, got, fix))


shape_error = value_error


def _sentence(op: str, argument: str, expected: str, got: object, fix: str) -> str:
    return f"{op}: {argument} must be {expected}, got {got}" + (f"; {fix}" if fix else "")


def require_array(op: str, argument: str, array: object, expected: str = "an array") -> None:
    """Refuse everything except NumPy arrays and arrays on a GPU that work like NumPy's (CuPy).

    Arrays of other libraries accept NumPy calls too, but some behave differently. For some, `np.copyto` writes into a
    copy, so a mask would be ignored silently. For an np.matrix, `*` is a matrix product.
    """
    kind = type(array)
    if kind in (np.ndarray, np.memmap) or isinstance(array, np.generic):
        return
    if COMPLEX.get() and isinstance(array, np.ndarray):  # the gradient checker records the steps of a function
        return
    if hasattr(kind, "__cuda_array_interface__") and hasattr(kind, "__array_function__"):
        return
    if hasattr(array, "dtype"):
        got, fix = f"{kind.__module__}.{kind.__qualname__}", f"convert it: np.asarray({argument})"
        raise dtype_error(op, argument, f"{expected} of NumPy or CuPy", got, fix)
    raise dtype_error(op, argument, expected, kind.__name__, f"wrap it: np.asarray({argument})")


def require_float(op: str, /, *, optional: str = "", **arrays: Any) -> None:
    """Refuse arguments that are not arrays of floats, and arrays of different dtypes.

    The argument `optional` may be None. Integer arrays cannot hold the results of in-place steps, and mixed dtypes
    would turn float32 into float64 silently. NumPy's results lose other byte orders; np.finfo fails for longdouble.
    """
    first: tuple[str, object] | None = None
    for name, array in arrays.items():
        if array is None and name == optional:
            continue
        if type(array) is not np.ndarray:  # a quick test, since a training step calls this hundreds of times
            require_array(op, name, array, "an array of floats")
        dtype = array.dtype
        if dtype not in FLOATS and not (dtype.kind == "c" and COMPLEX.get()):
            odd = dtype.kind == "f"
            expected = "an array of float32 or float64" if odd else "an array of floats"
            fix = f"convert it: {name}.astype(np.float{64 if odd and dtype.itemsize > 4 else 32})"
            raise dtype_error(op, name, expected, dtype, fix)
        if first is None:
            first = (name, dtype)
        elif dtype != first[1]:
            fix = f"convert it: {name}.astype({first[0]}.dtype)"
            raise dtype_error(op, name, f"{first[1]}, the dtype of {first[0]}", dtype, fix)


def require_arrays(op: str, argument: str, arrays: object, counts: tuple[str, ...] = (), written: bool = False) -> None:
    """Refuse everything except a non-empty dict of arrays of floats; a typical mistake is to pass the model itself.

    Arrays whose names are in `counts` hold integers. With `written`, all arrays must be writable.
    """
    if not isinstance(arrays, Mapping):
        fix = "model.parameters() gives one" if hasattr(arrays, "parameters") else ""
        raise dtype_error(op, argument, "a dict of arrays", type(arrays).__name__, fix)
    if not arrays:
        raise ValueError(f"{op}: {argument} must hold at least one array, got none")
    for name, array in arrays.items():
        if name in counts:
            require_integers(op, f"{argument}[{name!r}]", array)
        elif type(array) is not np.ndarray or array.dtype not in FLOATS:
            require_float(op, **{f"{argument}[{name!r}]": array})
        if written and not getattr(array.flags, "writeable", True):  # CuPy's arrays always are
            raise value_error(op, f"{argument}[{name!r}]", "an array that can be written to", "one that cannot")


def require_cotangent(op: str, argument: str, dy: np.ndarray, like_shape: tuple[int, ...], like_dtype: object) -> None:
    """Refuse a gradient whose shape or dtype differs from the result of the forward."""
    if type(dy) is not np.ndarray:
        require_array(op, argument, dy)
    if dy.shape != like_shape:
        raise shape_error(op, argument, f"{like_shape}, the shape of the forward's result", dy.shape)
    if dy.dtype != like_dtype:
        fix = f"convert it: {argument}.astype(np.{like_dtype})"
        raise dtype_error(op, argument, f"{like_dtype}, as the forward's result", dy.dtype, fix)


def require_integers(op: str, argument: str, array: np.ndarray, below: int | None = None, fix: str = "") -> None:
    """Refuse everything except an array of integers; with `below`, the integers must be in [0, below).

    Values on a GPU are not tested, since the test would wait for the GPU: test ids before you copy them to the GPU.
    """
    require_array(op, argument, array, "an integer array")
    if array.dtype.kind not in "iu":
        raise dtype_error(op, argument, "an integer array", array.dtype, f"convert it: {argument}.astype(np.int64)")
    if below is None or not on_host(array) or not array.size:
        return
    least, most = int(array.min()), int(array.max())
    if least < 0 or most >= below:
        raise value_error(op, argument, f"integers in [0, {below})", least if least < 0 else most, fix)


def short_repr(value: object) -> str:
    """The repr of a number, a string or None, at most 80 characters; "a list" for a list, and so on."""
    text = repr(value) if isinstance(value, (int, float, str)) or value is None else f"a {type(value).__name__}"
    return text if len(text) <= 80 else f"{text[:77]}..."


def escaped(text: str) -> str:
    """The text for a terminal: control characters and invalid characters are escaped."""
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)


def shell_path(path: Path | str) -> str:
    """A path for a shell command: quoted if necessary, and never read as an option."""
    return shlex.quote(f"./{path}" if str(path).startswith("-") else str(path))


def command(arguments: str) -> str:
    """A command of this package with the program that the reader typed: `.venv/bin/python -m numpy_attention train`."""
    script = Path(sys.argv[0])
    if script.stem == "numpy-attention":
        return f"{_typed(script)} {arguments}"
    return f"{_typed(Path(sys.executable))} -m numpy_attention {arguments}"


def install(packages: str) -> str:
    """The command that installs packages for this Python."""
    return f"{'uv' if _under_uv() else f'{_typed(Path(sys.executable))} -m'} pip install {packages}"


def _typed(program: Path) -> str:
    name = program.name.removesuffix(".exe")
    if _under_uv():
        return f"uv run {'python' if name.startswith('python') else name}"
    if sys.prefix == sys.base_prefix or shutil.which(name) == str(program):  # or the virtual environment is active
        return name
    return shell_path(program.relative_to(Path.cwd()) if program.is_relative_to(Path.cwd()) else program)


def _under_uv() -> bool:
    return "UV_RUN_RECURSION_DEPTH" in os.environ  # set by `uv run`


def one_line(error: Exception) -> str:
    """The message of an error in one line."""
    return " ".join(str(error).split())


def several(found: Sequence[str], most: int = 5) -> str:
    """The first items of a list for a message, and how many are left."""
    left = f"; ... and {len(found) - most} more" if len(found) > most else ""
    return "; ".join(found[:most]) + left


def require_number(
    op: str, argument: str, number: object, *, at_least: float | None = None, above: float | None = None,
    at_most: float | None = None, below: float | None = None, whole: bool = False, fix: str = "",
) -> float:
    """The number as a Python number; refuse all other values, and numbers that are not finite or outside the limits.

    With `whole`, only integers are allowed. True and False are refused, although they are integers in Python: an option
    passed as the wrong argument would otherwise count as 1 or 0.
    """
    value: Any = number.item() if isinstance(number, np.generic) else number
    right = type(value) is int or (type(value) is float and not whole)
    if (  # every comparison is False for NaN
        right
        and (whole or abs(value) <= sys.float_info.max)
        and (at_least is None or value >= at_least)
        and (above is None or value > above)
        and (at_most is None or value <= at_most)
        and (below is None or value < below)
    ):
        return value if whole else float(value)
    low, high = above if at_least is None else at_least, below if at_most is None else at_most
    if low is not None and high is not None:
        limits = f"in {'(' if at_least is None else '['}{low}, {high}{')' if at_most is None else ']'}"
    else:
        words = {"at least": at_least, "above": above, "at most": at_most, "below": below}
        named = [f"{word} {limit}" for word, limit in words.items() if limit is not None]
        limits = " and ".join(named if whole else [*named, "finite"])
    if right:
        raise value_error(op, argument, limits, value, fix)
    expected = f"{'an integer' if whole else 'a number'} {limits}".rstrip()
    raise dtype_error(op, argument, expected, short_repr(number), fix)


def require_choice(op: str, argument: str, value: object, choices: Iterable[str | None], expected: str = "") -> None:
    """Refuse a value that is not among the choices; `expected` replaces the words "one of ..." in the message."""
    choices = tuple(choices)
    if value not in choices:
        raise value_error(op, argument, expected or f"one of {', '.join(map(str, choices))}", repr(value))


def require_bools(op: str, argument: str, array: Any, expected: str, fix: str = "", kind: str = "an array") -> None:
    """Refuse an array that is not boolean: a mask of 0 and 1 has opposite meanings in different libraries."""
    require_array(op, argument, array, kind)
    if array.dtype != np.bool_:
        raise dtype_error(op, argument, expected, array.dtype, fix)


def require_sizes(op: str, **sizes: object) -> None:
    """Refuse values that cannot be the length of an axis; the message contains the name."""
    for name, size in sizes.items():
        require_size(op, name, size)


def require_size(op: str, argument: str, size: object, at_least: int = 1, fix: str = "") -> int:
    """The size as a Python int; refuse values that cannot be a length or a count."""
    return int(require_number(op, argument, size, at_least=at_least, whole=True, fix=fix))


def require_generator(op: str, argument: str, rng: object) -> None:
    """Refuse everything except a random generator and None; a typical mistake is to pass a seed."""
    if rng is not None and not isinstance(rng, np.random.Generator):
        fix = f"np.random.default_rng({rng})" if isinstance(rng, int) else "np.random.default_rng(seed) makes one"
        raise dtype_error(op, argument, "a np.random.Generator or None", short_repr(rng), fix)


def mismatches(mine: dict[str, np.ndarray], theirs: Mapping[str, Any], what: str) -> list[str]:
    """All mismatches between two dicts of arrays: missing or unknown names, different shapes or dtypes."""
    found = [f"{name} is missing" for name in mine if name not in theirs]
    found += [f"{name} is not part of the {what}" for name in theirs if name not in mine]
    for name in mine.keys() & theirs.keys():
        a, b = mine[name], theirs[name]
        if a.shape != b.shape or a.dtype != b.dtype:
            found.append(f"{name} is {b.dtype} {b.shape}, expected {a.dtype} {a.shape}")
    return sorted(found)


def broadcasts_to(shape: tuple[int, ...], other: tuple[int, ...]) -> bool:
    """Whether an array of this shape broadcasts to the other shape without widening the other.

    Shapes: (2, 1, 5) and (5,) broadcast to (2, 3, 5); (4, 2, 3, 5) and (3,) do not
    """
    return len(shape) <= len(other) and all(a in (1, b) for a, b in zip(shape[::-1], other[::-1]))
