"""A wrong gradient that is the right one but for a sign, a factor, a transpose or a term is told so."""

from typing import Any

import numpy as np
import pytest

from numpy_attention import ops
from tests.gradcheck.planted import caught, spoilt, times
from tests.gradcheck.words.test_branches import told


def test_sign(rng: np.random.Generator) -> None:
    x = rng.standard_normal((3, 5))
    message, _ = caught(ops.softmax, lambda dy, cache: -ops.softmax_backward(dy, cache), (x,))
    assert "the sign is wrong" in message


def test_transposed_square_matrix(rng: np.random.Generator) -> None:
    x, w = rng.standard_normal((2, 4)), rng.standard_normal((4, 4))
    message, report = caught(ops.linear, spoilt(ops.linear_backward, lambda dw: dw.T, 1), {"x": x, "w": w})
    assert [argument.symbol for argument in report.arguments.values() if argument.wrong.any()] == ["dw"]
    assert "dw: transposed" in message


def test_factor_two(rng: np.random.Generator) -> None:
    x = rng.standard_normal((3, 5))
    message, _ = caught(ops.gelu, lambda dy, cache: 2 * ops.gelu_backward(dy, cache), (x,))
    assert "twice what it should be" in message


def test_mean_in_place_of_the_batch_sum(rng: np.random.Generator) -> None:
    x, w, b = rng.standard_normal((3, 4)), rng.standard_normal((4, 5)), rng.standard_normal(5)
    message, _ = caught(ops.linear, spoilt(ops.linear_backward, times(1 / 3), 2), {"x": x, "w": w, "b": b})
    assert "divided by 3 (axis 0 of x) once too often" in message


def test_the_softmax_without_its_sum(rng: np.random.Generator) -> None:
    message, _ = caught(ops.softmax, lambda dy, cache: dy * cache.y, {"x": rng.standard_normal((3, 5))})
    assert "`- sum(dy * w)` go missing" in message


def test_the_softmax_with_an_unweighted_sum(rng: np.random.Generator) -> None:
    def backward(dy: np.ndarray, cache: Any) -> np.ndarray:
        return np.asarray(cache.y * (dy - dy.sum(-1, keepdims=True)))

    message, _ = caught(ops.softmax, backward, {"x": rng.standard_normal((3, 5))})
    assert "the sum must be weighted" in message


def test_the_softmax_diagonal_alone(rng: np.random.Generator) -> None:
    message, _ = caught(ops.softmax, lambda dy, cache: dy * cache.y * (1 - cache.y), {"x": rng.standard_normal((3, 5))})
    assert "only the diagonal of the softmax's Jacobian" in message


def test_a_factor_of_each_row(rng: np.random.Generator) -> None:
    def backward(dy: np.ndarray, cache: Any) -> Any:
        dx, *rest = ops.layer_norm_backward(dy, cache)
        return (dx * np.exp(np.arange(1.0, 5.0))[:, None], *rest)

    inputs = {"x": rng.standard_normal((4, 5)), "gamma": rng.standard_normal(5), "beta": rng.standard_normal(5)}
    message, _ = caught(ops.layer_norm, backward, inputs)
    assert "every row along axis 1 has the right direction and another length" in message


def test_a_mean_over_places_that_do_not_count(rng: np.random.Generator) -> None:
    inputs = {"logits": rng.standard_normal((7, 4)), "targets": np.array([0, 3, -100, 2, 1, 1, 0])}
    message, _ = caught(
        ops.cross_entropy, lambda dy, cache: ops.cross_entropy_backward(dy, cache) * (6 / 7), inputs, ignore_index=-100
    )
    assert "a mean over all 7 of targets, where only 6 count?" in message


@pytest.mark.parametrize("words", ["left out", "one too many"])
@pytest.mark.parametrize("name", ["w", "w.T"])
@pytest.mark.parametrize("side", ["left", "right"])
def test_a_matrix_of_a_product(side: str, name: str, words: str, rng: np.random.Generator) -> None:
    """The gradient of sin(x m) is dy cos(x m) m.T, that of sin(m x) is m.T dy cos(m x)."""
    w, count = rng.standard_normal((4, 4)), 0 if words == "left out" else 2

    def times(x: np.ndarray, m: np.ndarray) -> np.ndarray:
        return m @ x if side == "left" else x @ m

    def m(w: np.ndarray) -> np.ndarray:
        return w if name == "w.T" else w.T

    def vjp(dy: np.ndarray, x: np.ndarray, w: np.ndarray) -> Any:
        d = dy * np.cos(times(x, m(w)))
        dm = d @ x.T if side == "left" else x.T @ d
        for _ in range(count):
            d = times(d, m(w).T)
        return d, m(dm)

    x = rng.standard_normal((4, 3) if side == "left" else (3, 4))
    assert f"dx: the matrix {name}, a factor at the {side}, is {words}" in told(
        lambda x, w: np.sin(times(x, m(w))), vjp, x, w
    )


def test_a_single_dy_left_out(rng: np.random.Generator) -> None:
    inputs = {"logits": rng.standard_normal((7, 4)), "targets": rng.integers(0, 4, 7)}
    message, _ = caught(
        ops.cross_entropy, lambda dy, cache: ops.cross_entropy_backward(np.ones_like(dy), cache), inputs,
    )
    assert "dy itself, a single number here, is left out" in message


def test_the_variance_path_of_a_norm(rng: np.random.Generator) -> None:
    def backward(dy: np.ndarray, cache: Any) -> Any:
        x, inverse, gamma = cache
        d = dy * gamma
        return (d - d.mean(-1, keepdims=True)) * inverse, (dy * (x - x.mean(-1, keepdims=True)) * inverse).sum(0)

    def norm(x: np.ndarray, gamma: np.ndarray) -> Any:
        inverse = 1 / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
        return (x - x.mean(-1, keepdims=True)) * inverse * gamma, (x, inverse, gamma)

    message, _ = caught(norm, backward, {"x": rng.standard_normal((3, 5)), "gamma": rng.standard_normal(5)})
    assert "path through the variance" in message


def test_the_scale_left_out(rng: np.random.Generator) -> None:
    q, k, v = rng.standard_normal((3, 4)), rng.standard_normal((5, 4)), rng.standard_normal((5, 6))
    wrong = spoilt(ops.scaled_dot_product_attention_backward, times(2.0), 1)  # d_k = 4, so 1/scale is 2
    message, report = caught(ops.scaled_dot_product_attention, wrong, {"q": q, "k": k, "v": v})
    assert report.arguments["k"].wrong.any()
    assert not report.arguments["q"].wrong.any()
    assert "constant factor 2" in message
    message, _ = caught(ops.scaled_dot_product_attention, spoilt(wrong, times(0.3), 0), (q, k, v), scale=0.3)
    assert "scale is applied once too often" in message


def test_the_identity_path_of_a_residual_branch(rng: np.random.Generator) -> None:
    message, _ = caught(
        lambda x: (x + np.tanh(x), x), lambda dy, x: dy / np.cosh(x) ** 2, {"x": rng.standard_normal((3, 4))}
    )
    assert "the identity path of a residual branch is left out" in message


def test_a_reshape_without_its_transpose(rng: np.random.Generator) -> None:
    x = rng.standard_normal((2, 3, 8))
    message, _ = caught(ops.split_heads, lambda dy, cache: dy.reshape(2, 3, 8), {"x": x}, num_heads=2)
    assert "a reshape without its transpose" in message


def test_the_gelu_with_the_other_forms_gradient(rng: np.random.Generator) -> None:
    x = rng.standard_normal((3, 4))
    other = ops.gelu(x, approximate="none")[1]
    message, _ = caught(ops.gelu, lambda dy, cache: ops.gelu_backward(dy, other), {"x": x})
    assert "close, but not equal" in message


def test_a_gradient_at_ignored_places(rng: np.random.Generator) -> None:
    logits, targets = rng.standard_normal((2, 3, 5)), np.array([[1, -100, 3], [0, 4, -100]])

    def backward(dloss: np.ndarray, cache: Any) -> np.ndarray:
        dlogits = ops.cross_entropy_backward(dloss, cache)
        return dlogits + 0.1 * dloss * np.where(targets == -100, 1.0, 0.0)[..., None]

    message, report = caught(ops.cross_entropy, backward, {"logits": logits, "targets": targets})
    assert np.array_equal(report.arguments["logits"].wrong.all(-1), targets == -100)
    assert "what is hidden or ignored still gets a gradient" in message
