"""What has no gradient has a trial: the right thing passes it, and a wrong one is told where."""

from typing import Any

import numpy as np
import pytest

from numpy_attention.catalogue.trials import TRIALS
from numpy_attention.pretrained.low_rank import LowRank


@pytest.mark.parametrize("covers", TRIALS)
def test_the_right_thing_passes_its_trial(covers: str) -> None:
    right, trial = TRIALS[covers]
    for seed in range(20):
        trial(right, seed)


@pytest.mark.parametrize(("covers", "wrong", "words"), [
    ("causal_mask", np.tri, "a mask is of bool"),
    ("causal_mask", lambda T_q, T_k: np.tri(T_q + 1, T_k, dtype=bool), "has shape"),
    ("clip_by_global_norm", lambda grads, most: 1.0, "the norm before is"),
    ("tied_step", lambda table, uses, optimizer, **options: None, "the tied table is off by"),
    ("logits_step_by_step", lambda model, ids: np.zeros((*ids.shape, 7)), "the logits of token 0 are off"),
    ("low_rank_start", lambda w, rank, rng: LowRank(2 * w, rank, rng=rng), "y is off from x w by"),
])
def test_a_wrong_thing_is_told_where_it_is_wrong(covers: str, wrong: Any, words: str) -> None:
    with pytest.raises(AssertionError, match=words):
        TRIALS[covers][1](wrong, 0)
