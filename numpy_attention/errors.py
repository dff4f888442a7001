"""Errors that teach: every refusal says who refused, which argument, what was expected, what came, and the likely fix.

    >>> raise shape_error("linear", "w", "(d_in, d_out) with d_in = 3", (4, 3), "did you pass w transposed?")
    Traceback (most recent call last):
    ...
    ValueError: linear: w must be (d_in, d_out) with d_in = 3, got (4, 3); did you pass w transposed?
"""

from collections.abc import Sequence

import numpy as np

from numpy_attention.backend import on_host
from numpy_attention.gradcheck.numbers.complex_step import COMPLEX

LONGEST = 470  # characters of a refusal, without the name of the program before it or of a rank behind it
MAX_SAID = 300  # characters of an error: a hostile file need not be quoted whole


class InputError(ValueError):
    """Something the user gave, a file or an option, cannot be used; the message is one line and says all there is."""


def shape_error(op: str, argument: str, expected: str, got: object, fix: str = "") -> ValueError:
    """The error for an argument of the wrong shape; the caller raises it."""
    return ValueError(_sentence(op, argument, expected, got, fix))


def value_error(op: str, argument: str, expected: str, got: object, fix: str = "") -> ValueError:
    """The error for a number or a choice that cannot be: a rate of 2, a negative eps; the caller raises it."""
    return ValueError(_sentence(op, argument, expected, got, fix))


def dtype_error(op: str, argument: str, expected: str, got: object, fix: str = "") -> TypeError:
    """The error for an argument of the wrong type or dtype; the caller raises it."""
    return TypeError(_sentence(op, argument, expected, got, fix))


def require_array(op: str, argument: str, array: object, expected: str = "an array") -> None:
    """Refuse whatever is not NumPy's own array, or one that computes on a GPU just as NumPy's do (CuPy's).

    Other arrays answer NumPy's calls too, but not all keep its word: some hand `np.copyto` a copy to write into, so
    that a mask would be ignored without a word; a matrix takes `*` for a matrix product.
    """
    kind = type(array)
    if kind is np.ndarray or kind is np.memmap or isinstance(array, np.generic):
        return
    if hasattr(kind, "__cuda_array_interface__") and hasattr(kind, "__array_function__"):
        return
    foreign = hasattr(array, "dtype")
    expected += " of NumPy or CuPy" if foreign else ""
    got = f"{kind.__module__}.{kind.__qualname__}" if foreign else kind.__name__
    raise dtype_error(op, argument, expected, got, f"{'convert' if foreign else 'wrap'} it: np.asarray({argument})")


def require_float(op: str, **arrays: np.ndarray | None) -> None:
    """Refuse whatever is not an array of floating-point numbers, and arrays that disagree in dtype.

    Integers cannot hold what in-place steps compute, and mixed dtypes would make float64 out of float32 unnoticed.
    """
    first: tuple[str, object] | None = None
    for name, array in arrays.items():
        if array is None:
            continue
        require_array(op, name, array, "an array of floats")
        dtype = array.dtype
        # The checker alone moves arrays into the complex plane: there "c" is a kind of floats.
        if dtype.kind != "f" and not (dtype.kind == "c" and COMPLEX.get()):
            raise dtype_error(op, name, "an array of floats", dtype, f"convert it: {name}.astype(np.float32)")
        if first is None:
            first = (name, dtype)
        elif dtype != first[1]:
            fix = f"convert it: {name}.astype({first[0]}.dtype)"
            raise dtype_error(op, name, f"{first[1]} as {first[0]} is", dtype, fix)


def require_cotangent(op: str, argument: str, dy: np.ndarray, like_shape: tuple[int, ...], like_dtype: object) -> None:
    """Refuse a gradient that has not the shape and dtype of the forward's result."""
    require_array(op, argument, dy)
    if dy.shape != like_shape:
        raise shape_error(op, argument, f"{like_shape}, the shape of the forward's result", dy.shape)
    if dy.dtype != like_dtype:
        fix = f"convert it: {argument}.astype(np.{like_dtype})"
        raise dtype_error(op, argument, f"{like_dtype}, as the forward's result", dy.dtype, fix)


def require_integers(op: str, argument: str, array: np.ndarray, below: int | None = None, fix: str = "") -> None:
    """Refuse what is not an array of integers and, with `below`, integers outside [0, below).

    Values on a GPU are not looked at, since a look would wait for the GPU: ids that are there were checked before.
    """
    require_array(op, argument, array, "an integer array")
    if array.dtype.kind not in "iu":
        raise dtype_error(op, argument, "an integer array", array.dtype, f"convert it: {argument}.astype(np.int64)")
    if below is None or not on_host(array) or not array.size:
        return
    least, most = int(array.min()), int(array.max())
    if least < 0 or most >= below:
        raise value_error(op, argument, f"integers in [0, {below})", least if least < 0 else most, fix)


def shown(value: object) -> str:
    """A value as it is written, or the beginning of it; of a list or a dict only that it is one."""
    try:
        text = repr(value) if isinstance(value, (bool, int, float, str)) else f"a {type(value).__name__}"
    except ValueError:  # more digits than Python writes
        return f"a very long {type(value).__name__}"
    return text if len(text) <= 80 else f"{text[:77]}..."


def printable(text: str) -> str:
    """The same text for a terminal: control characters and what is no character are escaped."""
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)


def one_line(error: Exception) -> str:
    """What is said, in one line of bounded length: what is wrong stands at its beginning, what to do at its end."""
    said = printable(" ".join(str(error).split()))
    return said if len(said) <= LONGEST else f"{said[: LONGEST * 2 // 3]} ... {said[-LONGEST // 4 :]}"


def several(found: Sequence[str], room: int = MAX_SAID) -> str:
    """As many of them as have room in an error, one at least, and how many more there are."""
    said = found[0][:room]
    for i, one in enumerate(found[1:], 1):
        if len(said) + len(one) > room:
            return f"{said}; ... and {len(found) - i} more"
        said += f"; {one}"
    return said


def differences(mine: dict[str, np.ndarray], theirs: dict[str, np.ndarray], what: str) -> list[str]:
    """Every way in which their arrays do not fit mine: one is missing, unknown, or of another shape or dtype."""
    found = [f"{name} is missing" for name in mine if name not in theirs]
    found += [f"{name} is not part of the {what}" for name in theirs if name not in mine]
    for name in mine.keys() & theirs.keys():
        a, b = mine[name], theirs[name]
        if a.shape != b.shape or a.dtype != b.dtype:
            found.append(f"{name} is {b.dtype} {b.shape}, expected {a.dtype} {a.shape}")
    return sorted(found)


def broadcasts_to(shape: tuple[int, ...], other: tuple[int, ...]) -> bool:
    """Whether an array of this shape broadcasts to the other without widening it.

    Shapes: (2, 1, 5) and (5,) broadcast to (2, 3, 5); (4, 2, 3, 5) and (3,) do not
    """
    return len(shape) <= len(other) and all(a in (1, b) for a, b in zip(shape[::-1], other[::-1], strict=False))


def _sentence(op: str, argument: str, expected: str, got: object, fix: str) -> str:
    return f"{op}: {argument} must be {expected}, got {got}" + (f"; {fix}" if fix else "")
