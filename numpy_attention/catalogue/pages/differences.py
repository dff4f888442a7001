"""Central differences, the reference of the checker. They have no chapter; this page follows the last chapter."""

from collections.abc import Callable

import numpy as np

from numpy_attention.catalogue.entry import Array
from numpy_attention.catalogue.exercise import Exercise, Questions, Quiz
from numpy_attention.catalogue.mistake import stands_in_for

CHAPTER = 42


def function_of_rows(x: Array) -> Array:
    """The function that is given in the exercise on differences."""
    return np.asarray(x * np.tanh(x.sum(axis=-1, keepdims=True)))


def differences(x: Array, dy: Array, h: float) -> Array:
    """Central differences of sum(dy * f(x)), element by element."""
    return element_by_element(x, h, lambda step: (_loss(x + step, dy) - _loss(x - step, dy)) / (2 * h))


def element_by_element(x: Array, h: float, quotient: Callable[[Array], float]) -> Array:
    """Calls `quotient` for each element of x, with a step that is h at this element and 0 elsewhere."""
    dx = np.zeros_like(x)
    for i in np.ndindex(x.shape):
        step = np.zeros_like(x)
        step[i] = h
        dx[i] = quotient(step)
    return dx


def _loss(x: Array, dy: Array) -> float:
    return float((function_of_rows(x) * dy).sum())


@stands_in_for("differences")
def one_sided(x: Array, dy: Array, h: float) -> Array:
    """(f(x + h) - f(x)) / h has an error of order h; central differences have an error of order h^2.

    Hides: with a small step the first digits are right.
    """
    return element_by_element(x, h, lambda step: (_loss(x + step, dy) - _loss(x, dy)) / h)


@stands_in_for("differences")
def divided_by_one_h(x: Array, dy: Array, h: float) -> Array:
    """The distance from x - h to x + h is 2h, but the difference is divided by h.

    Hides: the direction is right.
    """
    return 2 * differences(x, dy, h)


@stands_in_for("differences")
def dy_left_out(x: Array, dy: Array, h: float) -> Array:
    """It computes differences of sum(f(x)), but each output must be multiplied by its element of dy.

    Hides: right for a dy of ones, as in many tests.
    """
    return differences(x, np.ones_like(dy), h)


@stands_in_for("differences")
def all_moved_at_once(x: Array, dy: Array, h: float) -> Array:
    """All elements of x change together, which gives the sum of the gradient; each element needs a separate step.

    Hides: right if x has only one element.
    """
    return element_by_element(x, h, lambda _: (_loss(x + h, dy) - _loss(x - h, dy)) / (2 * h))


@stands_in_for("differences")
def elements_kept_apart(x: Array, dy: Array, h: float) -> Array:
    """It computes (f(x + h) - f(x - h)) dy / 2h, as if each output depended only on the input at the same place.

    Hides: right for functions like gelu, and if x has only one element.
    """
    f = function_of_rows
    return np.asarray((f(x + h) - f(x - h)) * dy / (2 * h))


def _about_differences(rng: np.random.Generator) -> Questions:
    yield "one element, and dy = 1", (rng.standard_normal((1, 1)), np.ones((1, 1)), 0.1)
    yield "one row, and dy = 1", (rng.standard_normal((1, 3)), np.ones((1, 3)), 0.1)
    yield "two rows, and a random dy", (rng.standard_normal((2, 3)), rng.standard_normal((2, 3)), 0.1)
    yield "a smaller step", (rng.standard_normal((2, 2)), rng.standard_normal((2, 2)), 0.01)


OURS = {"differences": differences}
EXERCISES = (Exercise("differences", 10, quizzes={"differences": Quiz(differences, _about_differences)}),)
