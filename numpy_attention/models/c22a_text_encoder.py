"""Chapter 22, continued. A text encoder: sentences as vectors of length 1

    ids --> token + position + type --> norm --> stack (Chapter 21) --> mean of real tokens --> length 1
    (B, T)  (B, T, d_model)                      post-norm blocks       (B, d_model)            (B, d_model)

Some encoders take the vector of the first token, [CLS], in place of the mean. Texts of similar meaning should have
similar directions. The cosine of the angle between two texts is y_1 . y_2, since both vectors have length 1. Let u be
the mean and n its length. In the gradient of y = u / n the part along y is zero, because a longer u gives the same y:

    du = (dy - y (y . dy)) / n

Training needs only pairs of texts that belong together. Every text a_i of a batch should be closer to its partner b_i
than to the partners of the other texts. This is a classification with the cosines as scores; the partners of the
other texts are the wrong answers:

    loss = cross_entropy(logits, targets = 0, 1, ..., B - 1)        logits_ij = a_i . b_j / temperature
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from numpy_attention.errors import require_cotangent, shape_error
from numpy_attention.layers.c13_layer import Parameters, flat_gradients
from numpy_attention.layers.c15_embedding import Embedding
from numpy_attention.layers.c15a_position_embedding import KINDS, PositionCache, PositionEmbedding
from numpy_attention.layers.c16_normalization import norm_layer
from numpy_attention.layers.c20_block import EncoderBlock
from numpy_attention.models.c21_stack import StackCache, make_blocks, run_stack, run_stack_backward
from numpy_attention.models.c21a_config import ModelConfig
from numpy_attention.models.c21c_model import LossCache, Model
from numpy_attention.models.c21e_weights import attention_weights
from numpy_attention.models.c22b_padding import first_weights, mean_weights, visible_tokens
from numpy_attention.ops.c01a_sums import dot_in_rows
from numpy_attention.ops.c02_embedding import EmbeddingCache
from numpy_attention.ops.c09_normalization import NormCache
from numpy_attention.ops.c11_losses import cross_entropy, cross_entropy_backward
from numpy_attention.ops.c12a_tiles import Band

POOLINGS = {"mean": mean_weights, "first_token": first_weights}


@dataclass(frozen=True)
class TextEncoderConfig(ModelConfig):
    """The sizes and variants of a text encoder; the defaults are BERT's.

    Raises: ValueError for sizes that do not fit together.
    """

    vocab_size: int
    context_length: int  # the longest text
    d_model: int
    num_heads: int
    num_layers: int
    d_ff: int | None = None  # None: 4 d_model
    num_types: int = 2  # of segments, for example a question and its answer
    positions: str = "learned"  # or "sinusoidal"
    pad_token: int | None = None  # the id of padding; None: no padding, or `lengths` are given
    pre_norm: bool = False
    norm: str = "layer_norm"  # or "rms_norm"
    activation: str = "gelu_exact"
    bias: bool = True
    dropout: float = 0.0
    norm_eps: float | None = None  # None: 1e-5 for layer_norm, 1e-6 for rms_norm
    temperature: float = 0.05  # of the loss
    pooling: str = "mean"  # of the real tokens; or "first_token"
    attention: str = "auto"  # or "dense" (all weights at once), "tiled" (for long texts); auto: the faster one

    def __post_init__(self) -> None:
        self.check(positions=KINDS, pooling=POOLINGS)
        self.require("temperature", at_least=1e-6)  # a smaller temperature overflows
        self.require("norm_eps", above=0, below=1)


class TextEncoderCache(NamedTuple):
    """What backward needs from a forward."""

    token: EmbeddingCache
    type: EmbeddingCache
    position: PositionCache
    norm: NormCache
    stack: StackCache
    hidden: np.ndarray  # (B, T, d_model), a vector for each token; backward does not need it
    pool_weights: np.ndarray  # (B, T), of each token in the mean
    n: np.ndarray  # (B, 1), the lengths of the means
    y: np.ndarray  # (B, d_model)


class TextEncoder(Model):
    """Read a text; return a vector of length 1.

    Formula: y = u / |u|, u = mean over the real tokens of stack(norm(token_embedding[ids] + position + type))

    Shapes: ids (B, T) -> y (B, d_model). The hidden states, one vector for each token, are `cache.hidden`
    (B, T, d_model); `inside.forward_with` gives those between the blocks.

    Units: y is a direction; the loss is in nats, the mean over the pairs of a batch.

    Raises: ValueError for ids of another shape, outside the vocabulary, or longer than the context.

    Source: Devlin et al., BERT (2019), section 3; the mean: Reimers, Gurevych, Sentence-BERT (2019), section 3; the
    loss: Henderson et al., Efficient Natural Language Response Suggestion for Smart Reply (2017), section 4.4.
    """

    config_class = TextEncoderConfig

    def __init__(self, config: TextEncoderConfig, rng: np.random.Generator | None, dtype: Any = np.float32) -> None:
        c = self.config = self.require_config(config)
        self.dropout = c.dropout
        self.token_embedding = Embedding(c.vocab_size, c.d_model, rng, dtype=dtype)
        self.position_embedding = PositionEmbedding(c.positions, c.context_length, c.d_model, rng, dtype)
        self.type_embedding = Embedding(c.num_types, c.d_model, rng, dtype=dtype)
        self.embedding_norm = norm_layer(c.norm, c.d_model, c.norm_eps, dtype)
        self.blocks = make_blocks(EncoderBlock, c, c.num_layers, rng, dtype, norm_eps=c.norm_eps)
        self.norm = norm_layer(c.norm, c.d_model, c.norm_eps, dtype) if c.pre_norm else None

    def forward(
        self, ids: np.ndarray, lengths: np.ndarray | None = None, types: np.ndarray | None = None,
        rng: np.random.Generator | None = None,
    ) -> tuple[np.ndarray, TextEncoderCache]:
        """The directions. Padding: the tokens after the lengths (B,); without lengths, all tokens equal to pad_token.

        Raises: ValueError for ids of another shape or outside the vocabulary, or types of another shape.
        """
        self.require_batch("ids", ids)
        if types is not None and np.shape(types) != ids.shape:
            raise shape_error("TextEncoder", "types", f"(B, T) = {ids.shape}, a segment for each id", np.shape(types))
        x, token = self.token_embedding.forward(ids)  # (B, T, d_model)
        segment, type_cache = self.type_embedding.forward(np.zeros_like(ids) if types is None else types)
        x, position = self.position_embedding.forward(x + segment)
        x, norm = self.embedding_norm.forward(x)
        visible = visible_tokens(ids, lengths, self.config.pad_token, like=x)  # (B, T), or None: all tokens
        mask = None if visible is None else visible[:, None, None, :]  # (B, 1, 1, T)
        band = Band() if self.config.in_tiles(x, x.shape[1]) else None
        x, stack = run_stack(self, x, rng=rng, recompute=self.recompute, mask=mask, band=band)
        pool_weights = POOLINGS[self.config.pooling](x, visible)  # (B, T)
        u = (pool_weights[:, None, :] @ x)[:, 0]  # (B, d_model)
        n = np.sqrt(dot_in_rows(u, u))  # (B, 1)
        n += n == 0.0  # a text without real tokens keeps y = 0
        y = u / n
        return y, TextEncoderCache(token, type_cache, position, norm, stack, x, pool_weights, n, y)

    def gradients_from_logits(self, cache: TextEncoderCache, dlogits: np.ndarray) -> Parameters:
        """All gradients, named and ordered like the parameters, given the gradient of the directions."""
        require_cotangent("TextEncoder", "dlogits", dlogits, cache.y.shape, cache.y.dtype)
        # y = u / n
        along = dot_in_rows(cache.y, dlogits)  # (B, 1)
        du = (dlogits - cache.y * along) / cache.n  # (B, d_model)
        # u = pool_weights @ x
        dx = cache.pool_weights[:, :, None] * du[:, None, :]  # (B, T, d_model)
        # x = stack(x)
        dx, _, blocks = run_stack_backward(self, dx, cache.stack)
        grads: dict[str, Any] = {}
        # x = norm(x)
        dx, grads["embedding_norm"] = self.embedding_norm.backward(dx, cache.norm)
        # x = token + type + position
        dx, grads["position_embedding"] = self.position_embedding.backward(dx, cache.position)
        _, grads["type_embedding"] = self.type_embedding.backward(dx, cache.type)
        if not self.token_embedding.frozen:  # frozen: skip a gradient as large as the table
            _, grads["token_embedding"] = self.token_embedding.backward(dx, cache.token)
        return self.ordered(flat_gradients(grads) | blocks)

    def loss(
        self, ids: np.ndarray, targets: np.ndarray, training: bool = False, rng: np.random.Generator | None = None
    ) -> tuple[np.ndarray, LossCache]:
        """The mean of -log p(partner of each text) in nats. Rows i of ids (B, T) and of targets (B, T_2) are a pair.

        Raises: ValueError if the number of targets is not the number of texts.
        """
        rng = rng if training else None
        a, cache_a = self.forward(ids, rng=rng)  # (B, d_model)
        b, cache_b = self.forward(targets, rng=rng)  # (B, d_model)
        if len(b) != len(a):
            raise shape_error("TextEncoder", "targets", f"(B, T_2) with B = {len(a)} as in ids", targets.shape)
        logits = (a @ b.T) / self.config.temperature  # (B, B)
        loss, cache = cross_entropy(logits, np.arange(len(a), like=a))
        return loss, LossCache((cache_a, cache_b), cache)

    def backward(self, cache: LossCache, dloss: float = 1.0) -> Parameters:
        """All gradients of dloss * loss, named and ordered like the parameters."""
        of_a, of_b = cache.forward
        # loss = cross_entropy(logits, targets)
        dlogits = cross_entropy_backward(dloss, cache.cross_entropy) / self.config.temperature  # (B, B)
        # logits = a @ b.T / temperature
        from_a = self.gradients_from_logits(of_a, dlogits @ of_b.y)
        from_b = self.gradients_from_logits(of_b, dlogits.T @ of_a.y)
        return {name: gradient + from_b[name] for name, gradient in from_a.items()}  # each parameter was used twice

    def attention_weights(
        self, ids: np.ndarray, lengths: np.ndarray | None = None, layers: Collection[str] | None = None
    ) -> Parameters:
        """The weights (B, H, T, T) of the layers in `layers`, or of all, by name: `blocks.0.attention` and so on."""
        _, cache = self.forward(ids, lengths)
        return attention_weights({"": cache.stack}, layers)
