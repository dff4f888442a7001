"""Slips in differences, and in putting the gradients of several workers together."""

import numpy as np

from numpy_attention.grade import references
from numpy_attention.grade.references import Gradients
from numpy_attention.grade.slips.registry import slip

Array = np.ndarray


@slip("differences", "stand_in")
def one_sided(x: Array, dy: Array, h: float) -> Array:
    """f(x + h) - f(x) over h has an error of the order of h; from both sides it is of the order of h^2.

    Hides: with a small step the first digits are right.
    """
    return references.element_by_element(x, h, lambda step: (_loss(x + step, dy) - _loss(x, dy)) / h)


@slip("differences", "stand_in")
def divided_by_one_h(x: Array, dy: Array, h: float) -> Array:
    """From x - h to x + h it is 2h, and it is divided by h.

    Hides: the direction is right.
    """
    return 2 * references.differences(x, dy, h)


@slip("differences", "stand_in")
def dy_left_out(x: Array, dy: Array, h: float) -> Array:
    """These are the differences of sum(f(x)): each output must be weighted by its dy.

    Hides: right for a dy of ones, which is the dy of many tests.
    """
    return references.differences(x, np.ones_like(dy), h)


@slip("differences", "stand_in")
def all_moved_at_once(x: Array, dy: Array, h: float) -> Array:
    """All of x is moved at once, which gives the sum of the gradient; each element needs a step of its own.

    Hides: right for an x of one number.
    """
    return references.element_by_element(x, h, lambda _: (_loss(x + h, dy) - _loss(x - h, dy)) / (2 * h))


@slip("differences", "stand_in")
def elements_kept_apart(x: Array, dy: Array, h: float) -> Array:
    """(f(x + h) - f(x - h)) dy / 2h element by element: as if each output depended on the input of its place alone.

    Hides: right for functions like gelu, and for an x of one number.
    """
    f = references.function_of_rows
    return np.asarray((f(x + h) - f(x - h)) * dy / (2 * h))


def _loss(x: Array, dy: Array) -> float:
    return float((references.function_of_rows(x) * dy).sum())


@slip("joined_gradient", "stand_in")
def mean_of_the_means(grads: list[Gradients], counts: list[int]) -> Gradients:
    """The plain mean of the workers' gradients: a worker with few places gets as much say as one with many.

    Hides: right when all have equally many places.
    """
    return {name: np.asarray(np.mean([own[name] for own in grads], axis=0)) for name in grads[0]}


@slip("joined_gradient", "stand_in")
def sum_of_the_means(grads: list[Gradients], counts: list[int]) -> Gradients:
    """The plain sum of the workers' gradients, each of which is a mean: too large by the number of workers.

    Hides: the direction is right when all have equally many places, and Adam forgives the factor.
    """
    return {name: np.asarray(np.sum([own[name] for own in grads], axis=0)) for name in grads[0]}


@slip("joined_gradient", "stand_in")
def weighted_sum_not_divided(grads: list[Gradients], counts: list[int]) -> Gradients:
    """Each gradient is multiplied by its number of places, and the sum is not divided by all of them.

    Hides: the direction is right, and Adam forgives the factor.
    """
    return {name: np.asarray(sum(n * own[name] for n, own in zip(counts, grads))) for name in grads[0]}


@slip("joined_gradient", "stand_in")
def nan_without_places(grads: list[Gradients], counts: list[int]) -> Gradients:
    """Where no worker has a single place it divides 0 by 0; that gradient is zero.

    Hides: a batch of padding alone is rare.
    """
    with np.errstate(all="ignore"):
        return {
            name: np.asarray(sum(n * own[name] for n, own in zip(counts, grads)) / np.float64(sum(counts)))
            for name in grads[0]
        }
