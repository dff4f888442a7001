"""Where the backend tests compute: on the strict stand-in, or on a real GPU (`pytest tests/backend --backend cupy`)."""

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from numpy_attention.backend import NumPyBackend, get_backend, to_host
from tests.backend.strict_array import WAITS, StrictArray

embedding = importlib.import_module("numpy_attention.ops.embedding")  # the module; `ops.embedding` is the function


class StrictBackend(NumPyBackend):
    """The stand-in as a backend: its arrays keep CuPy's rules and hold NumPy's numbers."""

    name = "strict"

    def asarray(self, array: Any) -> Any:
        return array if isinstance(array, StrictArray) else StrictArray(array)

    def synchronize(self) -> None:
        WAITS.append("synchronize")


class Device:
    """A backend, and how closely its numbers must agree with those of NumPy."""

    def __init__(self, name: str) -> None:
        self.backend = StrictBackend() if name == "strict" else get_backend(name)
        self.exact = name == "strict"

    def move(self, array: Any) -> Any:
        return self.backend.asarray(array)

    def host(self, array: Any) -> np.ndarray:
        return to_host(array)

    def agree(self, there: Any, here: Any, what: str, scale: float | None = None) -> None:
        """Equal bit for bit on the stand-in; on a GPU, whose sums run in another order, to within its rounding.

        The tolerance is 200 eps of the dtype, relative to the largest number of the array (or `scale`, where larger).
        """
        there, here = self.host(there), np.asarray(here)
        assert there.dtype == here.dtype, f"{what}: {there.dtype} on the device, {here.dtype} on the host"
        assert there.shape == here.shape, f"{what}: {there.shape} on the device, {here.shape} on the host"
        if self.exact or here.dtype.kind != "f":
            np.testing.assert_array_equal(there, here, err_msg=what)
            return
        largest = max(float(np.max(np.abs(here), initial=0.0, where=np.isfinite(here))), scale or 0.0)
        tolerance = 200 * float(np.finfo(here.dtype).eps) * largest
        np.testing.assert_allclose(there, here, rtol=0, atol=tolerance, err_msg=what)


    @contextmanager
    def same_path(self) -> Iterator[None]:
        """NumPy takes the path of a device too, where a chapter has one of its own: the embedding's `np.add.at`.

        It adds the same numbers in another order. With it, bits can be compared; a test of its own compares the paths.
        """
        with pytest.MonkeyPatch.context() as patch:
            if self.exact:
                patch.setattr(embedding, "on_host", lambda array: False)
            yield


@contextmanager
def waits() -> Iterator[list[str]]:
    """What made the host wait for the stand-in device within the block."""
    found: list[str] = []
    start = len(WAITS)
    yield found
    found += WAITS[start:]
