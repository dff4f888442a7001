"""Chapter 24. The encoder-decoder: one sequence in, another out

    context = encoder(source)                       every source token sees every other
    x       = decoder(target so far, context)       masked self-attention, then cross-attention to the context
    logits  = x w                                   row t has seen target tokens 0..t and predicts token t + 1

In training the whole true target goes in at once, shifted by one ("teacher forcing"): target_ids begins with a start
token, targets ends with a stop token, and the mask keeps row t from seeing its own answer.

The gradient's way back is worth following once. From the loss it enters the decoder's last block. There
cross-attention splits it: one part goes on down the decoder, the other, through the keys and values, to the context.
Each of the blocks sends such a part, and the encoder receives the sum:

    dcontext = dcontext_1 + ... + dcontext_L

With tied weights one table serves up to three times, as source embedding, target embedding and head; its gradients
add like those of any value that is used more than once. Embeddings are multiplied by sqrt(d_model), so that a table
with rows of length one (what the head wants) gives vectors as large as the sines added to them.

Source: Vaswani et al., "Attention Is All You Need", 2017, sections 3.1 to 3.5.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from numpy_attention.layers.embedding import Embedding
from numpy_attention.layers.layer import Parameters, prefixed
from numpy_attention.layers.linear import Linear
from numpy_attention.models.model import Model, Receive, as_rows, in_order_of
from numpy_attention.models.padding import check_batch, visible_tokens
from numpy_attention.models.search import beam_search, greedy_search
from numpy_attention.models.seq2seq_config import Seq2SeqConfig
from numpy_attention.models.stacks import Decoder, DecoderCache, Encoder, EncoderCache, Past
from numpy_attention.ops.embedding import embedding_backward_into
from numpy_attention.ops.losses import cross_entropy, cross_entropy_backward
from numpy_attention.ops.masks import causal_mask


class Seq2SeqCache(NamedTuple):
    """What backward needs of a forward; decoder.blocks[i].cross_attention.attention holds weights."""

    source: Any
    encoder: EncoderCache
    target: Any
    decoder: DecoderCache
    x: np.ndarray  # the input of the head, (B, T, d_model)
    head: Any  # None with tied weights


class Seq2SeqLossCache(NamedTuple):
    """What backward needs of a loss."""

    forward: Seq2SeqCache
    cross_entropy: Any


class Seq2Seq(Model):
    """logits = decoder(target_ids, encoder(source_ids)) w.

    Shapes: source_ids (B, T_s), target_ids (B, T) -> logits (B, T, target_vocab_size).
    Units: the loss is in nats, the mean over the targets that are not -100.
    Raises: `ValueError` for ids of another shape, outside the vocabulary, or longer than the context.
    """

    config_class = Seq2SeqConfig

    def __init__(self, config: Seq2SeqConfig, rng: np.random.Generator | None, dtype: Any = np.float32) -> None:
        c = self.config = config
        table = {"scale": 1.0 / math.sqrt(c.d_model), "dtype": dtype}
        self.source_embedding = None if c.share_embeddings else Embedding(c.source_vocab_size, c.d_model, rng, **table)
        self.encoder = Encoder(c, rng, dtype)
        self.target_embedding = Embedding(c.target_vocab_size, c.d_model, rng, **table)
        self.decoder = Decoder(c, rng, dtype)
        self.head = None if c.tie_weights else Linear(c.d_model, c.target_vocab_size, rng, bias=False, dtype=dtype)

    def forward(
        self,
        source_ids: np.ndarray,
        target_ids: np.ndarray,
        source_lengths: np.ndarray | None = None,
        target_lengths: np.ndarray | None = None,
        training: bool = False,
        rng: np.random.Generator | None = None,
    ) -> tuple[np.ndarray, Seq2SeqCache]:
        """The logits; padding is what comes after the lengths (B,), or the ids that are the pad_token."""
        source_mask = self.padding(source_ids, source_lengths)  # (B, 1, 1, T_s)
        target_mask = self.padding(target_ids, target_lengths)  # (B, 1, 1, T)
        context, source, encoder = self.encode(source_ids, source_mask, training, rng)
        logits, target, decoder, x, head = self.decode(
            target_ids, context, source_mask, target_mask, None, training, rng
        )
        return logits, Seq2SeqCache(source, encoder, target, decoder, x, head)

    def encode(
        self,
        source_ids: np.ndarray,
        source_mask: np.ndarray | None = None,
        training: bool = False,
        rng: np.random.Generator | None = None,
    ) -> tuple[np.ndarray, Any, EncoderCache]:
        """The context (B, T_s, d_model) that the decoder will read, and the caches on the way to it."""
        check_batch("Seq2Seq", "source_ids", source_ids, self.config.context_length)
        x, source = (self.source_embedding or self.target_embedding).forward(source_ids)  # (B, T_s, d_model)
        x *= math.sqrt(self.config.d_model)  # x is fresh from the table
        context, encoder = self.encoder.forward(x, source_mask, training, rng)
        return context, source, encoder

    def decode(
        self,
        target_ids: np.ndarray,
        context: np.ndarray,
        source_mask: np.ndarray | None = None,
        target_mask: np.ndarray | None = None,
        past: Past | None = None,
        training: bool = False,
        rng: np.random.Generator | None = None,
    ) -> tuple[np.ndarray, Any, DecoderCache, np.ndarray, Any]:
        """Logits for every target position, and the caches; with `past` target_ids are the new tokens alone."""
        T, T_past = target_ids.shape[-1], 0 if past is None else past[0][0].length
        check_batch("Seq2Seq", "target_ids", target_ids, self.config.context_length, T_past)
        x, target = self.target_embedding.forward(target_ids)  # (B, T, d_model)
        x *= math.sqrt(self.config.d_model)
        mask = causal_mask(T, T_past + T, like=x)  # (T, T_past + T)
        mask = mask if target_mask is None else mask & target_mask
        x, decoder = self.decoder.forward(x, context, mask, source_mask, past, training, rng)
        if self.head is None:
            logits = as_rows(x) @ self.target_embedding.table.T  # (B T, V)
            logits, head = logits.reshape(*x.shape[:-1], self.config.target_vocab_size), None  # (B, T, V)
        else:
            logits, head = self.head.forward(x)
        return logits, target, decoder, x, head

    def backward_from_logits(
        self, dlogits: np.ndarray, cache: Seq2SeqCache, receive: Receive | None = None
    ) -> Parameters:
        """The gradients of all parameters, given that of the logits; `receive` gets them one by one."""
        grads: Parameters = {}
        receive = grads.update if receive is None else receive
        scale = math.sqrt(self.config.d_model)
        table = self.target_embedding.table
        # logits = x @ table.T, or x @ w
        if self.head is None:
            dx = (as_rows(dlogits) @ table).reshape(cache.x.shape)  # (B, T, d_model)
            dtable = as_rows(dlogits).T @ as_rows(cache.x)  # (V, d_model)
        else:
            dx, head_grads = self.head.backward(dlogits, cache.head)
            receive(prefixed("head", head_grads))
            dtable = np.zeros_like(table)
        # x = decoder(scale * table[target_ids], context)
        dx, dcontext, decoder_grads = self.decoder.backward(dx, cache.decoder)
        receive(prefixed("decoder", decoder_grads))
        embedding_backward_into(dx * scale, cache.target, dtable)  # adds to what the head gave
        # context = encoder(scale * source_table[source_ids])
        dx, encoder_grads = self.encoder.backward(dcontext, cache.encoder)
        receive(prefixed("encoder", encoder_grads))
        if self.source_embedding is None:
            embedding_backward_into(dx * scale, cache.source, dtable)  # the table's third use
        else:
            _, source_grads = self.source_embedding.backward(dx * scale, cache.source)
            receive(prefixed("source_embedding", source_grads))
        receive({"target_embedding.table": dtable})
        return in_order_of(self, grads)

    def loss(
        self,
        source_ids: np.ndarray,
        target_ids: np.ndarray,
        targets: np.ndarray,
        source_lengths: np.ndarray | None = None,
        target_lengths: np.ndarray | None = None,
        training: bool = False,
        rng: np.random.Generator | None = None,
    ) -> tuple[np.ndarray, Seq2SeqLossCache]:
        """The mean of -log p(target) in nats; target_ids begins with the start token, targets is one step ahead of it.

        Where targets is -100 (padding) nothing is counted. Labels are smoothed in training alone.
        """
        logits, forward = self.forward(source_ids, target_ids, source_lengths, target_lengths, training, rng)
        smoothing = self.config.label_smoothing if training else 0.0
        loss, cache = cross_entropy(logits, targets, label_smoothing=smoothing)
        return loss, Seq2SeqLossCache(forward, cache)

    def backward(self, cache: Seq2SeqLossCache, dloss: float = 1.0, receive: Receive | None = None) -> Parameters:
        """The gradients of dloss * loss, named like the parameters; handed to `receive` if one is given."""
        # loss = cross_entropy(logits, targets)
        dlogits = cross_entropy_backward(dloss, cache.cross_entropy)
        return self.backward_from_logits(dlogits, cache.forward, receive)

    def attention_weights(
        self,
        source_ids: np.ndarray,
        target_ids: np.ndarray,
        source_lengths: np.ndarray | None = None,
        target_lengths: np.ndarray | None = None,
    ) -> Parameters:
        """The weights (B, H, T_q, T_k) by layer: `encoder.blocks.0.attention`, `decoder.blocks.0.cross_attention`."""
        _, cache = self.forward(source_ids, target_ids, source_lengths, target_lengths)
        found: Parameters = {}
        for i, encoder in enumerate(cache.encoder.blocks):
            found[f"encoder.blocks.{i}.attention"] = encoder.attention.attention.weights
        for i, decoder in enumerate(cache.decoder.blocks):
            found[f"decoder.blocks.{i}.attention"] = decoder.attention.attention.weights
            if decoder.cross_attention is not None:
                found[f"decoder.blocks.{i}.cross_attention"] = decoder.cross_attention.attention.weights
        return found

    def greedy(
        self, source_ids: np.ndarray, start_token: int, stop_token: int, max_tokens: int | None = None,
        source_lengths: np.ndarray | None = None,
    ) -> list[np.ndarray]:  # fmt: skip
        """The output of greedy search for each source; see `numpy_attention.models.search`."""
        limit = self.config.context_length if max_tokens is None else max_tokens
        return greedy_search(self, source_ids, start_token, stop_token, limit, source_lengths)

    def beam_search(
        self, source_ids: np.ndarray, start_token: int, stop_token: int, max_tokens: int | None = None,
        beam_size: int = 4, length_penalty: float = 0.6, source_lengths: np.ndarray | None = None,
    ) -> list[np.ndarray]:  # fmt: skip
        """The output of beam search for each source; see `numpy_attention.models.search`."""
        limit = self.config.context_length if max_tokens is None else max_tokens
        return beam_search(
            self, source_ids, start_token, stop_token, limit, beam_size, length_penalty, source_lengths
        )

    def padding(self, ids: np.ndarray, lengths: np.ndarray | None = None) -> np.ndarray | None:
        """The mask (B, 1, 1, T) that hides padding, or None where there is none."""
        visible = visible_tokens(ids, lengths, self.config.pad_token, like=self.target_embedding.table)
        return None if visible is None else visible[:, None, None, :]
