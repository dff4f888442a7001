"""What the tests of models share: small random models and a check of every parameter along a random direction."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest


def randomized(model: Any, rng: np.random.Generator, scale: float = 0.4) -> Any:
    """Gammas of one and biases of zero would hide mistakes."""
    for p in model.parameters().values():
        p[...] = scale * rng.standard_normal(p.shape)
    return model


def assert_gradients(model: Any, loss: Callable[[], tuple[np.ndarray, Any]], rng: np.random.Generator) -> None:
    """Each parameter's gradient along a random direction against central differences with one Richardson step."""
    grads = model.backward(loss()[1])
    assert list(grads) == list(model.parameters())
    for name, p in model.parameters().items():
        assert (grads[name].shape, grads[name].dtype) == (p.shape, p.dtype)
        direction, start = rng.standard_normal(p.shape), p.copy()
        direction /= np.linalg.norm(direction)

        def slope(h: float, p: np.ndarray = p, start: np.ndarray = start, direction: np.ndarray = direction) -> float:
            p[...] = start + h * direction
            ahead = float(loss()[0])
            p[...] = start - h * direction
            behind = float(loss()[0])
            p[...] = start
            return (ahead - behind) / (2 * h)

        numeric = (4 * slope(5e-4) - slope(1e-3)) / 3
        size = float(np.linalg.norm(grads[name]))
        assert float((grads[name] * direction).sum()) == pytest.approx(numeric, rel=1e-7, abs=1e-8 * size + 1e-10), name
