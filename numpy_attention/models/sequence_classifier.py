"""Chapter 22. A sequence classifier: reading a whole, answering once

    x      = token_embedding[ids] + positions       (B, T, d_model)
    x      = block_L(... block_1(x))                every token looks at every token, padding excepted
    pooled = share @ x                              (B, d_model), one vector for each sequence
    logits = pooled w + b                           (B, num_classes)

Pooling makes one vector of T. The masked mean gives each of the n real tokens the share 1/n and padding the share 0.
It is linear, so its gradient is dx_t = share_t dpooled: each token receives its share of the gradient, and padding
none. A class token is a learned vector in front of the sequence, which gathers by attention what it needs; its output
is the pooled vector. Without pooling the model labels every token.

Sources: Devlin et al., "BERT", 2019 (class token); Vaswani et al., "Attention Is All You Need", 2017 (encoder).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from numpy_attention.layers.embedding import Embedding
from numpy_attention.layers.encoder_block import EncoderBlock, EncoderBlockCache
from numpy_attention.layers.layer import Parameters, normal, prefixed
from numpy_attention.layers.linear import Linear
from numpy_attention.layers.normalization import norm_layer
from numpy_attention.layers.position_embedding import PositionEmbedding
from numpy_attention.models.model import Model, Receive, in_order_of
from numpy_attention.models.padding import check_batch, visible_tokens
from numpy_attention.ops.dropout import dropout, dropout_backward
from numpy_attention.ops.losses import cross_entropy, cross_entropy_backward

POOLINGS = ("mean", "class_token", "none")


@dataclass(frozen=True)
class SequenceClassifierConfig:
    """The sizes and variants of a sequence classifier.

    Raises: `ValueError` for sizes that do not fit together.
    """

    num_classes: int
    context_length: int  # the longest sequence
    d_model: int
    num_heads: int
    vocab_size: int | None = None  # tokens are ids below vocab_size,
    d_input: int | None = None  # or vectors of d_input numbers: rows of an image, say
    num_layers: int = 1
    d_ff: int | None = None  # None: 4 d_model
    positions: str = "sinusoidal"  # or "learned"
    pooling: str = "mean"  # or "class_token"; "none" labels every token
    pad_token: int | None = None  # this id is padding; None: there is none, or `lengths` tells
    pre_norm: bool = False
    norm: str = "layer_norm"  # or "rms_norm"
    activation: str = "relu"
    bias: bool = True
    dropout: float = 0.0

    def __post_init__(self) -> None:
        if (self.vocab_size is None) == (self.d_input is None):
            raise ValueError(
                "SequenceClassifierConfig: either vocab_size (tokens are ids) or d_input (tokens are vectors) must be "
                f"given, got {self.vocab_size} and {self.d_input}"
            )
        if self.pooling not in POOLINGS:
            raise ValueError(
                f"SequenceClassifierConfig: pooling must be one of {', '.join(POOLINGS)}, got {self.pooling!r}"
            )
        for name in ("num_classes", "context_length", "d_model", "num_heads", "num_layers"):
            if getattr(self, name) < 1:
                raise ValueError(f"SequenceClassifierConfig: {name} must be at least 1, got {getattr(self, name)}")


class SequenceClassifierCache(NamedTuple):
    """What backward needs of a forward; `blocks[i].attention.attention.weights` are the weights of block i."""

    token: Any
    position: Any
    dropout: Any
    blocks: tuple[EncoderBlockCache, ...]
    norm: Any
    share: np.ndarray | None  # (B, T), what each token gives to the mean
    head: Any


class SequenceClassifierLossCache(NamedTuple):
    """What backward needs of a loss."""

    forward: SequenceClassifierCache
    cross_entropy: Any


class SequenceClassifier(Model):
    """logits = pool(blocks(token_embedding[ids] + positions)) w + b.

    Shapes: ids (B, T), or x (B, T, d_input) -> logits (B, num_classes); (B, T, num_classes) without pooling.
    Units: the loss is in nats, the mean over the targets that are not -100.
    Raises: `ValueError` for ids of another shape, outside the vocabulary, or longer than the context.
    """

    config_class = SequenceClassifierConfig

    def __init__(
        self, config: SequenceClassifierConfig, rng: np.random.Generator | None, dtype: Any = np.float32
    ) -> None:
        c = self.config = config
        self.token_embedding: Embedding | Linear
        if c.vocab_size is not None:
            self.token_embedding = Embedding(c.vocab_size, c.d_model, rng, dtype=dtype)
        else:
            self.token_embedding = Linear(c.d_input or 1, c.d_model, rng, dtype=dtype)
        has_class_token = c.pooling == "class_token"
        self.class_token = normal(rng, (c.d_model,), 0.02, dtype) if has_class_token else None
        length = c.context_length + has_class_token
        self.position_embedding = PositionEmbedding(c.positions, length, c.d_model, rng, dtype)
        self.blocks = [
            EncoderBlock(
                c.d_model, c.num_heads, c.d_ff or 4 * c.d_model, rng, pre_norm=c.pre_norm, norm=c.norm,
                activation=c.activation, bias=c.bias, dropout=c.dropout, dtype=dtype,
            )
            for _ in range(c.num_layers)
        ]  # fmt: skip
        self.norm = norm_layer(c.norm, c.d_model, dtype=dtype) if c.pre_norm else None
        self.head = Linear(c.d_model, c.num_classes, rng, dtype=dtype)

    def forward(
        self,
        ids: np.ndarray,
        lengths: np.ndarray | None = None,
        training: bool = False,
        rng: np.random.Generator | None = None,
    ) -> tuple[np.ndarray, SequenceClassifierCache]:
        """The logits; padding is what comes after the `lengths` (B,), or the ids that are the pad_token."""
        check_batch("SequenceClassifier", "ids", ids, self.config.context_length, d_input=self.config.d_input)
        if self.config.d_input is not None:
            ids = np.asarray(ids, like=self.head.w)  # vectors; ids are moved by the embedding, which checks them first
        x, token = self.token_embedding.forward(ids)  # (B, T, d_model)
        visible = visible_tokens(ids, lengths, self.config.pad_token, like=x)  # (B, T), or None: all are
        if self.class_token is not None:
            first = np.broadcast_to(self.class_token, (len(x), 1, x.shape[-1]))
            x = np.concatenate([first, x], axis=1)  # (B, 1 + T, d_model)
            if visible is not None:
                visible = np.concatenate([np.ones_like(visible[:, :1]), visible], axis=1)
        x, position = self.position_embedding.forward(x)
        x, dropped = dropout(x, self.config.dropout if training else 0.0, rng)
        mask = None if visible is None else visible[:, None, None, :]  # (B, 1, 1, T)
        blocks = []
        for block in self.blocks:
            x, cache = block.forward(x, mask=mask, training=training, rng=rng)
            blocks.append(cache)
        norm = share = None
        if self.norm is not None:
            x, norm = self.norm.forward(x)
        if self.config.pooling == "mean":
            share = _share(x, visible)  # (B, T)
            x = (share[:, None, :] @ x)[:, 0]  # (B, d_model)
        elif self.class_token is not None:
            share = np.zeros_like(x[..., 0])
            share[:, 0] = 1.0  # the class token alone
            x = x[:, 0]  # (B, d_model)
        logits, head = self.head.forward(x)
        return logits, SequenceClassifierCache(token, position, dropped, tuple(blocks), norm, share, head)

    def backward_from_logits(
        self, dlogits: np.ndarray, cache: SequenceClassifierCache, receive: Receive | None = None
    ) -> Parameters:
        """The gradients of all parameters, given that of the logits; `receive` gets them one by one."""
        grads: Parameters = {}
        receive = grads.update if receive is None else receive
        dx, head_grads = self.head.backward(dlogits, cache.head)
        receive(prefixed("head", head_grads))
        if cache.share is not None:
            # x = share @ x
            dx = cache.share[:, :, None] * dx[:, None, :]  # (B, T, d_model)
        if self.norm is not None:
            dx, norm_grads = self.norm.backward(dx, cache.norm)
            receive(prefixed("norm", norm_grads))
        for i in reversed(range(len(self.blocks))):
            dx, block_grads = self.blocks[i].backward(dx, cache.blocks[i])
            receive(prefixed(f"blocks.{i}", block_grads))
        dx = dropout_backward(dx, cache.dropout)
        # x = x + positions
        dx, position_grads = self.position_embedding.backward(dx, cache.position)
        if self.class_token is not None:
            # x = concatenate([class_token, x])
            receive({"class_token": dx[:, 0].sum(axis=0)})
            dx = dx[:, 1:]
        _, token_grads = self.token_embedding.backward(dx, cache.token)
        receive(prefixed("token_embedding", token_grads) | prefixed("position_embedding", position_grads))
        return in_order_of(self, grads)

    def loss(
        self,
        ids: np.ndarray,
        targets: np.ndarray,
        lengths: np.ndarray | None = None,
        training: bool = False,
        rng: np.random.Generator | None = None,
    ) -> tuple[np.ndarray, SequenceClassifierLossCache]:
        """The mean of -log p(target) in nats; targets (B,), or (B, T) without pooling."""
        logits, forward = self.forward(ids, lengths, training=training, rng=rng)
        loss, cache = cross_entropy(logits, targets)
        return loss, SequenceClassifierLossCache(forward, cache)

    def backward(
        self, cache: SequenceClassifierLossCache, dloss: float = 1.0, receive: Receive | None = None
    ) -> Parameters:
        """The gradients of dloss * loss, named like the parameters; handed to `receive` if one is given."""
        # loss = cross_entropy(logits, targets)
        dlogits = cross_entropy_backward(dloss, cache.cross_entropy)
        return self.backward_from_logits(dlogits, cache.forward, receive)

    def predict(self, ids: np.ndarray, lengths: np.ndarray | None = None) -> np.ndarray:
        """The likeliest class of each sequence (B,), or of each token (B, T) without pooling."""
        logits, _ = self.forward(ids, lengths)
        return np.asarray(np.argmax(logits, axis=-1), like=logits)

    def attention_weights(self, ids: np.ndarray, lengths: np.ndarray | None = None) -> Parameters:
        """The weights (B, H, T, T) of every layer by its name, `blocks.0.attention` and so on."""
        _, cache = self.forward(ids, lengths)
        return {f"blocks.{i}.attention": block.attention.attention.weights for i, block in enumerate(cache.blocks)}


def _share(x: np.ndarray, visible: np.ndarray | None) -> np.ndarray:
    """What each token gives to the mean: 1/n for n visible tokens; nothing anywhere if there is none."""
    if visible is None:
        return np.full_like(x[..., 0], 1.0 / x.shape[1])
    share = np.zeros_like(x[..., 0])  # (B, T)
    share += visible
    share /= np.maximum(visible.sum(axis=1, keepdims=True), 1).astype(x.dtype)
    return share
