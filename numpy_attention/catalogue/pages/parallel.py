"""One gradient from several workers (Chapter 31): the mean over all places, not the mean of the means."""

import numpy as np

from numpy_attention.catalogue.entry import Array
from numpy_attention.catalogue.exercise import Exercise, Questions, Quiz
from numpy_attention.catalogue.mistake import stands_in_for

CHAPTER = 31

Gradients = dict[str, Array]


def joined_gradient(grads: list[Gradients], counts: list[int]) -> Gradients:
    """The gradient of the mean over all places, from the gradients of each worker's mean."""
    return {
        name: np.asarray(sum(n * g[name] for n, g in zip(counts, grads)) / max(sum(counts), 1)) for name in grads[0]
    }


@stands_in_for("joined_gradient")
def mean_of_the_means(grads: list[Gradients], counts: list[int]) -> Gradients:
    """It returns the plain mean of the gradients: a worker with few places has as much weight as a worker with many.

    Hides: right if all workers have equally many places.
    """
    return {name: np.asarray(np.mean([g[name] for g in grads], axis=0)) for name in grads[0]}


@stands_in_for("joined_gradient")
def sum_of_the_means(grads: list[Gradients], counts: list[int]) -> Gradients:
    """It returns the sum of the gradients, but each is a mean: with n workers the sum is n times too large.

    Hides: the direction is right if all workers have equally many places, and Adam ignores the factor.
    """
    return {name: np.asarray(np.sum([g[name] for g in grads], axis=0)) for name in grads[0]}


@stands_in_for("joined_gradient")
def weighted_sum_not_divided(grads: list[Gradients], counts: list[int]) -> Gradients:
    """Each gradient is multiplied by its number of places, but the sum is not divided by the number of all places.

    Hides: the direction is right, and Adam ignores the factor.
    """
    return {name: np.asarray(sum(n * g[name] for n, g in zip(counts, grads))) for name in grads[0]}


@stands_in_for("joined_gradient")
def nan_without_places(grads: list[Gradients], counts: list[int]) -> Gradients:
    """If no place of any worker counts, it divides 0 by 0; the gradient must be zero.

    Hides: a batch with only padding is rare.
    """
    with np.errstate(all="ignore"):
        return {
            name: np.asarray(sum(n * g[name] for n, g in zip(counts, grads)) / np.float64(sum(counts)))
            for name in grads[0]
        }


def _about_workers(rng: np.random.Generator) -> Questions:
    def grads(workers: int) -> list[dict[str, Array]]:
        return [{"w": rng.standard_normal((2, 1)), "b": rng.standard_normal(1)} for _ in range(workers)]

    yield "two workers with equally many places", (grads(2), [3, 3])
    yield "two workers with 1 and 3 places", (grads(2), [1, 3])
    idle = grads(3)
    idle[1] = {name: np.zeros_like(grad) for name, grad in idle[1].items()}
    yield "three workers, one of them with no place that counts", (idle, [4, 0, 1])
    zeros = [{name: np.zeros_like(grad) for name, grad in own.items()} for own in grads(2)]
    yield "no place counts, so the gradient is zero", (zeros, [0, 0])


OURS = {"joined_gradient": joined_gradient}
EXERCISES = (Exercise("several_workers", 16, quizzes={"joined_gradient": Quiz(joined_gradient, _about_workers)}),)
