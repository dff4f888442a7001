"""Forward and backward of every entry of the catalogue give the same results on the device and on the host."""

import copy
import importlib
from typing import Any

import numpy as np
import pytest

from numpy_attention import ops
from numpy_attention.backend import copied_to_host, move
from numpy_attention.catalogue.entry import Case
from numpy_attention.catalogue.table import CATALOGUE
from numpy_attention.gradcheck.check import gradcheck
from numpy_attention.ops.softmax import softmax
from tests.backend.devices import Device, waits

ENTRIES = sorted(CATALOGUE)
OPS = [name for name in ENTRIES if CATALOGUE[name].build is None]
FEW = ["cross_entropy: ignore_index", "embedding", "softmax"]  # on the stand-in, which computes with NumPy


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "checked" in metafunc.fixturenames:
        on_gpu = metafunc.config.getoption("--backend") == "cupy"
        metafunc.parametrize("checked", OPS if on_gpu else FEW)


def arrays_of(y: Any) -> tuple[Any, ...]:
    return y if isinstance(y, tuple) else (y,)


def by_name(grads: Any) -> dict[str, Any]:
    return grads if isinstance(grads, dict) else dict(enumerate(arrays_of(grads)))


def run(case: Case, dy: Any, inputs: Any, options: Any) -> tuple[Any, dict[str, Any]]:
    """Forward and backward; the options are copied, so that generators start in the same state."""
    y, cache = case.op(**inputs, **copy.deepcopy(options))
    return arrays_of(y), by_name(case.op_backward(dy if isinstance(y, tuple) else dy[0], cache))


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


@pytest.mark.parametrize("name", ["softmax", "layer_norm", "rms_norm", "cross_entropy: ignore_index", "gelu: tanh"])
def test_float16_agrees_with_numpy(name: str, device: Device, rng: np.random.Generator) -> None:
    test_forward_and_backward_agree_with_numpy(name, np.float16, device, rng)


def test_masks_are_made_on_the_device(device: Device) -> None:
    x = device.move(np.ones(2, dtype=np.float32))
    lengths = np.array([2, 0, 4])
    with waits() as found:
        masks = {
            "causal": (ops.causal_mask(3, 5, like=x), ops.causal_mask(3, 5)),
            "window": (ops.sliding_window_mask(4, 2, 6, like=x), ops.sliding_window_mask(4, 2, 6)),
            "padding": (ops.padding_mask(device.move(lengths), 4), ops.padding_mask(lengths, 4)),
        }
    assert not found
    blocked, additive = np.array([[0, 1], [1, 0]]), np.array([[0.0, -np.inf], [-1e9, 0.0]])
    masks["blocked"] = ops.mask_from_blocked(device.move(blocked)), ops.mask_from_blocked(blocked)
    masks["additive"] = ops.mask_from_additive(device.move(additive)), ops.mask_from_additive(additive)
    for name, (there, here) in masks.items():
        device.agree(there, here, name)


PLANTED: dict[str, Any] = {
    "the maximum by reduce": lambda x, out: softmax(x - np.maximum.reduce(x, -1)[..., None], out=out),
    "a buffer of the host": lambda x, out: softmax(x + np.zeros(x.shape, dtype=x.dtype), out=out),
    "a value of the scores read in Python": lambda x, out: softmax(x / max(float(x.max()), 1.0), out=out),
    "scores chosen by a boolean index": lambda x, out: x[x > -1e9] is None or softmax(x, out=out),
}


@pytest.mark.parametrize("mistake", PLANTED)
def test_planted_mistake_in_attention_is_detected(
    mistake: str, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    entry, strict = "scaled_dot_product_attention: T_q and T_k differ", Device("strict")
    attention = importlib.import_module("numpy_attention.ops.attention")
    test_forward_and_backward_agree_with_numpy(entry, np.float32, strict, rng)
    monkeypatch.setattr(attention, "softmax", PLANTED[mistake])
    with pytest.raises((AssertionError, TypeError)):
        test_forward_and_backward_agree_with_numpy(entry, np.float32, strict, rng)


def test_gradients_computed_on_the_device_pass_the_check(checked: str, device: Device) -> None:
    case = CATALOGUE[checked].case(seed=6)
    op, op_backward = copied_to_host(case.op, case.op_backward, device.backend)
    report = gradcheck(op, op_backward, case.inputs, **case.options)
    assert report.error <= CATALOGUE[checked].tolerance
