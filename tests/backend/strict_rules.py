"""CuPy's rules as checks of one call: recorded signatures, the device of arrays, and valid indices."""

import inspect
import json
from pathlib import Path
from typing import Any

import numpy as np

CUPY: dict[str, Any] = json.loads(Path(__file__).with_name("cupy_signatures.json").read_text("utf-8"))

# Functions whose result depends on values that Python needs, for a shape or a bool: the host waits for the device.
WAITING_FUNCTIONS = {
    "argwhere", "flatnonzero", "nonzero", "unique", "compress", "extract", "array_equal", "allclose", "array_equiv",
    "array_repr", "array_str", "array2string", "bincount", "histogram", "union1d", "setdiff1d", "intersect1d",
}
WAITING_METHODS = {"item", "tolist", "tobytes", "nonzero", "compress", "dump", "dumps", "tofile"}
MOVING_FUNCTIONS = {"asarray", "array", "asanyarray"}  # with like= they move a host array to the device
SHAPES = {
    "shape", "newshape", "axis", "axes", "reps", "pad_width", "indices_or_sections", "source", "destination",
}  # parameters that take a tuple or list of numbers
SEQUENCES_OF_ARRAYS = {"tup", "arrays", "xi", "arys", "args", "operands"}


def bind(name: str, parameters: list[str] | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments by the names of CuPy's parameters; TypeError if CuPy's function would raise it."""
    kinds = inspect.Parameter
    found, kind = [], kinds.POSITIONAL_OR_KEYWORD
    for text in parameters or []:
        if text.startswith("**"):
            found.append(kinds(text[2:], kinds.VAR_KEYWORD))
        elif text.startswith("*"):
            kind = kinds.KEYWORD_ONLY
            found += [kinds(text[1:], kinds.VAR_POSITIONAL)] if text != "*" else []
        else:
            default = None if text.endswith("=") else kinds.empty
            found.append(kinds(text.rstrip("="), kind, default=default))
    try:
        return inspect.Signature(found).bind(*args, **kwargs).arguments
    except TypeError as error:
        raise TypeError(f"CuPy's {name}({', '.join(parameters or [])}): {error}") from None


def check_arguments(name: str, bound: dict[str, Any]) -> None:
    """Refuse host arrays, and lists where CuPy requires arrays."""
    for parameter, value in bound.items():
        values = value if isinstance(value, (tuple, list)) and parameter in SEQUENCES_OF_ARRAYS else (value,)
        for one in values:
            if isinstance(one, np.ndarray):
                raise TypeError(f"CuPy refuses an array of the host in {name}({parameter}=); move it first")
            if isinstance(one, (tuple, list)) and parameter not in SHAPES:
                raise TypeError(f"CuPy refuses a {type(one).__name__} in {name}({parameter}=); it requires an array")


def check_index(shape: tuple[int, ...], index: Any) -> None:
    """Refuse host arrays as index, and indices that CuPy would wrap around."""
    parts = parts_of(index)
    for part in parts:
        if isinstance(part, (np.ndarray, list)):
            raise TypeError(f"CuPy would move this {type(part).__name__} of the host to index with it; move it first")
    dots = next((i for i, part in enumerate(parts) if part is Ellipsis), len(parts))
    after_dots = parts[dots + 1 :]
    axis = 0
    for part in parts[:dots]:
        axis = _check_part(shape, part, axis)
    axis = len(shape) - sum(_axes(part) for part in after_dots)
    for part in after_dots:
        axis = _check_part(shape, part, axis)


def check_values(indices: Any, length: int) -> None:
    """Refuse indices outside the array and negative indices: a negative token id is a mistake."""
    numbers = getattr(indices, "_numbers", indices)
    if isinstance(numbers, np.ndarray) and numbers.size and not (numbers.min() >= 0 and numbers.max() < length):
        raise IndexError(f"an index outside [0, {length}); CuPy wraps it silently, so check it on the host")


def parts_of(index: Any) -> tuple[Any, ...]:
    return index if isinstance(index, tuple) else (index,)


def is_mask(part: Any) -> bool:
    return getattr(part, "dtype", None) == np.dtype(bool)


def _axes(part: Any) -> int:
    if part is None:
        return 0
    return int(part.ndim) if is_mask(part) else 1


def _check_part(shape: tuple[int, ...], part: Any, axis: int) -> int:
    if hasattr(part, "dtype") and not is_mask(part):
        check_values(part, shape[axis])
    return axis + _axes(part)
