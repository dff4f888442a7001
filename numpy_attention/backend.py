"""Where arrays are stored: in this computer's memory (NumPy) or in the memory of a GPU (CuPy).

    backend = get_backend("cupy")
    model.to(backend)                         every parameter moves; from here on the work runs on the GPU
    loss, cache = model.loss(ids, targets)    ids and targets may stay on the host: they are checked and moved
    grads = model.backward(cache)
    float(loss)                               waits for the GPU: once per step is enough

The formulas of the book do not change. A chapter calls `np.exp(x)`; if x is a CuPy array, NumPy passes the call on to
CuPy (NumPy enhancement proposals 13 and 18). So the arrays decide where the work runs. A chapter must follow two rules:
a new array is made in the memory of an existing array (`like=x`), and values are read only if reading does not wait for
a GPU (`on_host`). `docs/gpu.md` lists these and the other rules. Only this file imports CuPy.
"""

import functools
import importlib
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import numpy as np

NAMES = ("numpy", "cupy")
# While this is true, ops accept complex numbers as floats, so the complex step can take derivatives.
COMPLEX: ContextVar[bool] = ContextVar("COMPLEX", default=False)


class BackendError(ValueError):
    """The backend does not work on this machine; the message is one line and names what to install or check."""


class NumPyBackend:
    """Arrays in this computer's memory."""

    name = "numpy"

    def asarray(self, array: Any) -> np.ndarray:
        """The array in this computer's memory, without a copy if possible."""
        return to_host(array)

    def to_host(self, array: Any) -> np.ndarray:
        """The array in this computer's memory."""
        return to_host(array)

    def synchronize(self) -> None:
        """Wait until all started work is done; NumPy always finishes its work before it returns."""


class CuPyBackend(NumPyBackend):
    """Arrays in the memory of a GPU."""

    name = "cupy"

    def __init__(self) -> None:
        try:
            cupy = importlib.import_module("cupy")
            x = cupy.arange(4, dtype=np.float32).reshape(2, 2)
            float(cupy.exp(x @ x).sum())
        except Exception as error:  # a missing driver, device or library of CUDA can raise errors of any kind
            install = "pip install 'cupy-cuda12x[ctk]' (for CUDA 13 drivers 'cupy-cuda13x[ctk]')"
            if isinstance(error, ModuleNotFoundError) and error.name == "cupy":
                raise BackendError(f"the backend cupy needs CuPy, which is not installed: {install}") from None
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            fix = f"check that nvidia-smi lists a GPU, and install CuPy with CUDA's libraries: {install}"
            raise BackendError(f"CuPy cannot compute on a GPU here ({reason}); {fix}") from None
        self._cupy: Any = cupy

    def asarray(self, array: Any) -> Any:
        """The array on the GPU, without a copy if possible."""
        return self._cupy.asarray(array)

    def synchronize(self) -> None:
        """Wait until the GPU has finished all started work; needed only before reading a clock."""
        self._cupy.cuda.get_current_stream().synchronize()


def get_backend(name: str = "numpy") -> NumPyBackend:
    """The backend of this name, "numpy" or "cupy".

    Raises: BackendError, with one line that names what to install or check, if the backend does not work.
    """
    if name == "numpy":
        return NumPyBackend()
    if name == "cupy":
        return CuPyBackend()
    raise BackendError(f"there is no backend {name!r}; choose one of {', '.join(NAMES)}")


def to_host(array: Any) -> np.ndarray:
    """The array in this computer's memory; for an array on a GPU, wait for its result and copy it.

    CuPy never copies implicitly: `np.asarray` of a CuPy array raises, and its method `get()` copies.
    """
    return array.get() if hasattr(type(array), "__cuda_array_interface__") else np.asarray(array)


def on_host(array: object) -> bool:
    """Whether the array is in this computer's memory, so reading its values does not wait for a GPU."""
    return isinstance(array, (np.ndarray, np.generic))


def move(tree: Any, to: Callable[[Any], Any]) -> Any:
    """The same tuples, lists and dicts with `to(array)` instead of every array; everything else is unchanged."""
    if isinstance(tree, dict):
        return {name: move(value, to) for name, value in tree.items()}
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(move(value, to) for value in tree))
    if isinstance(tree, (tuple, list)):
        return type(tree)(move(value, to) for value in tree)
    return to(tree) if hasattr(tree, "dtype") and hasattr(tree, "shape") else tree


def copied_to_host(op: Any, op_backward: Any, backend: NumPyBackend) -> tuple[Any, Any]:
    """The op and its backward for host arrays: both compute on the backend and copy their results to the host."""

    @functools.wraps(op)
    def op_on_backend(*inputs: Any, **options: Any) -> tuple[Any, Any]:
        y, cache = op(*move(inputs, backend.asarray), **move(options, backend.asarray))
        return move(y, backend.to_host), cache

    def op_backward_on_backend(dy: Any, cache: Any) -> Any:
        return move(op_backward(move(dy, backend.asarray), cache), backend.to_host)

    return op_on_backend, op_backward_on_backend
