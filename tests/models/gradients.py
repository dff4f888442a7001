"""Helpers for tests of models: small random models, and a check of every gradient along a random direction."""

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.layers import gradients
from tests.layers.gradients import assert_gradient


def randomized(model: Any, rng: np.random.Generator, scale: float = 0.4) -> Any:
    """Give the model random parameters: gammas of one and biases of zero would hide mistakes."""
    return gradients.randomized(model, rng, scale)


def assert_gradients(model: Any, loss: Callable[[], tuple[np.ndarray, Any]], rng: np.random.Generator) -> None:
    """Compare the gradient of every parameter with central differences; check names, order, shapes and dtypes."""
    grads = model.backward(loss()[1])
    assert list(grads) == list(model.parameters())
    for name, p in model.parameters().items():
        assert (grads[name].shape, grads[name].dtype) == (p.shape, p.dtype)
        assert_gradient(lambda: float(loss()[0]), p, grads[name], rng, name)
