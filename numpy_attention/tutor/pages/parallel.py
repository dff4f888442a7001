"""Questions about one gradient from several workers."""

import numpy as np

from numpy_attention.tutor.entry import Array
from numpy_attention.tutor.exercise import Questions, Quiz


def _about_workers(rng: np.random.Generator) -> Questions:
    def grads(workers: int) -> list[dict[str, Array]]:
        return [{"w": rng.standard_normal((2, 1)), "b": rng.standard_normal(1)} for _ in range(workers)]

    yield "two workers with equally many positions", (grads(2), [3, 3])
    yield "two workers with 1 and 3 positions", (grads(2), [1, 3])
    idle = grads(3)
    idle[1] = {name: np.zeros_like(grad) for name, grad in idle[1].items()}
    yield "three workers, one of them with no position that counts", (idle, [4, 0, 1])
    zeros = [{name: np.zeros_like(grad) for name, grad in own.items()} for own in grads(2)]
    yield "no position counts, so the gradient is zero", (zeros, [0, 0])


QUESTIONS = {"joined_gradient": Quiz(_about_workers)}
