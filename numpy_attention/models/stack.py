"""Chapter 21. The stack: blocks upon blocks

    x --> + positions --> dropout --> block_1 --> block_2 --> ... --> block_L --> norm --> y
                                         ^           ^                   ^
    context (encoder-decoder only) ------+-----------+-------------------+

All models of this part are this stack with something below (an embedding) and something above (a head). The last norm
belongs to pre-norm, whose straight path has met none (Chapter 19); a GPT has it in post-norm too.

GPT and the classifier own the parts themselves, so that a name is `blocks.0.attention.w_q`; the encoder-decoder has
two stacks, and makes each a layer, `Stack`.

The backward runs from the last block to the first, and hands out gradients as it goes. It is a generator: the gradients
of a block are yielded, with their names, before the next block runs. Who adds up those of several shards (Chapter 31)
needs no second copy of them all. The gradient of x is what the generator returns:

    dx, dcontext = yield from stack_gradients(dy, cache, ...)

What the blocks keep for their backward is most of what training holds in memory. With `recompute` a forward keeps of
each block only what went into it, and the backward runs the block once more when its turn comes. One block at a time
has all it needs; a step takes a quarter to a third longer. Dropout must fall as it fell before, so a copy of the
generator is kept too, as it stood before the block. The gradients are the same to the last bit.

Every block reads the same context, so what the blocks send back to it adds up:

    dcontext = dcontext_1 + ... + dcontext_L
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Generator, Sequence
from typing import Any, NamedTuple

import numpy as np

from numpy_attention.errors import require_float, value_error
from numpy_attention.layers.block import Block, BlockCache, DecoderBlock, EncoderBlock
from numpy_attention.layers.kv_cache import KeyValueCache
from numpy_attention.layers.layer import Layer, Parameters, prefixed
from numpy_attention.layers.normalization import Norm, norm_layer
from numpy_attention.layers.position_embedding import PositionCache, PositionEmbedding
from numpy_attention.models.config import ModelConfig
from numpy_attention.ops.dropout import DropoutCache, dropout, dropout_backward
from numpy_attention.ops.normalization import NormCache
from numpy_attention.ops.tiles import Band

Past = Sequence[tuple[KeyValueCache, KeyValueCache | None]]  # for each block: of its self- and its cross-attention
Stream = Generator[tuple[str, np.ndarray], None, Any]  # yields gradients by name


class Parts(NamedTuple):
    """What a stack is made of."""

    position: PositionEmbedding | None
    blocks: list[Block]
    norm: Norm | None
    dropout: float  # of what goes into the first block
    position_name: str = "position_embedding"  # in the names of the gradients


class BlockInputs(NamedTuple):
    """What every block of a stack is given besides x, by the names of `Block.forward`."""

    context: np.ndarray | None = None  # (B, T_k, d_model)
    mask: np.ndarray | None = None
    context_mask: np.ndarray | None = None
    scores_bias: np.ndarray | None = None
    positions: np.ndarray | None = None  # the default counts from 0, or goes on after the stored keys
    band: Band | None = None  # with one the blocks attend in tiles (Chapter 12), and the masks hide padding alone


class KeptInput(NamedTuple):
    """What is kept of a block that will run again."""

    block: Block
    x: np.ndarray  # (B, T, d_model)
    inputs: BlockInputs
    rng: np.random.Generator | None  # a copy, as it stood before the block

    def cache(self) -> BlockCache:
        """Run the block again; the generator is copied once more, for this may not be the last time."""
        _, cache = self.block.forward(self.x, **self.inputs._asdict(), rng=copy.deepcopy(self.rng))
        return cache


class StackCache(NamedTuple):
    """What backward needs; `cache_of(blocks[i]).attention.weights()` are the weights of block i."""

    position: PositionCache | None
    dropout: DropoutCache | None  # None without a generator
    blocks: list[BlockCache | KeptInput]
    norm: NormCache | None


def cache_of(kept: BlockCache | KeptInput) -> BlockCache:
    """The cache of a block, made again where only the input was kept."""
    return kept.cache() if isinstance(kept, KeptInput) else kept


def run_stack(
    x: np.ndarray,
    parts: Parts,
    inputs: BlockInputs,
    *,
    past: Past | None = None,
    last_only: bool = False,
    rng: np.random.Generator | None = None,
    recompute: bool = False,
) -> tuple[np.ndarray, StackCache]:
    """Positions, dropout, blocks and the last norm; with `past` x holds the new tokens alone (no backward).

    Shapes: x (B, T, d_model) -> y (B, T, d_model), or (B, 1, d_model) with `last_only`.

    Source: `recompute`: Chen et al., Training Deep Nets with Sublinear Memory Cost (2016), section 4.
    """
    require_float("stack", x=x)
    if inputs.positions is None:
        T_past = 0 if past is None else past[0][0].length
        inputs = inputs._replace(positions=np.arange(T_past, T_past + x.shape[1], like=x))  # (T,)
    position_cache = dropout_cache = norm_cache = None
    if parts.position is not None:
        x, position_cache = parts.position.forward(x, inputs.positions)
    if rng is not None:  # in training
        x, dropout_cache = dropout(x, parts.dropout, rng)
    caches: list[BlockCache | KeptInput] = []
    for i, block in enumerate(parts.blocks):
        stored = None if past is None else past[i]
        before = KeptInput(block, x, inputs, copy.deepcopy(rng)) if recompute else None
        x, cache = block.forward(x, **inputs._asdict(), past=stored, rng=rng)
        if past is None:  # with stored keys there is no backward, and what it would need fills memory
            caches.append(cache if before is None else before)
        del cache  # else it would be held while the next block runs
    if last_only:  # the norm and the head of the other rows would serve nobody
        x = x[:, -1:]  # (B, 1, d_model)
    if parts.norm is not None:
        x, norm_cache = parts.norm.forward(x)
    return x, StackCache(position_cache, dropout_cache, caches, norm_cache)


def stack_gradients(dy: np.ndarray, cache: StackCache, parts: Parts, prefix: str = "") -> Stream:
    """Yield the gradients of `run_stack`, the last block's first; return dx and dcontext (None without a context).

    Raises: ValueError for the cache of a forward that stored keys and values.
    """
    position, blocks, norm, *_ = parts
    if len(cache.blocks) != len(blocks):
        raise ValueError("stack_gradients: no backward leads through stored keys; leave `past` out of the forward")
    dx, dcontext = dy, None
    if norm is not None and cache.norm is not None:
        # x = norm(x)
        dx, grads = norm.backward(dx, cache.norm)
        yield from prefixed(f"{prefix}norm", grads).items()
    for i in reversed(range(len(blocks))):
        # x = block(x, context)
        dx, *sent_back, grads = blocks[i].backward(dx, cache_of(cache.blocks[i]))
        yield from prefixed(f"{prefix}blocks.{i}", grads).items()
        del grads  # else they would be held while the next block runs
        for dcontext_i in sent_back:
            dcontext = dcontext_i if dcontext is None else dcontext + dcontext_i
    if cache.dropout is not None:
        # x = dropout(x)
        dx = dropout_backward(dx, cache.dropout)
    if position is not None and cache.position is not None:
        # x = x + positions
        dx, grads = position.backward(dx, cache.position)
        yield from prefixed(prefix + parts.position_name, grads).items()
    return dx, dcontext


def attention_weights(caches: dict[str, StackCache], layers: Collection[str] | None = None) -> Parameters:
    """The weights (B, H, T_q, T_k) of the attentions of stacks by name, `blocks.0.attention` and so on.

    `caches` holds each stack's by what its names begin with; `layers` are the names that are wanted, None for all.
    Those of long texts are made again for it, T x T numbers for each head: ask for one layer at a time.

    Raises: ValueError for a name that no layer has.
    """
    wanted = [layers] if isinstance(layers, str) else layers
    found: dict[str, np.ndarray | None] = {}
    for prefix, cache in caches.items():
        for i, block in enumerate(map(cache_of, cache.blocks)):
            for part, attention in (("attention", block.attention), ("cross_attention", block.cross_attention)):
                name = f"{prefix}blocks.{i}.{part}"
                if attention is not None:
                    found[name] = attention.weights() if wanted is None or name in wanted else None
    for name in wanted or ():
        if name not in found:
            raise value_error("attention_weights", "layers", f"of {', '.join(found)}", repr(name))
    return {name: weights for name, weights in found.items() if weights is not None}


def make_blocks(
    kind: type[Block], c: ModelConfig, num_layers: int, rng: np.random.Generator | None, dtype: Any, **options: Any
) -> list[Block]:
    """The blocks that a configuration describes; `options` are further ones of a block."""
    options = {"pre_norm": c.pre_norm, "norm": c.norm, "activation": c.activation, **options}
    options |= {"bias": c.bias, "dropout": c.dropout, "dtype": dtype}
    return [kind(c.d_model, c.num_heads, c.hidden_width(), rng, **options) for _ in range(num_layers)]


class Stack(Layer):
    """A stack as a layer of its own: the encoder of Chapter 24, or with `cross_attention` the decoder.

    Shapes: x (B, T, d_model), context (B, T_k, d_model) -> y (B, T, d_model).
    """

    def __init__(
        self,
        config: ModelConfig,
        num_layers: int,
        rng: np.random.Generator | None,
        cross_attention: bool = False,
        dtype: Any = np.float32,
    ) -> None:
        c = config
        self.dropout = c.dropout
        self.position = PositionEmbedding(c.positions, c.context_length, c.d_model, rng, dtype)
        kind = DecoderBlock if cross_attention else EncoderBlock
        self.blocks = make_blocks(kind, c, num_layers, rng, dtype, cross_attention=cross_attention)
        self.norm = norm_layer(c.norm, c.d_model, dtype=dtype) if c.pre_norm else None

    def forward(
        self,
        x: np.ndarray,
        context: np.ndarray | None = None,
        mask: np.ndarray | None = None,
        context_mask: np.ndarray | None = None,
        past: Past | None = None,
        rng: np.random.Generator | None = None,
        band: Band | None = None,
        recompute: bool = False,
    ) -> tuple[np.ndarray, StackCache]:
        inputs = BlockInputs(context, mask, context_mask, band=band)
        return run_stack(x, self._parts(), inputs, past=past, rng=rng, recompute=recompute)

    def gradients(self, dy: np.ndarray, cache: StackCache, prefix: str = "") -> Stream:
        """Yield the gradients by name; return dx and dcontext."""
        return stack_gradients(dy, cache, self._parts(), prefix)

    def backward(self, dy: np.ndarray, cache: StackCache) -> tuple[Any, ...]:
        """dx, grads; in a decoder dx, dcontext, grads."""
        stream = self.gradients(dy, cache)
        grads: Parameters = {}
        while True:
            try:
                name, gradient = next(stream)
            except StopIteration as end:  # what the generator returns
                return *(d for d in end.value if d is not None), grads
            grads[name] = gradient

    def _parts(self) -> Parts:
        return Parts(self.position, self.blocks, self.norm, self.dropout, "position")
