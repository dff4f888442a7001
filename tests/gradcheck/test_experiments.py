"""A backward that is right only without a mask, repeats or a scale: the diagnosis names the missing part.

The same for a backward that is right at ones or at a symmetric matrix, with a control against chance; and for a
backward that ignores part of dy, or mixes places that the forward does not mix.
"""

from typing import Any

import numpy as np
import pytest

from numpy_attention import ops
from numpy_attention.gradcheck import gradcheck
from tests.gradcheck.planted import caught, diagnosis_of


def leaking(dy: np.ndarray, cache: Any) -> Any:
    """The gradient of attention without the mask of the forward."""
    scores = cache.scale * cache.q @ cache.k.swapaxes(-1, -2)
    weights = ops.softmax(scores)[0]
    return ops.scaled_dot_product_attention_backward(dy, cache._replace(weights=weights, dropped=weights))


def test_mask_leak(rng: np.random.Generator) -> None:
    q, k, v = rng.standard_normal((2, 3, 4)), rng.standard_normal((2, 5, 4)), rng.standard_normal((2, 5, 6))
    mask = rng.random((2, 3, 5)) < 0.6
    mask[0, 1] = False
    message, report = caught(ops.scaled_dot_product_attention, leaking, {"q": q, "k": k, "v": v, "mask": mask})
    assert report.arguments["q"].wrong.any()
    assert "leaks through elements that mask hides" in message


def test_right_at_gamma_of_one_only(rng: np.random.Generator) -> None:
    x, gamma, beta = rng.standard_normal((3, 6)), rng.standard_normal(6), rng.standard_normal(6)

    def backward(dy: np.ndarray, cache: Any) -> Any:
        _, dgamma, dbeta = ops.layer_norm_backward(dy, cache)
        dx, _, _ = ops.layer_norm_backward(dy, cache._replace(gamma=np.ones_like(cache.gamma)))
        return dx, dgamma, dbeta

    gradcheck(ops.layer_norm, backward, {"x": x, "gamma": np.ones(6), "beta": beta})
    message, report = caught(ops.layer_norm, backward, {"x": x, "gamma": gamma, "beta": beta})
    assert not report.arguments["gamma"].wrong.any()
    assert "in `x_hat * gamma` (line" in message
    assert "the factor `gamma` is left out" in message


@pytest.mark.parametrize(("slope", "words"), [
    (lambda x: 1.0 + 0 * x, "the derivative with respect to `x` is left out"),
    (lambda x: 1 - np.tanh(np.tanh(x)) ** 2, "the derivative is taken at `np.tanh(x)`"),
], ids=["one", "late"])
def test_wrong_derivative_of_a_function_of_each_element(rng: np.random.Generator, slope: Any, words: str) -> None:
    x = rng.standard_normal((3, 4))
    message, _ = caught(lambda x: (np.tanh(x), x), lambda dy, x: dy * slope(x), {"x": x})
    assert words in message


def test_weights_divided_by_another_sum(rng: np.random.Generator) -> None:
    def forward(x: np.ndarray) -> Any:
        e = np.exp(x)
        return e / (1 + e.sum(axis=-1, keepdims=True)), e / e.sum(axis=-1, keepdims=True)

    message, _ = caught(
        forward, lambda dy, y: y * (dy - (dy * y).sum(axis=-1, keepdims=True)), {"x": rng.standard_normal((3, 4))}
    )
    assert "dx sums to zero along axis 1, as at the input of a softmax, but must not" in message


def test_only_repeated_ids(rng: np.random.Generator) -> None:
    table = rng.standard_normal((6, 3))

    def backward(dy: np.ndarray, cache: Any) -> np.ndarray:
        dtable = np.zeros_like(table)
        dtable[cache.ids] += dy
        return dtable

    gradcheck(ops.embedding, backward, {"ids": np.array([4, 1, 2]), "table": table})
    message, report = caught(ops.embedding, backward, {"ids": np.array([4, 1, 4, 2]), "table": table})
    assert np.flatnonzero(report.arguments["table"].wrong.any(axis=1)).tolist() == [4]
    assert "keeps only the last of several terms where an index repeats" in message
    assert "no simple rule found" not in message
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
        assert "must get the sum of all contributions" not in message


def test_a_rotation_by_the_angle_of_the_forward(rng: np.random.Generator) -> None:
    inputs = {"x": rng.standard_normal((2, 3, 6)), "positions": np.array([4, 0, 9])}
    message, _ = caught(ops.rotary, lambda dy, cache: ops.rotary(dy, inputs["positions"])[0], inputs)
    assert "dx is the forward applied to dy" in message


def test_missing_residual_paths(rng: np.random.Generator) -> None:
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
    assert "is the residual path, the term dy, missing?" in message


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_a_gradient_at_the_input_of_a_softmax_must_sum_to_zero(scale: float, rng: np.random.Generator) -> None:
    v = scale * rng.standard_normal((5, 2))

    def backward(dy: np.ndarray, cache: Any) -> np.ndarray:
        return np.asarray(dy @ v.T * cache.y)  # without - sum(dw * w)

    def attend(x: np.ndarray) -> Any:
        weights, cache = ops.softmax(x)
        return weights @ v, cache

    message, _ = caught(attend, backward, {"x": rng.standard_normal((3, 5))})
    assert "dx must sum to zero along axis 1, as at the input of every softmax, but does not" in message


def test_an_option_that_the_backward_ignores(rng: np.random.Generator) -> None:
    def power(x: np.ndarray, n: int = 2) -> Any:
        return x**n, x

    inputs = {"x": np.abs(rng.standard_normal((3, 4)))}
    message, _ = caught(power, lambda dy, x: dy * 2 * x, inputs, n=3)
    assert "right without the option n: does the backward ignore n=3?" in message


def test_a_vector_of_ones_is_named_only_if_other_constants_are_not_right(rng: np.random.Generator) -> None:
    x, t, a, b = (rng.standard_normal(shape) for shape in ((3, 5), (4,), (5, 4), (4, 6)))

    def scaled(x: np.ndarray, t: np.ndarray) -> np.ndarray:  # cbrt takes no complex numbers, so no step is examined
        return np.asarray(np.cbrt(x @ a) * t @ b)

    def missing(dy: np.ndarray, x: np.ndarray, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        z, d = x @ a, dy @ b.T
        return d * np.cbrt(z) / (3 * z) @ a.T, (d * np.cbrt(z)).sum(0)

    diagnosis = diagnosis_of(scaled, missing, x, t)
    assert "t is left out" in diagnosis or "right when t is all ones, wrong when it is all 1.37" in diagnosis


def test_a_vector_applied_at_the_wrong_place(rng: np.random.Generator) -> None:
    def after(x: np.ndarray, t: np.ndarray) -> np.ndarray:
        return np.asarray(np.tanh(np.cumsum(x, axis=1)) * t)

    def before(dy: np.ndarray, x: np.ndarray, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        y = np.tanh(np.cumsum(x, axis=1))
        inner = np.flip(np.cumsum(np.flip(dy * (1 - y * y), 1), 1), 1)
        return inner * t, (dy * y).sum(0)

    diagnosis = diagnosis_of(after, before, rng.standard_normal((3, 5)), rng.standard_normal(5))
    assert "right when t has one value everywhere, else wrong: t is applied at the wrong place" in diagnosis


def test_a_wrong_branch_is_not_explained_by_ones(rng: np.random.Generator) -> None:
    def vjp(dy: np.ndarray, x: np.ndarray) -> np.ndarray:
        return np.asarray(dy * 2 * x * np.where(x < 0, np.sin(7 * x), 1))

    assert "all ones" not in diagnosis_of(lambda x: x * x, vjp, rng.standard_normal(9))


def test_a_mask_that_is_inverted_in_the_backward(rng: np.random.Generator) -> None:
    keep = rng.random((3, 5)) < 0.5

    def f(x: np.ndarray, keep: np.ndarray) -> np.ndarray:
        return np.where(keep, np.sin(x), 0.0)

    def upside_down(dy: np.ndarray, x: np.ndarray, keep: np.ndarray) -> np.ndarray:
        return np.where(keep, 0.0, dy * np.cos(x))

    message = diagnosis_of(f, upside_down, rng.standard_normal((3, 5)), keep)
    assert "right with ~keep in place of keep: the backward inverts keep" in message


def test_a_mask_that_hides_a_term_only_in_the_backward(rng: np.random.Generator) -> None:
    keep = rng.random((3, 5)) < 0.5

    def f(x: np.ndarray, add: np.ndarray, keep: np.ndarray) -> np.ndarray:
        return np.where(keep, x, 0.0) + np.sin(add)

    def too_much(dy: np.ndarray, x: np.ndarray, add: np.ndarray, keep: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.where(keep, dy, 0.0), np.where(keep, dy * np.cos(add), 0.0)

    message = diagnosis_of(f, too_much, *rng.standard_normal((2, 3, 5)), keep)
    assert "the backward returns zero where keep is False, but the gradient is not zero there" in message


@pytest.mark.parametrize(("row", "word"), [(-1, "last"), (0, "first")])
def test_missing_batch_sum_that_keeps_one_row(rng: np.random.Generator, row: int, word: str) -> None:
    x, w, b = rng.standard_normal((3, 4)), rng.standard_normal((4, 5)), rng.standard_normal(5)

    def backward(dy: np.ndarray, cache: Any) -> Any:
        dx, dw, _ = ops.linear_backward(dy, cache)
        return dx, dw, dy[row].copy()

    message, report = caught(ops.linear, backward, {"x": x, "w": w, "b": b})
    assert report.arguments["b"].wrong.all()
    assert f"uses only the {word} row of dy" in message


def test_only_the_last_of_three_uses(rng: np.random.Generator) -> None:
    def forward(x: np.ndarray, w: np.ndarray) -> Any:
        return (x @ w, x @ w**2, x @ w**3), (x, w)

    def backward(dy: Any, cache: Any) -> Any:
        x, w = cache
        return dy[2] @ (w**3).T, x.T @ dy[0] + 2 * w * (x.T @ dy[1]) + 3 * w**2 * (x.T @ dy[2])

    inputs = {"x": rng.standard_normal((4, 3)), "w": rng.standard_normal((3, 2))}
    message, report = caught(forward, backward, inputs)
    assert not report.arguments["w"].wrong.any()
    assert "dx ignores dy of outputs 0, 1 (of 3, counted from 0)" in message


def test_places_that_only_backward_or_only_forward_mixes(rng: np.random.Generator) -> None:
    def rows(x: np.ndarray) -> Any:
        y, cache = ops.softmax(x, axis=-1)
        return y, cache

    def columns(dy: np.ndarray, cache: Any) -> np.ndarray:
        return np.asarray(cache.y * (dy - (dy * cache.y).sum(axis=0, keepdims=True)))

    message, _ = caught(rows, columns, {"x": rng.standard_normal((3, 4))})
    assert "the backward mixes the places along axis 0 of x, but the forward does not" in message

    def centred(x: np.ndarray) -> Any:
        return x * x.mean(axis=1, keepdims=True), x

    def apart(dy: np.ndarray, x: np.ndarray) -> np.ndarray:
        return np.asarray(dy * x.mean(axis=1, keepdims=True) * (1 + np.sin(x)))

    message, _ = caught(centred, apart, {"x": rng.standard_normal((3, 4))})
    assert "the forward mixes the places along axis 1 of x, but the backward does not" in message


def test_a_sum_over_part_of_an_axis(rng: np.random.Generator) -> None:
    def shared(x: np.ndarray, b: np.ndarray) -> Any:
        return x + b, x

    def backward(dy: np.ndarray, x: np.ndarray) -> Any:
        return dy, dy[[0, 2]].sum(axis=0)

    message, _ = caught(shared, backward, {"x": rng.standard_normal((4, 3)), "b": rng.standard_normal(3)})
    assert "db ignores places 1, 3 along axis 0 of dy" in message


@pytest.mark.parametrize("rows", [1, 20])
def test_very_short_and_very_long_axes_are_skipped(rows: int, rng: np.random.Generator) -> None:
    def backward(dy: np.ndarray, x: np.ndarray) -> Any:
        return dy, dy[:, [0, 2]].sum(axis=(0, 1))

    inputs = {"x": rng.standard_normal((rows, 4, 3)), "b": rng.standard_normal(3)}
    message, _ = caught(lambda x, b: (x + b, x), backward, inputs)
    assert "db ignores places 1, 3 along axis 1 of dy" in message


def test_only_the_second_of_two_wrong_gradients_ignores_places(rng: np.random.Generator) -> None:
    def backward(dy: np.ndarray, x: np.ndarray) -> Any:
        return dy, dy.sum(axis=0) * [1.1, 0.7, 1.9], dy[[0, 2]].sum(axis=0)

    inputs = {"x": rng.standard_normal((4, 3)), "a": rng.standard_normal(3), "b": rng.standard_normal(3)}
    message, _ = caught(lambda x, a, b: (x + a + b, x), backward, inputs)
    assert "db ignores places 1, 3 along axis 0 of dy" in message
    assert "da ignores" not in message
