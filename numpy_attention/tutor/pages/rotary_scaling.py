"""The trial of the scaled frequencies."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from numpy_attention.tutor.entry import Array


def trial_of_rotary_frequencies(speeds_of: Callable[..., Array], seed: int) -> None:
    """Each type of scaling slows each pair as the published rules do."""
    rng = np.random.default_rng(seed)
    n, base, L = int(rng.integers(6, 40)), 10.0 ** rng.uniform(4, 6), 4096
    first, last = (n * math.log(L / (2 * math.pi * turns)) / math.log(base) for turns in (32, 1))
    first, last = max(math.floor(first), 0), min(math.ceil(last), 2 * n - 1)
    yarn: dict[str, Any] = {"original_max_position_embeddings": L}
    more = {"linear": {}, "ntk": {}, "yarn": yarn, "llama3": {**yarn, "low_freq_factor": 1.0, "high_freq_factor": 4.0}}
    for kind, numbers in more.items():
        found = speeds_of(2 * n, base, {"type": kind, "factor": 8.0, **numbers})
        for i, f in enumerate(base ** (-np.arange(n) / n)):
            turns = L * f / (2 * math.pi)
            slow = {"linear": 1.0, "ntk": 0.0, "llama3": (4 - turns) / 3, "yarn": (i - first) / (last - first)}[kind]
            right = 8.0 ** (i / (n - 1)) if kind == "ntk" else 1 / (1 - 7 / 8 * min(max(slow, 0.0), 1.0))
            assert abs(found[i] * right - f) < 1e-9 * f, (
                f"{kind}: pair {i} of {n} makes {turns:.3g} turns in {L} tokens; its frequency must be divided by "
                f"{right:.4g}, not by {f / found[i]:.4g}"
            )


TRIALS = {"rotary_frequencies": trial_of_rotary_frequencies}
