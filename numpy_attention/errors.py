"""Errors that teach: every refusal says who refused, which argument, what was expected, what came, and the likely fix.

    >>> raise shape_error("linear", "w", "(d_in, d_out) with d_in = 3", (4, 3), "did you pass w transposed?")
    Traceback (most recent call last):
    ...
    ValueError: linear: w must be (d_in, d_out) with d_in = 3, got (4, 3); did you pass w transposed?
"""

import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from numpy_attention.backend import COMPLEX, on_host

LONGEST = 470  # characters of a refusal, without the name of the program before it or of a rank behind it
MAX_SAID = 300  # characters of an error: a hostile file need not be quoted whole
FLOATS = frozenset(map(np.dtype, (np.float16, np.float32, np.float64)))  # in this machine's order of bytes


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


def require_float(op: str, /, *, optional: str = "", **arrays: Any) -> None:
    """Refuse whatever is not an array of floating-point numbers, and arrays that disagree in dtype.

    The one named by `optional` may be None. Integers cannot hold what in-place steps compute, and mixed dtypes would
    make float64 out of float32 unnoticed. Nor does NumPy keep other orders of bytes, or know the limits of longdouble.
    """
    first: tuple[str, object] | None = None
    for name, array in arrays.items():
        if array is None and name == optional:
            continue
        if type(array) is not np.ndarray:  # nearly all are, and a step asks hundreds of times
            require_array(op, name, array, "an array of floats")
        dtype = array.dtype
        if dtype not in FLOATS and not (dtype.kind == "c" and COMPLEX.get()):
            odd = dtype.kind == "f"
            expected = "an array of float16, float32 or float64" if odd else "an array of floats"
            fix = f"convert it: {name}.astype(np.float{64 if odd and dtype.itemsize > 4 else 32})"
            raise dtype_error(op, name, expected, dtype.str if odd else dtype, fix)
        if first is None:
            first = (name, dtype)
        elif dtype != first[1]:
            fix = f"convert it: {name}.astype({first[0]}.dtype)"
            raise dtype_error(op, name, f"{first[1]} as {first[0]} is", dtype, fix)


def require_arrays(op: str, argument: str, arrays: object, counts: tuple[str, ...] = (), written: bool = False) -> None:
    """Refuse what is no dict of arrays of floats, such as the model whose parameters were meant, or an empty one.

    Those that are named in `counts` hold integers. With `written` all must be such as can be changed in place.
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
    """Refuse a gradient that has not the shape and dtype of the forward's result."""
    if type(dy) is not np.ndarray:
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


def short_repr(value: object) -> str:
    """A value as it is written, or the beginning of it; of a list or a dict only that it is one."""
    try:
        text = repr(value) if isinstance(value, (bool, int, float, str)) else f"a {type(value).__name__}"
    except ValueError:  # more digits than Python writes
        return f"a very long {type(value).__name__}"
    return text if len(text) <= 80 else f"{text[:77]}..."


def escaped(text: str) -> str:
    """The same text for a terminal: control characters and what is no character are escaped."""
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)


def shell_path(path: Path | str) -> str:
    """A path as a shell must be told it: in quotes where it needs some, and never like an option."""
    return shlex.quote(f"./{path}" if str(path).startswith("-") else str(path))


def one_line(error: Exception) -> str:
    """What is said, in one line of bounded length: what is wrong stands at its beginning, what to do at its end."""
    said = escaped(" ".join(str(error).split()))
    return said if len(said) <= LONGEST else f"{said[: LONGEST * 2 // 3]} ... {said[-LONGEST // 4 :]}"


def several(found: Sequence[str], room: int = MAX_SAID) -> str:
    """As many of them as have room in an error, one at least, and how many more there are."""
    said = found[0][:room]
    for i, one in enumerate(found[1:], 1):
        if len(said) + len(one) > room:
            return f"{said}; ... and {len(found) - i} more"
        said += f"; {one}"
    return said


def require_number(
    op: str,
    argument: str,
    number: object,
    *,
    at_least: float | None = None,
    above: float | None = None,
    at_most: float | None = None,
    below: float | None = None,
    whole: bool = False,
    fix: str = "",
) -> float:
    """The number as one of Python; refuse what is none, or not finite, with `whole` no integer, or beyond the limits.

    True and False are integers to Python; here they are not, since an option that has slipped into a place beside its
    own would be taken for 1 or 0.
    """
    came: Any = number
    if type(number) is not int and (whole or type(number) is not float):  # another kind of number, or none
        kinds = (int, np.integer) if whole else (int, float, np.integer, np.floating)
        if not isinstance(number, kinds) or isinstance(number, bool):
            expected = f"{'an integer' if whole else 'a number'} {_limits(at_least, above, at_most, below, whole)}"
            raise dtype_error(op, argument, expected.rstrip(), _as_it_came(number), fix)
        came = number.item() if isinstance(number, np.generic) else number
    if not (  # each written so that it is false for a NaN
        (whole or abs(came) <= sys.float_info.max)
        and (at_least is None or came >= at_least)
        and (above is None or came > above)
        and (at_most is None or came <= at_most)
        and (below is None or came < below)
    ):
        long = isinstance(came, int) and came.bit_length() > 64
        got = f"an integer of {came.bit_length()} bits" if long else came
        raise value_error(op, argument, _limits(at_least, above, at_most, below, whole), got, fix)
    return int(came) if whole else float(came)


def require_choice(op: str, argument: str, value: object, choices: Iterable[str], expected: str = "") -> None:
    """Refuse a value that is not among the choices; `expected` replaces the words "one of ..." in the message."""
    choices = tuple(choices)
    if value not in choices:
        raise value_error(op, argument, expected or f"one of {', '.join(choices)}", repr(value))


def require_bools(op: str, argument: str, array: Any, expected: str, fix: str = "", kind: str = "an array") -> None:
    """Refuse an array that is not of bool: a mask of 0 and 1 has opposite meanings in different libraries."""
    require_array(op, argument, array, kind)
    if array.dtype != np.bool_:
        raise dtype_error(op, argument, expected, array.dtype, fix)


def require_sizes(op: str, **sizes: object) -> None:
    """Refuse, by name, what cannot be the length of an axis."""
    for name, size in sizes.items():
        require_size(op, name, size)


def require_size(op: str, argument: str, size: object, at_least: int = 1, fix: str = "") -> int:
    """The size as an int of Python; refuse what cannot be the length of an axis, or the number of anything."""
    return int(require_number(op, argument, size, at_least=at_least, whole=True, fix=fix))


def require_generator(op: str, argument: str, rng: object) -> None:
    """Refuse what draws no random numbers, such as a seed; None is allowed."""
    if rng is not None and not isinstance(rng, np.random.Generator):
        fix = f"np.random.default_rng({rng})" if isinstance(rng, int) else "np.random.default_rng(seed) makes one"
        raise dtype_error(op, argument, "a np.random.Generator or None", _as_it_came(rng), fix)


def mismatches(mine: dict[str, np.ndarray], theirs: dict[str, np.ndarray], what: str) -> list[str]:
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


def _limits(
    at_least: float | None, above: float | None, at_most: float | None, below: float | None, whole: bool
) -> str:
    """The limits in words: in [0, 1), at least 1, above 0 and finite; nothing for any integer."""
    low, high = above if at_least is None else at_least, below if at_most is None else at_most
    if low is None or high is None:
        words = {"at least": at_least, "above": above, "at most": at_most, "below": below}
        limits = [f"{word} {limit}" for word, limit in words.items() if limit is not None]
        return " and ".join([*limits, *([] if whole else ["finite"])])
    return f"in {'(' if at_least is None else '['}{low}, {high}{')' if at_most is None else ']'}"


def _as_it_came(value: object) -> str:
    """Short words for a value of a wrong type: a small one itself, else its type."""
    return repr(value) if isinstance(value, (bool, float, str)) or value is None else type(value).__name__


def _sentence(op: str, argument: str, expected: str, got: object, fix: str) -> str:
    return f"{op}: {argument} must be {expected}, got {got}" + (f"; {fix}" if fix else "")
