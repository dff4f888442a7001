"""Chapter 17. Multi-head attention: several questions at once

A single attention gives each query one weighted mean. Here several heads work in parallel. Each head is one attention
with its own queries (its questions) and keys, of length d_k, and its own values. A matrix, w_o, combines the outputs
of the heads:

    x (B, T_q, d_model)           source (B, T_k, d_model)        source = x: self-attention
         | w_q                              | w_k      | w_v      source = context: cross-attention
    (B, T_q, H d_k)               (B, T_k, H_kv d_k)  (B, T_k, H_kv d_v)
         | split_heads                      |          |
    q (B, H, T_q, d_k)           k (B, H_kv, T_k, d_k)  v (B, H_kv, T_k, d_v)
         |                                  |          |
         +-------- attention (Chapter 6) ---+----------+
                        |
                 (B, H, T_q, d_v)
                        | concat_heads
                 (B, T_q, H d_v)
                        | w_o
                 y (B, T_q, d_model)

The matrices of all heads are side by side in one w_q (d_model, H d_k), so one product is enough for all heads. Then
split_heads returns a view of the result in another shape, without a copy (Chapter 7). In grouped-query attention w_k
and w_v hold fewer heads, each shared by H / H_kv query heads.

The backward goes through the forward from bottom to top. If an array is used several times, its gradients add up. In
self-attention query, key and value all come from x, so

    dx = dq w_q^T + dk w_k^T + dv w_v^T

In cross-attention, the first term is dx. The sum of the other two is dcontext, the gradient of the context. The
context comes from another network, the encoder (Chapter 20), so dcontext goes to the encoder.

If the caller passes a `Band`, the band defines which keys each query sees, and attention works in tiles (Chapter 12).
Then a mask is needed only to hide padding. Without a `Band`, the layer uses the attention of Chapter 6 and stores all
weights in memory.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from numpy_attention.errors import require_array, require_number, require_sizes, value_error
from numpy_attention.layers.kv_cache import KeyValueCache
from numpy_attention.layers.layer import Layer, Parameters, flat_gradients, glorot, normal
from numpy_attention.layers.linear import Matrix, ProjectionCache, project, project_backward
from numpy_attention.ops.attention import (
    AttentionCache,
    scaled_dot_product_attention,
    scaled_dot_product_attention_backward,
)
from numpy_attention.ops.heads import HeadsCache, concat_heads, concat_heads_backward, split_heads, split_heads_backward
from numpy_attention.ops.positions import RotaryCache, rotary, rotary_backward
from numpy_attention.ops.tiled_attention import (
    TiledAttentionCache,
    tiled_attention,
    tiled_attention_backward,
    tiled_attention_weights,
)
from numpy_attention.ops.tiles import Band


class SourceCache(NamedTuple):
    """What backward needs for the steps from the source to keys and values."""

    linear_k: ProjectionCache
    heads_k: HeadsCache
    rotary_k: RotaryCache | None
    linear_v: ProjectionCache
    heads_v: HeadsCache


class MultiHeadAttentionCache(NamedTuple):
    """What backward needs; `cache.weights()` returns the weights of all heads."""

    linear_q: ProjectionCache
    heads_q: HeadsCache
    rotary_q: RotaryCache | None  # None without rotary positions
    keys_values: SourceCache | None  # None if they come from the KV cache: then there is no backward
    attention: AttentionCache | TiledAttentionCache
    cross: bool  # keys and values came from a context
    heads_o: Any = None  # a HeadsCache, set by `output`
    linear_o: Any = None  # a ProjectionCache, set by `output`

    def weights(self) -> np.ndarray:
        """The weights (B, H, T_q, T_k); after attention in tiles they are recomputed."""
        attention = self.attention
        return attention.weights if isinstance(attention, AttentionCache) else tiled_attention_weights(attention)


class MultiHeadAttention(Layer):
    """y = concat(head_1, ..., head_H) w_o with head_i = attention(q_i, k_i, v_i).

    s is the context, or x if there is no context. q_i is the part of x w_q that belongs to head i. In the same way,
    k_i is a part of s w_k, and v_i is a part of s w_v.

    With `num_kv_heads` below `num_heads` this is grouped-query attention (with `num_kv_heads` = 1: multi-query
    attention). `qkv_bias` overrides `bias` for query, key and value. If `rotary_base` is a number (usually 10000),
    queries and keys are rotated by their positions. w_q and w_k start as random numbers with Glorot's standard
    deviation for one head, sqrt(2 / (d_model + d_k)); w_v and w_o use the same standard deviation.

    Shapes: x (B, T_q, d_model), context (B, T_k, d_model) -> y (B, T_q, d_model); mask and scores_bias broadcast
    to (B, H, T_q, T_k), True = this query may look at this key.

    Raises: ValueError when d_model cannot be divided among the heads; TypeError or ValueError for invalid sizes, or an
    invalid dropout or rotary_base.

    Source: Vaswani et al., Attention Is All You Need (2017), section 3.2.2; grouped-query: Ainslie et al., GQA (2023),
    section 2.2.
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        rng: np.random.Generator | None,
        num_kv_heads: int | None = None,
        d_k: int | None = None,
        d_v: int | None = None,
        bias: bool = False,
        qkv_bias: bool | None = None,
        rotary_base: float | None = None,
        rotary_pairing: str = "half",
        dropout: float = 0.0,
        dtype: Any = np.float32,
    ) -> None:
        num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        _check_heads(d_model, num_heads, num_kv_heads, d_k, d_v, rotary_base)
        d_k = d_model // num_heads if d_k is None else d_k
        d_v = d_k if d_v is None else d_v
        self.num_heads, self.num_kv_heads = int(num_heads), int(num_kv_heads)
        self.rotary_base, self.rotary_pairing = None if rotary_base is None else float(rotary_base), rotary_pairing
        self.dropout = require_number("MultiHeadAttention", "dropout", dropout, at_least=0, below=1)
        scale = glorot(d_model, d_k)
        self.w_q: Matrix = normal(rng, (d_model, num_heads * d_k), scale, dtype)
        self.w_k: Matrix = normal(rng, (d_model, num_kv_heads * d_k), scale, dtype)
        self.w_v: Matrix = normal(rng, (d_model, num_kv_heads * d_v), scale, dtype)
        self.w_o: Matrix = normal(rng, (num_heads * d_v, d_model), scale, dtype)
        qkv_bias = bias if qkv_bias is None else qkv_bias
        self.b_q = np.zeros(num_heads * d_k, dtype) if qkv_bias else None
        self.b_k = np.zeros(num_kv_heads * d_k, dtype) if qkv_bias else None
        self.b_v = np.zeros(num_kv_heads * d_v, dtype) if qkv_bias else None
        self.b_o = np.zeros(d_model, dtype) if bias else None

    def forward(
        self,
        x: np.ndarray,
        context: np.ndarray | None = None,
        mask: np.ndarray | None = None,
        scores_bias: np.ndarray | None = None,
        positions: np.ndarray | None = None,
        past: KeyValueCache | None = None,
        rng: np.random.Generator | None = None,
        band: Band | None = None,
    ) -> tuple[np.ndarray, MultiHeadAttentionCache]:
        """Compute the output of attention for every position of x.

        `past` (generation only, no backward) is a KV cache: it stores keys and values for later calls.

        With a `band`, attention works in tiles: the band replaces scores_bias and a T x T mask.
        Rotary positions count from 0 by default; with `past` the caller must pass them.
        """
        o, cache = self.heads(x, context, mask, scores_bias, positions, past, rng, band)  # (B, H, T_q, d_v)
        return self.output(o, cache)

    def heads(
        self,
        x: np.ndarray,
        context: np.ndarray | None = None,
        mask: np.ndarray | None = None,
        scores_bias: np.ndarray | None = None,
        positions: np.ndarray | None = None,
        past: KeyValueCache | None = None,
        rng: np.random.Generator | None = None,
        band: Band | None = None,
    ) -> tuple[np.ndarray, MultiHeadAttentionCache]:
        """The first half of the forward: the output of every head.

        Shapes: as `forward` -> o (B, H, T_q, d_v)
        """
        q, linear_q = project(x, self.w_q, self.b_q)  # (B, T_q, H d_k)
        q, heads_q = split_heads(q, self.num_heads)  # (B, H, T_q, d_k)
        q, rotary_q = self._rotate(q, positions)
        stored = past.filled() if past is not None and context is not None else None
        if stored is not None:
            (k, v), keys_values = stored, None  # of the context; the first step of generation stored them
        else:
            k, v, keys_values = self._keys_and_values(x if context is None else context, positions)
            if past is not None:
                k, v = past.append(k, v)  # T_k now includes the earlier positions
        attention: AttentionCache | TiledAttentionCache
        if band is None:
            o, attention = scaled_dot_product_attention(q, k, v, mask, scores_bias, dropout=self.dropout, rng=rng)
        else:
            o, attention = tiled_attention(q, k, v, mask, **band._asdict(), dropout=self.dropout, rng=rng)
        return o, MultiHeadAttentionCache(linear_q, heads_q, rotary_q, keys_values, attention, context is not None)

    def output(self, o: np.ndarray, cache: MultiHeadAttentionCache) -> tuple[np.ndarray, MultiHeadAttentionCache]:
        """The second half of the forward: w_o combines the outputs of the heads.

        Shapes: o (B, H, T_q, d_v) -> y (B, T_q, d_model)
        """
        o, heads_o = concat_heads(o)  # (B, T_q, H d_v)
        y, linear_o = project(o, self.w_o, self.b_o)  # (B, T_q, d_model)
        return y, cache._replace(heads_o=heads_o, linear_o=linear_o)

    def backward(self, dy: np.ndarray, cache: MultiHeadAttentionCache) -> tuple[Any, ...]:
        """Return (dx, grads). If there is a context, return (dx, dcontext, grads).

        scores_bias (ALiBi) is constant: no gradient.

        Raises: ValueError if the keys of the context came from a KV cache in the forward.
        """
        do, output_grads = self.output_backward(dy, cache)  # (B, H, T_q, d_v)
        *dx, heads_grads = self.heads_backward(do, cache)
        return *dx, {**output_grads, **heads_grads}

    def output_backward(self, dy: np.ndarray, cache: MultiHeadAttentionCache) -> tuple[np.ndarray, Parameters]:
        """Return do (B, H, T_q, d_v), and the gradients of w_o and b_o."""
        # y = o @ w_o + b_o
        do, dw_o, db_o = project_backward(dy, self.w_o, cache.linear_o)  # (B, T_q, H d_v)
        # o = concat_heads(o)
        return concat_heads_backward(do, cache.heads_o), flat_gradients({"w_o": dw_o, "b_o": db_o})

    def heads_backward(self, do: np.ndarray, cache: MultiHeadAttentionCache) -> tuple[Any, ...]:
        """Return dx (with a context also dcontext) and the gradients of all parameters except w_o and b_o.

        Raises: ValueError if the keys of the context came from a KV cache in the forward.
        """
        keys_values = cache.keys_values
        if keys_values is None:
            raise ValueError("MultiHeadAttention: there is no backward through a KV cache; leave `past` out")
        grads: dict[str, Any] = {}
        # o = attention(q, k, v)
        dq, dk, dv = attention_backward(do, cache.attention)  # with the shapes of q, k, v
        # v = split_heads(source @ w_v + b_v)
        dv = split_heads_backward(dv, keys_values.heads_v)  # (B, T_k, H_kv d_v)
        dsource, grads["w_v"], grads["b_v"] = project_backward(dv, self.w_v, keys_values.linear_v)  # (B, T_k, d_model)
        # k = rotary(split_heads(source @ w_k + b_k))
        dk = self._rotate_back(dk, keys_values.rotary_k)
        dk = split_heads_backward(dk, keys_values.heads_k)  # (B, T_k, H_kv d_k)
        dsource_k, grads["w_k"], grads["b_k"] = project_backward(dk, self.w_k, keys_values.linear_k)
        dsource += dsource_k
        # q = rotary(split_heads(x @ w_q + b_q))
        dq = self._rotate_back(dq, cache.rotary_q)
        dq = split_heads_backward(dq, cache.heads_q)  # (B, T_q, H d_k)
        dx, grads["w_q"], grads["b_q"] = project_backward(dq, self.w_q, cache.linear_q)  # (B, T_q, d_model)
        if cache.cross:
            return dx, dsource, flat_gradients(grads)
        dx += dsource  # query, key and value all come from x
        return dx, flat_gradients(grads)

    def _keys_and_values(
        self, source: np.ndarray, positions: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray, SourceCache]:
        k, linear_k = project(source, self.w_k, self.b_k)  # (B, T_k, H_kv d_k)
        k, heads_k = split_heads(k, self.num_kv_heads)  # (B, H_kv, T_k, d_k)
        k, rotary_k = self._rotate(k, positions)
        v, linear_v = project(source, self.w_v, self.b_v)  # (B, T_k, H_kv d_v)
        v, heads_v = split_heads(v, self.num_kv_heads)  # (B, H_kv, T_k, d_v)
        return k, v, SourceCache(linear_k, heads_k, rotary_k, linear_v, heads_v)

    def _rotate(self, x: np.ndarray, positions: np.ndarray | None) -> tuple[np.ndarray, RotaryCache | None]:
        if self.rotary_base is None:
            return x, None
        if positions is None:
            positions = np.arange(x.shape[-2], like=x)
        elif np.ndim(positions) == 2:
            require_array("MultiHeadAttention", "positions", positions)
            positions = positions[:, None, :]  # (B, 1, T), the same for every head
        return rotary(x, positions, base=self.rotary_base, pairing=self.rotary_pairing)

    def _rotate_back(self, dx: np.ndarray, cache: RotaryCache | None) -> np.ndarray:
        return dx if cache is None else rotary_backward(dx, cache)


def attention_backward(
    do: np.ndarray, cache: AttentionCache | TiledAttentionCache
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """dq, dk, dv for the form of attention that returned this cache."""
    if isinstance(cache, AttentionCache):
        return scaled_dot_product_attention_backward(do, cache)[:3]
    return tiled_attention_backward(do, cache)


def _check_heads(
    d_model: int, num_heads: int, num_kv_heads: int, d_k: int | None, d_v: int | None, rotary_base: float | None
) -> None:
    def wrong(argument: str, expected: str, got: object, fix: str = "") -> ValueError:
        return value_error("MultiHeadAttention", argument, expected, got, fix)

    given = {name: width for name, width in {"d_k": d_k, "d_v": d_v}.items() if width is not None}
    require_sizes("MultiHeadAttention", d_model=d_model, num_heads=num_heads, num_kv_heads=num_kv_heads, **given)
    if d_k is None and d_model % num_heads:
        fix = f"set the width of a head with d_k, or use d_model = {d_model - d_model % num_heads}"
        raise wrong("d_model", "divisible by num_heads", f"{d_model} and {num_heads}", fix)
    if num_heads % num_kv_heads:
        raise wrong("num_heads", "a multiple of num_kv_heads", f"{num_heads} and {num_kv_heads}")
    if rotary_base is not None:
        require_number("MultiHeadAttention", "rotary_base", rotary_base, above=0)
        if (d_model // num_heads if d_k is None else d_k) % 2:
            fix = "rotary positions rotate the numbers of a head in pairs"
            raise wrong("d_k", "even", d_model // num_heads if d_k is None else d_k, fix)
