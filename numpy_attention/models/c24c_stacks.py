"""Chapter 24, appendix. A stack as a layer: the encoder and the decoder

    x --> + positions --> stack (Chapter 21) --> y
"""

from typing import Any, NamedTuple

import numpy as np

from numpy_attention.layers.c13_layer import Layer, prefixed
from numpy_attention.layers.c15a_position_embedding import PositionCache, PositionEmbedding
from numpy_attention.layers.c16_normalization import norm_layer
from numpy_attention.layers.c17a_kv_cache import stored_length
from numpy_attention.layers.c20_block import DecoderBlock, EncoderBlock
from numpy_attention.models.c21_stack import Past, StackCache, make_blocks, run_stack, run_stack_backward
from numpy_attention.models.c21a_config import ModelConfig


class PlacedStackCache(NamedTuple):
    """What backward needs from a stack with its own positions."""

    position: PositionCache
    stack: StackCache


class Stack(Layer):
    """A stack as a layer: the encoder of Chapter 24, or with `cross_attention` the decoder.

    Shapes: x (B, T, d_model), context (B, T_k, d_model) -> y (B, T, d_model).
    """

    def __init__(
        self, config: ModelConfig, num_layers: int, rng: np.random.Generator | None, cross_attention: bool = False,
        dtype: Any = np.float32,
    ) -> None:
        c = config
        self.dropout = c.dropout
        self.position_embedding = PositionEmbedding(c.positions, c.context_length, c.d_model, rng, dtype)
        kind = DecoderBlock if cross_attention else EncoderBlock
        self.blocks = make_blocks(kind, c, num_layers, rng, dtype, cross_attention=cross_attention)
        self.norm = norm_layer(c.norm, c.d_model, dtype=dtype) if c.pre_norm else None

    def forward(
        self, x: np.ndarray, context: np.ndarray | None = None, past: Past | None = None, **inputs: Any
    ) -> tuple[np.ndarray, PlacedStackCache]:
        """The inputs are those of `run_stack` and of its blocks: mask, context_mask, band, rng, recompute."""
        positions = None  # from 0
        if past is not None:
            T_past = stored_length("stack", past, len(self.blocks))
            positions = np.arange(T_past, T_past + x.shape[1], like=x)  # (T,)
        x, position = self.position_embedding.forward(x, positions)
        x, stack = run_stack(self, x, past, context=context, **inputs)
        return x, PlacedStackCache(position, stack)

    def backward(self, dy: np.ndarray, cache: PlacedStackCache) -> tuple[Any, ...]:
        """Return dx and grads; in a decoder dx, dcontext and grads."""
        position, stack = cache
        dx, dcontext, grads = run_stack_backward(self, dy, stack)
        # x = x + positions
        dx, of_position = self.position_embedding.backward(dx, position)
        grads |= prefixed("position_embedding", of_position)
        return (dx, grads) if dcontext is None else (dx, dcontext, grads)
