"""check_cupy: inputs are moved to the GPU for every call, and results are copied back."""

from typing import Any

import numpy as np
import pytest

from numpy_attention.gradcheck import GradientError
from numpy_attention.gradcheck.adapters import check_cupy
from tests.backend.devices import Device


def gated(params: dict[str, Any], mask: Any, scale: float = 1.0) -> dict[str, Any]:
    h = params["x"] @ params["w"]
    return {"y": np.where(mask, np.tanh(h) * scale, np.zeros_like(h)), "seen": mask}


def gated_vjp(dy: dict[str, Any], params: dict[str, Any], mask: Any, scale: float = 1.0) -> Any:
    assert dy["seen"] is None
    assert type(dy["y"]) is type(params["x"]), "dy is on the device too"
    t = np.tanh(params["x"] @ params["w"])
    dh = np.where(mask, dy["y"] * scale * (1 - t * t), np.zeros_like(t))
    return {"x": dh @ params["w"].T, "w": params["x"].T @ dh}


@pytest.fixture
def inputs(rng: np.random.Generator) -> dict[str, Any]:
    params = {"x": rng.standard_normal((3, 4)), "w": rng.standard_normal((4, 5))}
    return {"params": params, "mask": rng.random((3, 5)) < 0.7}


def test_trees_on_the_device_are_checked(device: Device, inputs: dict[str, Any]) -> None:
    report = check_cupy(gated, gated_vjp, inputs, backend=device.backend, scale=0.5, seed=3)
    assert report.arguments.keys() == {"params.x", "params.w"}
    assert (report.name, report.seed) == ("gated", 3)


def test_arrays_on_the_device_are_accepted(device: Device, inputs: dict[str, Any]) -> None:
    there = ({name: device.move(x) for name, x in inputs["params"].items()}, device.move(inputs["mask"]))
    assert check_cupy(gated, gated_vjp, there, backend=device.backend).ok


def test_a_wrong_gradient_is_named(device: Device, inputs: dict[str, Any]) -> None:
    def forgets_the_mask(dy: dict[str, Any], params: dict[str, Any], mask: Any) -> Any:
        return gated_vjp(dy, params, np.ones_like(mask))

    with pytest.raises(GradientError, match=r"gradcheck gated: dparams\.x, dparams\.w wrong"):
        check_cupy(gated, forgets_the_mask, inputs, backend=device.backend)
