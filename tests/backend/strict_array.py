"""An array that computes with NumPy under CuPy's rules, to find without a GPU the calls that would fail on one.

    x = StrictArray(np.ones(3))      moves an array to the "device"; `x.get()` brings it back
    np.exp(x)                        works, and gives the same numbers as NumPy
    x + np.ones(3)                   TypeError: a host array and a device array in one expression

It refuses host arrays and lists among device arrays, functions and keywords that are not in the lists below,
conversion to a host array, and two writes to one place in one assignment (CuPy does not define which value wins). A
reduction gives a 0-d array. Each read of a value by Python (float, bool, item, a boolean index) is noted in `WAITS`,
because on a GPU it waits until all work is done.
"""

from typing import Any

import numpy as np

from numpy_attention.backend import NumPyBackend

# CuPy 14 has these functions and methods, with these keywords. Before you add one, look it up in CuPy's reference.
FUNCTIONS = {
    "arange", "argmax", "argsort", "asarray", "broadcast_to", "clip", "concatenate", "copyto", "cumsum", "dot",
    "einsum", "empty_like", "full_like", "linalg.norm", "max", "mean", "min", "ndim", "nonzero", "ones_like", "reshape",
    "shape", "stack", "sum", "swapaxes", "take", "take_along_axis", "transpose", "tri", "tril", "triu", "where",
    "zeros_like",
}
METHODS = {"argmax", "argsort", "astype", "clip", "copy", "cumsum", "max", "mean", "min", "reshape", "sum", "swapaxes"}
ATTRIBUTES = {"T", "dtype", "flags", "imag", "itemsize", "nbytes", "ndim", "real", "shape", "size"}
KEYWORDS = {"axis", "axes", "copy", "dtype", "k", "keepdims", "kind", "mode", "ord", "order", "out", "shape"}
MORE_KEYWORDS = {"copyto": {"where"}, "tri": {"M", "N"}}
REFUSED_KEYWORDS = {"take": {"mode"}, "matmul": {"out"}}
WITH_REDUCE = ("add", "multiply")  # the ufuncs whose `reduce` CuPy has

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
        if method not in ("__call__", "at") and not (method == "reduce" and ufunc.__name__ in WITH_REDUCE):
            raise TypeError(f"CuPy has no np.{ufunc.__name__}.{method}")
        if method == "at":
            check_index(inputs[1])
        return self._call(ufunc.__name__, getattr(ufunc, method), inputs, kwargs)

    def __array_function__(self, function: Any, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        name = ".".join([*function.__module__.split(".")[1:], function.__name__])
        if name not in FUNCTIONS:
            raise TypeError(f"np.{name} is not in the list of CuPy's functions")
        if name == "asarray":  # with like=, it moves a host array to the device
            return args[0] if isinstance(args[0], StrictArray) else StrictArray(args[0])
        if name.endswith("_like") and kwargs.get("shape") == ():
            raise TypeError(f"CuPy ignores shape=() in np.{name} and returns the shape of the first argument")
        return self._call(name, function, args, kwargs, lists=name in ("concatenate", "stack"))

    def _call(self, name: str, function: Any, args: Any, kwargs: Any, lists: bool = False) -> Any:
        """Refuse the keywords and arguments that CuPy refuses, then compute with NumPy."""
        if refused := kwargs.keys() - ((KEYWORDS | MORE_KEYWORDS.get(name, set())) - REFUSED_KEYWORDS.get(name, set())):
            raise TypeError(f"CuPy's {name} has no {', '.join(sorted(refused))}=")
        first = args[0] if lists else args
        out = kwargs["out"] if isinstance(kwargs.get("out"), tuple) else (kwargs.get("out"),)
        for one in (*first, *out, kwargs.get("where")):
            if isinstance(one, (np.ndarray, list)):
                raise TypeError(f"CuPy refuses a {type(one).__name__} of the host in {name}; move it first")
        return wrap(function(*unwrap(args), **unwrap(kwargs)), (*args, *out))

    def __getattr__(self, name: str) -> Any:
        """The attributes and methods that CuPy's arrays have."""
        if name in ATTRIBUTES:
            return wrap(getattr(self._numbers, name), ())
        if name not in METHODS:
            raise AttributeError(f"{name} is not in the list of the methods of CuPy's arrays")
        return lambda *args, **kwargs: self._call(name, getattr(self._numbers, name), args, kwargs)

    def get(self) -> np.ndarray:
        """A copy in the memory of the host."""
        WAITS.append("get")
        return self._numbers.copy()

    def __getitem__(self, index: Any) -> "StrictArray":
        check_index(index)
        if has_mask(index):
            WAITS.append("a boolean index")  # only the device has the number of chosen elements
        found = self._numbers[unwrap(index)]
        if not isinstance(found, np.ndarray):  # NumPy returns a scalar copy, CuPy a 0-d view
            found = self._numbers[(*parts_of(unwrap(index)), Ellipsis)]
        return wrap(found, ())

    def __setitem__(self, index: Any, value: Any) -> None:
        check_index(index)
        if isinstance(value, (np.ndarray, list, tuple)):
            raise TypeError(f"CuPy refuses to write a {type(value).__name__} of the host to the device; move it first")
        if isinstance(value, StrictArray) and not has_mask(index):
            times = np.zeros(self.shape, dtype=np.int64)
            np.add.at(times, unwrap(index), 1)
            if times.max(initial=0) > 1:
                raise IndexError("one place is written twice in one assignment; CuPy does not define which value wins")
        self._numbers[unwrap(index)] = unwrap(value)

    def __len__(self) -> int:
        return len(self._numbers)

    def __deepcopy__(self, memo: Any) -> "StrictArray":
        return StrictArray(self._numbers)


def _reading(name: str) -> Any:
    def method(self: StrictArray) -> Any:
        WAITS.append(name.strip("_"))
        return getattr(self._numbers, name)()

    return method


for _name in ("__float__", "__int__", "__bool__", "__index__", "__repr__", "item"):
    setattr(StrictArray, _name, _reading(_name))


class StrictBackend(NumPyBackend):
    name = "strict"

    def asarray(self, array: Any) -> Any:
        return array if isinstance(array, StrictArray) else StrictArray(array)


def parts_of(index: Any) -> tuple[Any, ...]:
    return index if isinstance(index, tuple) else (index,)


def has_mask(index: Any) -> bool:
    return any(getattr(part, "dtype", None) == np.dtype(bool) for part in parts_of(index))


def check_index(index: Any) -> None:
    if any(isinstance(part, (np.ndarray, list)) for part in parts_of(index)):
        raise TypeError("CuPy refuses an array of the host as an index; move it first")


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
        made = object.__new__(StrictArray)
        made._numbers = np.asarray(value)
        return made
    return type(value)(wrap(one, given) for one in value) if type(value) in (tuple, list) else value
