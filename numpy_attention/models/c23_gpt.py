"""Chapter 23. GPT: a decoder-only language model

    ids --> token_embedding --> stack (Chapter 21) --> x --> @ token_embedding^T --> logits --> loss
    (B, T)                      masked                 (B, T, d_model)               (B, T, V)

The mask hides all later positions from each position. The loss is the mean of -log p(next token). One pass predicts
the next token after every prefix of the text: row t of the logits depends on tokens 0..t and predicts token t + 1.

The embedding table is used twice ("tied" weights): at the input, to turn tokens into vectors, and at the output, to
compute a score for each token. If an array is used twice, its gradient is a sum. For the table, this sum is

    dtable = (from the input: the rows of dx, summed by token id) + (from the output: dlogits^T x)

As in GPT-2, the weights start as random numbers from a normal distribution with standard deviation 0.02. In each
block, two matrices write to the residual stream: w_o and w_2. With n blocks, 2 n branches are added to the
stream. We divide these two matrices by sqrt(2 n). So at the start of training, the sum of all 2 n divided branches is
about as large as a single undivided branch.
"""

import math
from collections.abc import Collection
from typing import Any, ClassVar, NamedTuple

import numpy as np

from numpy_attention.layers.c13_layer import Parameters, normal, prefixed
from numpy_attention.layers.c14_linear import Linear
from numpy_attention.layers.c15_embedding import Embedding
from numpy_attention.layers.c15a_position_embedding import KINDS, PositionEmbedding
from numpy_attention.layers.c16_normalization import norm_layer
from numpy_attention.layers.c17a_kv_cache import KeyValueCache, stored_length
from numpy_attention.layers.c20_block import Block, DecoderBlock
from numpy_attention.models.c21_stack import StackCache, make_blocks, run_stack, run_stack_backward
from numpy_attention.models.c21b_head import Head
from numpy_attention.models.c21c_model import LossCache, Model
from numpy_attention.models.c21e_weights import attention_weights
from numpy_attention.models.c23a_gpt_config import GPTConfig
from numpy_attention.models.c23b_generate import generate
from numpy_attention.models.c23d_visible import causal_inputs
from numpy_attention.ops.c02_embedding import EmbeddingCache


class GPTCache(NamedTuple):
    """What backward needs from a forward."""

    token: EmbeddingCache
    position: Any  # None with rotary or ALiBi
    stack: StackCache
    x: np.ndarray  # (B, T, d_model), the input of the head


class GPT(Model):
    """Read a text; return a score for every possible next token at every position.

    Formula: logits = stack(token_embedding[ids]) token_embedding^T

    Shapes: ids (B, T) -> logits (B, T, V), T at most context_length.

    Units: the loss is in nats. It is the mean over the targets; a target of -100 is ignored.

    Raises: ValueError for ids of another shape, outside the vocabulary, or longer than the context.

    Source: Radford et al., Language Models are Unsupervised Multitask Learners (2019), section 2.3; tied weights:
    Press, Wolf, Using the Output Embedding to Improve Language Models (2017), section 3.
    """

    config_class: ClassVar[Any] = GPTConfig

    def __init__(self, config: GPTConfig, rng: np.random.Generator | None, dtype: Any = np.float32) -> None:
        c = self.config = self.require_config(config)
        self.dropout, self.window = c.dropout, c.window
        self.embedding_scale = math.sqrt(c.d_model) if c.positions == "sinusoidal" else 1.0  # as in the paper of 2017
        # all matrices are zeros until draw_weights
        self.token_embedding = Embedding(c.vocab_size, c.d_model, None, dtype=dtype)
        added = c.positions in KINDS  # rotary and ALiBi act inside attention
        self.position_embedding = (
            PositionEmbedding(c.positions, c.context_length, c.d_model, None, dtype) if added else None
        )
        self.blocks = self.new_blocks(dtype)
        self.norm = norm_layer(c.norm, c.d_model, c.norm_eps, dtype)
        self.head = None if c.tie_weights else Linear(c.d_model, c.vocab_size, None, bias=False, dtype=dtype)
        self.draw_weights(rng)

    def new_blocks(self, dtype: Any) -> list[Block]:
        c = self.config
        options = {"num_kv_heads": c.num_kv_heads, "rotary_base": c.rotary_base if c.positions == "rotary" else None}
        return make_blocks(DecoderBlock, c, c.num_layers, None, dtype, norm_eps=c.norm_eps, attention=options)

    def draw_weights(self, rng: np.random.Generator | None) -> None:
        """Normal numbers of scale 0.02 for all matrices; divided by sqrt(2 num_layers) for w_o and w_2."""
        for name, w in self.parameters().items():
            if rng is not None and w.ndim == 2:
                to_residual = name.endswith((".w_o", ".w_2"))
                scale = 0.02 / math.sqrt(2 * self.config.num_layers) if to_residual else 0.02
                w[...] = normal(rng, w.shape, scale, w.dtype)

    def forward(
        self, ids: np.ndarray, mask: np.ndarray | None = None, positions: np.ndarray | None = None,
        past: list[KeyValueCache] | None = None, last_only: bool = False, rng: np.random.Generator | None = None,
    ) -> tuple[np.ndarray, GPTCache]:
        """Logits for every position. `mask`, `positions`, `past` and `last_only` are for generation.

        `mask` replaces the causal mask; blocks with a window also hide the keys outside it.
        `config.attention` decides whether attention runs in tiles (Chapter 12). With a `mask`, it never runs in tiles.
        There is no backward after a forward with `past`.
        """
        cache = self.states(ids, mask, positions, past, rng)
        if last_only:
            cache = cache._replace(x=cache.x[:, -1:])
        return self.output_head().forward(cache.x), cache  # (B, T, V)

    def states(
        self, ids: np.ndarray, mask: np.ndarray | None = None, positions: np.ndarray | None = None,
        past: list[KeyValueCache] | None = None, rng: np.random.Generator | None = None,
    ) -> GPTCache:
        """Everything before the head; `cache.x` (B, T, d_model) is the input of the head."""
        T_past = 0 if past is None else stored_length("GPT", past, len(self.blocks))
        self.require_batch("ids", ids, T_past)
        x, token = self.token_embedding.forward(ids)  # (B, T, d_model)
        x *= self.embedding_scale  # in place: x is a new array
        if positions is None:
            positions = np.arange(T_past, T_past + x.shape[1], like=x)  # (T,)
        position = None
        if self.position_embedding is not None:
            x, position = self.position_embedding.forward(x, positions)
        # {"mask": causal_mask(T)}, or what replaces it for a window, ALiBi and long texts (appendix)
        inputs = causal_inputs(self.config, x, T_past, self.window, mask)
        x, stack = run_stack(self, x, past, rng, self.recompute, positions=positions, **inputs)
        return GPTCache(token, position, stack, x)

    def output_head(self) -> Head:
        """The product with one vector for each token: a row of the embedding table, or a column of `head.w`."""
        if self.head is None:
            return Head(self.token_embedding.table, bool(self.token_embedding.frozen))
        return Head(self.head.w.T, bool(self.head.frozen))

    def gradients_from_logits(self, cache: GPTCache, dlogits: np.ndarray) -> Parameters:
        # logits = head(x)
        return self.states_backward(*self.output_head().backward(dlogits, cache.x), cache)

    def states_backward(self, dx: np.ndarray, dvectors: np.ndarray | None, cache: GPTCache) -> Parameters:
        """All gradients, from those of x and of the vectors of the tokens, the two factors of the logits."""
        # x = stack(x)
        dx, _, grads = run_stack_backward(self, dx, cache.stack)
        if self.position_embedding is not None:
            # x = embedding_scale * x + positions
            dx, of_position = self.position_embedding.backward(dx, cache.position)
            grads |= prefixed("position_embedding", of_position)
        # x = embedding_scale * table[ids]
        _, of_token = self.token_embedding.backward(dx * self.embedding_scale, cache.token)
        grads["token_embedding.table"] = of_token["table"]
        if dvectors is not None and self.head is None:
            # vectors = table: with tied weights the second use of the table
            grads["token_embedding.table"] += dvectors
        elif dvectors is not None:
            # vectors = w.T
            grads["head.w"] = dvectors.T.copy()
        return self.ordered(grads)

    def loss(
        self, ids: np.ndarray, targets: np.ndarray, training: bool = False, rng: np.random.Generator | None = None
    ) -> tuple[np.ndarray, LossCache]:
        """The mean of -log p(target) in nats. targets (B, T): the ids one step later; a target of -100 is ignored."""
        cache = self.states(ids, rng=rng if training else None)
        loss, of_loss = self.output_head().loss(cache.x, targets, self.logits_at_once)
        return loss, LossCache(cache, of_loss)

    def backward(self, cache: LossCache, dloss: float = 1.0) -> Parameters:
        """All gradients of dloss * loss, named and ordered like the parameters."""
        # loss = cross_entropy(head(x), targets)
        dx, dvectors = self.output_head().loss_backward(dloss, cache.forward.x, cache.cross_entropy)
        return self.states_backward(dx, dvectors, cache.forward)

    def attention_weights(self, ids: np.ndarray, layers: Collection[str] | None = None) -> Parameters:
        """The weights (B, H, T, T) of the layers in `layers`, or of all, by name: `blocks.0.attention` and so on."""
        return attention_weights({"": self.states(ids).stack}, layers)

    generate = generate  # model.generate(prompt_ids, num_tokens, ...)
