"""An array that computes with NumPy under CuPy's rules, to find without a GPU the calls that would fail on one.

    x = StrictArray(np.ones(3))      moves an array to the "device"; `x.get()` brings it back
    np.exp(x)                        works, and gives the same numbers as NumPy
    x + np.ones(3)                   TypeError: a host array and a device array in one expression

It refuses, with a TypeError, IndexError or AttributeError that explains what CuPy would do: host arrays and lists as
arguments; functions, keywords and methods that CuPy does not have (recorded from the real CuPy); implicit conversion to
a host array; indices outside the array (CuPy wraps them silently); and two writes to one place in one assignment (CuPy
does not define which value wins). Reductions give 0-d arrays. Every read of a value from Python (float, bool, item, a
boolean index) is counted in `WAITS`: on a GPU the host then waits until all work is done.
"""

from typing import Any

import numpy as np

from tests.backend.strict_rules import (
    CUPY,
    MOVING_FUNCTIONS,
    WAITING_FUNCTIONS,
    WAITING_METHODS,
    bind,
    check_arguments,
    check_index,
    check_values,
    is_mask,
    parts_of,
)

WAITS: list[str] = []  # what made the host wait for the device, in order


class StrictArray(np.lib.mixins.NDArrayOperatorsMixin):
    """A device array for the code under test."""

    __slots__ = ("_numbers",)

    def __init__(self, numbers: Any) -> None:
        self._numbers = np.array(numbers)  # a copy, like a move to another memory

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError("CuPy refuses implicit conversion to a NumPy array; use to_host (or np.*_like, like=)")

    @property
    def __cuda_array_interface__(self) -> Any:
        raise AttributeError("there is no GPU behind a StrictArray")

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        name = ufunc.__name__
        if name not in CUPY["ufuncs"]:
            raise TypeError(f"CuPy has no np.{name}")
        if method != "__call__" and method not in CUPY["ufuncs"][name]["methods"]:
            raise TypeError(f"CuPy has no np.{name}.{method}")
        if method == "__call__":
            bind(f"np.{name}", CUPY["ufuncs"][name]["parameters"], inputs, kwargs)
        elif refused := kwargs.keys() - {"axis", "dtype", "out", "keepdims"}:
            raise TypeError(f"CuPy's np.{name}.{method} has no {', '.join(sorted(refused))}=")
        for value in (*inputs, *kwargs.get("out", ())):
            if isinstance(value, (np.ndarray, list, tuple)):
                raise TypeError(f"CuPy refuses a {type(value).__name__} of the host in np.{name}; move it first")
        if method in ("at", "reduceat"):
            check_index(inputs[0].shape[kwargs.get("axis", 0) :], inputs[1])
        call = getattr(ufunc, method)
        return wrap(call(*unwrap(inputs), **unwrap(kwargs)), (*inputs, *kwargs.get("out", ())))

    def __array_function__(self, function: Any, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        name = ".".join([*function.__module__.split(".")[1:], function.__name__])
        if name not in CUPY["functions"]:
            raise TypeError(f"CuPy has no np.{name}")
        bound = bind(f"np.{name}", CUPY["functions"][name], args, kwargs)
        if name in MOVING_FUNCTIONS:
            first, *others = args
            numbers = first._numbers if isinstance(first, StrictArray) else np.array(first)
            return wrap(function(numbers, *others, **kwargs), (first,))
        check_arguments(f"np.{name}", bound)
        if name.endswith("_like") and bound.get("shape") == ():
            raise TypeError(f"CuPy ignores shape=() in np.{name} and returns the shape of the first argument")
        if name in ("take", "take_along_axis"):
            axis = bound.get("axis")
            check_values(bound["indices"], bound["a"].size if axis is None else bound["a"].shape[axis])
        if name in WAITING_FUNCTIONS:
            WAITS.append(f"np.{name}")
        return wrap(function(*unwrap(args), **unwrap(kwargs)), (*args, *kwargs.values()))

    def __getattr__(self, name: str) -> Any:
        """The attributes and methods that CuPy's arrays have."""
        if name in CUPY["attributes"]:
            return wrap(getattr(self._numbers, name), ())
        if name not in CUPY["methods"]:
            raise AttributeError(f"CuPy's arrays have no {name}")

        def method(*args: Any, **kwargs: Any) -> Any:
            bound = bind(f"ndarray.{name}", CUPY["methods"][name], args, kwargs)
            check_arguments(f"ndarray.{name}", bound)
            if name == "take":
                axis = bound.get("axis")
                check_values(bound["indices"], self.size if axis is None else self.shape[axis])
            if name in WAITING_METHODS:
                WAITS.append(name)
            found = getattr(self._numbers, name)(*unwrap(args), **unwrap(kwargs))
            return found if name == "item" else wrap(found, (self, *args, *kwargs.values()))

        return method

    def get(self) -> np.ndarray:
        """A copy in the memory of the host."""
        WAITS.append("get")
        return self._numbers.copy()

    def __getitem__(self, index: Any) -> "StrictArray":
        check_index(self.shape, index)
        if any(is_mask(part) for part in parts_of(index)):
            WAITS.append("a boolean index")  # only the device has the number of chosen elements
        found = self._numbers[unwrap(index)]
        if not isinstance(found, np.ndarray):  # NumPy returns a scalar copy, CuPy a 0-d view
            found = self._numbers[(*parts_of(unwrap(index)), Ellipsis)]
        return wrap(found, ())

    def __setitem__(self, index: Any, value: Any) -> None:
        check_index(self.shape, index)
        if isinstance(value, (np.ndarray, list, tuple)):
            raise TypeError(f"CuPy refuses to write a {type(value).__name__} of the host to the device; move it first")
        arrays = [part for part in parts_of(index) if isinstance(part, StrictArray) and not is_mask(part)]
        if arrays and isinstance(value, StrictArray):
            times = np.zeros(self.shape, dtype=np.int64)
            np.add.at(times, unwrap(index), 1)
            if times.max(initial=0) > 1:
                raise IndexError("one place is written twice in one assignment; CuPy does not define which value wins")
        self._numbers[unwrap(index)] = unwrap(value)

    def __len__(self) -> int:
        return len(self._numbers)

    def __deepcopy__(self, memo: Any) -> "StrictArray":
        return StrictArray(self._numbers)

    def __repr__(self) -> str:
        WAITS.append("repr")
        return f"StrictArray({self._numbers!r})"


def _reading(name: str) -> Any:
    def method(self: StrictArray) -> Any:
        WAITS.append(name.strip("_"))
        return getattr(self._numbers, name)()

    return method


for _name in ("__float__", "__int__", "__bool__", "__index__", "__complex__"):
    setattr(StrictArray, _name, _reading(_name))


def unwrap(value: Any) -> Any:
    """The NumPy arrays inside."""
    if isinstance(value, StrictArray):
        return value._numbers
    if isinstance(value, (tuple, list)):
        return type(value)(unwrap(one) for one in value)
    return {name: unwrap(one) for name, one in value.items()} if isinstance(value, dict) else value


def wrap(value: Any, given: tuple[Any, ...]) -> Any:
    """Wrap every array of a result. An array that was an argument, such as `out`, is returned as the same object."""
    if isinstance(value, (np.ndarray, np.generic)):
        for one in given:
            if isinstance(one, StrictArray) and one._numbers is value:
                return one
        array = object.__new__(StrictArray)
        array._numbers = np.asarray(value)
        return array
    return type(value)(wrap(one, given) for one in value) if type(value) in (tuple, list) else value
