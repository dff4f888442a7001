"""Chapter 17. Multi-head attention: several questions at once

A single attention gives each query one weighted mean. Here several heads work in parallel. Each head is one attention
with its own queries (its questions) and keys, of length d_k, and its own values. A matrix, w_o, combines the outputs
of the heads:

    x (B, T_q, d_model)           x_kv (B, T_k, d_model)          x_kv = x: self-attention
         | w_q                              | w_k      | w_v      x_kv = context: cross-attention
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
context comes from another network, the encoder (Chapter 24), so dcontext goes to the encoder.

`project` is the product of Chapter 1 (Chapter 14, appendix). For a long text, attention works in tiles, and a `Band`
describes the mask (`attend`, Chapter 12, appendix). `past`, the KV cache of generation, is this chapter's appendix.
"""

from typing import Any, NamedTuple

import numpy as np

from numpy_attention.errors import require_array, require_number, require_sizes, value_error
from numpy_attention.layers.c13_layer import Layer, flat_gradients, glorot, normal
from numpy_attention.layers.c14a_project import Matrix, project, project_backward
from numpy_attention.layers.c17a_kv_cache import KeyValueCache, without_stored
from numpy_attention.ops.c07_heads import concat_heads, concat_heads_backward, split_heads, split_heads_backward
from numpy_attention.ops.c08_positions import rotary, rotary_backward
from numpy_attention.ops.c12a_tiles import Band
from numpy_attention.ops.c12c_attend import attend, attend_backward, weights_of


class MultiHeadAttentionCache(NamedTuple):
    """What backward needs, in the order of the forward; `cache.weights()` returns the weights of all heads."""

    of_q: Any
    of_k: Any
    of_v: Any
    turned_q: Any  # None without rotary positions
    turned_k: Any
    attention: Any
    of_heads: Any
    of_y: Any
    cross: bool  # keys and values came from a context

    def weights(self) -> np.ndarray:
        """The weights (B, H, T_q, T_k); after attention in tiles they are recomputed."""
        return weights_of(self.attention)


class MultiHeadAttention(Layer):
    """y = concat(head_1, ..., head_H) w_o with head_i = attention(q_i, k_i, v_i).

    q_i is the part of x w_q that belongs to head i. In the same way, k_i is a part of x_kv w_k, and v_i is a part of
    x_kv w_v. x_kv is the context, or x if there is no context.

    With `num_kv_heads` below `num_heads` this is grouped-query attention (with `num_kv_heads` = 1: multi-query
    attention). If `rotary_base` is a number (usually 10000), queries and keys are rotated by their positions. All four
    matrices start as random numbers with Glorot's standard deviation for one head, sqrt(2 / (d_model + d_k)).

    Shapes: x (B, T_q, d_model), context (B, T_k, d_model) -> y (B, T_q, d_model); mask and scores_bias broadcast
    to (B, H, T_q, T_k), True = this query may look at this key.

    Raises: TypeError or ValueError for invalid sizes, or a d_model that cannot be divided among the heads.

    Source: Vaswani et al., Attention Is All You Need (2017), section 3.2.2; grouped-query: Ainslie et al., GQA (2023).
    """

    def __init__(
        self, d_model: int, num_heads: int, rng: np.random.Generator | None, num_kv_heads: int | None = None,
        d_k: int | None = None, d_v: int | None = None, bias: bool = False, rotary_base: float | None = None,
        rotary_pairing: str = "half", dropout: float = 0.0, dtype: Any = np.float32,
    ) -> None:
        num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        _check_heads(d_model, num_heads, num_kv_heads, d_k, d_v)
        d_k = d_model // num_heads if d_k is None else d_k
        d_v = d_k if d_v is None else d_v
        _check_rotary(rotary_base, d_k)
        self.num_heads, self.num_kv_heads = int(num_heads), int(num_kv_heads)
        self.rotary_base, self.rotary_pairing = None if rotary_base is None else float(rotary_base), rotary_pairing
        self.dropout = require_number("MultiHeadAttention", "dropout", dropout, at_least=0, below=1)
        spread = glorot(d_model, d_k)
        self.w_q: Matrix = normal(rng, (d_model, num_heads * d_k), spread, dtype)
        self.w_k: Matrix = normal(rng, (d_model, num_kv_heads * d_k), spread, dtype)
        self.w_v: Matrix = normal(rng, (d_model, num_kv_heads * d_v), spread, dtype)
        self.w_o: Matrix = normal(rng, (num_heads * d_v, d_model), spread, dtype)
        self.b_q = np.zeros(num_heads * d_k, dtype) if bias else None
        self.b_k = np.zeros(num_kv_heads * d_k, dtype) if bias else None
        self.b_v = np.zeros(num_kv_heads * d_v, dtype) if bias else None
        self.b_o = np.zeros(d_model, dtype) if bias else None

    def forward(
        self, x: np.ndarray, context: np.ndarray | None = None, mask: np.ndarray | None = None,
        scores_bias: np.ndarray | None = None, positions: np.ndarray | None = None,
        past: KeyValueCache | None = None, rng: np.random.Generator | None = None, band: Band | None = None,
    ) -> tuple[np.ndarray, Any]:
        """Compute the output of attention for every position of x.

        `past` is a KV cache, for generation: then there is no backward, and a rotary layer needs the positions of the
        new rows, because by default positions count from 0. A `band` replaces scores_bias and a T x T mask.
        """
        x_kv = x if context is None else without_stored(context, past)
        q, of_q = to_heads(x, self.w_q, self.b_q, self.num_heads)  # (B, H, T_q, d_k)
        k, of_k = to_heads(x_kv, self.w_k, self.b_k, self.num_kv_heads)  # (B, H_kv, T_k, d_k)
        v, of_v = to_heads(x_kv, self.w_v, self.b_v, self.num_kv_heads)  # (B, H_kv, T_k, d_v)
        q, turned_q = self.rotate(q, positions)
        k, turned_k = self.rotate(k, positions)
        if past is not None:  # T_k includes the earlier positions
            k, v = past.append(k, v)
        o, attention = attend(q, k, v, mask, scores_bias, band, self.dropout, rng)  # (B, H, T_q, d_v)
        o, heads = concat_heads(o)  # (B, T_q, H d_v)
        y, of_y = project(o, self.w_o, self.b_o)  # (B, T_q, d_model)
        cross = context is not None
        cache = MultiHeadAttentionCache(of_q, of_k, of_v, turned_q, turned_k, attention, heads, of_y, cross)
        return y, cache if past is None else None

    def backward(self, dy: np.ndarray, cache: Any) -> tuple[Any, ...]:
        """Return (dx, grads). If there is a context, return (dx, dcontext, grads).

        scores_bias (ALiBi) is constant: no gradient.

        Raises: ValueError if the forward used a KV cache.
        """
        require_cache("MultiHeadAttention", cache)
        grads: dict[str, Any] = {}
        # y = concat_heads(o) @ w_o + b_o
        do, grads["w_o"], grads["b_o"] = project_backward(dy, self.w_o, cache.of_y)  # (B, T_q, H d_v)
        do = concat_heads_backward(do, cache.of_heads)  # (B, H, T_q, d_v)
        # o = attention(rotate(q), rotate(k), v)
        dq, dk, dv = attend_backward(do, cache.attention)
        dq, dk = turned_backward(dq, cache.turned_q), turned_backward(dk, cache.turned_k)
        # q comes from x, k and v from x_kv
        dx, grads["w_q"], grads["b_q"] = to_heads_backward(dq, self.w_q, cache.of_q)  # (B, T_q, d_model)
        dx_kv, grads["w_k"], grads["b_k"] = to_heads_backward(dk, self.w_k, cache.of_k)  # (B, T_k, d_model)
        dx_v, grads["w_v"], grads["b_v"] = to_heads_backward(dv, self.w_v, cache.of_v)
        dx_kv += dx_v
        if cache.cross:
            return dx, dx_kv, flat_gradients(grads)
        dx += dx_kv  # query, key and value all come from x
        return dx, flat_gradients(grads)

    def rotate(self, x: np.ndarray, positions: np.ndarray | None) -> tuple[np.ndarray, Any]:
        """Turn queries or keys x (B, H, T, d_k) by their positions, (T,) or (B, T), if the layer is rotary."""
        if self.rotary_base is None:
            return x, None
        return rotary(x, positions_of(x, positions), self.rotary_base, self.rotary_pairing)


def turned_backward(dy: np.ndarray, cache: Any) -> np.ndarray:
    """The backward of `rotate`."""
    return dy if cache is None else rotary_backward(dy, cache)


def to_heads(x: np.ndarray, w: Matrix, b: np.ndarray | None, num_heads: int) -> tuple[np.ndarray, Any]:
    """x w + b, cut into heads.

    Shapes: x (B, T, d_model) -> (B, H, T, d_k)
    """
    y, of_product = project(x, w, b)  # (B, T, H d_k)
    y, of_split = split_heads(y, num_heads)
    return y, (of_product, of_split)


def to_heads_backward(dy: np.ndarray, w: Matrix, cache: Any) -> tuple[np.ndarray, Any, np.ndarray | None]:
    """Return dx, dw and db."""
    of_product, of_split = cache
    return project_backward(split_heads_backward(dy, of_split), w, of_product)


def require_cache(layer: str, cache: Any) -> None:
    """Refuse the None of a forward with a KV cache."""
    if cache is None:
        raise ValueError(f"{layer}: there is no backward through a KV cache; leave `past` out")


def positions_of(x: np.ndarray, positions: np.ndarray | None) -> np.ndarray:
    """The positions of queries or keys x (B, H, T, d_k), broadcastable to (B, H, T); by default 0, ..., T - 1."""
    if positions is None:
        return np.arange(x.shape[-2], like=x)
    if np.ndim(positions) == 2:
        require_array("MultiHeadAttention", "positions", positions)
        return positions[:, None, :]  # (B, 1, T), the same for every head
    return positions


def _check_heads(d_model: int, num_heads: int, num_kv_heads: int, d_k: int | None, d_v: int | None) -> None:
    op = "MultiHeadAttention"
    widths = {"d_k": 1 if d_k is None else d_k, "d_v": 1 if d_v is None else d_v}  # None: they follow from the others
    require_sizes(op, d_model=d_model, num_heads=num_heads, num_kv_heads=num_kv_heads, **widths)
    if d_k is None and d_model % num_heads:
        fix = f"set the width of a head with d_k, or use d_model = {d_model - d_model % num_heads}"
        raise value_error(op, "d_model", "divisible by num_heads", f"{d_model} and {num_heads}", fix)
    if num_heads % num_kv_heads:
        raise value_error(op, "num_heads", "a multiple of num_kv_heads", f"{num_heads} and {num_kv_heads}")


def _check_rotary(base: float | None, d_k: int) -> None:
    if base is not None:
        require_number("MultiHeadAttention", "rotary_base", base, above=0)
        if d_k % 2:
            raise value_error("MultiHeadAttention", "d_k", "even", d_k, "rotary positions rotate pairs of numbers")
