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
import os
import platform
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, NamedTuple

import numpy as np

NAMES = ("numpy", "cupy")
# While this is true, ops accept complex numbers as floats, so the complex step can take derivatives.
COMPLEX: ContextVar[bool] = ContextVar("COMPLEX", default=False)


class BackendError(ValueError):
    """The backend does not work on this machine; the message is one line and names what to install or check."""


class Memory(NamedTuple):
    """Bytes used by the arrays of this process (on the host: by the whole process), and all bytes of the memory."""

    used: int
    total: int


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

    def describe(self) -> str:
        """The machine and the version, for the first line of a report of measurements."""
        return f"{platform.machine()}, NumPy {np.__version__}"

    def memory(self) -> Memory:
        """The memory of this process and of this machine; zeros if the system does not report them."""
        try:
            page = os.sysconf("SC_PAGE_SIZE")
            with open("/proc/self/statm", encoding="ascii") as statm:
                return Memory(int(statm.read().split()[1]) * page, os.sysconf("SC_PHYS_PAGES") * page)
        except (OSError, ValueError, AttributeError):
            return Memory(0, 0)


class CuPyBackend(NumPyBackend):
    """Arrays in the memory of a GPU."""

    name = "cupy"

    def __init__(self) -> None:
        self._cupy = _working_cupy()

    def asarray(self, array: Any) -> Any:
        """The array on the GPU, without a copy if possible."""
        return self._cupy.asarray(array)

    def synchronize(self) -> None:
        """Wait until the GPU has finished all started work; needed only before reading a clock."""
        self._cupy.cuda.get_current_stream().synchronize()

    def memory(self) -> Memory:
        """The memory of all arrays on the GPU, and the total memory of the GPU."""
        return Memory(self._cupy.get_default_memory_pool().used_bytes(), self._cupy.cuda.runtime.memGetInfo()[1])

    def describe(self) -> str:
        """The card, the versions of CUDA, CuPy and NumPy, for the first line of a report of measurements."""
        runtime = self._cupy.cuda.runtime
        card = runtime.getDeviceProperties(runtime.getDevice())["name"].decode()
        cuda = runtime.driverGetVersion()  # 12040 is 12.4
        return f"{card}, CUDA {cuda // 1000}.{cuda % 1000 // 10}, CuPy {self._cupy.__version__}, NumPy {np.__version__}"


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


def _working_cupy() -> Any:
    """The module cupy, after a test that it can compute on this machine."""
    try:
        cupy = importlib.import_module("cupy")
    except Exception as error:  # a damaged installation or missing libraries of CUDA can raise errors of any kind
        if isinstance(error, ModuleNotFoundError) and error.name == "cupy":
            fix = "install it with: pip install 'cupy-cuda12x[ctk]' (for CUDA 13 drivers 'cupy-cuda13x[ctk]')"
            raise BackendError(f"the backend cupy needs CuPy, which is not installed; {fix}") from None
        raise BackendError(f"CuPy is installed but its import fails ({_first_line(error)}); install it again") from None
    try:
        devices = cupy.cuda.runtime.getDeviceCount()
    except Exception as error:
        fix = "check that nvidia-smi lists a GPU and that its driver is new enough for this CuPy"
        raise BackendError(f"CuPy finds no working NVIDIA driver ({_first_line(error)}); {fix}") from None
    if not devices:
        raise BackendError("CuPy finds no GPU; check nvidia-smi, and the variable CUDA_VISIBLE_DEVICES")
    try:
        x = cupy.arange(4, dtype=np.float32).reshape(2, 2)
        float(cupy.exp(x @ x).sum())
    except Exception as error:
        fix = "install CUDA's libraries, too, with: pip install 'cupy-cuda12x[ctk]'"
        raise BackendError(f"CuPy finds a GPU but cannot compute on it ({_first_line(error)}); {fix}") from None
    return cupy


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
