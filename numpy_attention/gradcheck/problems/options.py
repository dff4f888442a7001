"""Options: what a function takes besides its inputs. They are passed on as they are, and never differentiated.

A function may have an option that is called as one of the checker's own, `seed` or `rtol`: as a keyword that name is
the checker's, and the function's own goes in by `options={"seed": 3}`.
"""

import copy
import inspect
import math
import reprlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

Options = Mapping[str, Any]

OWN = {"seed": 0, "witness": "both", "no_gradient": (), "rtol": 0.0, "atol": 0.0}  # the checker's, when not given
WITNESSES = ("both", "complex", "differences")


def checked(name: str, seed: Any, witness: Any, rtol: Any, atol: Any) -> tuple[int, float, float]:
    """The seed and the two tolerances as plain numbers, for a check of what goes by that name.

    Raises: TypeError or ValueError, in one line, for a value that the check can do nothing with.
    """

    def require(option: str, value: Any, expected: str, kind: bool, range: bool) -> None:
        if not (kind and range):
            error = ValueError if kind else TypeError
            raise error(f"gradcheck {name}: {option} must be {expected}, got {reprlib.repr(value)}")

    known = isinstance(witness, str) and witness in WITNESSES
    require("witness", witness, f"one of {', '.join(WITNESSES)}", True, known)
    whole = isinstance(seed, (int, np.integer)) and not isinstance(seed, bool)
    require("seed", seed, "a whole number, 0 or more", whole, whole and seed >= 0)
    for option, value in {"rtol": rtol, "atol": atol}.items():
        real = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
        require(option, value, "a finite number, 0 or more", real, real and 0 <= value < math.inf)
    return int(seed), float(rtol), float(atol)


def split_options(
    f: Callable[..., Any], options: Options | None, more: Options, own: Options | None = None
) -> dict[str, Any]:
    """The options of f: those given by keyword, `more`, and those in `options`. `own` are the checker's, as given.

    Raises: TypeError for an option given twice, and for one that f and the checker both may be meant to have.
    """
    name = name_of(f)
    if options is not None and not isinstance(options, Mapping):
        raise TypeError(f"gradcheck {name}: options must be a dict by name, got {type(options).__name__}")
    found = dict(options or {})
    for option, value in more.items():
        if option in found:
            raise TypeError(f"gradcheck {name}: the option {option} was given twice, by keyword and in options")
        found[option] = value
    for option, value in (own or {}).items():
        if value != OWN[option] and option not in found and option in parameters_of(f):
            raise TypeError(
                f"gradcheck {name}: {option}={value!r} is the checker's own, but {name} takes a {option} too; "
                f"say which {name} gets: options={{{option!r}: ...}}"
            )
    return found


def fresh(options: Options, arrays: Mapping[str, Any]) -> dict[str, Any]:
    """The options for one call: generators copied, so that every call draws the same dropout mask, and arrays of
    floats in the dtype of the inputs, which is float64 for the differences."""
    numbers = [array for array in arrays.values() if getattr(getattr(array, "dtype", None), "kind", "") in ("f", "c")]
    dtype = max(numbers, key=lambda array: array.ndim > 0).dtype if numbers else None  # of the first with axes
    found: dict[str, Any] = {}
    for name, value in with_own_generators(options).items():
        is_array = not isinstance(value, np.generic) and getattr(getattr(value, "dtype", None), "kind", "") == "f"
        found[name] = value.astype(dtype) if is_array else value
    return found


def with_own_generators(options: Options) -> dict[str, Any]:
    """The options with copies of the generators, each where it stands now."""
    return {
        name: copy.deepcopy(value) if isinstance(value, (np.random.Generator, np.random.RandomState)) else value
        for name, value in options.items()
    }


def parameters_of(f: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """The parameters of a function by name; nothing where it does not tell, as some written in C do not."""
    if isinstance(f, np.ufunc):  # before NumPy 2.4 inspect.signature refuses them
        names = ["x"] if f.nin == 1 else [f"x{i + 1}" for i in range(f.nin)]
        return {name: inspect.Parameter(name, inspect.Parameter.POSITIONAL_ONLY) for name in names}
    try:
        return dict(inspect.signature(f).parameters)
    except (TypeError, ValueError):
        return {}


def name_of(f: Any) -> str:
    """What a function is called: in messages it goes by this name."""
    return str(getattr(f, "__name__", None) or getattr(getattr(f, "func", None), "__name__", None) or type(f).__name__)
