"""Layers in which each matrix has a change of low rank, and the start of training."""

from collections.abc import Callable
from typing import Any

import numpy as np

from numpy_attention.pretrained.c37_low_rank import LowRank
from numpy_attention.training.c25_optimizers import Adam
from numpy_attention.tutor.entry import Array


def changed(layer: Any, rng: np.random.Generator) -> Any:
    """Replaces each matrix of the layer by a LowRank layer."""
    for name, w in list(vars(layer).items()):
        if name.startswith("w_") and w is not None:
            setattr(layer, name, LowRank(w, 2, 3.0, rng))
    return layer


def low_rank_start(w: Array, rank: int, rng: np.random.Generator) -> LowRank:
    """The right start: a is random, b is zero."""
    return LowRank(w, rank, rng=rng)


def trial_of_low_rank_start(start: Callable[..., LowRank], seed: int, look_first: bool = True) -> None:
    """Checks that a new change of low rank does not change y, and learns a change of rank 1 in 200 steps."""
    rng = np.random.default_rng(seed)
    w, x = rng.standard_normal((5, 4)), rng.standard_normal((20, 5))
    goal = x @ (w + np.outer(rng.standard_normal(5), rng.standard_normal(4)))
    layer = start(w.copy(), 2, rng)
    before = layer.forward(x)[0] - goal
    off = float(np.max(np.abs(before + goal - x @ w)))
    assert off < 1e-12 or not look_first, (
        f"before the first step y differs from x w by {off:.2g}: training does not start from the pretrained model"
    )
    optimizer = Adam(layer.parameters(), learning_rate=0.05)
    for _ in range(200):
        y, cache = layer.forward(x)
        optimizer.step(layer.backward(y - goal, cache)[1])
    left = float(np.sum((layer.forward(x)[0] - goal) ** 2) / np.sum(before**2))
    assert left < 0.01, f"after 200 steps {left:.0%} of the squared error is left: are all gradients zero?"


TRIALS = {"low_rank_start": trial_of_low_rank_start}
