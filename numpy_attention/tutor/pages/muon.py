"""Trials of Muon and of its orthogonalization."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from numpy_attention.beyond.c55_muon import orthogonalized
from numpy_attention.training.c25_optimizers import AdamW
from numpy_attention.tutor.entry import Array


def trial_of_orthogonalized(orthogonalize: Callable[..., Array], seed: int) -> None:
    """Checks that the singular vectors stay, and that every singular value of a usual size comes near 1."""
    for shape in ((4, 7), (7, 4), (5, 5)):
        g = np.random.default_rng(seed).standard_normal(shape)
        u, _, vt = np.linalg.svd(g, full_matrices=False)
        found = u.T @ orthogonalize(g) @ vt.T  # diagonal if the vectors stay
        assert np.allclose(found, np.diag(np.diagonal(found)), atol=1e-9), f"the directions of a {shape} changed"
        assert np.allclose(np.diagonal(found), 1.0, atol=0.4), f"the singular values became {np.diagonal(found)}"


def trial_of_muon(optimizer: Callable[..., Any], seed: int) -> None:
    """Compares a first step with the formula: of a matrix of a block, and of parameters for AdamW."""
    rng = np.random.default_rng(seed)
    before = {name: rng.standard_normal((5, 3)) for name in ("table", "head", "blocks.0.w_1")}
    grads = {name: rng.standard_normal((5, 3)) for name in before}
    given, others = ({name: p.copy() for name, p in before.items()} for _ in range(2))
    optimizer(given, learning_rate=0.02, momentum=0.8, weight_decay=0.1).step(grads)
    AdamW(others, learning_rate=0.02, beta_2=0.95, weight_decay=0.1).step(grads)
    w = before["blocks.0.w_1"] * (1 - 0.02 * 0.1)
    others["blocks.0.w_1"] = w - 0.02 * 0.2 * math.sqrt(5) * orthogonalized(0.36 * grads["blocks.0.w_1"])
    for name, right in others.items():
        off = float(np.max(np.abs(given[name] - right)))
        assert off < 1e-9, f"step 1: {name} is off by {off:.2g} from what it must be"


TRIALS = {"orthogonalized": trial_of_orthogonalized, "Muon": trial_of_muon}
