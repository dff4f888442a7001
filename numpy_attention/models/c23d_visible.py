"""Chapter 23, appendix. Which tokens a GPT sees: the causal mask, a window, ALiBi, and tiles

The blocks of a GPT get one of two inputs. A short text gets a mask, and with ALiBi a bias. A long text is computed in
tiles (Chapter 12), and a `Band` describes the same mask and the same bias without a T x T array.
"""

import math
from typing import Any

import numpy as np

from numpy_attention.models.c23a_gpt_config import GPTConfig
from numpy_attention.ops.c04_masks import causal_mask, sliding_window_mask
from numpy_attention.ops.c08_positions import alibi_bias, alibi_slopes
from numpy_attention.ops.c12a_tiles import Band


def causal_inputs(
    config: GPTConfig, x: np.ndarray, T_past: int, window: int | None, mask: np.ndarray | None
) -> dict[str, Any]:
    """The arguments of a block that say which keys a query sees; `mask` replaces the causal mask.

    Shapes: x (B, T, d_model), mask broadcastable to (B, H, T, T_past + T)
    """
    T_q, T_k, H, alibi = x.shape[1], T_past + x.shape[1], config.num_heads, config.positions == "alibi"
    T = math.isqrt(T_q * T_k) if T_q > 1 else 0  # a text of T tokens has as many pairs of a query and a key
    if mask is None and config.in_tiles(x, T):
        slopes = np.asarray(alibi_slopes(H).astype(x.dtype), like=x) if alibi else None
        return {"band": Band(causal=True, window=window, slopes=slopes)}
    if window is not None:
        near = sliding_window_mask(T_q, window, T_k, like=x)
        mask = near if mask is None else near & mask
    elif mask is None and T_q > 1:  # a single query sees every key
        mask = causal_mask(T_q, T_k, like=x)
    return {"mask": mask, "scores_bias": np.asarray(alibi_bias(H, T_q, T_k, x.dtype.type), like=x) if alibi else None}
