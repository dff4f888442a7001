"""Chapter 21. The stack: one block after another

    x --> + positions --> dropout --> block_1 --> block_2 --> ... --> block_L --> norm --> y
                                         ^           ^                   ^
    context (encoder-decoder only) ------+-----------+-------------------+

Every model in this part of the book is a stack with an embedding before it and an output layer (the head of the model)
after it. Pre-norm needs the last norm, because the residual stream has not been normalized before (Chapter 19). A
post-norm GPT also has this last norm.

GPT and the classifier hold the parts of the stack directly. So the name of a parameter begins with the name of a part,
for example `blocks.0.attention.w_q`. The encoder-decoder has two stacks; each is a layer of the class `Stack`.

The backward runs from the last block to the first. The backward is a Python generator: it yields the gradients of a
block, with their names, before the next block runs. So a caller that sums the gradients of several shards (parts of a
batch, Chapter 30) needs no second copy of all gradients. The generator returns the gradients of x and of the context:

    dx, dcontext = yield from parts.gradients(dy, cache)

The arrays that blocks store for their backward take most of the memory of training. With `recompute`, a forward stores
only the input of each block, and the backward first runs the forward of the block again. Then only one block at a time
has all its arrays in memory. But a step takes more time, between 1/4 and 1/3 more. Dropout must drop the same elements
again, so the forward also stores a copy of the random generator, made before the block ran. The gradients are the same
to the last bit.

Every block reads the same context, so the gradients of the context add up:

    dcontext = dcontext_1 + ... + dcontext_L
"""

import copy
from collections.abc import Collection, Generator, Sequence
from typing import Any, NamedTuple

import numpy as np

from numpy_attention.errors import require_float, value_error
from numpy_attention.layers.c13_layer import Layer, Parameters, prefixed
from numpy_attention.layers.c15a_position_embedding import PositionCache, PositionEmbedding
from numpy_attention.layers.c16_normalization import Norm, norm_layer
from numpy_attention.layers.c17_multi_head_attention import SharedPositions
from numpy_attention.layers.c17a_kv_cache import KeyValueCache
from numpy_attention.layers.c20_block import Block, BlockCache, DecoderBlock, EncoderBlock
from numpy_attention.models.c21a_config import ModelConfig
from numpy_attention.ops.c05_dropout import DropoutCache, dropout, dropout_backward
from numpy_attention.ops.c09_normalization import NormCache
from numpy_attention.ops.c12a_tiles import Band

Past = Sequence[tuple[KeyValueCache, KeyValueCache | None]]  # for each block: self-attention and cross-attention
Stream = Generator[tuple[str, np.ndarray], None, Any]  # yields gradients by name


class BlockInputs(NamedTuple):
    """The arguments of `Block.forward` besides x."""

    context: np.ndarray | None = None  # (B, T_k, d_model)
    mask: np.ndarray | None = None
    context_mask: np.ndarray | None = None
    scores_bias: np.ndarray | None = None
    positions: np.ndarray | None = None  # default: from 0, or from the length of the KV cache
    band: Band | None = None  # if given: attention in tiles (Chapter 12); masks hide only padding


class SavedInput(NamedTuple):
    """Input saved for recomputing a block."""

    block: Block
    x: np.ndarray  # (B, T, d_model)
    inputs: dict[str, Any]  # the other arguments of the block
    rng: np.random.Generator | None  # a copy of the random generator, made before the block ran

    def cache(self) -> BlockCache:
        """Run the block again, with a new copy of the random generator: backward may be called more than once."""
        _, cache = self.block.forward(self.x, **self.inputs, rng=copy.deepcopy(self.rng))
        return cache


class StackCache(NamedTuple):
    """What backward needs; `cache_of(blocks[i]).attention.weights()` are the weights of block i."""

    position: PositionCache | None
    dropout: DropoutCache | None  # None without a generator
    blocks: list[BlockCache | SavedInput]
    norm: NormCache | None


def cache_of(saved: BlockCache | SavedInput) -> BlockCache:
    """The cache of a block, recomputed if only the input was saved."""
    return saved.cache() if isinstance(saved, SavedInput) else saved


class Parts(NamedTuple):
    """The parts of a stack."""

    position: PositionEmbedding | None
    blocks: list[Block]
    norm: Norm | None
    dropout: float  # the rate for the input of the first block
    position_name: str = "position_embedding"  # the name of `position` in the names of the gradients

    def run(
        self, x: np.ndarray, inputs: BlockInputs | list[BlockInputs], *, past: Past | None = None,
        last_only: bool = False, rng: np.random.Generator | None = None, recompute: bool = False,
    ) -> tuple[np.ndarray, StackCache]:
        """Positions, dropout, blocks and the last norm. With `past`, x has only new tokens, and there is no backward.

        `inputs` are the same for every block, or a list with the inputs of each block; then all positions are equal.

        Shapes: x (B, T, d_model) -> y (B, T, d_model), or (B, 1, d_model) with `last_only`.

        Source: `recompute`: Chen et al., Training Deep Nets with Sublinear Memory Cost (2016), section 4.
        """
        require_float("stack", x=x)
        inputs = inputs if isinstance(inputs, list) else [inputs] * max(1, len(self.blocks))
        positions = inputs[0].positions
        if positions is None:
            T_past = 0 if past is None else past[0][0].length
            positions = np.arange(T_past, T_past + x.shape[1], like=x)  # (T,)
        position_cache = dropout_cache = norm_cache = None
        if self.position is not None:
            x, position_cache = self.position.forward(x, positions)
        if rng is not None:  # in training
            x, dropout_cache = dropout(x, self.dropout, rng)
        shared = {"positions": SharedPositions(positions)}
        caches: list[BlockCache | SavedInput] = []
        for i, block in enumerate(self.blocks):
            stored = None if past is None else past[i]
            of_block = inputs[i]._asdict() | shared
            before = SavedInput(block, x, of_block, copy.deepcopy(rng)) if recompute else None
            x, cache = block.forward(x, **of_block, past=stored, rng=rng)
            if past is None:  # with a KV cache there is no backward: store nothing for it
                caches.append(cache if before is None else before)
            del cache  # free its memory before the next block runs
        if last_only:  # norm and head are needed for the last row only
            x = x[:, -1:]  # (B, 1, d_model)
        if self.norm is not None:
            x, norm_cache = self.norm.forward(x)
        return x, StackCache(position_cache, dropout_cache, caches, norm_cache)

    def gradients(self, dy: np.ndarray, cache: StackCache, prefix: str = "") -> Stream:
        """Yield the gradients of `run` from the last block to the first; return dx, dcontext (None without context).

        Raises: ValueError for the cache of a forward with a KV cache.
        """
        position, blocks, norm, *_ = self
        if len(cache.blocks) != len(blocks):
            raise ValueError("stack: there is no backward through a KV cache; leave `past` out of the forward")
        dx, dcontext = dy, None
        if norm is not None and cache.norm is not None:
            # x = norm(x)
            dx, grads = norm.backward(dx, cache.norm)
            yield from prefixed(f"{prefix}norm", grads).items()
        for i in reversed(range(len(blocks))):
            # x = block(x, context)
            dx, *sent_back, grads = blocks[i].backward(dx, cache_of(cache.blocks[i]))
            yield from prefixed(f"{prefix}blocks.{i}", grads).items()
            del grads  # free their memory before the next block runs
            for dcontext_i in sent_back:
                dcontext = dcontext_i if dcontext is None else dcontext + dcontext_i
        if cache.dropout is not None:
            # x = dropout(x)
            dx = dropout_backward(dx, cache.dropout)
        if position is not None and cache.position is not None:
            # x = x + positions
            dx, grads = position.backward(dx, cache.position)
            yield from prefixed(prefix + self.position_name, grads).items()
        return dx, dcontext


def attention_weights(caches: dict[str, StackCache], layers: Collection[str] | None = None) -> Parameters:
    """The weights (B, H, T_q, T_k) of attention layers by name: `blocks.0.attention` and so on.

    The values of `caches` are the caches of stacks. The key of a stack is the prefix of its names, for example
    "decoder.". `layers` are the wanted names; None: all. After attention in tiles the weights are recomputed. They are
    T x T numbers per head: for long texts, pass one layer at a time to save memory.

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
            raise value_error("attention_weights", "layers", f"among {', '.join(found)}", repr(name))
    return {name: weights for name, weights in found.items() if weights is not None}


def make_blocks(
    kind: type[Block], c: ModelConfig, num_layers: int, rng: np.random.Generator | None, dtype: Any, **options: Any
) -> list[Block]:
    """The blocks that a configuration describes; `options` are further options of a block."""
    sizes = c.d_model, c.num_heads, c.hidden_width(), rng
    options = {"pre_norm": c.pre_norm, "norm": c.norm, "activation": c.activation, **options}
    options |= {"bias": c.bias, "dropout": c.dropout, "dtype": dtype}
    return [kind(*sizes, attention=c.attention_of(i), **options) for i in range(num_layers)]


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
        self.position = PositionEmbedding(c.positions, c.context_length, c.d_model, rng, dtype)
        kind = DecoderBlock if cross_attention else EncoderBlock
        self.blocks = make_blocks(kind, c, num_layers, rng, dtype, cross_attention=cross_attention)
        self.norm = norm_layer(c.norm, c.d_model, dtype=dtype) if c.pre_norm else None

    def forward(
        self, x: np.ndarray, context: np.ndarray | None = None, mask: np.ndarray | None = None,
        context_mask: np.ndarray | None = None, past: Past | None = None, rng: np.random.Generator | None = None,
        band: Band | None = None, recompute: bool = False,
    ) -> tuple[np.ndarray, StackCache]:
        inputs = BlockInputs(context, mask, context_mask, band=band)
        return self._parts().run(x, inputs, past=past, rng=rng, recompute=recompute)

    def gradients(self, dy: np.ndarray, cache: StackCache, prefix: str = "") -> Stream:
        """Yield the gradients by name; return dx and dcontext."""
        return self._parts().gradients(dy, cache, prefix)

    def backward(self, dy: np.ndarray, cache: StackCache) -> tuple[Any, ...]:
        """Return dx and grads; in a decoder dx, dcontext and grads."""
        stream = self.gradients(dy, cache)
        grads: Parameters = {}
        while True:
            try:
                name, gradient = next(stream)
            except StopIteration as end:  # end.value: the return value of the generator
                return *(d for d in end.value if d is not None), grads
            grads[name] = gradient

    def _parts(self) -> Parts:
        return Parts(self.position, self.blocks, self.norm, self.dropout, "position")
