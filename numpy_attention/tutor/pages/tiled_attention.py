"""A check of the memory that an answer uses."""

from typing import Any

import numpy as np

from numpy_attention.tutor.exercise import peak_memory


def no_square_array(module: Any) -> None:
    """Checks that forward and backward of 1200 tokens in tiles of 60 need much less memory than a 1200 x 1200 array."""
    rng = np.random.default_rng(0)
    q, k, v = rng.standard_normal((3, 1200, 4))
    y, cache = module.tiled_attention(q, k, v, block_size=60)
    peak = peak_memory(module.tiled_attention_backward, rng.standard_normal(y.shape), cache)
    assert peak < 1200 * 1200 * 8 / 2, (
        f"the backward of 1200 tokens used up to {peak / 1e6:.1f} MB; an array of 1200 x 1200 has "
        f"{1200 * 1200 * 8 / 1e6:.1f} MB, a tile of 60 x 60 has 0.03 MB: do you build a whole T_q x T_k array?"
    )
