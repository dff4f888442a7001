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
Then a mask is needed only to hide padding, and the weights have no dropout. Without a `Band`, the layer uses the
attention of Chapter 6 and stores all weights in memory.

Models since 2023 add a few small steps. Each is an option of the layer:

    qk_norm         an RMS norm (Chapter 9) of queries and keys, before the rotation: of each "head", with one gamma
                    (d_k,) for all heads, or of "all" heads together. q and k have their own gammas
    output_gate     o_h is multiplied by numbers between 0 and 1, sigmoid(x w_gate): one for each head or element
    sink, softcap   a score that takes weight and has no value, and a limit for the scores (Chapter 6, continued)

With the norm of each head and gammas of 1, q and k have length sqrt(d_k), so no score q k^T / sqrt(d_k) is larger than
sqrt(d_k), however large w_q and w_k become. One gamma serves all heads and positions: its gradient is a sum over them.
"""

from typing import Any, NamedTuple

import numpy as np

from numpy_attention.errors import require_array, require_choice, require_number, require_sizes, value_error
from numpy_attention.layers.c13_layer import Layer, Parameters, flat_gradients, glorot, normal
from numpy_attention.layers.c14_linear import Matrix, ProjectionCache, project, project_backward
from numpy_attention.layers.c16_normalization import RMSNorm
from numpy_attention.layers.c17a_kv_cache import KeyValueCache
from numpy_attention.ops.c06_attention import (
    AttentionCache,
    scaled_dot_product_attention,
    scaled_dot_product_attention_backward,
)
from numpy_attention.ops.c06b_scores import CAPS, sigmoid_gate, sigmoid_gate_backward
from numpy_attention.ops.c07_heads import (
    HeadsCache,
    concat_heads,
    concat_heads_backward,
    split_heads,
    split_heads_backward,
)
from numpy_attention.ops.c08_positions import (
    RotaryCache,
    rotary_backward,
    rotary_frequencies,
    rotary_tables,
    rotate,
    yarn_temperature,
)
from numpy_attention.ops.c09_normalization import NormCache
from numpy_attention.ops.c12_tiled_attention import (
    TiledAttentionCache,
    tiled_attention,
    tiled_attention_backward,
    tiled_attention_weights,
)
from numpy_attention.ops.c12a_tiles import Band

QK_NORMS = ("head", "all")
OUTPUT_GATES = ("head", "element")


class SharedPositions:
    """The positions of one forward, with the cosines and sines for them, which q and k and all layers share.

    A model makes one for each forward and passes it down in place of the array, so that layers store nothing.

    Shapes: positions (T,), or (B, T) to give each sequence its positions; None: 0, ..., T - 1
    """

    def __init__(self, positions: np.ndarray | None) -> None:
        self.positions = positions
        self.differ_by_head = getattr(positions, "ndim", 0) > 2
        self.made: dict[tuple[Any, ...], tuple[np.ndarray, np.ndarray]] = {}

    def tables(self, x: np.ndarray, width: int, base: float, scaling: dict[str, Any] | None) -> tuple[Any, Any]:
        """cos and sin to turn queries or keys x (B, H, T, d_k), computed at the first call with these options."""
        shape = x.shape if self.differ_by_head else (*x.shape[:-3], *x.shape[-2:])  # q and k share
        key = shape, x.dtype, width, base, str(scaling)
        if key not in self.made:
            positions = self.positions
            if positions is None:
                positions = np.arange(x.shape[-2], like=x)
            elif np.ndim(positions) == 2:
                require_array("MultiHeadAttention", "positions", positions)
                positions = positions[:, None, :]  # (B, 1, T), the same for every head
            cos, sin = rotary_tables(x, positions, frequencies=rotary_frequencies(width, base, scaling))
            if scaling and scaling.get("rope_type", scaling.get("type")) == "yarn":
                longer = yarn_temperature(scaling["factor"])
                cos, sin = longer * cos, longer * sin  # each pair turns, and becomes longer by this factor
            self.made[key] = cos, sin
        return self.made[key]


class SourceCache(NamedTuple):
    """What backward needs for the steps from the source to keys and values."""

    linear_k: ProjectionCache
    norm_k: NormCache | None  # None without QK-norm
    heads_k: HeadsCache
    rotary_k: RotaryCache | None
    linear_v: ProjectionCache
    heads_v: HeadsCache


class MultiHeadAttentionCache(NamedTuple):
    """What backward needs; `cache.weights()` returns the weights of all heads."""

    linear_q: ProjectionCache
    norm_q: NormCache | None  # None without QK-norm
    heads_q: HeadsCache
    rotary_q: RotaryCache | None  # None without rotary positions
    keys_values: SourceCache | None  # None if they come from the KV cache: then there is no backward
    attention: AttentionCache | TiledAttentionCache
    gate: tuple[Any, Any, Any] | None  # the caches of project, split_heads and sigmoid_gate; None without a gate
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
    deviation for one head, sqrt(2 / (d_model + d_k)); the other matrices use the same standard deviation.

    The head of this chapter explains `qk_norm` (None, "head" or "all", with `norm_eps`), `output_gate` (None, "head" or
    "element"), `sink` and `softcap`. `scale` replaces 1 / sqrt(d_k). `rotary_width` and `rotary_scaling` are the width
    and the scaling of `rotary_frequencies`; the scaling "yarn" also multiplies the rotated columns of q and k by
    `yarn_temperature`.

    Shapes: x (B, T_q, d_model), context (B, T_k, d_model) -> y (B, T_q, d_model); mask and scores_bias broadcast
    to (B, H, T_q, T_k), True = this query may look at this key.

    Raises: ValueError when d_model cannot be divided among the heads; TypeError or ValueError for invalid sizes or
    options.

    Source: Vaswani et al., Attention Is All You Need (2017), section 3.2.2; grouped-query: Ainslie et al., GQA (2023),
    section 2.2; QK-norm: Dehghani et al., Scaling Vision Transformers to 22 Billion Parameters (2023), section 2; gate:
    Qiu et al., Gated Attention for Large Language Models (2025), section 2.2.
    """

    def __init__(
        self, d_model: int, num_heads: int, rng: np.random.Generator | None, num_kv_heads: int | None = None,
        d_k: int | None = None, d_v: int | None = None, bias: bool = False, qkv_bias: bool | None = None,
        rotary_base: float | None = None, rotary_pairing: str = "half", dropout: float = 0.0, dtype: Any = np.float32,
        *, qk_norm: str | None = None, norm_eps: float | None = None, output_gate: str | None = None,
        sink: bool = False, softcap: float | None = None, scale: float | None = None, rotary_width: int | None = None,
        rotary_scaling: dict[str, Any] | None = None,
    ) -> None:
        op = "MultiHeadAttention"
        num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        require_choice(op, "qk_norm", qk_norm, (None, *QK_NORMS))
        require_choice(op, "output_gate", output_gate, (None, *OUTPUT_GATES))
        _check_heads(d_model, num_heads, num_kv_heads, d_k, d_v)
        d_k = d_model // num_heads if d_k is None else d_k
        d_v = d_k if d_v is None else d_v
        self.num_heads, self.num_kv_heads = int(num_heads), int(num_kv_heads)
        check_rotary(op, d_k, rotary_base, rotary_width, rotary_scaling)
        self.rotary_base, self.rotary_pairing = None if rotary_base is None else float(rotary_base), rotary_pairing
        self.rotary_width, self.rotary_scaling = rotary_width, rotary_scaling and dict(rotary_scaling)
        self.dropout = require_number(op, "dropout", dropout, at_least=0, below=1)
        spread = glorot(d_model, d_k)
        self.w_q: Matrix = normal(rng, (d_model, num_heads * d_k), spread, dtype)
        self.w_k: Matrix = normal(rng, (d_model, num_kv_heads * d_k), spread, dtype)
        self.w_v: Matrix = normal(rng, (d_model, num_kv_heads * d_v), spread, dtype)
        self.w_o: Matrix = normal(rng, (num_heads * d_v, d_model), spread, dtype)
        qkv_bias = bias if qkv_bias is None else qkv_bias
        self.b_q = np.zeros(num_heads * d_k, dtype) if qkv_bias else None
        self.b_k = np.zeros(num_kv_heads * d_k, dtype) if qkv_bias else None
        self.b_v = np.zeros(num_kv_heads * d_v, dtype) if qkv_bias else None
        self.b_o = np.zeros(d_model, dtype) if bias else None
        self.qk_norm, eps = qk_norm, 1e-6 if norm_eps is None else norm_eps
        width_q, width_k = (num_heads * d_k, num_kv_heads * d_k) if qk_norm == "all" else (d_k, d_k)
        self.norm_q, self.norm_k = (RMSNorm(n, eps, dtype) if qk_norm else None for n in (width_q, width_k))
        self.scale = None if scale is None else float(require_number(op, "scale", scale))
        self.softcap = None if softcap is None else require_number(op, "softcap", softcap, **CAPS)
        self.sink = np.zeros(num_heads, dtype) if sink else None
        gates = num_heads * (d_v if output_gate == "element" else 1)
        self.w_gate: Matrix | None = normal(rng, (d_model, gates), spread, dtype) if output_gate else None

    def forward(
        self, x: np.ndarray, context: np.ndarray | None = None, mask: np.ndarray | None = None,
        scores_bias: np.ndarray | None = None, positions: np.ndarray | SharedPositions | None = None,
        past: KeyValueCache | None = None, rng: np.random.Generator | None = None, band: Band | None = None,
    ) -> tuple[np.ndarray, MultiHeadAttentionCache]:
        """Compute the output of attention for every position of x.

        `past` (generation only, no backward) is a KV cache: it stores keys and values for later calls.

        With a `band`, attention works in tiles: the band replaces scores_bias and a T x T mask.
        Rotary positions count from 0 by default; with `past` the caller must pass them. If several layers have the same
        positions, `SharedPositions` in place of the array saves time.
        """
        o, cache = self.heads(x, context, mask, scores_bias, positions, past, rng, band)  # (B, H, T_q, d_v)
        return self.output(o, cache)

    def heads(
        self, x: np.ndarray, context: np.ndarray | None = None, mask: np.ndarray | None = None,
        scores_bias: np.ndarray | None = None, positions: np.ndarray | SharedPositions | None = None,
        past: KeyValueCache | None = None, rng: np.random.Generator | None = None, band: Band | None = None,
    ) -> tuple[np.ndarray, MultiHeadAttentionCache]:
        """The first half of the forward: the output of every head.

        Shapes: as `forward` -> o (B, H, T_q, d_v)
        """
        if not isinstance(positions, SharedPositions):
            positions = SharedPositions(positions)
        q, linear_q = project(x, self.w_q, self.b_q)  # (B, T_q, H d_k)
        q, norm_q = _normalize(q, self.norm_q)
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
        options: Any = {"scale": self.scale, "softcap": self.softcap, "sink": self.sink}
        if band is None:
            o, attention = scaled_dot_product_attention(
                q, k, v, mask, scores_bias, dropout=self.dropout, rng=rng, **options
            )
        elif rng is not None and self.dropout:
            fix = "tiles have no dropout; pass a mask in place of the band"
            raise value_error("MultiHeadAttention", "dropout", "0 in training with a band", self.dropout, fix)
        else:
            o, attention = tiled_attention(q, k, v, mask, **band._asdict(), **options)
        gate = None
        if self.w_gate is not None:
            g, linear_gate = project(x, self.w_gate)  # (B, T_q, H) or (B, T_q, H d_v)
            g, heads_gate = split_heads(g, self.num_heads)  # (B, H, T_q, 1 or d_v)
            o, gate_cache = sigmoid_gate(o, g)  # (B, H, T_q, d_v)
            gate = linear_gate, heads_gate, gate_cache
        cross = context is not None
        return o, MultiHeadAttentionCache(linear_q, norm_q, heads_q, rotary_q, keys_values, attention, gate, cross)

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
        if cache.gate is not None and self.w_gate is not None:
            linear_gate, heads_gate, gate_cache = cache.gate
            # o = sigmoid_gate(o, split_heads(x @ w_gate))
            do, dg = sigmoid_gate_backward(do, gate_cache)
            dg = split_heads_backward(dg, heads_gate)  # (B, T_q, H or H d_v)
            dx_gate, grads["w_gate"], _ = project_backward(dg, self.w_gate, linear_gate)  # (B, T_q, d_model)
        # o = attention(q, k, v)
        dq, dk, dv, *dsink = attention_backward(do, cache.attention)  # with the shapes of q, k, v and sink
        grads |= zip(["sink"], dsink)  # nothing without a sink
        # v = split_heads(source @ w_v + b_v)
        dv = split_heads_backward(dv, keys_values.heads_v)  # (B, T_k, H_kv d_v)
        dsource, grads["w_v"], grads["b_v"] = project_backward(dv, self.w_v, keys_values.linear_v)  # (B, T_k, d_model)
        # k = rotary(split_heads(norm(source @ w_k + b_k)))
        dk = dk if keys_values.rotary_k is None else rotary_backward(dk, keys_values.rotary_k)
        dk = split_heads_backward(dk, keys_values.heads_k)  # (B, T_k, H_kv d_k)
        dk, grads["norm_k"] = _normalize_backward(dk, self.norm_k, keys_values.norm_k)
        dsource_k, grads["w_k"], grads["b_k"] = project_backward(dk, self.w_k, keys_values.linear_k)
        dsource += dsource_k
        # q = rotary(split_heads(norm(x @ w_q + b_q)))
        dq = dq if cache.rotary_q is None else rotary_backward(dq, cache.rotary_q)
        dq = split_heads_backward(dq, cache.heads_q)  # (B, T_q, H d_k)
        dq, grads["norm_q"] = _normalize_backward(dq, self.norm_q, cache.norm_q)
        dx, grads["w_q"], grads["b_q"] = project_backward(dq, self.w_q, cache.linear_q)  # (B, T_q, d_model)
        if cache.gate is not None:
            dx += dx_gate  # the gate also reads x
        if cache.cross:
            return dx, dsource, flat_gradients(grads)
        dx += dsource  # query, key and value all come from x
        return dx, flat_gradients(grads)

    def _keys_and_values(
        self, source: np.ndarray, positions: SharedPositions
    ) -> tuple[np.ndarray, np.ndarray, SourceCache]:
        k, linear_k = project(source, self.w_k, self.b_k)  # (B, T_k, H_kv d_k)
        k, norm_k = _normalize(k, self.norm_k)
        k, heads_k = split_heads(k, self.num_kv_heads)  # (B, H_kv, T_k, d_k)
        k, rotary_k = self._rotate(k, positions)
        v, linear_v = project(source, self.w_v, self.b_v)  # (B, T_k, H_kv d_v)
        v, heads_v = split_heads(v, self.num_kv_heads)  # (B, H_kv, T_k, d_v)
        return k, v, SourceCache(linear_k, norm_k, heads_k, rotary_k, linear_v, heads_v)

    def _rotate(self, x: np.ndarray, positions: SharedPositions) -> tuple[np.ndarray, RotaryCache | None]:
        if self.rotary_base is None:
            return x, None
        width = x.shape[-1] if self.rotary_width is None else self.rotary_width
        cos, sin = positions.tables(x, width, self.rotary_base, self.rotary_scaling)
        y, _ = rotate(x, cos, sin, self.rotary_pairing)
        return y, RotaryCache(cos, sin, self.rotary_pairing, x.shape)


def _normalize(x: np.ndarray, norm: RMSNorm | None) -> tuple[np.ndarray, NormCache | None]:
    """QK-norm of x (B, T, H d_k): gamma is as long as one head, or as all heads together."""
    if norm is None:
        return x, None
    width = len(norm.gamma)
    y, cache = norm.forward(x.reshape(*x.shape[:2], x.shape[2] // width, width))
    return y.reshape(x.shape), cache


def _normalize_backward(
    dy: np.ndarray, norm: RMSNorm | None, cache: NormCache | None
) -> tuple[np.ndarray, Parameters | None]:
    if norm is None or cache is None:
        return dy, None
    # y = norm(x)
    dx, grads = norm.backward(dy.reshape(cache.x_hat.shape), cache)
    return dx.reshape(dy.shape), grads


def attention_backward(do: np.ndarray, cache: AttentionCache | TiledAttentionCache) -> tuple[np.ndarray, ...]:
    """dq, dk, dv, and with a sink dsink, for the form of attention that returned this cache."""
    if isinstance(cache, AttentionCache):
        dq, dk, dv, _, *dsink = scaled_dot_product_attention_backward(do, cache)
        return dq, dk, dv, *dsink
    return tiled_attention_backward(do, cache)


def _check_heads(d_model: int, num_heads: int, num_kv_heads: int, d_k: int | None, d_v: int | None) -> None:
    op = "MultiHeadAttention"
    given = {name: width for name, width in {"d_k": d_k, "d_v": d_v}.items() if width is not None}
    require_sizes(op, d_model=d_model, num_heads=num_heads, num_kv_heads=num_kv_heads, **given)
    if d_k is None and d_model % num_heads:
        fix = f"set the width of a head with d_k, or use d_model = {d_model - d_model % num_heads}"
        raise value_error(op, "d_model", "divisible by num_heads", f"{d_model} and {num_heads}", fix)
    if num_heads % num_kv_heads:
        raise value_error(op, "num_heads", "a multiple of num_kv_heads", f"{num_heads} and {num_kv_heads}")


def check_rotary(op: str, d_k: int, base: float | None, width: int | None, scaling: dict[str, Any] | None) -> None:
    """Refuse invalid options of rotary positions; without a base, rotary positions are off.

    Raises: TypeError or ValueError that names the option.
    """
    if base is None:
        for name, value in {"rotary_width": width, "rotary_scaling": scaling}.items():
            if value is not None:
                raise value_error(op, name, "None without rotary positions", value)
        return
    require_number(op, "rotary_base", base, above=0)
    name, numbers = ("d_k", d_k) if width is None else ("rotary_width", width)
    if require_number(op, name, numbers, at_least=2, at_most=d_k, whole=True) % 2:
        raise value_error(op, name, "even", numbers, "rotary positions rotate the numbers of a head in pairs")
    rotary_frequencies(2, base, scaling)  # refuses an invalid scaling
