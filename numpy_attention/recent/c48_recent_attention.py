"""Chapter 48. Multi-head attention since 2023

Models since 2023 add a few small steps to the attention of Chapter 17:

    x --> w_q --> QK-norm --> heads --> rotary --+
    x --> w_k --> QK-norm --> heads --> rotary --+--> attention --> gate --> concat --> w_o --> y
    x --> w_v --------------> heads -------------+    softcap,        ^
    x --> w_gate -----------------------------------> sink -----------+

    QK-norm         an RMS norm (Chapter 9) of queries and keys, before the rotation: of each "head", with one gamma
                    (d_k,) for all heads, or of "all" heads together. q and k have their own gammas
    gate            o_h is multiplied by numbers between 0 and 1, sigmoid(x w_gate): one for each head or element
    sink, softcap   a score that takes weight and has no value, and a limit for the scores (Chapter 46)
    rotary          of a part of the columns, or with frequencies for longer texts (Chapter 47)

With the norm of each head and gammas of 1, q and k have length sqrt(d_k), so no score q k^T / sqrt(d_k) is larger than
sqrt(d_k), however large w_q and w_k become. One gamma serves all heads and positions: its gradient is a sum over them.

The gate is a fourth use of x, so in self-attention dx is a sum of four terms:

    dx = dq w_q^T + dk w_k^T + dv w_v^T + dg w_gate^T        with the gradients of q and k before the norm
"""

from typing import Any, NamedTuple

import numpy as np

from numpy_attention.errors import require_choice, require_number, value_error
from numpy_attention.layers.c13_layer import Parameters, flat_gradients, glorot, normal
from numpy_attention.layers.c14a_project import Matrix, project, project_backward
from numpy_attention.layers.c16_normalization import RMSNorm
from numpy_attention.layers.c17_multi_head_attention import (
    MultiHeadAttention,
    positions_of,
    require_cache,
    to_heads,
    to_heads_backward,
    turned_backward,
)
from numpy_attention.layers.c17a_kv_cache import KeyValueCache
from numpy_attention.ops.c07_heads import concat_heads, concat_heads_backward, split_heads, split_heads_backward
from numpy_attention.ops.c12_tiled_attention import tiled_attention_weights
from numpy_attention.ops.c12a_tiles import Band
from numpy_attention.ops.c12c_attend import refuse_dropout_in_tiles
from numpy_attention.recent.c46_scores import CAPS, sigmoid_gate, sigmoid_gate_backward
from numpy_attention.recent.c46a_tamed_attention import (
    TamedAttentionCache,
    TamedTilesCache,
    tamed_attention,
    tamed_attention_backward,
    tamed_tiled_attention,
    tamed_tiled_attention_backward,
)
from numpy_attention.recent.c47_rotary_scaling import rotary_frequencies, scaled_rotary

QK_NORMS = ("head", "all")
OUTPUT_GATES = ("head", "element")


class RecentAttentionCache(NamedTuple):
    """What backward needs, in the order of the forward; `cache.weights()` returns the weights of all heads."""

    of_q: Any
    of_k: Any
    of_v: Any
    turned_q: Any  # None without rotary positions
    turned_k: Any
    attention: TamedAttentionCache | TamedTilesCache
    gate: tuple[Any, Any] | None  # the caches of to_heads and sigmoid_gate; None without a gate
    of_heads: Any
    of_y: Any

    def weights(self) -> np.ndarray:
        """The weights (B, H, T_q, T_k); after attention in tiles they are recomputed."""
        attention = self.attention
        return tiled_attention_weights(attention.tiles) if isinstance(attention, TamedTilesCache) else attention.weights


class RecentAttention(MultiHeadAttention):
    """Self-attention with the options at the top of this chapter; the other options are those of Chapter 17.

    `qk_norm` is None, "head" or "all", with `norm_eps`. `output_gate` is None, "head" or "element". `qkv_bias`
    overrides `bias` for query, key and value. `scale` replaces 1 / sqrt(d_k). `rotary_width` and `rotary_scaling` are
    the width and the scaling of `rotary_frequencies`.

    Shapes: x (B, T_q, d_model) -> y (B, T_q, d_model); mask and scores_bias broadcast to (B, H, T_q, T_k), True = this
    query may look at this key.

    Raises: TypeError or ValueError for invalid sizes or options.

    Source: QK-norm: Dehghani et al., Scaling Vision Transformers to 22 Billion Parameters (2023), section 2; gate: Qiu
    et al., Gated Attention for Large Language Models (2025), section 2.2.
    """

    def __init__(
        self, d_model: int, num_heads: int, rng: np.random.Generator | None, *, bias: bool = False,
        qkv_bias: bool | None = None, qk_norm: str | None = None, norm_eps: float | None = None,
        output_gate: str | None = None, sink: bool = False, softcap: float | None = None, scale: float | None = None,
        rotary_base: float | None = None, rotary_width: int | None = None,
        rotary_scaling: dict[str, Any] | None = None, dtype: Any = np.float32, **options: Any,
    ) -> None:
        op = "RecentAttention"
        require_choice(op, "qk_norm", qk_norm, (None, *QK_NORMS))
        require_choice(op, "output_gate", output_gate, (None, *OUTPUT_GATES))
        super().__init__(d_model, num_heads, rng, bias=bias, dtype=dtype, **options)
        d_k = options.get("d_k") or d_model // num_heads
        d_v = options.get("d_v") or d_k
        width_q, width_k, width_v = num_heads * d_k, self.num_kv_heads * d_k, self.num_kv_heads * d_v
        check_scaling(op, d_k, rotary_base, rotary_width, rotary_scaling)
        self.rotary_base = None if rotary_base is None else float(rotary_base)
        self.rotary_width, self.rotary_scaling = rotary_width, rotary_scaling and dict(rotary_scaling)
        if qkv_bias is not None:
            for name, width in {"b_q": width_q, "b_k": width_k, "b_v": width_v}.items():
                setattr(self, name, np.zeros(width, dtype) if qkv_bias else None)
        self.qk_norm, eps = qk_norm, 1e-6 if norm_eps is None else norm_eps
        widths = (width_q, width_k) if qk_norm == "all" else (d_k, d_k)
        self.norm_q, self.norm_k = (RMSNorm(width, eps, dtype) if qk_norm else None for width in widths)
        self.scale = None if scale is None else float(require_number(op, "scale", scale))
        self.softcap = None if softcap is None else require_number(op, "softcap", softcap, **CAPS)
        self.sink = np.zeros(num_heads, dtype) if sink else None
        gates = num_heads * (d_v if output_gate == "element" else 1)
        spread = glorot(d_model, d_k)
        self.w_gate: Matrix | None = normal(rng, (d_model, gates), spread, dtype) if output_gate else None

    def forward(
        self, x: np.ndarray, context: np.ndarray | None = None, mask: np.ndarray | None = None,
        scores_bias: np.ndarray | None = None, positions: np.ndarray | None = None,
        past: KeyValueCache | None = None, rng: np.random.Generator | None = None, band: Band | None = None,
    ) -> tuple[np.ndarray, Any]:
        """Compute the output of attention for every position of x; the arguments are those of Chapter 17.

        Raises: ValueError for a context: this is self-attention.
        """
        if context is not None:
            raise value_error("RecentAttention", "context", "None", np.shape(context), "this is self-attention")
        q, of_q = to_normalized_heads(x, self.w_q, self.b_q, self.norm_q, self.num_heads)  # (B, H, T_q, d_k)
        k, of_k = to_normalized_heads(x, self.w_k, self.b_k, self.norm_k, self.num_kv_heads)  # (B, H_kv, T_k, d_k)
        v, of_v = to_heads(x, self.w_v, self.b_v, self.num_kv_heads)  # (B, H_kv, T_k, d_v)
        q, turned_q = self.rotate(q, positions)
        k, turned_k = self.rotate(k, positions)
        if past is not None:
            k, v = past.append(k, v)
        options: Any = {"scale": self.scale, "softcap": self.softcap, "sink": self.sink}
        attention: TamedAttentionCache | TamedTilesCache
        if band is None:
            o, attention = tamed_attention(q, k, v, mask, scores_bias, dropout=self.dropout, rng=rng, **options)
        else:
            refuse_dropout_in_tiles(self.dropout, rng)
            o, attention = tamed_tiled_attention(q, k, v, mask, **band._asdict(), **options)
        gate = None
        if self.w_gate is not None:
            g, of_g = to_heads(x, self.w_gate, None, self.num_heads)  # (B, H, T_q, 1 or d_v)
            o, of_gate = sigmoid_gate(o, g)  # (B, H, T_q, d_v)
            gate = of_g, of_gate
        o, heads = concat_heads(o)  # (B, T_q, H d_v)
        y, of_y = project(o, self.w_o, self.b_o)  # (B, T_q, d_model)
        cache = RecentAttentionCache(of_q, of_k, of_v, turned_q, turned_k, attention, gate, heads, of_y)
        return y, cache if past is None else None

    def backward(self, dy: np.ndarray, cache: RecentAttentionCache) -> tuple[np.ndarray, Parameters]:
        """Return dx and the gradients of all parameters.

        Raises: ValueError if the forward used a KV cache.
        """
        require_cache("RecentAttention", cache)
        grads: dict[str, Any] = {}
        # y = concat_heads(o) @ w_o + b_o
        do, grads["w_o"], grads["b_o"] = project_backward(dy, self.w_o, cache.of_y)  # (B, T_q, H d_v)
        do = concat_heads_backward(do, cache.of_heads)  # (B, H, T_q, d_v)
        dx_gate: Any = 0.0
        if cache.gate is not None and self.w_gate is not None:
            of_g, of_gate = cache.gate
            # o = sigmoid_gate(o, to_heads(x))
            do, dg = sigmoid_gate_backward(do, of_gate)
            dx_gate, grads["w_gate"], _ = to_heads_backward(dg, self.w_gate, of_g)  # (B, T_q, d_model)
        # o = attention(rotate(q), rotate(k), v, sink)
        if isinstance(cache.attention, TamedTilesCache):
            dq, dk, dv, grads["sink"] = tamed_tiled_attention_backward(do, cache.attention)
        else:
            dq, dk, dv, _, grads["sink"] = tamed_attention_backward(do, cache.attention)
        dq, dk = turned_backward(dq, cache.turned_q), turned_backward(dk, cache.turned_k)
        # q, k and v come from x
        dx, grads["w_q"], grads["b_q"], grads["norm_q"] = to_normalized_heads_backward(
            dq, self.w_q, self.norm_q, cache.of_q
        )
        dx_k, grads["w_k"], grads["b_k"], grads["norm_k"] = to_normalized_heads_backward(
            dk, self.w_k, self.norm_k, cache.of_k
        )
        dx_v, grads["w_v"], grads["b_v"] = to_heads_backward(dv, self.w_v, cache.of_v)
        dx += dx_k + dx_v + dx_gate  # query, key, value and gate all come from x
        return dx, flat_gradients(grads)

    def rotate(self, x: np.ndarray, positions: np.ndarray | None) -> tuple[np.ndarray, Any]:
        if self.rotary_base is None:
            return x, None
        how = self.rotary_base, self.rotary_pairing, self.rotary_width, self.rotary_scaling
        return scaled_rotary(x, positions_of(x, positions), *how)


def to_normalized_heads(
    x: np.ndarray, w: Matrix, b: np.ndarray | None, norm: RMSNorm | None, num_heads: int
) -> tuple[np.ndarray, Any]:
    """Queries or keys: x w + b, then QK-norm, cut into heads.

    Shapes: x (B, T, d_model) -> (B, H, T, d_k)
    """
    y, of_product = project(x, w, b)  # (B, T, H d_k)
    y, of_norm = normalize(y, norm)
    y, of_split = split_heads(y, num_heads)
    return y, (of_product, of_norm, of_split)


def to_normalized_heads_backward(dy: np.ndarray, w: Matrix, norm: RMSNorm | None, cache: Any) -> tuple[Any, ...]:
    """Return dx, dw, db, and the gradient of gamma."""
    of_product, of_norm, of_split = cache
    dy = split_heads_backward(dy, of_split)
    dy, dgamma = normalize_backward(dy, norm, of_norm)
    return *project_backward(dy, w, of_product), dgamma


def normalize(x: np.ndarray, norm: RMSNorm | None) -> tuple[np.ndarray, Any]:
    """QK-norm of x (B, T, H d_k): gamma is as long as one head, or as all heads together."""
    if norm is None:
        return x, None
    width = len(norm.gamma)
    y, cache = norm.forward(x.reshape(*x.shape[:2], x.shape[2] // width, width))
    return y.reshape(x.shape), cache


def normalize_backward(dy: np.ndarray, norm: RMSNorm | None, cache: Any) -> tuple[np.ndarray, Parameters | None]:
    """The backward of `normalize`: dx, and the gradient of gamma."""
    if norm is None:
        return dy, None
    # y = norm(x)
    dx, grads = norm.backward(dy.reshape(cache.x_hat.shape), cache)
    return dx.reshape(dy.shape), grads


def check_scaling(op: str, d_k: int, base: float | None, width: int | None, scaling: dict[str, Any] | None) -> None:
    """Refuse invalid options of rotary positions; without a base, rotary positions are off.

    Raises: TypeError or ValueError that names the option.
    """
    if base is None:
        for name, value in {"rotary_width": width, "rotary_scaling": scaling}.items():
            if value is not None:
                raise value_error(op, name, "None without rotary positions", value)
        return
    require_number(op, "rotary_base", base, above=0)
    name, columns = ("d_k", d_k) if width is None else ("rotary_width", width)
    if require_number(op, name, columns, at_least=2, at_most=d_k, whole=True) % 2:
        raise value_error(op, name, "even", columns, "rotary positions rotate the numbers of a head in pairs")
    rotary_frequencies(2, base, scaling)  # refuses an invalid scaling
