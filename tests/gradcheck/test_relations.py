"""The diagnosis names a wrong number, factor or term, and right numbers in wrong places."""

from typing import Any

import numpy as np
import pytest

from tests.gradcheck.planted import caught, diagnosis_of

Array = np.ndarray


@pytest.mark.parametrize(("wrong", "how"), [(1.0, "left out"), (3.0, "applied once too often")])
def test_a_factor_of_another_argument_that_is_broadcast(wrong: float, how: str, rng: np.random.Generator) -> None:
    def vjp(dy: np.ndarray, x: np.ndarray, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return dy * t**wrong * np.cos(x), 2 * t * (dy * np.sin(x)).sum(0)

    text = diagnosis_of(lambda x, t: t**2 * np.sin(x), vjp, rng.standard_normal((3, 4)), np.arange(2.0, 6.0))
    assert text == f"dx: the factor t is {how}"


@pytest.mark.parametrize(("factor", "text"), [
    (-1.0, "the sign is wrong"), (2.0, "twice what it should be"), (0.5, "half of what it should be"),
    (1 / 3, "divided by 3 (axis 0 of x) once too often"), (1 / 7, "right up to the constant factor 0.142857"),
    (1 + 1e-3, "right up to a factor of 1 +1.0e-03: a rounded constant"), (0.777, "the constant factor 0.777"),
])
def test_a_known_factor(rng: np.random.Generator, factor: float, text: str) -> None:
    assert text in diagnosis_of(np.sin, lambda dy, x: factor * dy * np.cos(x), rng.standard_normal((3, 5)))


@pytest.mark.parametrize(("factor", "text"), [
    (0.3, "rate is applied once too often"), (1 / 0.3, "rate is left out"),
    (0.7, "the factor 1/(1 - rate) is left out"), (1 / 0.7, "the factor 1/(1 - rate) is applied once too often"),
])
def test_an_option_that_is_the_factor(factor: float, text: str, rng: np.random.Generator) -> None:
    message, _ = caught(
        lambda x, rate: (np.sin(x) / rate, (x, rate)), lambda dy, cache: factor * dy * np.cos(cache[0]) / cache[1],
        {"x": rng.standard_normal((3, 5))}, rate=0.3,
    )
    assert f"likely mistake: dx: {text}" in message


def test_a_tiny_error_without_a_rule_is_called_noise(rng: np.random.Generator) -> None:
    noise = 1e-11 * rng.standard_normal((3, 4))
    text = diagnosis_of(np.sin, lambda dy, x: dy * (np.cos(x) + noise), rng.standard_normal((3, 4)))
    assert "is it noise" in text
    assert "rtol=" not in text


def test_a_padding_cut_at_the_wrong_side(rng: np.random.Generator) -> None:
    def vjp(dy: np.ndarray, x: np.ndarray) -> np.ndarray:
        return np.pad(dy * 3, ((0, 0), (1, 1)))[:, :-2]

    text = diagnosis_of(lambda x: 3 * x, vjp, rng.standard_normal((4, 5)))
    assert "shifted by one along axis 1: an index off by one, or a padding cut at the wrong side?" in text


def test_a_permutation_instead_of_its_inverse(rng: np.random.Generator) -> None:
    x = rng.standard_normal((3, 7))

    def vjp(dy: np.ndarray, x: np.ndarray) -> np.ndarray:
        return np.asarray(np.take_along_axis(dy, np.argsort(x, axis=1), 1))

    text = diagnosis_of(lambda x: np.sort(x, axis=1), vjp, x)
    assert "the right numbers are in the wrong places: a permutation instead of its inverse" in text


def softmax(z: Array, axis: int = -1) -> Array:
    e = np.exp(z - z.real.max(axis, keepdims=True))
    return np.asarray(e / e.sum(axis, keepdims=True))


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
