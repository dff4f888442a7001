"""A backward that does not hear part of dy, or hears what the forward keeps apart, is told which part."""

from typing import Any

import numpy as np
import pytest

from numpy_attention import ops
from tests.gradcheck.planted import caught


@pytest.mark.parametrize(("row", "word"), [(-1, "last"), (0, "first")])
def test_missing_batch_sum_that_keeps_one_row(rng: np.random.Generator, row: int, word: str) -> None:
    x, w, b = rng.standard_normal((3, 4)), rng.standard_normal((4, 5)), rng.standard_normal(5)

    def backward(dy: np.ndarray, cache: Any) -> Any:
        dx, dw, _ = ops.linear_backward(dy, cache)
        return dx, dw, dy[row].copy()

    message, report = caught(ops.linear, backward, {"x": x, "w": w, "b": b})
    assert report.arguments["b"].wrong.all()
    assert f"uses only the {word} row of dy" in message


def test_the_last_of_three_uses_alone(rng: np.random.Generator) -> None:
    def forward(x: np.ndarray, w: np.ndarray) -> Any:
        return (x @ w, x @ w**2, x @ w**3), (x, w)

    def backward(dy: Any, cache: Any) -> Any:
        x, w = cache
        return dy[2] @ (w**3).T, x.T @ dy[0] + 2 * w * (x.T @ dy[1]) + 3 * w**2 * (x.T @ dy[2])

    inputs = {"x": rng.standard_normal((4, 3)), "w": rng.standard_normal((3, 2))}
    message, report = caught(forward, backward, inputs)
    assert not report.arguments["w"].wrong.any()
    assert "dx takes nothing from dy of outputs 0, 1 (of 3, counted from 0)" in message


def test_places_that_only_the_backward_mixes_and_places_that_only_the_forward_mixes(rng: np.random.Generator) -> None:
    def rows(x: np.ndarray) -> Any:
        y, cache = ops.softmax(x, axis=-1)
        return y, cache

    def columns(dy: np.ndarray, cache: Any) -> np.ndarray:
        return np.asarray(cache.y * (dy - (dy * cache.y).sum(axis=0, keepdims=True)))

    message, _ = caught(rows, columns, {"x": rng.standard_normal((3, 4))})
    assert "the backward mixes the places along axis 0 of x, which the forward keeps apart" in message

    def centred(x: np.ndarray) -> Any:
        return x * x.mean(axis=1, keepdims=True), x

    def apart(dy: np.ndarray, x: np.ndarray) -> np.ndarray:
        return np.asarray(dy * x.mean(axis=1, keepdims=True) * (1 + np.sin(x)))

    message, _ = caught(centred, apart, {"x": rng.standard_normal((3, 4))})
    assert "the forward mixes the places along axis 1 of x, the backward keeps them apart" in message


def test_a_sum_over_part_of_an_axis(rng: np.random.Generator) -> None:
    def shared(x: np.ndarray, b: np.ndarray) -> Any:
        return x + b, x

    def backward(dy: np.ndarray, x: np.ndarray) -> Any:
        return dy, dy[[0, 2]].sum(axis=0)

    message, _ = caught(shared, backward, {"x": rng.standard_normal((4, 3)), "b": rng.standard_normal(3)})
    assert "db takes nothing from places 1, 3 along axis 0 of dy" in message


@pytest.mark.parametrize("rows", [1, 20])
def test_axes_of_one_place_or_of_many_do_not_hide_the_next(rows: int, rng: np.random.Generator) -> None:
    def backward(dy: np.ndarray, x: np.ndarray) -> Any:
        return dy, dy[:, [0, 2]].sum(axis=(0, 1))

    inputs = {"x": rng.standard_normal((rows, 4, 3)), "b": rng.standard_normal(3)}
    message, _ = caught(lambda x, b: (x + b, x), backward, inputs)
    assert "db takes nothing from places 1, 3 along axis 1 of dy" in message


def test_the_second_of_two_wrong_gradients_alone_is_deaf(rng: np.random.Generator) -> None:
    def backward(dy: np.ndarray, x: np.ndarray) -> Any:
        return dy, dy.sum(axis=0) * [1.1, 0.7, 1.9], dy[[0, 2]].sum(axis=0)

    inputs = {"x": rng.standard_normal((4, 3)), "a": rng.standard_normal(3), "b": rng.standard_normal(3)}
    message, _ = caught(lambda x, a, b: (x + a + b, x), backward, inputs)
    assert "db takes nothing from places 1, 3 along axis 0 of dy" in message
    assert "da takes nothing" not in message
