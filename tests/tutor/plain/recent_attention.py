"""The plain form of multi-head attention with the options of recent models."""

from typing import Any

import numpy as np

from numpy_attention.recent.c48_recent_attention import RecentAttention
from numpy_attention.tutor.entry import Array
from tests.tutor.plain.attention import plain_attention
from tests.tutor.plain.heads import plain_concat_heads, plain_split_heads
from tests.tutor.plain.normalization import plain_rms_norm


def plain_recent_attention(layer: RecentAttention, x: Array, mask: Array | None = None, **arrays: Any) -> Array | None:
    """Computes one head at a time, with its columns of the weights."""
    ordinary = layer.num_kv_heads == layer.num_heads and layer.rotary_base is None
    if not ordinary or not arrays.keys() <= layer.parameters().keys():
        return None

    def heads(name: str) -> Array:
        y = x @ arrays[f"w_{name}"] + arrays.get(f"b_{name}", 0.0)
        norm = getattr(layer, f"norm_{name}", None)
        if norm is None:
            return plain_split_heads(y, layer.num_heads)
        gamma = arrays[f"norm_{name}.gamma"]
        if layer.qk_norm == "all":
            return plain_split_heads(plain_rms_norm(y, gamma, norm.eps), layer.num_heads)
        return plain_rms_norm(plain_split_heads(y, layer.num_heads), gamma, norm.eps)

    options: dict[str, Any] = {"scale": layer.scale, "softcap": layer.softcap, "sink": arrays.get("sink")}
    each = plain_attention(heads("q"), heads("k"), heads("v"), mask, **options)
    assert each is not None
    if layer.w_gate is not None:
        each = each / (1.0 + np.exp(-plain_split_heads(x @ arrays["w_gate"], layer.num_heads)))
    y = plain_concat_heads(each) @ arrays["w_o"]
    return y if "b_o" not in arrays else np.asarray(y + arrays["b_o"])


PLAIN = {"RecentAttention": plain_recent_attention}
