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
    assert "right when mask hides nothing" in message


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


def test_an_option_that_the_backward_ignores(rng: np.random.Generator) -> None:
    def power(x: np.ndarray, n: int = 2) -> Any:
        return x**n, x

    inputs = {"x": np.abs(rng.standard_normal((3, 4)))}
    message, _ = caught(power, lambda dy, x: dy * 2 * x, inputs, n=3)
    assert "right without the option n: does the backward ignore n=3?" in message


def test_a_mask_that_is_inverted_in_the_backward(rng: np.random.Generator) -> None:
    keep = rng.random((3, 5)) < 0.5

    def f(x: np.ndarray, keep: np.ndarray) -> np.ndarray:
        return np.where(keep, np.sin(x), 0.0)

    def upside_down(dy: np.ndarray, x: np.ndarray, keep: np.ndarray) -> np.ndarray:
        return np.where(keep, 0.0, dy * np.cos(x))

    message = diagnosis_of(f, upside_down, rng.standard_normal((3, 5)), keep)
    assert "right with ~keep in place of keep: the backward inverts keep" in message


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


def test_a_sum_over_part_of_an_axis(rng: np.random.Generator) -> None:
    def shared(x: np.ndarray, b: np.ndarray) -> Any:
        return x + b, x

    def backward(dy: np.ndarray, x: np.ndarray) -> Any:
        return dy, dy[[0, 2]].sum(axis=0)

    message, _ = caught(shared, backward, {"x": rng.standard_normal((4, 3)), "b": rng.standard_normal(3)})
    assert "db ignores places 1, 3 along axis 0 of dy" in message
