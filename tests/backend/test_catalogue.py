"""Every entry of the catalogue, forward and backward, gives on the device what it gives on the host."""

import copy
from typing import Any

import numpy as np
import pytest

from numpy_attention.backend import hosted, move
from numpy_attention.gradcheck.catalogue import CATALOGUE
from numpy_attention.gradcheck.check import gradcheck
from numpy_attention.gradcheck.entry import Case
from tests.backend.devices import Device, waits

ENTRIES = sorted(CATALOGUE)
OPS = [name for name in ENTRIES if CATALOGUE[name].build is None]
FEW = ["cross_entropy: ignore_index", "embedding", "softmax"]  # on the stand-in, whose numbers are those of NumPy


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "checked" in metafunc.fixturenames:
        on_gpu = metafunc.config.getoption("--backend") == "cupy"
        metafunc.parametrize("checked", OPS if on_gpu else FEW)


def arrays_of(y: Any) -> tuple[Any, ...]:
    return y if isinstance(y, tuple) else (y,)


def named(grads: Any) -> dict[str, Any]:
    return grads if isinstance(grads, dict) else dict(enumerate(arrays_of(grads)))


def run(case: Case, dy: Any, inputs: Any, options: Any) -> tuple[Any, dict[str, Any]]:
    """Forward and backward with generators of their own."""
    y, cache = case.op(**inputs, **copy.deepcopy(options))
    return arrays_of(y), named(case.op_backward(dy if isinstance(y, tuple) else dy[0], cache))


def cotangent(case: Case, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    y, _ = case.op(**case.inputs, **copy.deepcopy(case.options))
    return tuple(np.asarray(rng.standard_normal(one.shape), dtype=one.dtype) for one in arrays_of(y))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", ENTRIES)
def test_forward_and_backward_agree_with_numpy(name: str, dtype: Any, device: Device, rng: np.random.Generator) -> None:
    case = CATALOGUE[name].case(seed=5, dtype=dtype)
    dy = cotangent(case, rng)
    with device.same_path():
        y_host, grads_host = run(case, dy, case.inputs, case.options)

    with waits() as found:
        y, grads = run(case, move(dy, device.move), move(case.inputs, device.move), move(case.options, device.move))
    assert not found, f"{name} waits for the device: {found}"

    for there, here in zip(y, y_host, strict=True):
        device.agree(there, here, f"{name}: y")
    largest = max(float(np.abs(grad).max(initial=0.0)) for grad in grads_host.values() if grad is not None)
    assert grads.keys() == grads_host.keys()
    for argument, here in grads_host.items():
        assert (here is None) == (grads[argument] is None)
        if here is not None:
            device.agree(grads[argument], here, f"{name}: d{argument}", largest)


def test_gradients_computed_on_the_device_pass_the_check(checked: str, device: Device) -> None:
    case = CATALOGUE[checked].case(seed=6)
    op, op_backward = hosted(case.op, case.op_backward, device.backend)
    report = gradcheck(op, op_backward, case.inputs, **case.options)
    assert report.error <= CATALOGUE[checked].tolerance
