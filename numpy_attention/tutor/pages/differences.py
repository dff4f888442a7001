"""Questions about a gradient by numerical differences."""

import numpy as np

from numpy_attention.tutor.exercise import Questions, Quiz


def _about_differences(rng: np.random.Generator) -> Questions:
    yield "one element, and dy = 1", (rng.standard_normal((1, 1)), np.ones((1, 1)), 0.1)
    yield "one row, and dy = 1", (rng.standard_normal((1, 3)), np.ones((1, 3)), 0.1)
    yield "two rows, and a random dy", (rng.standard_normal((2, 3)), rng.standard_normal((2, 3)), 0.1)
    yield "a smaller step", (rng.standard_normal((2, 2)), rng.standard_normal((2, 2)), 0.01)


QUESTIONS = {"differences": Quiz(_about_differences)}
