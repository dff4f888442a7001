"""Chapter 45. Latent attention: keys and values in little memory

To generate a token, a model reads the keys and values of all earlier tokens. For H heads of width d_k, the KV cache
(Chapter 17, appendix) stores 2 H d_k numbers for each token and layer. Latent attention stores one short vector c, the
**latent**, from which every head computes its own keys and values:

    c      = rms_norm(x w_dkv)       (B, T, r)               r is far below 2 H d_k
    k_nope = split_heads(c w_uk)     (B, H, T, d_nope)       the part of the key without positions
    v      = split_heads(c w_uv)     (B, H, T, d_v)

The absorbed form. Generation does not compute these keys and values, because (A B) C = A (B C). For one head, with its
columns of w_uk and w_uv:

    q (c w_uk)^T = (q w_uk^T) c^T           each new query is multiplied by w_uk^T
    weights (c w_uv) = (weights c) w_uv     the latents are averaged, then the average is multiplied by w_uv

So c is the key and the value of all heads, as in multi-query attention (grouped heads with H_kv = 1).

Positions. A rotation R of the query (Chapter 8) depends on the distance to the key, so q R w_uk^T would be another
product for each key. So the key has a second part, which is rotated. It comes directly from x, and all heads share it:

    k_rope = rotary(last columns of x w_dkv)                          (B, 1, T, d_rope)
    scores = (q_nope k_nope^T + q_rope k_rope^T) / sqrt(d_nope + d_rope)

The KV cache holds c and k_rope: r + d_rope numbers for each token and layer. Queries may come from a latent too,
c_q = rms_norm(x w_dq), which saves parameters.

Backward. Three arrays are used more than once, so their gradients are sums: keys and values use c, all heads use
k_rope, and queries and latents use x:

    dc = dk_nope w_uk^T + dv w_uv^T          dk_rope = sum over the heads          dx = dx_kv + dx_q
"""

import math
from typing import Any, NamedTuple

import numpy as np

from numpy_attention.errors import require_array, require_number, require_sizes, shape_error, value_error
from numpy_attention.layers.c13_layer import Layer, Parameters, glorot, normal
from numpy_attention.layers.c17a_kv_cache import KeyValueCache
from numpy_attention.ops.c01_linear import LinearCache, linear, linear_backward
from numpy_attention.ops.c01a_sums import sum_to_shape
from numpy_attention.ops.c06_attention import (
    AttentionCache,
    scaled_dot_product_attention,
    scaled_dot_product_attention_backward,
)
from numpy_attention.ops.c07_heads import (
    HeadsCache,
    concat_heads,
    concat_heads_backward,
    split_heads,
    split_heads_backward,
)
from numpy_attention.ops.c08_positions import RotaryCache, rotary, rotary_backward
from numpy_attention.ops.c09_normalization import NormCache, rms_norm, rms_norm_backward


class LatentAttentionCache(NamedTuple):
    """What backward needs, in the order of the forward."""

    down_q: tuple[LinearCache, NormCache] | None  # None without q_rank
    up_q: tuple[LinearCache, HeadsCache]
    rotary_q: RotaryCache
    down_kv: tuple[LinearCache, NormCache]
    rotary_k: RotaryCache
    up_k: tuple[LinearCache, HeadsCache]
    up_v: tuple[LinearCache, HeadsCache]
    attention: AttentionCache
    output: tuple[HeadsCache, LinearCache]


class LatentAttention(Layer):
    """Attention whose heads compute keys and values from one short vector for each token, the latent.

    `rank` is r, the width of the latent; with `q_rank` the queries have a latent too. The first r columns of w_dkv give
    the latent, the others k_rope. In w_uq each head has d_nope columns, then d_rope columns, rotated as "interleaved".

    Shapes: x (B, T, d_model) -> y as x; mask broadcasts to (B, H, T_q, T_k), True = a query may look at a key.

    Raises: TypeError or ValueError for invalid sizes, an odd d_rope, or an invalid rotary_base.

    Source: DeepSeek-AI, DeepSeek-V2 (2024), sections 2.1.2 and 2.1.3; the norms are described in section 3.1.2.
    """

    def __init__(
        self, d_model: int, num_heads: int, rng: np.random.Generator | None, rank: int, d_nope: int, d_rope: int,
        d_v: int | None = None, q_rank: int | None = None, rotary_base: float = 10000.0, dtype: Any = np.float32,
    ) -> None:
        d_v, d_q = d_nope if d_v is None else d_v, d_model if q_rank is None else q_rank
        sizes = {"d_model": d_model, "num_heads": num_heads, "rank": rank, "d_nope": d_nope, "d_rope": d_rope}
        require_sizes("LatentAttention", **sizes, d_v=d_v, q_rank=d_q)
        if d_rope % 2:
            raise value_error("LatentAttention", "d_rope", "even", d_rope, "coordinates are rotated in pairs")
        self.rotary_base = require_number("LatentAttention", "rotary_base", rotary_base, above=0)
        self.num_heads, self.rank, self.d_nope = int(num_heads), int(rank), int(d_nope)

        def matrix(d_in: int, d_out: int, count: int = 1) -> np.ndarray:
            return normal(rng, (d_in, count * d_out), glorot(d_in, d_out), dtype)

        self.w_dq = None if q_rank is None else matrix(d_model, q_rank)
        self.gamma_q = None if q_rank is None else np.ones(q_rank, dtype)
        self.w_uq = matrix(d_q, d_nope + d_rope, num_heads)
        self.w_dkv = matrix(d_model, rank + d_rope)
        self.gamma_kv = np.ones(rank, dtype)
        self.w_uk, self.w_uv = matrix(rank, d_nope, num_heads), matrix(rank, d_v, num_heads)
        self.w_o = matrix(num_heads * d_v, d_model)

    def forward(
        self, x: np.ndarray, mask: np.ndarray | None = None, positions: np.ndarray | None = None,
        past: KeyValueCache | None = None,
    ) -> tuple[np.ndarray, LatentAttentionCache | AttentionCache]:
        """Compute the output for every position of x; with `past` (generation, no backward) in the absorbed form.

        The KV cache stores [c, k_rope] as the keys of one head. Positions count from the length of `past`, or from 0.
        """
        require_array("LatentAttention", "x", x)
        if x.ndim != 3:
            raise shape_error("LatentAttention", "x", "(B, T, d_model)", x.shape, "for one sequence, pass x[None]")
        n, r = self.d_nope, self.rank
        c_q, down_q = x, None
        if self.w_dq is not None and self.gamma_q is not None:
            c_q, linear_dq = linear(x, self.w_dq)  # (B, T, q_rank)
            c_q, norm_q = rms_norm(c_q, self.gamma_q)
            down_q = linear_dq, norm_q
        q, up_q = self._up(c_q, self.w_uq)  # (B, H, T, d_nope + d_rope)
        if positions is None:
            positions = np.arange(q.shape[-2], like=x) + (0 if past is None else past.length)
        elif np.ndim(positions) == 2:
            require_array("LatentAttention", "positions", positions)
            positions = positions[:, None, :]  # (B, 1, T), the same for every head
        q_rope, rotary_q = rotary(q[..., n:], positions, self.rotary_base, "interleaved")
        q = np.concatenate([q[..., :n], q_rope], axis=-1)

        c, linear_dkv = linear(x, self.w_dkv)  # (B, T, r + d_rope)
        k_rope, rotary_k = rotary(c[..., None, :, r:], positions, self.rotary_base, "interleaved")  # (B, 1, T, d_rope)
        c, norm_kv = rms_norm(c[..., :r], self.gamma_kv)  # (B, T, r)
        if past is not None:
            return self._absorbed(q, c, k_rope, mask, past)
        k_nope, up_k = self._up(c, self.w_uk)  # (B, H, T, d_nope)
        k = np.concatenate([k_nope, np.broadcast_to(k_rope, q_rope.shape)], axis=-1)  # (B, H, T, d_nope + d_rope)
        v, up_v = self._up(c, self.w_uv)  # (B, H, T, d_v)

        o, attention = scaled_dot_product_attention(q, k, v, mask)  # (B, H, T, d_v)
        o, heads_o = concat_heads(o)  # (B, T, H d_v)
        y, linear_o = linear(o, self.w_o)  # (B, T, d_model)
        down_kv, output = (linear_dkv, norm_kv), (heads_o, linear_o)
        return y, LatentAttentionCache(down_q, up_q, rotary_q, down_kv, rotary_k, up_k, up_v, attention, output)

    def _absorbed(self, q: np.ndarray, c: np.ndarray, k_rope: np.ndarray, mask: Any, past: KeyValueCache) -> Any:
        """The same result from the stored latents, without the keys and values of each head."""
        n, r = self.d_nope, self.rank
        w_uk, _ = split_heads(self.w_uk, self.num_heads)  # (H, r, d_nope)
        w_uv, _ = split_heads(self.w_uv, self.num_heads)  # (H, r, d_v)
        scale = 1.0 / math.sqrt(q.shape[-1])  # d_nope + d_rope, although the queries of the next line are wider
        q = np.concatenate([q[..., :n] @ w_uk.swapaxes(-1, -2), q[..., n:]], axis=-1)  # (B, H, T, r + d_rope)
        k = np.concatenate([c[..., None, :, :], k_rope], axis=-1)  # (B, 1, T, r + d_rope)
        k, _ = past.append(k, k[..., :0])  # (B, 1, T_k, r + d_rope)
        o, attention = scaled_dot_product_attention(q, k, k[..., :r], mask, scale=scale)  # (B, H, T, r)
        o, _ = concat_heads(o @ w_uv)  # (B, T, H d_v)
        return linear(o, self.w_o)[0], attention

    def backward(self, dy: np.ndarray, cache: LatentAttentionCache | AttentionCache) -> tuple[np.ndarray, Parameters]:
        """Return dx and the gradients of all parameters.

        Raises: ValueError if the forward used a KV cache.
        """
        if not isinstance(cache, LatentAttentionCache):
            raise ValueError("LatentAttention: there is no backward through a KV cache; leave `past` out")
        grads: Parameters = {}
        n = self.d_nope
        # y = concat_heads(o) @ w_o
        do, grads["w_o"], _ = linear_backward(dy, cache.output[1])  # (B, T, H d_v)
        do = concat_heads_backward(do, cache.output[0])  # (B, H, T, d_v)
        # o = attention(q, k, v)
        dq, dk, dv, _ = scaled_dot_product_attention_backward(do, cache.attention)
        # v = split_heads(c @ w_uv)
        dc, grads["w_uv"] = self._up_backward(dv, cache.up_v)  # (B, T, r)
        # k = [k_nope, k_rope], k_nope = split_heads(c @ w_uk)
        dc_k, grads["w_uk"] = self._up_backward(dk[..., :n], cache.up_k)
        dc += dc_k
        dk_rope = sum_to_shape(dk[..., n:], cache.rotary_k.shape)  # (B, 1, T, d_rope), the sum over the heads
        # c = rms_norm(first columns of x @ w_dkv), k_rope = rotary(last columns)
        dc, grads["gamma_kv"] = rms_norm_backward(dc, cache.down_kv[1])
        dk_rope = rotary_backward(dk_rope, cache.rotary_k)[..., 0, :, :]  # (B, T, d_rope)
        dx, grads["w_dkv"], _ = linear_backward(np.concatenate([dc, dk_rope], axis=-1), cache.down_kv[0])
        # q = split_heads(c_q @ w_uq), then the last columns are rotated
        dq[..., n:] = rotary_backward(dq[..., n:], cache.rotary_q)
        dc_q, grads["w_uq"] = self._up_backward(dq, cache.up_q)
        if cache.down_q is not None:
            # c_q = rms_norm(x @ w_dq)
            dc_q, grads["gamma_q"] = rms_norm_backward(dc_q, cache.down_q[1])
            dc_q, grads["w_dq"], _ = linear_backward(dc_q, cache.down_q[0])
        dx += dc_q  # dx_q; without w_dq, c_q is x
        return dx, grads

    def _up(self, c: np.ndarray, w: np.ndarray) -> tuple[np.ndarray, tuple[LinearCache, HeadsCache]]:
        y, up = linear(c, w)
        y, heads = split_heads(y, self.num_heads)
        return y, (up, heads)

    def _up_backward(self, dy: np.ndarray, cache: tuple[LinearCache, HeadsCache]) -> tuple[np.ndarray, np.ndarray]:
        return linear_backward(split_heads_backward(dy, cache[1]), cache[0])[:2]
