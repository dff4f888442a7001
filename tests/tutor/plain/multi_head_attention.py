"""The plain form of multi-head attention."""

from typing import Any

import numpy as np

from numpy_attention.layers.c17_multi_head_attention import MultiHeadAttention
from numpy_attention.tutor.entry import Array
from tests.tutor.plain.attention import plain_attention
from tests.tutor.plain.heads import plain_concat_heads, plain_split_heads


def plain_multi_head_attention(
    layer: MultiHeadAttention, x: Array, context: Array | None = None, mask: Array | None = None, **arrays: Any
) -> Array | None:
    """Computes one head at a time, with its columns of the weights."""
    ordinary = layer.num_kv_heads == layer.num_heads and layer.rotary_base is None
    if not ordinary or not arrays.keys() <= layer.parameters().keys():
        return None
    context = x if context is None else context

    def heads(inputs: Array, name: str) -> Array:
        return plain_split_heads(inputs @ arrays[f"w_{name}"] + arrays.get(f"b_{name}", 0.0), layer.num_heads)

    each = plain_attention(heads(x, "q"), heads(context, "k"), heads(context, "v"), mask)
    assert each is not None
    y = plain_concat_heads(each) @ arrays["w_o"]
    return y if "b_o" not in arrays else np.asarray(y + arrays["b_o"])


PLAIN = {"MultiHeadAttention": plain_multi_head_attention}
