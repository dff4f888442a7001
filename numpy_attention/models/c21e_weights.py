"""Chapter 21, appendix. The weights of all attention layers, for pictures and for Part VI"""

from collections.abc import Collection

import numpy as np

from numpy_attention.errors import value_error
from numpy_attention.layers.c13_layer import Parameters
from numpy_attention.models.c21_stack import StackCache
from numpy_attention.models.c21d_recompute import SavedInput


def attention_weights(caches: dict[str, StackCache], layers: Collection[str] | None = None) -> Parameters:
    """The weights (B, H, T_q, T_k) of attention layers by name: `blocks.0.attention` and so on.

    The values of `caches` are the caches of stacks. The key of a stack is the prefix of its names, for example
    "decoder.". `layers` are the wanted names; None: all. After attention in tiles the weights are recomputed. They are
    T x T numbers per head: for long texts, pass one layer at a time to save memory.

    Raises: ValueError for a name that no layer has.
    """
    wanted = [layers] if isinstance(layers, str) else layers
    found: dict[str, np.ndarray | None] = {}
    for prefix, cache in caches.items():
        for i, saved in enumerate(cache.blocks):
            block = saved.cache() if isinstance(saved, SavedInput) else saved
            for part, residual in (("attention", block.attention), ("cross_attention", block.cross_attention)):
                name = f"{prefix}blocks.{i}.{part}"
                if residual is not None:
                    found[name] = residual.sublayer.weights() if wanted is None or name in wanted else None
    for name in wanted or ():
        if name not in found:
            raise value_error("attention_weights", "layers", f"among {', '.join(found)}", repr(name))
    return {name: weights for name, weights in found.items() if weights is not None}
