"""The device of the backend tests: the strict stand-in, or a real GPU (`pytest tests/backend --backend cupy`)."""

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
    """The stand-in as a backend: its arrays follow CuPy's rules and compute with NumPy."""

    name = "strict"

    def asarray(self, array: Any) -> Any:
        return array if isinstance(array, StrictArray) else StrictArray(array)

    def synchronize(self) -> None:
        WAITS.append("synchronize")


class Device:
    """A backend, and the tolerance for comparisons with NumPy."""

    def __init__(self, name: str) -> None:
        self.backend = StrictBackend() if name == "strict" else get_backend(name)
        self.exact = name == "strict"

    def move(self, array: Any) -> Any:
        return self.backend.asarray(array)

    def host(self, array: Any) -> np.ndarray:
        return to_host(array)

    def agree(self, on_device: Any, on_host: Any, what: str, scale: float | None = None) -> None:
        """Compare: bit for bit on the stand-in, with a tolerance on a GPU, which adds in another order.

        The tolerance is 200 eps of the dtype, relative to the largest number of the array (or `scale`, where larger).
        """
        found, expected = self.host(on_device), np.asarray(on_host)
        assert found.dtype == expected.dtype, f"{what}: {found.dtype} on the device, {expected.dtype} on the host"
        assert found.shape == expected.shape, f"{what}: {found.shape} on the device, {expected.shape} on the host"
        if self.exact or expected.dtype.kind != "f":
            np.testing.assert_array_equal(found, expected, err_msg=what)
            return
        largest = max(float(np.max(np.abs(expected), initial=0.0, where=np.isfinite(expected))), scale or 0.0)
        tolerance = 200 * float(np.finfo(expected.dtype).eps) * largest
        np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance, err_msg=what)


    @contextmanager
    def same_path(self) -> Iterator[None]:
        """Make NumPy use the code path of a device: in the backward of the embedding, `np.add.at`.

        The two paths add the same numbers in another order. With the same path, results can be compared bit for bit;
        one test compares the two paths.
        """
        with pytest.MonkeyPatch.context() as patch:
            if self.exact:
                patch.setattr(embedding, "on_host", lambda array: False)
            yield


@contextmanager
def waits() -> Iterator[list[str]]:
    """Yield a list; after the block it names every operation that made the host wait for the stand-in device."""
    found: list[str] = []
    start = len(WAITS)
    yield found
    found += WAITS[start:]
