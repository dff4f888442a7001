"""What the tests of models share: small random models and a check of every parameter along a random direction."""

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.layers import gradients
from tests.layers.gradients import assert_gradient


def randomized(model: Any, rng: np.random.Generator, scale: float = 0.4) -> Any:
    """Gammas of one and biases of zero would hide mistakes."""
    return gradients.randomized(model, rng, scale)


def assert_gradients(model: Any, loss: Callable[[], tuple[np.ndarray, Any]], rng: np.random.Generator) -> None:
    """The gradient of every parameter, named, ordered and shaped like it, agrees with differences."""
    grads = model.backward(loss()[1])
    assert list(grads) == list(model.parameters())
    for name, p in model.parameters().items():
        assert (grads[name].shape, grads[name].dtype) == (p.shape, p.dtype)
        assert_gradient(lambda: float(loss()[0]), p, grads[name], rng, name)
