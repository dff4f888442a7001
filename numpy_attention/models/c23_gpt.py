"""Chapter 23. GPT: a decoder-only language model

    ids --> token_embedding --> stack (Chapter 21) --> x --> @ token_embedding^T --> logits --> loss
    (B, T)                      masked                 (B, T, d_model)               (B, T, V)

The mask hides all later positions from each position. The loss is the mean of -log p(next token). One pass predicts
the next token after every prefix of the text: row t of the logits depends on tokens 0..t and predicts token t + 1.

The embedding table is used twice ("tied" weights): at the input, to turn tokens into vectors, and at the output, to
compute a score for each token. If an array is used twice, its gradient is a sum. For the table, this sum is

    dtable = (from the input: the rows of dx, summed by token id) + (from the output: dlogits^T x)

As in GPT-2, the weights start as random numbers from a normal distribution with standard deviation 0.02. In each
block, two matrices write to the residual stream: w_o and w_2. We divide them by sqrt(2 L), because L blocks add 2 L
branches to the residual stream. So at the start of training, the sum of all 2 L divided branches is about as large as
a single undivided branch.
"""

import math
from collections.abc import Collection
from typing import Any, NamedTuple

import numpy as np

from numpy_attention.layers.c13_layer import Parameters, normal
from numpy_attention.layers.c14_linear import Linear
from numpy_attention.layers.c15_embedding import Embedding
from numpy_attention.layers.c15a_position_embedding import KINDS, PositionEmbedding
from numpy_attention.layers.c16_normalization import norm_layer
from numpy_attention.layers.c17a_kv_cache import KeyValueCache, stored_length
from numpy_attention.layers.c20_block import DecoderBlock
from numpy_attention.models.c21_stack import BlockInputs, Parts, StackCache, Stream, attention_weights, make_blocks
from numpy_attention.models.c21b_head import Head, HeadCache, LossByRows
from numpy_attention.models.c21c_model import LossCache, Model
from numpy_attention.models.c22b_padding import check_batch
from numpy_attention.models.c23a_gpt_config import GPTConfig
from numpy_attention.models.c23b_generate import generate
from numpy_attention.ops.c02_embedding import EmbeddingCache, add_at
from numpy_attention.ops.c04_masks import causal_mask, sliding_window_mask
from numpy_attention.ops.c08_positions import alibi_bias, alibi_slopes
from numpy_attention.ops.c12a_tiles import Band


class GPTCache(NamedTuple):
    """What backward needs from a forward."""

    token: EmbeddingCache
    stack: StackCache
    head: HeadCache


class GPT(Model):
    """Read a text; return a score for every possible next token at every position.

    Formula: logits = stack(token_embedding[ids]) token_embedding^T

    Shapes: ids (B, T) -> logits (B, T, V), T at most context_length.

    Units: the loss is in nats. It is the mean over the targets; a target of -100 is ignored.

    Raises: ValueError for ids of another shape, outside the vocabulary, or longer than the context.

    Source: Radford et al., Language Models are Unsupervised Multitask Learners (2019), section 2.3; tied weights:
    Press, Wolf, Using the Output Embedding to Improve Language Models (2017), section 3.
    """

    config_class = GPTConfig

    def __init__(self, config: GPTConfig, rng: np.random.Generator | None, dtype: Any = np.float32) -> None:
        c = self.config = config
        self.token_embedding = Embedding(c.vocab_size, c.d_model, None, dtype=dtype)
        self.position_embedding = (
            PositionEmbedding(c.positions, c.context_length, c.d_model, None, dtype)
            if c.positions in KINDS
            else None  # rotary and ALiBi act inside attention
        )
        norms = {"norm_eps": c.norm_eps, "branch_norm": c.branch_norm}
        self.blocks = make_blocks(DecoderBlock, c, c.num_layers, None, dtype, **norms)
        self.norm = norm_layer(c.norm, c.d_model, c.norm_eps, dtype)
        self.head = None if c.tie_weights else Linear(c.d_model, c.vocab_size, None, bias=False, dtype=dtype)
        for name, p in self.parameters().items():
            if rng is not None and p.ndim == 2:
                to_residual = name.endswith((".w_o", ".w_2"))
                scale = 0.02 / math.sqrt(2 * c.num_layers) if to_residual else 0.02
                p[...] = normal(rng, p.shape, scale, p.dtype)

    def forward(
        self, ids: np.ndarray, mask: np.ndarray | None = None, positions: np.ndarray | None = None,
        past: list[KeyValueCache] | None = None, last_only: bool = False, rng: np.random.Generator | None = None,
    ) -> tuple[np.ndarray, GPTCache]:
        """Logits for every position. `mask`, `positions`, `past` and `last_only` are for generation.

        `mask` replaces the causal mask; blocks with a window also hide the keys outside it.
        `config.attention` decides whether attention runs in tiles (Chapter 12). With a `mask`, it never runs in tiles.
        There is no backward after a forward with `past`.
        """
        x, token, stack = self._states(ids, mask, positions, past, last_only, rng)
        logits, head = self._head().forward(x)  # (B, T, V)
        return logits, GPTCache(token, stack, head)

    def _states(
        self, ids: np.ndarray, mask: np.ndarray | None = None, positions: np.ndarray | None = None,
        past: list[KeyValueCache] | None = None, last_only: bool = False, rng: np.random.Generator | None = None,
    ) -> tuple[np.ndarray, EmbeddingCache, StackCache]:
        """Return x (B, T, d_model) and two caches, of all steps before the output head. The output head gets x."""
        T_past = 0 if past is None else stored_length("GPT", past, len(self.blocks))
        check_batch("GPT", "ids", ids, self.config.context_length, T_past)
        x, token = self.token_embedding.forward(ids)  # (B, T, d_model), a new array
        if self.config.scales_embedding:
            x *= math.sqrt(self.config.d_model)  # otherwise x is tiny compared with the position vectors
        windows = [self.config.window_of(i) for i in range(len(self.blocks))]
        made = {window: self._inputs(x, window, mask, T_past)._replace(positions=positions) for window in set(windows)}
        inputs = [made[window] for window in windows]
        pairs = None if past is None else [(of_block, None) for of_block in past]
        x, stack = self._parts().run(x, inputs, past=pairs, last_only=last_only, rng=rng, recompute=self.recompute)
        return x, token, stack

    def gradients_from_logits(self, cache: GPTCache, dlogits: np.ndarray | LossByRows) -> Stream:
        # logits = head(x)
        dx, dtable = yield from self._head().gradients(dlogits, cache.head)
        # x = stack(x)
        dx, _ = yield from self._parts().gradients(dx, cache.stack)
        if self.config.scales_embedding:
            # x *= sqrt(d_model)
            dx = dx * math.sqrt(self.config.d_model)
        if dtable is not None:
            # x = table[ids]
            add_at(dtable, cache.token.ids, dx)  # dtable already holds the gradient from the output; add dx to it
            yield "token_embedding.table", dtable

    def loss(
        self, ids: np.ndarray, targets: np.ndarray, training: bool = False, rng: np.random.Generator | None = None
    ) -> tuple[np.ndarray, LossCache]:
        """The mean of -log p(target) in nats. targets (B, T): the ids one step later; a target of -100 is ignored."""
        x, token, stack = self._states(ids, rng=rng if training else None)
        loss, head, cache = self._head().loss(x, targets, self.logits_at_once)
        return loss, LossCache(GPTCache(token, stack, head), cache)

    def attention_weights(self, ids: np.ndarray, layers: Collection[str] | None = None) -> Parameters:
        """The weights (B, H, T, T) of the layers in `layers`, or of all, by name: `blocks.0.attention` and so on."""
        _, cache = self.forward(ids)
        return attention_weights({"": cache.stack}, layers)

    generate = generate  # model.generate(prompt_ids, num_tokens, ...)

    def _head(self) -> Head:
        return Head(self.token_embedding, self.head)

    def _parts(self) -> Parts:
        return Parts(self.position_embedding, self.blocks, self.norm, self.config.dropout)

    def _inputs(self, x: np.ndarray, window: int | None, mask: np.ndarray | None, T_past: int) -> BlockInputs:
        """The inputs of all blocks with this window."""
        T_q, T_k, H = x.shape[1], T_past + x.shape[1], self.config.num_heads
        alibi = self.config.positions == "alibi"
        pairs = T_q * T_k if T_q > 1 else 0  # as many as in a text of math.isqrt(pairs) tokens
        if mask is None and self.config.in_tiles(x, math.isqrt(pairs)):  # the rules as below, without a T x T array
            slopes = np.asarray(alibi_slopes(H).astype(x.dtype), like=x) if alibi else None
            return BlockInputs(band=Band(True, window, slopes))
        if window is not None:
            near = sliding_window_mask(T_q, window, T_k, like=x)
            mask = near if mask is None else near & mask
        elif mask is None and T_q > 1:  # a single query sees every key
            mask = causal_mask(T_q, T_k, like=x)
        bias = np.asarray(alibi_bias(H, T_q, T_k, x.dtype.type), like=x) if alibi else None
        return BlockInputs(mask=mask, scores_bias=bias)
