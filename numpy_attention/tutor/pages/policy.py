"""A trial of the advantages, which compares them with the definition."""

from collections.abc import Callable
from typing import Any

import numpy as np

from numpy_attention.beyond.c51a_answers import DPOPolicy, GRPOPolicy

__all__ = ["TRIALS", "DPOPolicy", "GRPOPolicy"]  # the last two are in cells of the page


def trial_of_advantages(advantages: Callable[..., Any], seed: int) -> None:
    """Compares each advantage with (reward - mean) / standard deviation of its group; one group has equal rewards."""
    rewards = np.random.default_rng(seed).standard_normal((3, 5)) + np.arange(3.0)[:, None]
    right = [[(r - np.mean(group)) / np.std(group) for r in group] for group in rewards] + [[0.0] * 5]
    found = advantages(np.concatenate([rewards, np.full((1, 5), 0.1)]))
    for i, j in np.argwhere(~np.isclose(found, right, rtol=1e-9)):
        raise AssertionError(f"answer {j} of group {i} has the advantage {found[i, j]:.6g}, right is {right[i][j]:.6g}")


TRIALS = {"group_advantages": trial_of_advantages}
