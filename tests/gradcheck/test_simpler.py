"""Mistakes of public code in functions with other names and layouts: the diagnosis finds the cause from simpler arrays.

The weights are identity matrices; all places but one are zero; or one element of an argument moves alone.
"""

from typing import Any

import numpy as np
import pytest

from tests.gradcheck.planted import diagnosis_of

Array = np.ndarray


def softmax(z: Array, axis: int = -1) -> Array:
    e = np.exp(z - z.real.max(axis, keepdims=True))
    return np.asarray(e / e.sum(axis, keepdims=True))


def drawn(rng: np.random.Generator, *shapes: tuple[int, ...]) -> list[Array]:
    return [rng.standard_normal(shape) for shape in shapes]


def rms(x: Array) -> Array:
    return np.asarray(x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6))


def rms_back(g: Array, x: Array) -> Array:
    r = 1 / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6)
    return np.asarray(r * (g - x * r * r * (g * x).mean(-1, keepdims=True)))


def test_a_residual_path_that_is_left_out(rng: np.random.Generator) -> None:
    def back(g: Array, x: Array, W: Array) -> Any:
        h = np.tanh(x @ W)
        d = rms_back(g, x + h) * (1 - h * h)
        return d @ W.T, x.T @ d

    text = diagnosis_of(lambda x, W: rms(x + np.tanh(x @ W)), back, *drawn(rng, (6, 4), (4, 4)))
    assert "the path through `x` is missing" in text


TARGETS = np.array([0, 2, 1, 3, 2])


def losses() -> list[tuple[str, Any, Any, str]]:
    """Losses of scores or probabilities, each with a wrong gradient."""
    places, y = np.arange(5), np.eye(4)[TARGETS]

    def of_scores(z: Array) -> Array:
        return np.asarray(-np.log(softmax(z)[places, TARGETS]).mean())

    def of_p(z: Array) -> Array:
        return np.asarray(-(y * np.log(z)).sum())

    def guarded(z: Array) -> Array:
        return np.asarray(-np.log(z[places, TARGETS] + 1e-10).mean())

    def binary(p: Array) -> Array:
        return (p - y) / (p * (1 - p))

    return [
        ("scores", of_scores, lambda g, z: g * binary(softmax(z)) / 5, "is the gradient of a binary loss"),
        ("probabilities", of_p, lambda g, z: g * binary(z), "is the gradient of a binary loss"),
        ("p - y", of_p, lambda g, z: g * (z - y), "p - y is the gradient with respect to logits, but z holds"),
        ("1e-10", guarded, lambda g, z: -g * y / z / 5, "does only one of forward and backward have a small constant"),
    ]


@pytest.mark.parametrize(("name", "f", "back", "words"), losses(), ids=[name for name, *_ in losses()])
def test_wrong_gradients_of_a_loss(name: str, f: Any, back: Any, words: str, rng: np.random.Generator) -> None:
    text = diagnosis_of(f, back, softmax(rng.standard_normal((5, 4))))
    assert words in text
    assert "mean" not in text
    assert "noise" not in text
