"""Helpers for tests of models: small random models, and a check of all gradients along a random direction."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.layers import gradients


def randomized(model: Any, rng: np.random.Generator, scale: float = 0.4) -> Any:
    """Give the model random parameters: gammas of one and biases of zero would hide mistakes."""
    return gradients.randomized(model, rng, scale)


def assert_gradients(model: Any, loss: Callable[[], tuple[np.ndarray, Any]], rng: np.random.Generator) -> None:
    """Compare with central differences along a random direction of all parameters; check names, shapes and dtypes.

    If a gradient is wrong, so is the slope along nearly every direction. Then each parameter is compared alone.
    """
    parameters, grads = model.parameters(), model.backward(loss()[1])
    assert list(grads) == list(parameters)
    for name, p in parameters.items():
        assert (grads[name].shape, grads[name].dtype) == (p.shape, p.dtype)
    start = {name: p.copy() for name, p in parameters.items()}
    directions = {name: rng.standard_normal(p.shape) / p.size**0.5 for name, p in parameters.items()}

    def slope(h: float, names: Any) -> float:
        values = []
        for step in (h, -h):
            for name in names:
                parameters[name][...] = start[name] + step * directions[name]
            values.append(float(loss()[0]))
        for name in names:
            parameters[name][...] = start[name]
        return (values[0] - values[1]) / (2 * h)

    def assert_slope(names: Any) -> None:
        numeric = (4 * slope(5e-4, names) - slope(1e-3, names)) / 3  # one Richardson step
        analytic = sum(float((grads[name] * directions[name]).sum()) for name in names)
        size = sum(float(np.linalg.norm(grads[name])) for name in names)
        assert analytic == pytest.approx(numeric, rel=1e-8, abs=1e-9 * size + 1e-10), names

    try:
        assert_slope(list(parameters))
    except AssertionError:
        for name in parameters:
            assert_slope([name])
        raise
