"""Wrong layers and models: paths left out, taken twice, or crossed."""

from typing import Any

import numpy as np

from numpy_attention.gallery.registry import method_of, stands_in_for
from numpy_attention.layers.block import EncoderBlock
from numpy_attention.layers.linear import Linear, project_backward
from numpy_attention.layers.multi_head_attention import MultiHeadAttention, attention_backward
from numpy_attention.layers.residual import residual_backward
from numpy_attention.models.gpt import GPT
from numpy_attention.ops.heads import concat_heads_backward, split_heads_backward
from numpy_attention.ops.linear import linear_backward
from numpy_attention.ops.sums import as_rows
from numpy_attention.pretrained.low_rank import LowRank


@method_of("MultiHeadAttention", "forward")
def arguments_in_the_wrong_order(
    self: MultiHeadAttention, x: np.ndarray, context: np.ndarray | None = None, **options: Any
) -> Any:
    """Cross-attention asks with the context and answers from x.

    Hides: with equal lengths the shapes agree, and in self-attention both are the same.
    """
    if context is None:
        return MultiHeadAttention.forward(self, x, **options)
    if x.shape != context.shape:
        options["mask"] = None  # it would not fit either
    return MultiHeadAttention.forward(self, context, x, **options)


@method_of("MultiHeadAttention", "forward")
def keys_cut_with_the_length_of_the_queries(
    self: MultiHeadAttention, x: np.ndarray, context: np.ndarray | None = None, **options: Any
) -> Any:
    """k and v are reshaped to (B, T_q, H, d_k) with the length of the queries.

    Hides: in self-attention, and wherever T_q = T_k, it is right.
    """
    if context is not None:
        context = context.reshape(x.shape[0], x.shape[1], -1)
    return MultiHeadAttention.forward(self, x, context, **options)


@method_of("MultiHeadAttention", "backward")
def query_path_only(self: MultiHeadAttention, dy: np.ndarray, cache: Any) -> Any:
    """In self-attention x is query, key and value; dx holds the path through the query alone.

    Hides: every parameter of the layer itself has the right gradient.
    """
    if cache.cross:
        return MultiHeadAttention.backward(self, dy, cache)
    _, grads = MultiHeadAttention.backward(self, dy, cache)
    dheads = concat_heads_backward(project_backward(dy, self.w_o, cache.linear_o)[0], cache.heads_o)
    dq = attention_backward(dheads, cache.attention)[0]
    dq = split_heads_backward(self._rotate_back(dq, cache.rotary_q), cache.heads_q)
    return project_backward(dq, self.w_q, cache.linear_q)[0], grads


@method_of("MultiHeadAttention", "backward")
def value_path_forgotten(self: MultiHeadAttention, dy: np.ndarray, cache: Any) -> Any:
    """The gradient through the values, dv w_v^T, is not added to dx (or, with a context, to dcontext).

    Hides: every parameter of the layer itself has the right gradient.
    """
    answer = MultiHeadAttention.backward(self, dy, cache)
    dheads = concat_heads_backward(project_backward(dy, self.w_o, cache.linear_o)[0], cache.heads_o)
    dv = attention_backward(dheads, cache.attention)[2]
    dv = split_heads_backward(dv, cache.keys_values.heads_v)
    by_values = project_backward(dv, self.w_v, cache.keys_values.linear_v)[0]
    if cache.cross:
        dx, dcontext, grads = answer
        return dx, dcontext - by_values, grads
    dx, grads = answer
    return dx - by_values, grads


@method_of("EncoderBlock", "backward")
def residual_left_out(self: EncoderBlock, dy: np.ndarray, cache: Any) -> Any:
    """dx comes from the attention branch alone; the straight path of `x + attention(x)` is missing.

    Hides: the block's own gradients are right, and a deep stack still trains a little.
    """
    dx, grads = EncoderBlock.backward(self, dy, cache)
    return dx - _straight_path(self, dy, cache), grads


@method_of("EncoderBlock", "backward")
def residual_twice(self: EncoderBlock, dy: np.ndarray, cache: Any) -> Any:
    """The straight path of `x + attention(x)` is added twice.

    Hides: the block's own gradients are right.
    """
    dx, grads = EncoderBlock.backward(self, dy, cache)
    return dx + _straight_path(self, dy, cache), grads


def _straight_path(block: EncoderBlock, dy: np.ndarray, cache: Any) -> np.ndarray:
    """What arrives at the first addition: dx less what the attention branch brings."""
    dh, _, _ = residual_backward(dy, cache.residual_2, block.norm_2, block.feed_forward.backward, block.pre_norm)
    if block.pre_norm:
        return dh
    straight, _ = block.norm_1.backward(dh, cache.residual_1.norm)
    return straight


@method_of("EncoderBlock", "backward")
def branch_reads_a_changed_gradient(self: EncoderBlock, dy: np.ndarray, cache: Any) -> Any:
    """The feed-forward branch works in place on dy, and the straight path then reads the changed array.

    Hides: a test of the feed-forward network by itself is right.
    """
    right = EncoderBlock.backward(self, dy, cache)
    dy *= 0.5
    return right


@stands_in_for("Linear")
class InputKeptOnTheLayer(Linear):
    """The cache is kept on the layer, so a second use overwrites it before the first backward runs.

    Hides: each layer is used once in the test.
    """

    def forward(self, x: np.ndarray) -> Any:
        """Forward, with a memory of the last use only."""
        y, cache = super().forward(x)
        self.last_use = (cache,)
        return y, None

    def backward(self, dy: np.ndarray, cache: Any) -> Any:
        """The gradients of the last use, whichever was meant."""
        return super().backward(dy, self.last_use[0])


@method_of("GPT", "gradients_from_logits")
def tied_head_left_out(self: GPT, cache: Any, dlogits: np.ndarray) -> Any:
    """The table is used twice, as embedding and as head; the head's gradient is not added.

    Hides: the embedding's half still learns, and untied models are right.
    """
    for name, gradient in GPT.gradients_from_logits(self, cache, dlogits):
        if name == "token_embedding.table" and self.head is None:
            gradient -= as_rows(dlogits).T @ as_rows(cache.head.x)
        yield name, gradient


@method_of("GPT", "gradients_from_logits")
def positions_not_summed_over_the_batch(self: GPT, cache: Any, dlogits: np.ndarray) -> Any:
    """The table of positions serves every sequence of the batch, but gets the mean of their gradients.

    Hides: right for a batch of one, and the learning rate absorbs it.
    """
    for name, gradient in GPT.gradients_from_logits(self, cache, dlogits):
        yield name, gradient / dlogits.shape[0] if name == "position_embedding.table" else gradient


@method_of("LowRank", "backward")
def change_not_scaled(self: LowRank, dy: np.ndarray, cache: Any) -> Any:
    """The forward multiplies the change by alpha / r, the backward does not: da, db and their part of dx lack it.

    Hides: right where alpha = r; elsewhere the direction of da and db is right, and the learning rate absorbs the rest.
    """
    dz, db, _ = linear_backward(dy, cache.linear_b)
    dx, da, _ = linear_backward(dz, cache.linear_a)
    return dx + dy @ self.w.T, {"a": da, "b": db}


@method_of("LowRank", "backward")
def scale_left_out_of_db(self: LowRank, dy: np.ndarray, cache: Any) -> Any:
    """alpha / r goes into dz, and so into da and dx, but not into db, which is made of dy before it.

    Hides: right where alpha = r; elsewhere Adam, which divides by the size of a gradient, takes the same steps.
    """
    dx, grads = LowRank.backward(self, dy, cache)
    return dx, {"a": grads["a"], "b": grads["b"] / self.scale}


@method_of("LowRank", "backward")
def change_left_out_of_dx(self: LowRank, dy: np.ndarray, cache: Any) -> Any:
    """dx = dy w^T, as without the change: the path through a and b is missing.

    Hides: the layer's own gradients are right, and at the first step, where b is zero, so is dx.
    """
    dx, grads = LowRank.backward(self, dy, cache)
    dz = self.scale * linear_backward(dy, cache.linear_b)[0]
    return dx - dz @ self.a.T, grads
