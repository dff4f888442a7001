"""Where arrays live: in this computer's memory (NumPy) or in a GPU's (CuPy).

    backend = get_backend("cupy")
    model.to(backend)                         every parameter moves; from here on the work runs on the GPU
    loss, cache = model.loss(ids, targets)    ids and targets may stay on the host: they are checked and moved
    grads = model.backward(cache)
    float(loss)                               waits for the GPU: once a step is enough

The formulas of the book stay as they are. A chapter calls `np.exp(x)`, and NumPy asks x whether it would rather do that
itself; a CuPy array does (NumPy enhancement proposals 13 and 18). So the arrays decide where the work runs. Two things
a chapter must say: where an array lives that it makes from nothing (`like=x`), and that it looks at values only where
a look costs no wait (`on_host`). `docs/gpu.md` holds these rules and the others. This file alone knows CuPy's name.
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
# While it is true, complex numbers count as floats: so a derivative can be taken by a step into the complex plane.
COMPLEX: ContextVar[bool] = ContextVar("COMPLEX", default=False)


class BackendError(ValueError):
    """This machine cannot compute where it was asked to; the message is one line and says what to install or check."""


class Memory(NamedTuple):
    """Bytes: those the arrays of this process hold now (on the host: all of the process), and all there are."""

    used: int
    total: int


class NumPyBackend:
    """Arrays in this computer's memory."""

    name = "numpy"

    def asarray(self, array: Any) -> np.ndarray:
        """The array here; no copy if it is here already."""
        return to_host(array)

    def to_host(self, array: Any) -> np.ndarray:
        """The array in this computer's memory."""
        return to_host(array)

    def synchronize(self) -> None:
        """Wait until all work that was asked for is done; NumPy never leaves any undone."""

    def describe(self) -> str:
        """The machine and the version: what a report of measurements begins with."""
        return f"{platform.machine()}, NumPy {np.__version__}"

    def memory(self) -> Memory:
        """Memory of this process and of this machine; zeros where the system does not tell."""
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
        """The array on the GPU; no copy if it is there already."""
        return self._cupy.asarray(array)

    def synchronize(self) -> None:
        """Wait until the GPU has done all it was asked for: needed before a clock is read, and nowhere else."""
        self._cupy.cuda.get_current_stream().synchronize()

    def memory(self) -> Memory:
        """Memory that arrays hold on the GPU, and that the GPU has."""
        return Memory(self._cupy.get_default_memory_pool().used_bytes(), self._cupy.cuda.runtime.memGetInfo()[1])

    def describe(self) -> str:
        """The card, its driver's CUDA and the versions: what a report of measurements begins with."""
        runtime = self._cupy.cuda.runtime
        card = runtime.getDeviceProperties(runtime.getDevice())["name"].decode()
        cuda = runtime.driverGetVersion()  # 12040 is 12.4
        return f"{card}, CUDA {cuda // 1000}.{cuda % 1000 // 10}, CuPy {self._cupy.__version__}, NumPy {np.__version__}"


def get_backend(name: str = "numpy") -> NumPyBackend:
    """The backend of this name, "numpy" or "cupy".

    Raises: BackendError, with one line saying what to install or check, where it cannot be had.
    """
    if name == "numpy":
        return NumPyBackend()
    if name == "cupy":
        return CuPyBackend()
    raise BackendError(f"there is no backend {name!r}; choose one of {', '.join(NAMES)}")


def to_host(array: Any) -> np.ndarray:
    """The array in this computer's memory; one on a GPU is waited for and copied.

    CuPy never copies unasked: `np.asarray` of one of its arrays raises, their own `get()` copies.
    """
    return array.get() if hasattr(type(array), "__cuda_array_interface__") else np.asarray(array)


def on_host(array: object) -> bool:
    """Whether the numbers lie in this computer's memory, so that looking at them costs no wait for a GPU."""
    return isinstance(array, (np.ndarray, np.generic))


def move(tree: Any, to: Callable[[Any], Any]) -> Any:
    """The same tuples, lists and dicts with `to(array)` in the place of every array; all else stays as it is."""
    if isinstance(tree, dict):
        return {name: move(value, to) for name, value in tree.items()}
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(move(value, to) for value in tree))
    if isinstance(tree, (tuple, list)):
        return type(tree)(move(value, to) for value in tree)
    return to(tree) if hasattr(tree, "dtype") and hasattr(tree, "shape") else tree


def hosted(op: Any, op_backward: Any, backend: NumPyBackend) -> tuple[Any, Any]:
    """The same op and backward for arrays of the host, computed where the backend says; for checks and tests."""

    @functools.wraps(op)
    def op_there(*inputs: Any, **options: Any) -> tuple[Any, Any]:
        y, cache = op(*move(inputs, backend.asarray), **move(options, backend.asarray))
        return move(y, backend.to_host), cache

    def op_backward_there(dy: Any, cache: Any) -> Any:
        return move(op_backward(move(dy, backend.asarray), cache), backend.to_host)

    return op_there, op_backward_there


def _working_cupy() -> Any:
    """CuPy, after it has shown that it can add and multiply here."""
    try:
        cupy = importlib.import_module("cupy")
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError) and error.name == "cupy":
            fix = "install it with: pip install 'cupy-cuda12x[ctk]' (for CUDA 13 drivers 'cupy-cuda13x[ctk]')"
            raise BackendError(f"the backend cupy needs CuPy, which is not installed; {fix}") from None
        raise BackendError(f"CuPy is installed but does not import ({_first_line(error)}); install it anew") from None
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
        fix = "install CUDA's libraries beside it with: pip install 'cupy-cuda12x[ctk]'"
        raise BackendError(f"CuPy finds a GPU but cannot compute on it ({_first_line(error)}); {fix}") from None
    return cupy


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
