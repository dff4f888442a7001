"""The trial of the causal mask: it compares each element with the definition."""

from collections.abc import Callable
from typing import Any

import numpy as np

from numpy_attention.gradcheck.spec import draw_sizes
from numpy_attention.tutor.entry import Array
from numpy_attention.tutor.exercise import Trial


def trial_of_causal_mask(make: Callable[..., Array], seed: int, square: bool = False) -> None:
    """Query i sees key j if j <= i + T_k - T_q: the last query and the last key have the same position."""
    sizes: Any = draw_sizes("x: T_q T_k", np.random.default_rng(seed))
    T_q, T_k = sizes["T_q"], sizes["T_q" if square else "T_k"]
    if seed == 0:  # first the case of text generation: new queries, and a KV cache with earlier keys
        T_q, T_k = min(T_q, T_k), max(T_q, T_k)
    mask = np.asarray(make(T_q, T_k))
    assert mask.shape == (T_q, T_k), f"causal_mask({T_q}, {T_k}) has shape {mask.shape}, expected {(T_q, T_k)}"
    assert mask.dtype == bool, f"causal_mask({T_q}, {T_k}) has dtype {mask.dtype}; a mask has dtype bool"
    for i in range(T_q):
        for j in range(T_k):
            visible = j <= i + T_k - T_q
            assert mask[i, j] == visible, (
                f"causal_mask({T_q}, {T_k})[{i}, {j}] is {bool(mask[i, j])}: query {i} of {T_q} has position "
                f"{i + T_k - T_q} of {T_k}, so key {j} must be {'visible' if visible else 'hidden'}"
            )


def outcome_of_a_mask(make: Callable[[int, int], Array]) -> list[Array]:
    """The causal masks for some lengths."""
    return [np.asarray(make(*lengths)) for lengths in ((3, 3), (2, 5), (4, 2), (1, 4))]


TRIALS = {"causal_mask": trial_of_causal_mask}
QUESTIONS = {"causal_mask": Trial(trial_of_causal_mask, outcome_of_a_mask)}
