"""Gradients are validated before the comparison: NaN, dtypes, changed arrays; few digits are not called right."""

import re
from typing import Any

import numpy as np
import pytest

from numpy_attention import ops
from numpy_attention.gradcheck import GradientError, gradcheck, gradcheck_layer, gradcheck_vjp
from numpy_attention.layers import Linear
from tests.gradcheck.planted import with_mistake


def test_nan_is_reported_with_its_index(rng: np.random.Generator) -> None:
    x = rng.standard_normal((3, 5))

    def spoil(dx: np.ndarray) -> np.ndarray:
        dx[2, 3] = np.nan
        return dx

    with pytest.raises(GradientError, match=re.escape("dx holds nan at index (2, 3)")):
        gradcheck(ops.softmax, with_mistake(ops.softmax_backward, spoil), {"x": x})
    x[1, 1] = np.inf
    with pytest.raises(GradientError, match=re.escape("the input x holds inf at index (1, 1)")):
        gradcheck(ops.softmax, ops.softmax_backward, {"x": x})


@pytest.mark.parametrize(("returned", "dtype"), [(np.zeros((3, 5), int), "int64"), ("text", "<U4")])
def test_a_gradient_without_floats_is_reported_with_its_dtype(
    returned: Any, dtype: str, rng: np.random.Generator
) -> None:
    with pytest.raises(GradientError, match=re.escape(f"gradcheck softmax: dx holds {dtype}, but x holds float64")):
        gradcheck(ops.softmax, lambda dy, cache: returned, {"x": rng.standard_normal((3, 5))})


def test_a_backward_that_raises_and_gradients_in_another_order(rng: np.random.Generator) -> None:
    x, w = rng.standard_normal((3, 4)), rng.standard_normal((4, 2))
    with pytest.raises(GradientError, match=r"the backward raised ValueError: matmul(.|\n)*should be transposed"):
        gradcheck(ops.linear, lambda dy, cache: (dy @ w, x.T @ dy, None), {"x": x, "w": w})
    with pytest.raises(GradientError, match=r"this is the shape of w: are the arguments, or the gradients, in the"):
        gradcheck(ops.linear, lambda dy, cache: (x.T @ dy, dy @ w.T, None), {"x": x, "w": w})


def test_backward_that_changes_dy_or_its_cache(rng: np.random.Generator) -> None:
    x = rng.standard_normal((3, 4))

    def changes_dy(dy: np.ndarray, cache: Any) -> np.ndarray:
        dy *= 2
        return dy / 2

    def changes_cache(dy: np.ndarray, cache: Any) -> np.ndarray:
        cache[0] *= 2
        return dy * cache[0] / 2

    with pytest.raises(GradientError, match="changed dy in place"):
        gradcheck(lambda x: (x.copy(), None), changes_dy, {"x": x})
    with pytest.raises(GradientError, match="two calls of backward return different dx"):
        gradcheck(lambda x: (x * x / 2, [x.copy()]), changes_cache, {"x": x})
    message = "a second call of backward raised IndexError: pop from empty list; does backward change its cache"
    with pytest.raises(GradientError, match=message):
        gradcheck(lambda x: (x * 1, [1.0]), lambda dy, cache: dy * cache.pop(), {"x": x})


def test_a_parameter_without_a_gradient_is_named(rng: np.random.Generator) -> None:
    class Forgetful(Linear):
        def backward(self, dy: np.ndarray, cache: Any) -> Any:
            dx, grads = super().backward(dy, cache)
            return dx, {"w": grads["w"]}

    with pytest.raises(GradientError, match="no gradient for the parameter b"):
        gradcheck_layer(Forgetful(3, 4, rng, dtype=np.float64), (rng.standard_normal((2, 3)),))


def test_a_derivative_known_to_few_digits_is_not_called_right() -> None:
    """A function with noise in its digits; the noise is equal in every call."""
    x = np.random.default_rng(0).standard_normal(4)

    def noisy(x: np.ndarray) -> np.ndarray:
        return np.sin(x) + 0.1 * np.modf(np.abs(np.real(x)) * 1e7)[0]

    for slope in (0.0, 1.0, 7.0):
        with pytest.raises(GradientError, match=r"dx (not resolved|wrong)"):
            gradcheck_vjp(noisy, lambda dy, x, slope=slope: slope * dy * np.cos(x), (x,))


def test_a_mistake_only_in_float32_is_reported_as_right_in_float64(rng: np.random.Generator) -> None:
    x = rng.standard_normal((3, 5)).astype(np.float32)

    def vjp(dy: np.ndarray, x: np.ndarray) -> np.ndarray:
        return dy * np.cos(x) * (1 if x.dtype == np.float64 else np.float32(1.01))

    with pytest.raises(GradientError, match="the same backward is right in float64"):
        gradcheck_vjp(np.sin, vjp, (x,))


@pytest.mark.parametrize("f", [
    lambda x: np.tanh(x).astype(np.float32), lambda x: np.tanh(x.astype(np.float32)),
    lambda x: np.exp(x.astype(np.float32)).sum(-1),
], ids=["rounded result", "rounded input", "rounded sum"])
def test_float32_inside_a_function_is_known_to_four_digits(f: Any, rng: np.random.Generator) -> None:
    x = rng.standard_normal((3, 4))
    slope = (lambda x: 1 - np.tanh(x) ** 2) if f(x).ndim == 2 else np.exp
    spread = (lambda dy: dy) if f(x).ndim == 2 else (lambda dy: dy[:, None])
    assert gradcheck_vjp(f, lambda dy, x: spread(dy) * slope(x), (x,)).ok
    with pytest.raises(GradientError, match="dx wrong"):
        gradcheck_vjp(f, lambda dy, x: 1.01 * spread(dy) * slope(x), (x,))
