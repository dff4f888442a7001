"""Multi-head attention (Chapter 17): self and cross, grouped heads, rotary, ALiBi, biases, in tiles, QK-norm, gates."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from numpy_attention.catalogue.entry import Array, Entry, Options, dropout_on, layer_entry, size_of
from numpy_attention.catalogue.exercise import Exercise, Try
from numpy_attention.catalogue.mistake import backward_of, method_of
from numpy_attention.catalogue.pages.attention import plain_attention
from numpy_attention.catalogue.pages.heads import plain_concat_heads, plain_split_heads
from numpy_attention.catalogue.pages.normalization import plain_rms_norm
from numpy_attention.gradcheck.spec import Sizes
from numpy_attention.layers.linear import project_backward
from numpy_attention.layers.multi_head_attention import MultiHeadAttention, attention_backward
from numpy_attention.ops.heads import concat_heads_backward, split_heads_backward
from numpy_attention.ops.masks import causal_mask
from numpy_attention.ops.normalization import rms_norm, rms_norm_backward
from numpy_attention.ops.positions import alibi_bias, alibi_slopes, rotary_backward
from numpy_attention.ops.tiles import Band

CHAPTER = 17

X = "x: B T d_model; d_model = H*d_k"
X_MASK = "x: B T d_model, mask: bool B 1 T T; d_model = H*d_k"
X_PADDING = "x: B T d_model, mask: bool B 1 1 T; d_model = H*d_k"
CROSS = "x: B T_q d_model, context: B T_k d_model, mask: bool B 1 T_q T_k; d_model = H*d_k"
QK = "q: {0} T_q d_k, k: {0} T_k d_k, gamma_q: d_k, gamma_k: d_k"
TAMED: dict[str, Any] = {"sink": True, "softcap": 2.0, "scale": 0.7}
GROUPED = "x: B T d_model, mask: bool T T; d_model = G*H_kv*d_k"


def width(sizes: Sizes) -> int:
    """d_model for H heads of width d_k."""
    return size_of(sizes, "H") * size_of(sizes, "d_k")


def _entry(
    variant: str, spec: str, wrong: str = "", call: Options | None = None, fixed: Mapping[str, int] | None = None,
    **options: Any,
) -> Entry:
    def build(sizes: Sizes, rng: np.random.Generator, dtype: Any) -> MultiHeadAttention:
        H_kv = size_of(sizes, "H_kv") if "H_kv" in sizes else None
        H = size_of(sizes, "H") if H_kv is None else size_of(sizes, "G") * H_kv
        d_model = 3 if "d_k" in options else H * size_of(sizes, "d_k")
        return MultiHeadAttention(d_model, H, rng, H_kv, dtype=dtype, **options)

    fixed = {"B": 2, "d_k": 2, **(fixed or {"H": 3})}
    return layer_entry(MultiHeadAttention, variant, spec, build, wrong=wrong, fixed=fixed, options=call)


def _alibi(sizes: Sizes) -> Mapping[str, Any]:
    H, T = size_of(sizes, "H"), size_of(sizes, "T")
    return {"scores_bias": alibi_bias(H, T), "mask": causal_mask(T)}


def _tiled(variant: str, band: Band, spec: str = X, **options: Any) -> Entry:
    def call(sizes: Sizes) -> Mapping[str, Any]:
        slopes = None if band.slopes is None else alibi_slopes(size_of(sizes, "H"))
        return {"band": band._replace(slopes=slopes)}

    return _entry(f"in tiles, {variant}", spec, call=call, **options)


ENTRIES = (
    _entry("self", X, wrong="x-1"),
    _entry("self, mask, biases", X_MASK, wrong="mask+2", bias=True),
    _entry("QK-norm of each head, sink, softcap, scale", X_MASK, qk_norm="head", norm_eps=0.3, **TAMED),
    _entry("cross", CROSS, wrong="context-1 mask+2"),
    _entry("self, biases of q, k and v only", X, qkv_bias=True),
    _entry("cross, biases, dropout", CROSS, bias=True, dropout=0.3, call=dropout_on),
    _entry("grouped heads", GROUPED, fixed={"G": 2, "H_kv": 2}),
    _entry("other d_k and d_v", "x: B T 3, mask: bool B H T T", d_k=4, d_v=5),
    _entry("rotary", X, fixed={"H": 2, "d_k": 4}, rotary_base=100.0),
    _entry("rotary, interleaved, biases", X, rotary_base=10000.0, rotary_pairing="interleaved", bias=True),
    _entry("ALiBi, causal", X, call=_alibi),
    _tiled("causal", Band(causal=True)),
    _tiled("ALiBi, window, padding", Band(True, 2, np.ones(1)), X_PADDING),
    _tiled("cross", Band(), CROSS, bias=True),
    _tiled(
        "rotary, grouped heads", Band(True), "x: B T d_model; d_model = G*H_kv*d_k",
        fixed={"G": 2, "H_kv": 2, "d_k": 4}, rotary_base=100.0,
    ),
    _entry("QK-norm of all heads, cross, biases", CROSS, qk_norm="all", bias=True),
    _entry("QK-norm, rotary, grouped heads", GROUPED, fixed={"G": 2, "H_kv": 2}, qk_norm="head", rotary_base=100.0),
    _entry("one gate for each head, cross", CROSS, output_gate="head"),
    _entry("gates for each element, other d_v", "x: B T 3", output_gate="element", d_k=4, d_v=5),
    _tiled("sink, softcap, scale, gate, padding", Band(True, 2), X_PADDING, output_gate="head", **TAMED),
)


def plain_multi_head_attention(
    layer: MultiHeadAttention, x: Array, context: Array | None = None, mask: Array | None = None, **arrays: Any
) -> Array | None:
    """Computes one head at a time, with its columns of the weights."""
    ordinary = layer.num_kv_heads == layer.num_heads and layer.rotary_base is None
    if not ordinary or not arrays.keys() <= layer.parameters().keys():
        return None
    context = x if context is None else context

    def heads(inputs: Array, name: str) -> Array:
        y = inputs @ arrays[f"w_{name}"] + arrays.get(f"b_{name}", 0.0)
        norm = getattr(layer, f"norm_{name}", None)
        if norm is None:
            return plain_split_heads(y, layer.num_heads)
        gamma = arrays[f"norm_{name}.gamma"]
        if layer.qk_norm == "all":
            return plain_split_heads(plain_rms_norm(y, gamma, norm.eps), layer.num_heads)
        return plain_rms_norm(plain_split_heads(y, layer.num_heads), gamma, norm.eps)

    options: dict[str, Any] = {"scale": layer.scale, "softcap": layer.softcap, "sink": arrays.get("sink")}
    each = plain_attention(heads(x, "q"), heads(context, "k"), heads(context, "v"), mask, **options)
    assert each is not None
    if layer.w_gate is not None:
        each = each / (1.0 + np.exp(-plain_split_heads(x @ arrays["w_gate"], layer.num_heads)))
    y = plain_concat_heads(each) @ arrays["w_o"]
    return y if "b_o" not in arrays else np.asarray(y + arrays["b_o"])


PLAIN = {"MultiHeadAttention": plain_multi_head_attention}


@method_of("MultiHeadAttention", "forward", diagnosis="are the arguments, or the gradients, in the right order?")
def arguments_in_the_wrong_order(
    self: MultiHeadAttention, x: Array, context: Array | None = None, **options: Any
) -> Any:
    """Cross-attention takes queries from the context, and keys and values from x.

    Hides: with equal lengths the shapes agree, and in self-attention both inputs are equal.
    """
    if context is None:
        return MultiHeadAttention.forward(self, x, **options)
    if x.shape != context.shape:
        options["mask"] = None  # the shape of the mask would be wrong too
    return MultiHeadAttention.forward(self, context, x, **options)


@method_of("MultiHeadAttention", "forward", diagnosis="cannot reshape")
def keys_cut_with_the_length_of_the_queries(
    self: MultiHeadAttention, x: Array, context: Array | None = None, **options: Any
) -> Any:
    """k and v are reshaped to (B, T_q, H, d_k), with the length of the queries.

    Hides: right in self-attention, and whenever T_q = T_k.
    """
    if context is not None:
        context = context.reshape(x.shape[0], x.shape[1], -1)
    return MultiHeadAttention.forward(self, x, context, **options)


def _projected(layer: MultiHeadAttention, dy: Array, cache: Any) -> list[Array]:
    """The gradients of the projected queries, keys and values."""
    kv = cache.keys_values
    dheads = concat_heads_backward(project_backward(dy, layer.w_o, cache.linear_o)[0], cache.heads_o)
    dq, dk, dv = attention_backward(dheads, cache.attention)[:3]
    of = (dq, cache.rotary_q), (dk, kv.rotary_k)
    dq, dk = (d if turned is None else rotary_backward(d, turned) for d, turned in of)
    return [split_heads_backward(*one) for one in ((dq, cache.heads_q), (dk, kv.heads_k), (dv, kv.heads_v))]


@method_of("MultiHeadAttention", "backward", diagnosis="a path to the input is missing")
def query_path_only(self: MultiHeadAttention, dy: Array, cache: Any) -> Any:
    """In self-attention x is query, key and value, but dx holds only the path through the query.

    Hides: the gradients of all parameters of the layer are right.
    """
    if cache.cross:
        return MultiHeadAttention.backward(self, dy, cache)
    _, grads = MultiHeadAttention.backward(self, dy, cache)
    return project_backward(_projected(self, dy, cache)[0], self.w_q, cache.linear_q)[0], grads


@method_of("MultiHeadAttention", "backward", diagnosis="not multiplied by the transposed matrix")
def projections_left_out_of_dx(self: MultiHeadAttention, dy: Array, cache: Any) -> Any:
    """dx is the sum of the gradients of queries, keys and values; none is multiplied by its weight transposed.

    Hides: the shapes agree if H d_k = d_model, and the gradients of all parameters of the layer are right.
    """
    answer = MultiHeadAttention.backward(self, dy, cache)
    if cache.cross:
        return answer
    every = _projected(self, dy, cache)
    if any(one.shape != dy.shape for one in every):
        return answer
    return sum(every), answer[1]


@method_of("MultiHeadAttention", "backward", diagnosis="the path through `v` is missing")
def value_path_forgotten(self: MultiHeadAttention, dy: Array, cache: Any) -> Any:
    """The gradient through the values, dv w_v^T, is not added to dx (or, with a context, to dcontext).

    Hides: the gradients of all parameters of the layer are right.
    """
    *dx, of_source, grads = MultiHeadAttention.backward(self, dy, cache)  # the values come from x or from the context
    by_values = project_backward(_projected(self, dy, cache)[2], self.w_v, cache.keys_values.linear_v)[0]
    return *dx, of_source - by_values, grads


@method_of("MultiHeadAttention", "backward", diagnosis="a mean instead of a sum")
def gamma_not_summed_over_heads(self: MultiHeadAttention, dy: Array, cache: Any) -> Any:
    """All heads share the gamma of QK-norm, but its gradient is the mean over the heads, not the sum.

    Hides: right for one head, and the learning rate absorbs the factor.
    """
    *dx, grads = MultiHeadAttention.backward(self, dy, cache)
    if self.qk_norm == "head":
        grads["norm_q.gamma"] /= self.num_heads
    return *dx, grads


def qk_norm(q: Array, k: Array, gamma_q: Array, gamma_k: Array, eps: float = 1e-6) -> Any:
    """The scores of normalized queries and keys: the forward of the exercise."""
    (q_n, of_q), (k_n, of_k) = rms_norm(q, gamma_q, eps), rms_norm(k, gamma_k, eps)
    scale = q.shape[-1] ** -0.5
    return scale * q_n @ k_n.swapaxes(-1, -2), (q_n, k_n, scale, of_q, of_k)


def qk_norm_backward(dscores: Array, cache: Any, norm_backward: Any = rms_norm_backward) -> Any:
    """Gradients of `qk_norm`: dq, dk, dgamma_q, dgamma_k."""
    q_n, k_n, scale, of_q, of_k = cache
    # scores = scale * q_n @ k_n^T
    dq, dgamma_q = norm_backward(scale * dscores @ k_n, of_q)
    dk, dgamma_k = norm_backward(scale * dscores.swapaxes(-1, -2) @ q_n, of_k)
    return dq, dk, dgamma_q, dgamma_k


@backward_of("qk_norm")
def lengths_taken_as_constants(dscores: Array, cache: Any) -> Any:
    """dq and dk are r times dx_hat. But r depends on q or k, so a term with mean(dx_hat * x_hat) is missing.

    Hides: dgamma_q and dgamma_k are right.
    """
    return qk_norm_backward(dscores, cache, lambda dy, of: (dy * of.gamma * of.r, rms_norm_backward(dy, of)[1]))


@backward_of("qk_norm")
def gammas_left_out_of_dq_and_dk(dscores: Array, cache: Any) -> Any:
    """dq and dk are computed as if gamma_q and gamma_k were 1: dx_hat is dy * gamma, not dy.

    Hides: right while every gamma is 1, as at the start of training.
    """
    q_n, k_n, scale, of_q, of_k = cache
    ones = np.ones_like(of_q.gamma)
    return qk_norm_backward(dscores, (q_n, k_n, scale, of_q._replace(gamma=ones), of_k._replace(gamma=ones)))


@backward_of("qk_norm")
def products_without_the_gammas(dscores: Array, cache: Any) -> Any:
    """scores = scale q_n k_n^T, but the backward multiplies dscores by x_hat of q and k, without their gammas.

    Hides: right while every gamma is 1, as at the start of training.
    """
    _, _, scale, of_q, of_k = cache
    return qk_norm_backward(dscores, (of_q.x_hat, of_k.x_hat, scale, of_q, of_k))


def _attention(cls: Any, sizes: Sizes, rng: np.random.Generator, dtype: Any) -> Any:
    return cls(width(sizes), sizes["H"], rng, dtype=dtype)


OURS = {"MultiHeadAttention": MultiHeadAttention, "qk_norm": qk_norm, "qk_norm_backward": qk_norm_backward}
EXERCISES = (
    Exercise("multi_head_attention", 6, (
        Try("MultiHeadAttention", X_MASK, "self", build=_attention, fixed={"B": 2, "H": 2}),
        Try("MultiHeadAttention", CROSS, "cross", build=_attention, fixed={"B": 2, "H": 2}),
    ), leave_out=("gamma_not_summed_over_heads",), parts=(
        "linear_backward", "split_heads_backward", "concat_heads_backward", "scaled_dot_product_attention_backward",
    )),
    Exercise("qk_norm", 22, (
        Try("qk_norm", QK.format("B H"), "a batch, several heads", at_least={"d_k": 3}),
        Try("qk_norm", QK.format(""), "one head, large eps", {"eps": 0.3}, at_least={"d_k": 3}),
    )),
)
