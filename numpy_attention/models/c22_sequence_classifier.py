"""Chapter 22. A sequence classifier: one answer for a whole sequence

    ids --> token_embedding --> stack (Chapter 21) --> x --> pool --> pooled --> @ w + b --> logits --> loss
    (B, T)                      every token sees     (B, T, d_model)  (B, d_model)           (B, num_classes)
                                every other

Pooling makes one vector from T vectors. The masked mean gives each of the n real tokens the weight 1/n and padding the
weight 0:

    pooled = weights @ x        dx_t = weights_t dpooled

Each token receives its part of the gradient, and padding receives no gradient. A class token is a learned vector in
front of the sequence; attention collects information from all tokens in this vector. The output of the stack for the
class token is the pooled vector (weight 1). Without pooling the model labels every token.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from numpy_attention.layers.c13_layer import Parameters, flat_gradients, normal
from numpy_attention.layers.c14_linear import Linear
from numpy_attention.layers.c15_embedding import Embedding
from numpy_attention.layers.c15a_position_embedding import KINDS, PositionCache, PositionEmbedding
from numpy_attention.layers.c16_normalization import norm_layer
from numpy_attention.layers.c20_block import EncoderBlock
from numpy_attention.models.c21_stack import StackCache, make_blocks, run_stack, run_stack_backward
from numpy_attention.models.c21a_config import ModelConfig
from numpy_attention.models.c21c_model import LossCache, Model
from numpy_attention.models.c21e_weights import attention_weights
from numpy_attention.models.c22b_padding import first_weights, mean_weights, visible_tokens
from numpy_attention.ops.c01_linear import LinearCache
from numpy_attention.ops.c11_losses import cross_entropy
from numpy_attention.ops.c12a_tiles import Band

POOLINGS = ("mean", "class_token", "none")


@dataclass(frozen=True)
class SequenceClassifierConfig(ModelConfig):
    """The sizes and variants of a sequence classifier.

    Raises: ValueError for sizes that do not fit together.
    """

    num_classes: int
    context_length: int  # the longest sequence
    d_model: int
    num_heads: int
    vocab_size: int | None = None  # tokens are ids below vocab_size,
    d_input: int | None = None  # or vectors of d_input numbers, for example rows of an image
    num_layers: int = 1
    d_ff: int | None = None  # None: 4 d_model
    positions: str = "sinusoidal"  # or "learned"
    pooling: str = "mean"  # or "class_token"; "none" labels every token
    pad_token: int | None = None  # the id of padding; None: no padding, or `lengths` are given
    pre_norm: bool = False
    norm: str = "layer_norm"  # or "rms_norm"
    activation: str = "relu"
    bias: bool = True
    dropout: float = 0.0
    attention: str = "auto"  # or "dense" (all weights at once), "tiled" (for long texts); auto: the faster one

    def __post_init__(self) -> None:
        if (self.vocab_size is None) == (self.d_input is None):
            tokens = "either vocab_size (tokens are ids) or d_input (tokens are vectors)"
            raise self.wrong(tokens, "given", f"{self.vocab_size} and {self.d_input}")
        self.check(positions=KINDS, pooling=POOLINGS)


class SequenceClassifierCache(NamedTuple):
    """What backward needs from a forward."""

    token: Any  # an EmbeddingCache, or a LinearCache if tokens are vectors
    position: PositionCache
    stack: StackCache
    pool_weights: np.ndarray | None  # (B, T), of each token in the pooled vector; (B, 1 + T) with a class token
    head: LinearCache


class SequenceClassifier(Model):
    """Read a sequence; return a score for every class.

    Formula: logits = pool(stack(token_embedding[ids])) w + b

    Shapes: ids (B, T), or x (B, T, d_input) -> logits (B, num_classes); (B, T, num_classes) without pooling.

    Units: the loss is in nats, the mean over the targets that are not -100.

    Raises: ValueError for ids of another shape, outside the vocabulary, or longer than the context.

    Source: Vaswani et al., Attention Is All You Need (2017), section 3.1; class token: Devlin et al., BERT (2019),
    section 3.
    """

    config_class = SequenceClassifierConfig

    def __init__(
        self, config: SequenceClassifierConfig, rng: np.random.Generator | None, dtype: Any = np.float32
    ) -> None:
        c = self.config = self.require_config(config)
        self.dropout = c.dropout
        self.token_embedding: Embedding | Linear
        if c.vocab_size is not None:
            self.token_embedding = Embedding(c.vocab_size, c.d_model, rng, dtype=dtype)
        else:
            self.token_embedding = Linear(c.d_input or 1, c.d_model, rng, dtype=dtype)
        has_class_token = c.pooling == "class_token"
        self.class_token = normal(rng, (c.d_model,), 0.02, dtype) if has_class_token else None
        length = c.context_length + has_class_token
        self.position_embedding = PositionEmbedding(c.positions, length, c.d_model, rng, dtype)
        self.blocks = make_blocks(EncoderBlock, c, c.num_layers, rng, dtype)
        self.norm = norm_layer(c.norm, c.d_model, dtype=dtype) if c.pre_norm else None
        self.head = Linear(c.d_model, c.num_classes, rng, dtype=dtype)

    def forward(
        self, ids: np.ndarray, lengths: np.ndarray | None = None, rng: np.random.Generator | None = None
    ) -> tuple[np.ndarray, SequenceClassifierCache]:
        """The logits. Padding: the tokens after the `lengths` (B,); without lengths, all tokens equal to pad_token."""
        self.require_batch("ids", ids, d_input=self.config.d_input)
        if self.config.d_input is not None:
            ids = np.asarray(ids, like=self.head.w)  # vectors, to the device; an Embedding moves ids after its checks
        x, token = self.token_embedding.forward(ids)  # (B, T, d_model)
        visible = visible_tokens(ids, lengths, self.config.pad_token, like=x)  # (B, T), or None: all tokens
        if self.class_token is not None:
            first = np.broadcast_to(self.class_token, (len(x), 1, x.shape[-1]))
            x = np.concatenate([first, x], axis=1)  # (B, 1 + T, d_model)
            if visible is not None:
                visible = np.concatenate([np.ones_like(visible[:, :1]), visible], axis=1)
        mask = None if visible is None else visible[:, None, None, :]  # (B, 1, 1, T)
        band = Band() if self.config.in_tiles(x, x.shape[1]) else None
        x, position = self.position_embedding.forward(x)
        x, stack = run_stack(self, x, rng=rng, recompute=self.recompute, mask=mask, band=band)
        pool_weights = None
        if self.config.pooling == "mean":
            pool_weights = mean_weights(x, visible)  # (B, T)
            x = (pool_weights[:, None, :] @ x)[:, 0]  # (B, d_model)
        elif self.config.pooling == "class_token":
            pool_weights = first_weights(x, visible)  # (B, 1 + T)
            x = x[:, 0]  # (B, d_model)
        logits, head = self.head.forward(x)
        return logits, SequenceClassifierCache(token, position, stack, pool_weights, head)

    def gradients_from_logits(self, cache: SequenceClassifierCache, dlogits: np.ndarray) -> Parameters:
        grads: dict[str, Any] = {}
        # logits = head(x)
        dx, grads["head"] = self.head.backward(dlogits, cache.head)
        if cache.pool_weights is not None:
            # x = pool_weights @ x
            dx = cache.pool_weights[:, :, None] * dx[:, None, :]  # (B, T, d_model)
        # x = stack(x)
        dx, _, blocks = run_stack_backward(self, dx, cache.stack)
        # x = x + positions
        dx, grads["position_embedding"] = self.position_embedding.backward(dx, cache.position)
        if self.class_token is not None:
            # x = concatenate([class_token, x])
            grads["class_token"] = dx[:, 0].sum(axis=0)
            dx = dx[:, 1:]
        # x = token_embedding[ids]
        _, grads["token_embedding"] = self.token_embedding.backward(dx, cache.token)
        return self.ordered(flat_gradients(grads) | blocks)

    def loss(
        self, ids: np.ndarray, targets: np.ndarray, lengths: np.ndarray | None = None, training: bool = False,
        rng: np.random.Generator | None = None,
    ) -> tuple[np.ndarray, LossCache]:
        """The mean of -log p(target) in nats; targets (B,), or (B, T) without pooling."""
        logits, forward = self.forward(ids, lengths, rng if training else None)
        loss, cache = cross_entropy(logits, targets)
        return loss, LossCache(forward, cache)

    def predict(self, ids: np.ndarray, lengths: np.ndarray | None = None) -> np.ndarray:
        """The most likely class of each sequence (B,), or of each token (B, T) without pooling."""
        logits, _ = self.forward(ids, lengths)
        return np.asarray(np.argmax(logits, axis=-1), like=logits)

    def attention_weights(
        self, ids: np.ndarray, lengths: np.ndarray | None = None, layers: Collection[str] | None = None
    ) -> Parameters:
        """The weights (B, H, T, T) of the layers in `layers`, or of all, by name: `blocks.0.attention` and so on."""
        _, cache = self.forward(ids, lengths)
        return attention_weights({"": cache.stack}, layers)
