"""Questions about the direct effect: a part, the whole stream, gamma, a direction and eps."""

from typing import Any

import numpy as np

from numpy_attention.tutor.entry import Array
from numpy_attention.tutor.exercise import Questions, Quiz


def about_effects(rng: np.random.Generator) -> Questions:
    """First the whole stream as the part, then a part of a stream, a large eps and float32."""

    def arrays(T: int, d: int, dtype: Any = np.float64) -> tuple[Array, ...]:
        shapes = (T, d), (T, d), (d,), (T, d)
        part, rest, gamma, direction = (rng.standard_normal(shape).astype(dtype) for shape in shapes)
        return part + dtype(0.5), part + dtype(2) * rest, gamma, direction

    part, stream, gamma, direction = arrays(1, 3)
    yield "one position, and the whole stream as the part", (stream, stream, gamma, direction, 1e-5)
    yield "one position", (part, stream, gamma, direction, 1e-5)
    yield "several positions", (*arrays(3, 4), 1e-5)
    yield "a large eps", (*arrays(2, 3), 0.5)
    yield "arrays of float32", (*arrays(2, 4, np.float32), 1e-5)


QUESTIONS = {"direct_effect": Quiz(about_effects)}
