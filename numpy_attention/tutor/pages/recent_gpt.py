"""Options like those of three models, and the trial of the configuration."""

from collections.abc import Callable
from typing import Any

import numpy as np

from numpy_attention.recent.c47_rotary_scaling import TOKENS
from numpy_attention.recent.c49_recent_gpt import RecentGPTConfig
from numpy_attention.tutor.tiny import GATED

LLAMA_3 = {"type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4, TOKENS: 8}
GEMMA_3: dict[str, Any] = {
    **GATED, "activation": "geglu", "positions": "rotary", "num_layers": 2, "num_kv_heads": 1, "qk_norm": "head",
    "branch_norm": True, "embedding_scale": True, "attention_scale": 0.4, "window": 2, "global_every": 2,
    "local_rotary_base": 100.0, "rotary_scaling": {"type": "linear", "factor": 8.0},
}
GPT_OSS: dict[str, Any] = {
    "positions": "rotary", "norm": "rms_norm", "num_layers": 2, "num_kv_heads": 1, "sink": True, "window": 2,
    "global_every": 2, "rotary_scaling": {"type": "yarn", "factor": 4.0, TOKENS: 32, "truncate": False},
}


def trial_of_blocks(config: Callable[..., RecentGPTConfig], seed: int) -> None:
    """Counted from 1, each n-th block is global, and each m-th has no positions; local blocks have their own base."""
    n, m, window = (int(number) for number in np.random.default_rng(seed).integers(2, 6, size=3))
    made = config(5, 8, 4, 2, 9, positions="rotary", window=window, global_every=n, nope_every=m, local_rotary_base=9.0)
    for i in range(1, 10):
        base = None if i % m == 0 else 9.0 if i % n else made.rotary_base
        expected = window if i % n else None, base
        got = made.window_of(i - 1), made.attention_of(i - 1).get("rotary_base")
        assert got == expected, f"block {i} of 9 must have the window and the base of rotary {expected}, got {got}"


TRIALS = {"RecentGPTConfig": trial_of_blocks}
