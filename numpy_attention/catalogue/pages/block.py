"""The encoder and decoder block (Chapter 20; residual: Chapter 19): pre-norm and post-norm, cross-attention."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from numpy_attention.catalogue.entry import Array, Entry, Options, dropout_on, layer_entry, size_of
from numpy_attention.catalogue.exercise import Exercise, Try
from numpy_attention.catalogue.mistake import method_of
from numpy_attention.catalogue.pages.multi_head_attention import X_MASK, X, width
from numpy_attention.catalogue.tiny import GATED
from numpy_attention.gradcheck.spec import Sizes
from numpy_attention.layers.block import DecoderBlock, EncoderBlock
from numpy_attention.layers.residual import residual_backward
from numpy_attention.ops.masks import causal_mask
from numpy_attention.ops.tiles import Band

CHAPTER = 20

DECODER = "x: B T d_model, context: B T_k d_model, context_mask: bool B 1 1 T_k; d_model = H*d_k"
CROSSED: dict[str, Any] = {"cross_attention": True, "pre_norm": True, "activation": "gelu", "dropout": 0.3}


def _build(cls: Any, sizes: Sizes, rng: np.random.Generator, dtype: Any, **options: Any) -> Any:
    return cls(width(sizes), sizes["H"], 5, rng, dtype=dtype, **options)


def _entry(cls: type, variant: str, spec: str, wrong: str = "", call: Options | None = None, **options: Any) -> Entry:
    fixed = {"B": 2, "T": 3, "T_k": 4, "H": 2, "d_k": 2}
    build = partial(_build, cls, **options)
    return layer_entry(cls, variant, spec, build, wrong=wrong, options=call, fixed=fixed, tolerance=1e-5)


def _causal(sizes: Sizes) -> Mapping[str, Any]:
    return {"mask": causal_mask(size_of(sizes, "T"))}


ENTRIES = (
    _entry(EncoderBlock, "post-norm", X_MASK, wrong="x-1"),
    _entry(EncoderBlock, "pre-norm", X_MASK, pre_norm=True, activation="gelu"),
    _entry(EncoderBlock, "rms norm, swiglu, dropout", X, call=dropout_on, dropout=0.3, **GATED),
    _entry(DecoderBlock, "post-norm, cross", DECODER, "context-1", _causal, cross_attention=True),
    _entry(
        DecoderBlock, "pre-norm, cross, dropout", DECODER,
        call=lambda sizes: {**_causal(sizes), **dropout_on(sizes)}, **CROSSED,
    ),
    _entry(
        DecoderBlock, "in tiles, cross", DECODER, call=lambda sizes: {"band": Band(causal=True)}, **CROSSED,
    ),
    _entry(DecoderBlock, "pre-norm, no cross", X, call=_causal, pre_norm=True, activation="silu"),
    _entry(DecoderBlock, "post-norm, no cross, no bias", X, call=_causal, bias=False),
    _entry(EncoderBlock, "branch norm only, rms norm, dropout", X, call=dropout_on, branch_norm=True, dropout=0.3,
           norm="rms_norm"),
    _entry(DecoderBlock, "pre-norm and branch norm, cross, geglu", DECODER, call=_causal, pre_norm=True,
           branch_norm=True, cross_attention=True, activation="geglu"),
)


@method_of("EncoderBlock", "backward", diagnosis="only the last time that this line runs")
def residual_left_out(self: EncoderBlock, dy: Array, cache: Any) -> Any:
    """dx comes only from the attention branch; the residual path of `x + attention(x)` is missing.

    Hides: the gradients of the block's parameters are right, and a deep stack still trains a little.
    """
    dx, grads = EncoderBlock.backward(self, dy, cache)
    return dx - _residual_gradient(self, dy, cache), grads


@method_of("EncoderBlock", "backward", diagnosis="only dx is wrong: a path to the input")
def residual_through_the_norm(self: EncoderBlock, dy: Array, cache: Any) -> Any:
    """x + attention(norm(x)): the residual path is added before the backward of the norm, so it runs through the norm.

    Hides: the gradients of the block's weight matrices are right, and a deep stack still trains a little.
    """
    dx, grads = EncoderBlock.backward(self, dy, cache)
    if not self.pre_norm or self.norm_1 is None:
        return dx, grads
    residual = _residual_gradient(self, dy, cache)
    through, _ = self.norm_1.backward(residual, cache.residual_1.norm)
    return dx - residual + through, grads


@method_of("EncoderBlock", "backward", diagnosis="added twice (the residual path?")
def residual_twice(self: EncoderBlock, dy: Array, cache: Any) -> Any:
    """The residual path of `x + attention(x)` is added twice.

    Hides: the gradients of the block's parameters are right.
    """
    dx, grads = EncoderBlock.backward(self, dy, cache)
    return dx + _residual_gradient(self, dy, cache), grads


def _residual_gradient(block: EncoderBlock, dy: Array, cache: Any) -> Array:
    """The gradient through the residual stream of the first addition: dx without the part of the attention branch."""
    norms = block.norm_2, block.feed_forward.backward, block.pre_norm, block.branch_norm_2
    dh, *_ = residual_backward(dy, cache.residual_2, *norms)
    if block.pre_norm or block.norm_1 is None:
        return dh
    dsum, _ = block.norm_1.backward(dh, cache.residual_1.norm)
    return dsum


@method_of("EncoderBlock", "backward", diagnosis="backward changed dy in place")
def branch_reads_a_changed_gradient(self: EncoderBlock, dy: Array, cache: Any) -> Any:
    """The feed-forward branch changes dy in place, and the residual path then reads the changed array.

    Hides: a test of the feed-forward network alone passes.
    """
    right = EncoderBlock.backward(self, dy, cache)
    dy *= 0.5
    return right


OURS = {"EncoderBlock": partial(EncoderBlock, pre_norm=True, activation="gelu")}
EXERCISES = (
    Exercise("encoder_block", 9, (
        Try("EncoderBlock", X_MASK, build=_build, fixed={"B": 2, "T": 3, "H": 2, "d_k": 2}),
    ), parts=("MultiHeadAttention", "FeedForward", "LayerNorm")),
)
