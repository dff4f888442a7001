"""Helpers for the tests of layers: random parameters, and a check of every gradient along a random direction."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import numpy_attention as na

MASK = na.causal_mask(5)  # B = 3, T = 5, d_model = 12, d_ff = 7, three heads: all different
SEED = 5  # for the dropout of a layer


def randomized(layer: Any, rng: np.random.Generator, scale: float = 0.6) -> Any:
    """Fill all parameters at random, because gammas of one and biases of zero would hide mistakes."""
    for p in layer.parameters().values():
        p[...] = scale * rng.standard_normal(p.shape)
    return layer


def fresh(options: dict[str, Any]) -> dict[str, Any]:
    """The options of one call: `dropout` becomes a new generator, with the same seed in every call."""
    options = dict(options)
    return options | {"rng": np.random.default_rng(SEED)} if options.pop("dropout", False) else options


def assert_gradient(
    f: Callable[[], float], p: np.ndarray, gradient: np.ndarray, rng: np.random.Generator, name: str = ""
) -> None:
    """Compare along a random direction with central differences and one Richardson step."""
    direction, start = rng.standard_normal(p.shape), p.copy()
    direction /= np.linalg.norm(direction)

    def slope(h: float) -> float:
        p[...] = start + h * direction
        ahead = f()
        p[...] = start - h * direction
        behind = f()
        p[...] = start
        return (ahead - behind) / (2 * h)

    numeric = (4 * slope(5e-4) - slope(1e-3)) / 3
    analytic = float((gradient * direction).sum())
    assert analytic == pytest.approx(numeric, rel=1e-7, abs=1e-8 * float(np.linalg.norm(gradient)) + 1e-10), name


def assert_gradients(
    layer: Any, inputs: tuple[np.ndarray, ...], options: dict[str, Any], rng: np.random.Generator
) -> None:
    """Compare the gradients of every input and every parameter with central differences."""
    y, cache = layer.forward(*inputs, **fresh(options))
    dy = rng.standard_normal(y.shape)
    *dinputs, grads = layer.backward(dy, cache)

    def loss() -> float:
        return float((layer.forward(*inputs, **fresh(options))[0] * dy).sum())

    for x, dx in zip(inputs, dinputs, strict=True):
        assert_gradient(loss, x, dx, rng)
    assert grads.keys() == layer.parameters().keys()
    for name, p in layer.parameters().items():
        assert grads[name].shape == p.shape
        assert_gradient(loss, p, grads[name], rng)
