"""Chapter 23. GPT: a decoder-only language model

    x      = token_embedding[ids] + position_embedding[0..T)        (B, T, d_model)
    x      = block_L(... block_1(x))                                masked: no position sees a later one
    logits = norm(x) @ token_embeddingᵀ                             (B, T, V)
    loss   = mean over all positions of -log softmax(logits)[next token]

One pass scores every prefix of the text at once: row t of the logits has seen tokens 0..t and predicts token t + 1.

The embedding table is used twice, to read tokens at the bottom and to score them at the top ("tied" weights). As
always when one thing is used twice, its gradients add:

    dtable = (from the bottom: the rows of dx, added up by token id) + (from the top: dlogitsᵀ norm(x))

Weights start as in GPT-2: normal with 0.02, and the two matrices of each block that write to the residual stream
(w_o, w_2) divided by sqrt(2 L), so that the sum of 2 L branches starts no wider than one.

Sources: Radford et al., "Language Models are Unsupervised Multitask Learners", 2019; tied weights: Press and Wolf,
"Using the Output Embedding to Improve Language Models", 2017.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from numpy_attention.layers.decoder_block import DecoderBlock, DecoderBlockCache
from numpy_attention.layers.embedding import Embedding
from numpy_attention.layers.kv_cache import KeyValueCache
from numpy_attention.layers.layer import Parameters, prefixed
from numpy_attention.layers.linear import Linear
from numpy_attention.layers.normalization import norm_layer
from numpy_attention.layers.position_embedding import PositionEmbedding
from numpy_attention.models.generate import generate
from numpy_attention.models.gpt_config import GPTConfig
from numpy_attention.models.model import Model, Receive, as_rows, in_order_of
from numpy_attention.models.padding import check_batch
from numpy_attention.ops.dropout import dropout, dropout_backward
from numpy_attention.ops.embedding import embedding_backward_into
from numpy_attention.ops.losses import cross_entropy, cross_entropy_backward
from numpy_attention.ops.masks import causal_mask, sliding_window_mask
from numpy_attention.ops.positions import alibi_bias


class GPTCache(NamedTuple):
    """What backward needs of a forward; `blocks[i].attention.attention.weights` are the weights of block i."""

    token: Any
    position: Any
    dropout: Any
    blocks: tuple[DecoderBlockCache, ...]
    norm: Any
    x: np.ndarray  # the input of the head, (B, T, d_model)
    head: Any  # None with tied weights


class GPTLossCache(NamedTuple):
    """What backward needs of a loss."""

    forward: GPTCache
    cross_entropy: Any


class GPT(Model):
    """logits = norm(blocks(token_embedding[ids] + positions)) @ token_embeddingᵀ.

    Shapes: ids (B, T) -> logits (B, T, V), T at most context_length.
    Units: the loss is in nats, the mean over the targets that are not -100.
    Raises: `ValueError` for ids of another shape, outside the vocabulary, or longer than the context.
    """

    config_class = GPTConfig

    def __init__(self, config: GPTConfig, rng: np.random.Generator | None, dtype: Any = np.float32) -> None:
        c = self.config = config
        self.token_embedding = Embedding(c.vocab_size, c.d_model, None, dtype=dtype)
        self.position_embedding = (
            PositionEmbedding(c.positions, c.context_length, c.d_model, None, dtype)
            if c.positions in ("learned", "sinusoidal")
            else None  # rotary and ALiBi act in the attention
        )
        attention = {
            "num_kv_heads": c.num_kv_heads,
            "rotary_base": c.rotary_base if c.positions == "rotary" else None,
        }
        self.blocks = [
            DecoderBlock(
                c.d_model, c.num_heads, c.hidden_width(), None, pre_norm=c.pre_norm, norm=c.norm, norm_eps=c.norm_eps,
                activation=c.activation, bias=c.bias, dropout=c.dropout, attention=attention, dtype=dtype,
            )
            for _ in range(c.num_layers)
        ]
        self.norm = norm_layer(c.norm, c.d_model, c.norm_eps, dtype)
        self.head = None if c.tie_weights else Linear(c.d_model, c.vocab_size, None, bias=False, dtype=dtype)
        if rng is not None:
            self._initialize(rng)

    def _initialize(self, rng: np.random.Generator) -> None:
        for name, p in self.parameters().items():
            if p.ndim == 2:
                to_residual = name.endswith((".w_o", ".w_2"))
                scale = 0.02 / math.sqrt(2 * self.config.num_layers) if to_residual else 0.02
                p[...] = np.asarray(rng.standard_normal(p.shape) * scale, like=p)

    def forward(
        self,
        ids: np.ndarray,
        mask: np.ndarray | None = None,
        positions: np.ndarray | None = None,
        past: list[KeyValueCache] | None = None,
        last_only: bool = False,
        training: bool = False,
        rng: np.random.Generator | None = None,
    ) -> tuple[np.ndarray, GPTCache]:
        """Logits for every position. `mask`, `positions`, `past` and `last_only` serve generation (no backward)."""
        T_past = 0 if past is None else past[0].length
        check_batch("GPT", "ids", ids, self.config.context_length, T_past)
        T_k = T_past + ids.shape[1]
        x, token = self.token_embedding.forward(ids)  # (B, T, d_model)
        if positions is None:
            positions = np.arange(T_past, T_k, like=x)  # (T,)
        if self.config.positions == "sinusoidal":
            x *= math.sqrt(self.config.d_model)  # x is ours; the sines, as tall as 1, would drown it
        position = None
        if self.position_embedding is not None:
            x, position = self.position_embedding.forward(x, positions)
        x, dropped = dropout(x, self.config.dropout if training else 0.0, rng)
        if mask is None:
            mask = self._mask(x, T_k)
        bias = self._bias(x, T_k)
        blocks = []
        for i, block in enumerate(self.blocks):
            x, cache = block.forward(
                x, mask=mask, bias=bias, positions=positions, past=None if past is None else (past[i], None),
                training=training, rng=rng,
            )
            blocks.append(cache)
        if last_only:
            x = x[:, -1:]  # (B, 1, d_model)
        x, norm = self.norm.forward(x)
        if self.head is None:
            logits = as_rows(x) @ self.token_embedding.table.T  # (B T, V)
            logits, head = logits.reshape(*x.shape[:-1], self.config.vocab_size), None  # (B, T, V)
        else:
            logits, head = self.head.forward(x)
        return logits, GPTCache(token, position, dropped, tuple(blocks), norm, x, head)

    def backward_from_logits(
        self, dlogits: np.ndarray, cache: GPTCache, receive: Receive | None = None
    ) -> Parameters:
        """The gradients of all parameters, given that of the logits; `receive` gets them one by one."""
        grads: Parameters = {}
        receive = grads.update if receive is None else receive
        table = self.token_embedding.table
        if self.head is None:
            # logits = x @ table.T
            dx = (as_rows(dlogits) @ table).reshape(cache.x.shape)  # (B, T, d_model)
            dtable = as_rows(dlogits).T @ as_rows(cache.x)  # (V, d_model)
        else:
            dx, head_grads = self.head.backward(dlogits, cache.head)
            receive(prefixed("head", head_grads))
            dtable = np.zeros_like(table)
        # x = norm(x)
        dx, norm_grads = self.norm.backward(dx, cache.norm)
        receive(prefixed("norm", norm_grads))
        # x = block(x), the last block first
        for i in reversed(range(len(self.blocks))):
            dx, block_grads = self.blocks[i].backward(dx, cache.blocks[i])
            receive(prefixed(f"blocks.{i}", block_grads))
        # x = dropout(x)
        dx = dropout_backward(dx, cache.dropout)
        # x = token_embedding[ids] + position_embedding[positions]
        if self.position_embedding is not None:
            dx, position_grads = self.position_embedding.backward(dx, cache.position)
            receive(prefixed("position_embedding", position_grads))
        if self.config.positions == "sinusoidal":
            # x *= sqrt(d_model)
            dx = dx * math.sqrt(self.config.d_model)
        embedding_backward_into(dx, cache.token, dtable)  # adds to what the head gave: the table was used twice
        receive({"token_embedding.table": dtable})
        return in_order_of(self, grads)

    def loss(
        self, ids: np.ndarray, targets: np.ndarray, training: bool = False, rng: np.random.Generator | None = None
    ) -> tuple[np.ndarray, GPTLossCache]:
        """The mean of -log p(target) in nats; targets (B, T) are the ids one step later, -100 where none counts."""
        logits, forward = self.forward(ids, training=training, rng=rng)
        loss, cache = cross_entropy(logits, targets)
        return loss, GPTLossCache(forward, cache)

    def backward(self, cache: GPTLossCache, dloss: float = 1.0, receive: Receive | None = None) -> Parameters:
        """The gradients of dloss * loss, named like the parameters; handed to `receive` if one is given."""
        # loss = cross_entropy(logits, targets)
        dlogits = cross_entropy_backward(dloss, cache.cross_entropy)
        return self.backward_from_logits(dlogits, cache.forward, receive)

    def attention_weights(self, ids: np.ndarray) -> Parameters:
        """The weights (B, H, T, T) of every layer by its name, `blocks.0.attention` and so on."""
        _, cache = self.forward(ids)
        return {f"blocks.{i}.attention": block.attention.attention.weights for i, block in enumerate(cache.blocks)}

    def generate(
        self,
        prompt_ids: Any,
        num_tokens: int,
        rng: np.random.Generator | None = None,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        stop_token: int | None = None,
        use_cache: bool = True,
    ) -> Any:
        """Continue one prompt, or several of unequal length at once; see `numpy_attention.models.generate`."""
        return generate(self, prompt_ids, num_tokens, rng, temperature, top_k, top_p, stop_token, use_cache)

    def _mask(self, x: np.ndarray, T_k: int) -> np.ndarray | None:
        T_q = x.shape[1]
        if self.config.window is not None:
            return sliding_window_mask(T_q, self.config.window, T_k, like=x)
        return None if T_q == 1 else causal_mask(T_q, T_k, like=x)  # the last query may look at everything

    def _bias(self, x: np.ndarray, T_k: int) -> np.ndarray | None:
        if self.config.positions != "alibi":
            return None
        return np.asarray(alibi_bias(self.config.num_heads, x.shape[1], T_k, x.dtype.type), like=x)
