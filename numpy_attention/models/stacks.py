"""Chapter 24, appendix. The two halves of an encoder-decoder: positions, dropout, blocks, and in pre-LN a last norm"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from numpy_attention.layers.decoder_block import DecoderBlock, DecoderBlockCache
from numpy_attention.layers.encoder_block import EncoderBlock, EncoderBlockCache
from numpy_attention.layers.kv_cache import KeyValueCache
from numpy_attention.layers.layer import Layer, Parameters, prefixed
from numpy_attention.layers.normalization import norm_layer
from numpy_attention.layers.position_embedding import PositionEmbedding
from numpy_attention.models.seq2seq_config import Seq2SeqConfig
from numpy_attention.ops.dropout import dropout, dropout_backward

Past = list[tuple[KeyValueCache, KeyValueCache]]


class EncoderCache(NamedTuple):
    """What backward needs of an encoder."""

    position: Any
    dropout: Any
    blocks: tuple[EncoderBlockCache, ...]
    norm: Any


class Encoder(Layer):
    """y = norm(block_L(... block_1(x + positions))); the norm in pre-LN only.

    Shapes: x (B, T_s, d_model) -> y (B, T_s, d_model).
    """

    def __init__(self, config: Seq2SeqConfig, rng: np.random.Generator | None, dtype: Any = np.float32) -> None:
        c = config
        self.dropout = c.dropout
        self.position = PositionEmbedding(c.positions, c.context_length, c.d_model, rng, dtype)
        self.blocks = [EncoderBlock(**_block(c), rng=rng, dtype=dtype) for _ in range(c.num_layers)]
        self.norm = norm_layer(c.norm, c.d_model, dtype=dtype) if c.pre_norm else None

    def forward(
        self,
        x: np.ndarray,
        mask: np.ndarray | None = None,
        training: bool = False,
        rng: np.random.Generator | None = None,
    ) -> tuple[np.ndarray, EncoderCache]:
        x, position = self.position.forward(x)
        x, dropped = dropout(x, self.dropout if training else 0.0, rng)
        blocks = []
        for block in self.blocks:
            x, cache = block.forward(x, mask=mask, training=training, rng=rng)
            blocks.append(cache)
        norm = None
        if self.norm is not None:
            x, norm = self.norm.forward(x)
        return x, EncoderCache(position, dropped, tuple(blocks), norm)

    def backward(self, dy: np.ndarray, cache: EncoderCache) -> tuple[np.ndarray, Parameters]:
        grads: Parameters = {}
        dx = dy
        if self.norm is not None:
            dx, norm_grads = self.norm.backward(dx, cache.norm)
            grads |= prefixed("norm", norm_grads)
        for i in reversed(range(len(self.blocks))):
            dx, block_grads = self.blocks[i].backward(dx, cache.blocks[i])
            grads |= prefixed(f"blocks.{i}", block_grads)
        dx = dropout_backward(dx, cache.dropout)
        dx, position_grads = self.position.backward(dx, cache.position)
        return dx, grads | prefixed("position", position_grads)


class DecoderCache(NamedTuple):
    """What backward needs of a decoder."""

    position: Any
    dropout: Any
    blocks: tuple[DecoderBlockCache, ...]
    norm: Any


class Decoder(Layer):
    """y = norm(block_L(... block_1(x + positions, context), context)); the norm in pre-LN only.

    Shapes: x (B, T, d_model), context (B, T_s, d_model) -> y (B, T, d_model).
    """

    def __init__(self, config: Seq2SeqConfig, rng: np.random.Generator | None, dtype: Any = np.float32) -> None:
        c = config
        num_layers = c.num_layers if c.num_decoder_layers is None else c.num_decoder_layers
        self.dropout = c.dropout
        self.position = PositionEmbedding(c.positions, c.context_length, c.d_model, rng, dtype)
        self.blocks = [DecoderBlock(**_block(c), cross_attention=True, rng=rng, dtype=dtype) for _ in range(num_layers)]
        self.norm = norm_layer(c.norm, c.d_model, dtype=dtype) if c.pre_norm else None

    def forward(
        self,
        x: np.ndarray,
        context: np.ndarray,
        mask: np.ndarray | None = None,
        context_mask: np.ndarray | None = None,
        past: Past | None = None,
        training: bool = False,
        rng: np.random.Generator | None = None,
    ) -> tuple[np.ndarray, DecoderCache]:
        T_past = 0 if past is None else past[0][0].length
        x, position = self.position.forward(x, np.arange(T_past, T_past + x.shape[1], like=x))
        x, dropped = dropout(x, self.dropout if training else 0.0, rng)
        blocks = []
        for i, block in enumerate(self.blocks):
            stored = None if past is None else past[i]
            x, cache = block.forward(
                x, context, mask=mask, context_mask=context_mask, past=stored, training=training, rng=rng
            )
            blocks.append(cache)
        norm = None
        if self.norm is not None:
            x, norm = self.norm.forward(x)
        return x, DecoderCache(position, dropped, tuple(blocks), norm)

    def backward(self, dy: np.ndarray, cache: DecoderCache) -> tuple[np.ndarray, np.ndarray, Parameters]:
        grads: Parameters = {}
        dx = dy
        if self.norm is not None:
            dx, norm_grads = self.norm.backward(dx, cache.norm)
            grads |= prefixed("norm", norm_grads)
        # every block read the same context, so the parts they send back add
        dcontext: Any = None
        for i in reversed(range(len(self.blocks))):
            dx, dcontext_i, block_grads = self.blocks[i].backward(dx, cache.blocks[i])
            dcontext = dcontext_i if dcontext is None else dcontext + dcontext_i
            grads |= prefixed(f"blocks.{i}", block_grads)
        dx = dropout_backward(dx, cache.dropout)
        dx, position_grads = self.position.backward(dx, cache.position)
        return dx, dcontext, grads | prefixed("position", position_grads)


def _block(c: Seq2SeqConfig) -> dict[str, Any]:
    return {
        "d_model": c.d_model, "num_heads": c.num_heads, "d_ff": c.d_ff or 4 * c.d_model, "pre_norm": c.pre_norm,
        "norm": c.norm, "activation": c.activation, "bias": c.bias, "dropout": c.dropout,
    }  # fmt: skip
