"""Chapter 21. The stack: one block after another

    x --> dropout --> block_1 --> block_2 --> ... --> block_n --> norm --> y
                         ^           ^                   ^
    context -------------+-----------+-------------------+        (encoder-decoder only)

Every model in this part of the book is a stack with embeddings of tokens and positions before it and an output layer
(the head of the model) after it. Pre-norm needs the last norm, because the residual stream has not been normalized
before (Chapter 19). The GPT of Chapter 23 has a last norm even if its blocks are post-norm.

With `recompute`, each block stores only its input, and runs again in the backward (see `Recomputed`, a later part of
this chapter).

The backward runs from the last block to the first. Every block reads the same context, so the gradients of the context
add up:

    dcontext = dcontext_1 + ... + dcontext_n

The functions of this chapter get the model itself as `stack`: any layer with `blocks`, `norm` and `dropout`. The blocks
belong to the model directly, so a parameter is called, for example, `blocks.0.attention.w_q`. Only the encoder-decoder
has two stacks, and each of them is a layer (Chapter 24, appendix).
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from numpy_attention.errors import require_float
from numpy_attention.layers.c13_layer import Parameters, flat_gradients
from numpy_attention.layers.c17a_kv_cache import KeyValueCache
from numpy_attention.layers.c20_block import Block, BlockCache
from numpy_attention.models.c21a_config import ModelConfig
from numpy_attention.models.c21d_recompute import Recomputed, SavedInput
from numpy_attention.ops.c05_dropout import DropoutCache, dropout, dropout_backward

Past = Sequence[KeyValueCache | tuple[KeyValueCache, KeyValueCache]]  # for each block; a pair with cross-attention


class StackCache(NamedTuple):
    """What backward needs."""

    dropout: DropoutCache
    blocks: list[BlockCache | SavedInput]
    recompute: bool
    norm: Any


def run_stack(
    stack: Any, x: np.ndarray, past: Past | None = None, rng: np.random.Generator | None = None,
    recompute: bool = False, **inputs: Any,
) -> tuple[np.ndarray, StackCache]:
    """Run dropout, all blocks and the last norm of a model. All blocks get the same inputs.

    With `past`, x has only new tokens, and there is no backward.

    Shapes: x (B, T, d_model) -> y (B, T, d_model)
    """
    require_float("stack", x=x)
    x, of_dropout = dropout(x, stack.dropout, rng)
    caches: list[BlockCache | SavedInput] = []
    for i, block in enumerate(_blocks(stack, recompute)):
        x, cache = block.forward(x, rng=rng, past=None if past is None else past[i], **inputs)
        if past is None:  # with a KV cache there is no backward: store nothing for it
            caches.append(cache)
    norm = None
    if stack.norm is not None:
        x, norm = stack.norm.forward(x)
    return x, StackCache(of_dropout, caches, recompute, norm)


def run_stack_backward(
    stack: Any, dy: np.ndarray, cache: StackCache
) -> tuple[np.ndarray, np.ndarray | None, Parameters]:
    """Return dx, dcontext (None without a context), and the gradients of all parameters.

    Raises: ValueError for the cache of a forward with a KV cache.
    """
    if len(cache.blocks) != len(stack.blocks):
        raise ValueError("stack: there is no backward through a KV cache; leave `past` out of the forward")
    dx, dcontext, grads = dy, None, dict[str, Any]()
    if stack.norm is not None:
        # x = norm(x)
        dx, grads["norm"] = stack.norm.backward(dx, cache.norm)
    blocks = _blocks(stack, cache.recompute)
    for i in reversed(range(len(blocks))):
        # x = block(x, context)
        dx, *of_context, grads[f"blocks.{i}"] = blocks[i].backward(dx, cache.blocks[i])
        for dcontext_i in of_context:
            dcontext = dcontext_i if dcontext is None else dcontext + dcontext_i
    # x = dropout(x)
    return dropout_backward(dx, cache.dropout), dcontext, flat_gradients(grads)


def _blocks(stack: Any, recompute: bool) -> list[Any]:
    return [Recomputed(block) for block in stack.blocks] if recompute else stack.blocks


def make_blocks(
    kind: type[Block], c: ModelConfig, num_layers: int, rng: np.random.Generator | None, dtype: Any, **options: Any
) -> list[Block]:
    """The blocks that a configuration describes; `options` are further options of a block."""
    sizes = c.d_model, c.num_heads, c.hidden_width(), rng
    options |= {"pre_norm": c.pre_norm, "norm": c.norm, "activation": c.activation, "bias": c.bias}
    return [kind(*sizes, dropout=c.dropout, dtype=dtype, **options) for _ in range(num_layers)]
