"""Float32 in float64, functions that are not analytic, tiny beside ordinary numbers, gradients of 1e160 and more."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from numpy_attention.gradcheck.spec import draw_inputs
from tests.gradcheck.acceptance.corners.corner import NOT_RIGHT, NOT_WRONG, Array, Corner, array, times


def masked_mean(x: Array, m: Array) -> Array:
    return (np.tanh(x) * m).sum(1) / m.sum(1)


def masked_mean_vjp(dy: Array, x: Array, m: Array) -> Array:
    """In float64, as dy is, but 1 - tanh(x)**2 is computed in float32."""
    return dy[:, None] * m / m.sum(1)[:, None] * (1 - np.tanh(x) ** 2)


def masked_loss(logits: Array, labels: Array, m: Array) -> Any:
    """The mean of -log p(label) over the places where m is 1, with m in int64."""
    z = logits - logits.real.max(-1, keepdims=True)
    log_p = z - np.log(np.exp(z).sum(-1, keepdims=True))
    return -(log_p[np.arange(len(labels)), labels] * m).sum() / m.sum()


def masked_loss_vjp(dy: Any, logits: Array, labels: Array, m: Array) -> Array:
    p = np.exp(logits - logits.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    p[np.arange(len(labels)), labels] -= 1
    return dy * p * (m / m.sum())[:, None]


def masked_rows(rng: np.random.Generator) -> Any:
    m = rng.integers(0, 2, (4, 6))
    m[:, 0] = 1
    return rng.standard_normal((4, 6)).astype(np.float32), m


def masked_labels(rng: np.random.Generator) -> Any:
    m = rng.integers(0, 2, 5)
    m[0] = 1
    return rng.standard_normal((5, 7)).astype(np.float32), rng.integers(0, 7, 5), m


def layer_norm(x: Array, gamma: Array, beta: Array) -> Array:
    return gamma * (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5) + beta


def layer_norm_vjp(dy: Array, x: Array, gamma: Array, beta: Array) -> Any:
    r = 1 / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    n, dn = (x - x.mean(-1, keepdims=True)) * r, dy * gamma
    dx = r * (dn - dn.mean(-1, keepdims=True) - n * (dn * n).mean(-1, keepdims=True))
    return dx, (dy * n).sum(0), dy.sum(0)


def modulus(a: Array, b: Array) -> Array:
    return np.abs(a + 1j * b)


def modulus_vjp(dy: Array, a: Array, b: Array) -> Any:
    r = np.hypot(a, b)
    return dy * a / r, dy * b / r


def weighted_mean(x: Array, w: Array) -> Array:
    return x @ w / w.sum()


def weighted_mean_vjp(dy: Array, x: Array, w: Array) -> Any:
    d = dy[:, None] / w.sum()
    return d * w, (d * (x - weighted_mean(x, w)[:, None])).sum(0)


def reciprocal_vjp(dy: Array, x: Array) -> Array:
    return -dy / x**2


def precision() -> Iterator[Corner]:
    case = partial(Corner, "float32 inputs, output promoted to float64")
    for f, vjp, inputs in [
        (masked_mean, masked_mean_vjp, masked_rows), (masked_loss, masked_loss_vjp, masked_labels),
    ]:
        yield case(f"{f.__name__}, right", f, vjp, inputs, "right", draws=40)
        yield case(f"{f.__name__}, 0.1 % off", f, times(np.float32(1.001), vjp), inputs, "wrong", draws=2)

    case = partial(Corner, "differences refute the complex step")
    a, b, one = 1e-7 * array(1.0, -2.0, 0.7), 1e-7 * array(0.4, 1.5, -1.1), array(1.0, -2.0, 0.7)
    for name, inputs, of_a in [("both about 1e-7", (a, b), "wrong"), ("a about 1e-7", (a, one), NOT_RIGHT)]:
        name = f"abs(a + 1j b), {name}"
        yield case(f"{name}, right", modulus, modulus_vjp, inputs, NOT_WRONG, draws=4)
        yield case(f"{name}, da halved", modulus, times(0.5, modulus_vjp, 0), inputs, of_a)
        yield case(f"{name}, db halved", modulus, times(0.5, modulus_vjp, 1), inputs, "wrong")
    x, name = 1e-8 * np.random.default_rng(3).standard_normal((3, 4)), "layer norm with x.var, x about 1e-8"
    inputs = (x, array(1.0, 0.5, -2.0, 3.0), array(0.1, 0.2, 0.3, 0.4))
    yield case(f"{name}, right", layer_norm, layer_norm_vjp, inputs, NOT_WRONG, draws=4)
    for which, argument in enumerate(("x", "gamma", "beta")):
        yield case(f"{name}, d{argument} halved", layer_norm, times(0.5, layer_norm_vjp, which), inputs, "wrong",
                   slow=True)

    drawn = draw_inputs("x: ... d, w: positive d", {"...": (5,), "d": 4}, 2054, special=True)
    yield Corner("w about 1e-7 beside x about 1", "weighted mean, seed 2054", weighted_mean, weighted_mean_vjp, drawn,
                 "right", draws=4)

    case = partial(Corner, "gradients of 1e160 and more", loud=True)
    x, tiny = array(0.5, 2.0), array(1e-80, 2e-80)
    for factor, expected, what in [(1, NOT_WRONG, "right"), (2, NOT_RIGHT, "doubled")]:
        for f, vjp, name in [
            (lambda x: 1e160 * x, lambda dy, x: 1e160 * dy, "1e160 * x"),
            (lambda x: 1e200 * x, lambda dy, x: 1e200 * dy, "1e200 * x"),
            (lambda x: 1e200 * (x * x).sum(), lambda dy, x: 2e200 * dy * x, "1e200 * sum(x * x)"),
        ]:
            yield case(f"{name}, {what}", f, times(factor, vjp), (x,), expected)
        yield case(f"1/x at 1e-80, {what}", np.reciprocal, times(factor, reciprocal_vjp), (tiny,), expected)
