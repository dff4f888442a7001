"""A backward that is right only where nothing is masked, repeated or scaled is told what it left out."""

from typing import Any

import numpy as np
import pytest

from numpy_attention import ops
from numpy_attention.gradcheck import gradcheck
from tests.gradcheck.planted import caught


def leaking(dy: np.ndarray, cache: Any) -> Any:
    """The gradient of an attention that was never masked: the forward's mask is forgotten."""
    scores = cache.scale * cache.q @ cache.k.swapaxes(-1, -2)
    weights = ops.softmax(scores)[0]
    return ops.scaled_dot_product_attention_backward(dy, cache._replace(weights=weights, dropped=weights))


def test_mask_leak(rng: np.random.Generator) -> None:
    q, k, v = rng.standard_normal((2, 3, 4)), rng.standard_normal((2, 5, 4)), rng.standard_normal((2, 5, 6))
    mask = rng.random((2, 3, 5)) < 0.6
    mask[0, 1] = False
    message, report = caught(ops.scaled_dot_product_attention, leaking, {"q": q, "k": k, "v": v, "mask": mask})
    assert report.arguments["q"].wrong.any()
    assert "leaks through what mask hides" in message


def test_right_at_gamma_of_one_only(rng: np.random.Generator) -> None:
    x, gamma, beta = rng.standard_normal((3, 6)), rng.standard_normal(6), rng.standard_normal(6)

    def backward(dy: np.ndarray, cache: Any) -> Any:
        _, dgamma, dbeta = ops.layer_norm_backward(dy, cache)
        dx, _, _ = ops.layer_norm_backward(dy, cache._replace(gamma=np.ones_like(cache.gamma)))
        return dx, dgamma, dbeta

    gradcheck(ops.layer_norm, backward, {"x": x, "gamma": np.ones(6), "beta": beta})
    message, report = caught(ops.layer_norm, backward, {"x": x, "gamma": gamma, "beta": beta})
    assert not report.arguments["gamma"].wrong.any()
    assert "right when gamma is all ones" in message


def test_only_repeated_ids(rng: np.random.Generator) -> None:
    table = rng.standard_normal((6, 3))

    def backward(dy: np.ndarray, cache: Any) -> np.ndarray:
        dtable = np.zeros_like(table)
        dtable[cache.ids] += dy
        return dtable

    gradcheck(ops.embedding, backward, {"ids": np.array([4, 1, 2]), "table": table})
    message, report = caught(ops.embedding, backward, {"ids": np.array([4, 1, 4, 2]), "table": table})
    assert np.flatnonzero(report.arguments["table"].wrong.any(axis=1)).tolist() == [4]
    assert "rows of repeated ids get only one of their contributions" in message
    assert "np.add.at" in message


def test_a_mean_over_repeated_ids_is_not_called_a_lost_term(rng: np.random.Generator) -> None:
    ids, table = np.array([0, 1, 1, 0, 1]), rng.standard_normal((2, 3))

    def mean_of_all(dy: np.ndarray, cache: Any) -> np.ndarray:
        return np.zeros_like(table) + dy.mean(axis=0)

    def mean_of_its_own(dy: np.ndarray, cache: Any) -> np.ndarray:
        return ops.embedding_backward(dy, cache) / np.bincount(ids)[:, None]

    for backward in (mean_of_all, mean_of_its_own):
        message, report = caught(ops.embedding, backward, {"ids": ids, "table": table})
        assert report.arguments["table"].wrong.all(), "every row is read twice or more"
        assert "only one of their contributions" not in message


def test_a_backward_that_forgets_dy(rng: np.random.Generator) -> None:
    x = rng.standard_normal((3, 4))
    message, _ = caught(lambda x: (np.sin(x), x), lambda dy, x: np.cos(x), {"x": x})
    assert "does not depend on dy" in message


def test_a_rotation_turned_forward_again(rng: np.random.Generator) -> None:
    inputs = {"x": rng.standard_normal((2, 3, 6)), "positions": np.array([4, 0, 9])}
    message, _ = caught(ops.rotary, lambda dy, cache: ops.rotary(dy, inputs["positions"])[0], inputs)
    assert "dx is the forward applied to dy" in message


def test_the_straight_paths_of_two_residuals_left_out(rng: np.random.Generator) -> None:
    gamma, beta = rng.standard_normal((2, 5))

    def forward(x: np.ndarray) -> Any:
        first, below = ops.layer_norm(x, gamma, beta)
        h = x + first
        second, above = ops.layer_norm(h, beta, gamma)
        return h + second, (below, above)

    def branches(dy: np.ndarray, cache: Any) -> Any:
        dh, *_ = ops.layer_norm_backward(dy, cache[1])
        dx, *_ = ops.layer_norm_backward(dh, cache[0])
        return dh + dx

    message, _ = caught(forward, branches, (rng.standard_normal((3, 5)),))
    assert "is dy left out, the straight path of a residual?" in message


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_a_gradient_behind_a_softmax_must_sum_to_zero_at_any_scale(scale: float, rng: np.random.Generator) -> None:
    v = scale * rng.standard_normal((5, 2))

    def backward(dy: np.ndarray, cache: Any) -> np.ndarray:
        return np.asarray(dy @ v.T * cache.y)  # without - sum(dw * w)

    def attend(x: np.ndarray) -> Any:
        weights, cache = ops.softmax(x)
        return weights @ v, cache

    message, _ = caught(attend, backward, {"x": rng.standard_normal((3, 5))})
    assert "dx must sum to zero along axis 1, as behind every softmax, and does not" in message


def test_a_backward_that_uses_dy_twice(rng: np.random.Generator) -> None:
    x = rng.standard_normal((3, 4))
    message, _ = caught(lambda x: (np.sin(x), x), lambda dy, x: dy * dy * np.cos(x), {"x": x})
    assert "grows with the square of dy" in message


def test_an_option_that_the_backward_forgets(rng: np.random.Generator) -> None:
    def power(x: np.ndarray, n: int = 2) -> Any:
        return x**n, x

    inputs = {"x": np.abs(rng.standard_normal((3, 4)))}
    message, _ = caught(power, lambda dy, x: dy * 2 * x, inputs, n=3)
    assert "right without the option n: does the backward forget n=3?" in message
