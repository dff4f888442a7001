"""Several corners in one element, ties, and functions that change their course within 1e-6."""

from collections.abc import Iterator
from functools import partial

import numpy as np

from tests.gradcheck.acceptance.corners.corner import NOT_RIGHT, NOT_WRONG, Array, Corner, Function, array, times

X = array(1.0, -1.0)[:, None]


def two_rows(w: Array) -> Array:
    """At w = 0 the first row has the slopes 0 and 1, the second row 0 and -1."""
    return np.maximum(X @ w, 0)


def two_rows_vjp(first: float, second: float) -> Function:
    """These slopes of the maximum where a row is 0."""
    return lambda dy, w: X.T @ (dy * np.where(X @ w == 0, array(first, second), X @ w > 0))


def neighbours(x: Array) -> Array:
    return np.maximum(x[:-1], x[1:])


def neighbours_vjp(left: float, right: float) -> Function:
    """Two equal neighbours get these shares of dy."""

    def vjp(dy: Array, x: Array) -> Array:
        a, b = x[:-1], x[1:]
        dx = np.zeros_like(x)
        dx[:-1] += dy * np.where(a == b, left, a > b)
        dx[1:] += dy * np.where(a == b, right, b > a)
        return dx

    return vjp


POOLED = np.array([[0.0, 0.0, 1.0, -1.0, -2.0, -3.0], [0.0, -1.0, 2.0, 2.0, -1.0, 0.0]])


def pooled(x: Array) -> Array:
    """A relu, then the largest of each two neighbours: (B, 2T) to (B, T)."""
    return np.maximum(x, 0).reshape(len(x), -1, 2).max(-1)


def pooled_vjp(first: bool, slope: float) -> Function:
    """dy to the first largest element or to all of them; `slope` is that of the relu at 0."""

    def vjp(dy: Array, x: Array) -> Array:
        r = np.maximum(x, 0).reshape(len(x), -1, 2)
        largest = r == r.max(-1, keepdims=True)
        chosen = np.arange(2) == r.argmax(-1)[..., None] if first else largest
        return (dy[..., None] * chosen).reshape(x.shape) * np.where(x == 0, slope, x > 0)

    return vjp


WINDOWS = 2 * np.arange(3)[:, None] + np.arange(3)  # three places each, two apart: neighbours share a place


def overlapping(x: Array) -> Array:
    return np.maximum(x, 0)[WINDOWS].max(-1)


def overlapping_vjp(slope: float) -> Function:
    def vjp(dy: Array, x: Array) -> Array:
        places = WINDOWS[np.arange(3), np.maximum(x, 0)[WINDOWS].argmax(-1)]
        dx = np.zeros_like(x)
        np.add.at(dx, places, dy)
        return dx * np.where(x == 0, slope, x > 0)

    return vjp


def unit_rows(x: Array) -> Array:
    return x / (np.linalg.norm(x, axis=-1, keepdims=True) + 1e-6)


def unit_rows_vjp(dy: Array, x: Array) -> Array:
    """At x = 0 the derivative is dy / 1e-6: the norm only changes the second order."""
    n = np.linalg.norm(x, axis=-1, keepdims=True)
    return dy / (n + 1e-6) - x * (dy * x).sum(-1, keepdims=True) / ((n + 1e-6) ** 2 * np.where(n == 0, 1, n))


def small_abs(x: Array) -> Array:
    return np.abs(x) * 1e-6


def small_abs_vjp(dy: Array, x: Array) -> Array:
    return 1e-6 * dy * np.sign(x)


def variance(x: Array) -> Array:
    return x.var(-1)


def variance_vjp(dy: Array, x: Array) -> Array:
    return 2 * dy[:, None] * (x - x.mean(-1, keepdims=True)) / x.shape[-1]


def relu(x: Array) -> Array:
    return np.maximum(x, 0)


def relu_vjp(dy: Array, x: Array) -> Array:
    return dy * (x > 0)


def kinks() -> Iterator[Corner]:
    case, zeros = partial(Corner, "several corners in one element"), np.zeros(7)
    for slopes in ((0.0, 0.0), (0.5, 0.5), (1.0, 1.0), (1.0, 0.0)):
        yield case(f"max(X w, 0) at w = 0, slopes {slopes}", two_rows, two_rows_vjp(*slopes), (zeros[:1],), "right",
                   draws=8)
    yield case("max(X w, 0) at w = 0, slopes (10, 0)", two_rows, two_rows_vjp(10.0, 0.0), (zeros[:1],), NOT_RIGHT,
               "not differentiable here")
    for shares, expected, slow in [
        ((1.0, 0.0), "right", True), ((0.0, 1.0), "right", False), ((0.5, 0.5), "right", True),
        ((1.0, 1.0), NOT_RIGHT, False), ((0.0, 0.0), NOT_RIGHT, True), ((3.0, -2.0), NOT_RIGHT, True),
    ]:
        yield case(f"max(x[:-1], x[1:]) of zeros, shares {shares}", neighbours, neighbours_vjp(*shares), (zeros,),
                   expected, draws=4, slow=slow)
    for slope in (0.0, 1.0):
        yield case(f"pooling after relu, slope {slope:g}", pooled, pooled_vjp(True, slope), (POOLED,), "right", draws=4)
        yield case(f"overlapping pooling after relu of zeros, slope {slope:g}", overlapping, overlapping_vjp(slope),
                   (zeros,), "right", draws=4)
    yield case("pooling after relu, dy to all largest", pooled, pooled_vjp(False, 1.0), (POOLED,), "wrong", draws=4)
    yield case("pooling after relu, slope 5", pooled, pooled_vjp(True, 5.0), (POOLED,), NOT_RIGHT, slow=True)

    case = partial(Corner, "the step is larger than the scale")
    x, rows = array(1.0, 2e-7), np.array([[0.0, 0.0, 0.0], [1.0, -2.0, 0.5]])
    for name, f, vjp, inputs, where in [
        ("x / (norm(x) + 1e-6) with a row of zeros", unit_rows, unit_rows_vjp, (rows,), lambda x: x == 0),
        ("abs(x) * 1e-6 at [1, 2e-7]", small_abs, small_abs_vjp, (x,), lambda x: x < 0.5),
    ]:
        yield case(f"{name}, right", f, vjp, inputs, NOT_WRONG)
        yield case(f"{name}, there doubled", f, times(2, vjp, where=where), inputs, NOT_RIGHT, slow=f is unit_rows)

    case, equal = partial(Corner, "a gradient that is 0 up to round-off"), np.full((1, 3), 0.1)
    yield case("x.var(-1) at three times 0.1", variance, variance_vjp, (equal,), "right", most_calls=2000)
    yield case("x.var(-1) at three times 0.1, off by 1e-3", variance,
               lambda dy, x: variance_vjp(dy, x) + 1e-3 * dy[:, None], (equal,), "wrong")

    case = partial(Corner, "the first line counts the elements that are not checked")
    yield case("relu at [0, 1]", relu, relu_vjp, (array(0.0, 1.0),), "right",
               r"\Agradcheck relu: right; 1 of 2 elements not checked \(at a corner\)")
