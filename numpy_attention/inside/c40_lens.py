"""Chapter 40. Lenses: read the residual stream before the end of the model

In a pre-norm model every layer adds its output to one residual stream. The logits are computed from the last state of
this stream:

    stream = embedding + sum over blocks and heads of o_h w_o[h] + sum over blocks of feed_forward + ...
    logits = norm(stream) U^T

There are two ways to read the stream. The **logit lens** applies the last norm and the unembedding U to the stream
before some block, as if this block and all later blocks did not exist. The **direct effect** splits the last stream
into its parts. Let mu and sigma be the mean and the standard deviation of the whole stream. If sigma is a constant, the
norm is linear in its input, except for beta:

    norm(stream) = gamma * (stream - mu) / sigma + beta

So each part p of the stream has a share in the logit of token v. All shares and the number beta . U_v add up to the
logit, except for round-off:

    share of p = (gamma * (p - mean(p)) / sigma) . U_v

The shares are exact for this run. But they do not show what happens if p is removed: then sigma changes, and the later
layers that read p give other outputs.

**Rollout** is an older, rough estimate from the attention weights. In each block, take the mean of the weights over all
heads, and count the residual path as weight on the token itself. Then multiply the matrices of all blocks. Rollout does
not use the values; see `attention_rollout`.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from numpy_attention.errors import broadcasts_to, require_arrays, require_float, shape_error, value_error
from numpy_attention.inside.c38a_places import require_unedited
from numpy_attention.inside.c39_heads import matrix_of, require_gpt
from numpy_attention.layers.c16_normalization import LayerNorm
from numpy_attention.models.c23_gpt import GPT


def logit_lens(model: GPT, x: np.ndarray) -> np.ndarray:
    """The logits that a residual stream would give at the end of the model.

    Formula: logits = norm(x) U^T

    Shapes: x (..., d_model) -> (..., V)

    Raises: TypeError if model is not a GPT, or x is not an array of the model's dtype; ValueError if x has another
    width, or the model has edits.

    Source: nostalgebraist, Interpreting GPT: the Logit Lens (2020), LessWrong.
    """
    require_gpt("logit_lens", model)
    require_unedited("logit_lens", model.blocks)
    arrays: dict[str, Any] = {"model.norm.gamma": model.norm.gamma, "x": x}
    require_float("logit_lens", **arrays)
    if x.ndim < 1 or x.shape[-1] != model.config.d_model:
        raise shape_error("logit_lens", "x", f"(..., {model.config.d_model}), a residual stream", x.shape)
    h, _ = model.norm.forward(x)
    return model.output_head().forward(h)


def unembedding(model: GPT) -> np.ndarray:
    """One vector for each token; its dot product with the last norm's result is the token's logit.

    Shapes: -> (V, d_model)

    Raises: TypeError if model is not a GPT.
    """
    require_gpt("unembedding", model)
    return model.output_head().vectors


def direct_effects(model: GPT, at: Mapping[str, np.ndarray], direction: np.ndarray) -> dict[str, np.ndarray]:
    """The share of a logit that comes from each part of the last residual stream; the shares add up to the logit.

    Formula: share of p = (gamma * (p - mean(p)) / sigma) . direction, with sigma of the whole stream

    Shapes: at as `forward_with(...)[1].at`; direction (d_model,) or (B, T, d_model), a row of `unembedding(model)` or
    a difference of two -> a dict: `embedding`, `blocks.i.feed_forward` and `b_o` (B, T), `blocks.i.attention`
    (B, H, T), `beta` (B, T)

    Units: logits

    Raises: TypeError if model is not a GPT, or an array has another dtype than the model; ValueError if the model is
    post-norm (then the stream is not a sum of parts), has branch norms or edits, if the activations lack a place or
    come from another model, or if direction has another shape.

    Source: Elhage et al., A Mathematical Framework for Transformer Circuits (2021), section on direct paths; Wang et
    al., Interpretability in the Wild (2023), section 3.1.
    """
    _check_direct(model, at, direction)
    stream = at["norm"]  # (B, T, d_model)
    norm = model.norm
    _, of_norm = norm.forward(stream)  # its r is 1 / sigma, (B, T, 1)
    read = np.broadcast_to(norm.gamma * direction, stream.shape)  # (B, T, d_model)
    if isinstance(norm, LayerNorm):  # an RMS norm does not subtract the mean
        read = read - read.mean(-1, keepdims=True)  # (p - mean(p)) . read = p . (read - mean(read))
    read = read * of_norm.r

    def share(part: np.ndarray) -> np.ndarray:
        return np.einsum("btd,btd->bt", part, read)

    shares = {"embedding": share(at["blocks.0"])}
    b_o = np.zeros_like(shares["embedding"])
    for i, block in enumerate(model.blocks):
        attention, o = block.attention, at[f"blocks.{i}.attention"]  # (B, H, T, d_v)
        w_o = matrix_of(attention.w_o).reshape(o.shape[1], o.shape[3], -1)  # (H, d_v, d_model)
        shares[f"blocks.{i}.attention"] = np.einsum("bhtv,hvd,btd->bht", o, w_o, read, optimize=True)
        if attention.b_o is not None:
            b_o = b_o + read @ attention.b_o
        shares[f"blocks.{i}.feed_forward"] = share(at[f"blocks.{i}.feed_forward"])
    beta = np.zeros_like(b_o)
    if isinstance(norm, LayerNorm):
        beta = np.broadcast_to(direction, stream.shape) @ norm.beta
    return {**shares, "b_o": b_o, "beta": beta}


def attention_rollout(weights: Mapping[str, np.ndarray]) -> np.ndarray:
    """A rough estimate of how much each vector of the last block depends on each token.

    Formula: R = A_L ... A_2 A_1 with A = (mean over heads of weights + I) / 2

    Shapes: weights as `model.attention_weights(ids)` returns them, {name: (B, H, T, T)} from the first block on ->
    (B, T, T), whose rows sum to 1

    A warning: the estimate uses neither values nor w_o nor feed-forward networks. A head whose values are zero counts
    as much as a head that decides the answer, and both terms of a residual sum count equally. The result is a first
    picture, not a measurement; patching is a measurement (Chapter 41).

    Raises: TypeError or ValueError if weights is not a dict of square weights of one shape and dtype, or holds weights
    of an encoder and a decoder, which are two stacks of blocks.

    Source: Abnar, Zuidema, Quantifying Attention Flow in Transformers (2020), section 3.

    >>> look_back = np.array([[[[1.0, 0.0], [1.0, 0.0]]]])
    >>> attention_rollout({"blocks.0.attention": look_back}).tolist()
    [[[1.0, 0.0], [0.5, 0.5]]]
    """
    first = _check_weights(weights)
    identity = np.asarray(np.eye(first.shape[-1], dtype=first.dtype), like=first)  # (T, T)
    rollout = np.broadcast_to(identity, (len(first), *first.shape[2:]))
    for w in weights.values():
        mixed = (w.mean(1) + identity) / 2
        rollout = (mixed / mixed.sum(-1, keepdims=True)) @ rollout  # if all keys are hidden, the token has weight 1
    return rollout


def _check_weights(weights: Mapping[str, np.ndarray]) -> np.ndarray:
    """Check that all weights fit each other; return those of the first block."""
    op = "attention_rollout"
    require_arrays(op, "weights", weights)
    by_name: dict[str, Any] = {f"weights[{name!r}]": w for name, w in weights.items()}
    require_float(op, **by_name)
    first = next(iter(weights.values()))
    for name, w in weights.items():
        if w.ndim != 4 or not w.shape[1] or (len(w), *w.shape[2:]) != (len(first), first.shape[-1], first.shape[-1]):
            raise shape_error(op, "weights", "(B, H, T, T) in every block, with one B and T", f"{w.shape} at {name!r}")
        if str(name).endswith("cross_attention"):
            raise value_error(op, "weights", "weights of one stack of blocks", repr(name), "pass only the encoder's")
    return first


def _check_direct(model: GPT, at: Mapping[str, np.ndarray], direction: np.ndarray) -> None:
    op = "direct_effects"
    require_gpt(op, model)
    require_unedited(op, model.blocks)
    if not model.config.pre_norm:
        fix = "the residual stream of a post-norm model is not a sum of parts"
        raise value_error(op, "model", "a pre-norm model", "a post-norm model", fix)
    if getattr(model.config, "branch_norm", False):  # an option of RecentGPT
        fix = "a branch norm changes the outputs of the heads before they are added"
        raise value_error(op, "model", "a model without branch norms", "branch_norm=True", fix)
    require_arrays(op, "at", at)
    parts = [f"blocks.{i}{part}" for i in range(len(model.blocks)) for part in ("", ".attention", ".feed_forward")]
    d_model, H, d_v = model.config.d_model, model.config.num_heads, model.config.head_width()
    for name in ["norm", *parts]:
        if name not in at:
            raise value_error(op, "at", f"the activations of every place, with {name}", f"{len(at)} places",
                              "use cache.at of forward_with")
    if at["norm"].ndim != 3:
        raise shape_error(op, "at['norm']", f"(B, T, {d_model})", at["norm"].shape)
    B, T, _ = at["norm"].shape
    for name in ["norm", *parts]:
        shape = (B, H, T, d_v) if name.endswith("attention") else (B, T, d_model)
        if at[name].shape != shape:
            raise shape_error(op, f"at[{name!r}]", str(shape), at[name].shape, "is it from another run or model?")
    used: dict[str, Any] = {f"at[{name!r}]": at[name] for name in ["norm", *parts]}
    require_float(op, **{"model.norm.gamma": model.norm.gamma, **used, "direction": direction})
    shape = at["norm"].shape
    if direction.ndim < 1 or direction.shape[-1] != shape[-1] or not broadcasts_to(direction.shape, shape):
        raise shape_error(op, "direction", f"({shape[-1]},) or broadcastable to {shape}", direction.shape)
