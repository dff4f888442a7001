"""Central differences, the reference of the checker. It has no chapter; its page comes after the last one."""

from collections.abc import Callable

import numpy as np

from numpy_attention.catalogue.entry import Array
from numpy_attention.catalogue.exercise import Exercise, Questions, Quiz
from numpy_attention.catalogue.mistake import stands_in_for

CHAPTER = 42


def function_of_rows(x: Array) -> Array:
    """The function that the exercise on differences gives."""
    return np.asarray(x * np.tanh(x.sum(axis=-1, keepdims=True)))


def differences(x: Array, dy: Array, h: float) -> Array:
    """Central differences of sum(dy * f(x)), element by element."""
    return element_by_element(x, h, lambda step: (_loss(x + step, dy) - _loss(x - step, dy)) / (2 * h))


def element_by_element(x: Array, h: float, quotient: Callable[[Array], float]) -> Array:
    """For every element of x the quotient of a step that is h at this element and 0 elsewhere."""
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
    """f(x + h) - f(x) over h has an error of the order of h; from both sides it is of the order of h^2.

    Hides: with a small step the first digits are right.
    """
    return element_by_element(x, h, lambda step: (_loss(x + step, dy) - _loss(x, dy)) / h)


@stands_in_for("differences")
def divided_by_one_h(x: Array, dy: Array, h: float) -> Array:
    """From x - h to x + h it is 2h, and it is divided by h.

    Hides: the direction is right.
    """
    return 2 * differences(x, dy, h)


@stands_in_for("differences")
def dy_left_out(x: Array, dy: Array, h: float) -> Array:
    """These are the differences of sum(f(x)): each output must be weighted by its dy.

    Hides: right for a dy of ones, which is the dy of many tests.
    """
    return differences(x, np.ones_like(dy), h)


@stands_in_for("differences")
def all_moved_at_once(x: Array, dy: Array, h: float) -> Array:
    """All of x is moved at once, which gives the sum of the gradient; each element needs its own step.

    Hides: right for an x of one number.
    """
    return element_by_element(x, h, lambda _: (_loss(x + h, dy) - _loss(x - h, dy)) / (2 * h))


@stands_in_for("differences")
def elements_kept_apart(x: Array, dy: Array, h: float) -> Array:
    """(f(x + h) - f(x - h)) dy / 2h element by element: as if each output depended on the input of its place alone.

    Hides: right for functions like gelu, and for an x of one number.
    """
    f = function_of_rows
    return np.asarray((f(x + h) - f(x - h)) * dy / (2 * h))


def _about_differences(rng: np.random.Generator) -> Questions:
    yield "one number, and dy = 1", (rng.standard_normal((1, 1)), np.ones((1, 1)), 0.1)
    yield "one row, and dy = 1", (rng.standard_normal((1, 3)), np.ones((1, 3)), 0.1)
    yield "two rows, and another dy", (rng.standard_normal((2, 3)), rng.standard_normal((2, 3)), 0.1)
    yield "a smaller step", (rng.standard_normal((2, 2)), rng.standard_normal((2, 2)), 0.01)


OURS = {"differences": differences}
EXERCISES = (Exercise("differences", 10, quizzes={"differences": Quiz(differences, _about_differences)}),)
