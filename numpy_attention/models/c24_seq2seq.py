"""Chapter 24. The encoder-decoder: one sequence in, another out

    source_ids --> embedding --> + positions --> ENCODER (a stack)      every source token sees every other
                                                    |
                                                    |  context (B, T_s, d_model)
                                                    v
    target_ids --> embedding --> + positions --> DECODER (a stack) --> x --> head --> logits (B, T, V) --> loss
                                                 masked self-attention,
                                                 then cross-attention to the context

Row t of the logits depends on target tokens 0..t and predicts token t + 1. In training the decoder reads the whole
true target at once, shifted by one ("teacher forcing"): target_ids begins with a start token, targets ends with a stop
token. The mask hides token t + 1, which row t must predict.

The gradient goes from the loss to the last block of the decoder. There cross-attention splits the gradient: one part
continues down the decoder, the other goes through keys and values to the context. Every block of the decoder sends a
gradient to the context, and the encoder receives the sum (Chapter 21).

With tied weights one table is used up to three times: as source embedding, as target embedding and as head. The
gradients of the uses add. Embeddings are multiplied by sqrt(d_model): the head needs rows of length about one, and the
factor makes the embeddings as large as the sines that are added.
"""

import math
from collections.abc import Collection
from typing import Any, NamedTuple

import numpy as np

from numpy_attention.errors import require_float
from numpy_attention.layers.c13_layer import Parameters, flat_gradients
from numpy_attention.layers.c14_linear import Linear
from numpy_attention.layers.c15_embedding import Embedding
from numpy_attention.layers.c17a_kv_cache import stored_length
from numpy_attention.models.c21_stack import Past
from numpy_attention.models.c21b_head import Head
from numpy_attention.models.c21c_model import LossCache, Model
from numpy_attention.models.c21e_weights import attention_weights
from numpy_attention.models.c22b_padding import visible_tokens
from numpy_attention.models.c24a_seq2seq_config import Seq2SeqConfig
from numpy_attention.models.c24b_search import beam_search, greedy_search
from numpy_attention.models.c24c_stacks import PlacedStackCache, Stack
from numpy_attention.ops.c02_embedding import EmbeddingCache
from numpy_attention.ops.c04_masks import causal_mask
from numpy_attention.ops.c12a_tiles import Band


class EncodeCache(NamedTuple):
    """What backward needs from the steps between source and context."""

    source: EmbeddingCache
    stack: PlacedStackCache


class DecodeCache(NamedTuple):
    """What backward needs from the steps between target, context and logits."""

    target: EmbeddingCache
    stack: PlacedStackCache
    x: np.ndarray  # (B, T, d_model), the input of the head


class Seq2SeqCache(NamedTuple):
    """What backward needs from a forward."""

    encoder: EncodeCache
    decoder: DecodeCache


class Seq2Seq(Model):
    """Read a source and the start of a target; return a score for every possible next token of the target.

    Formula: logits = head(decoder(target_ids, encoder(source_ids)))

    Shapes: source_ids (B, T_s), target_ids (B, T) -> logits (B, T, target_vocab_size).

    Units: the loss is in nats, the mean over the targets that are not -100.

    Raises: ValueError for ids of another shape, outside the vocabulary, or longer than the context.

    Source: Vaswani et al., Attention Is All You Need (2017), sections 3.1 to 3.5.
    """

    config_class = Seq2SeqConfig

    def __init__(self, config: Seq2SeqConfig, rng: np.random.Generator | None, dtype: Any = np.float32) -> None:
        c = self.config = self.require_config(config)
        how = {"scale": 1.0 / math.sqrt(c.d_model), "dtype": dtype}
        self.source_embedding = None if c.share_embeddings else Embedding(c.source_vocab_size, c.d_model, rng, **how)
        self.encoder = Stack(c, c.num_layers, rng, dtype=dtype)
        self.target_embedding = Embedding(c.target_vocab_size, c.d_model, rng, **how)
        self.decoder = Stack(c, c.num_decoder_layers or c.num_layers, rng, cross_attention=True, dtype=dtype)
        self.head = None if c.tie_weights else Linear(c.d_model, c.target_vocab_size, rng, bias=False, dtype=dtype)

    def forward(
        self, source_ids: np.ndarray, target_ids: np.ndarray, source_lengths: np.ndarray | None = None,
        target_lengths: np.ndarray | None = None, rng: np.random.Generator | None = None,
    ) -> tuple[np.ndarray, Seq2SeqCache]:
        """The logits. Padding: the tokens after the lengths (B,); without lengths, all tokens equal to pad_token."""
        cache = self.states(source_ids, target_ids, source_lengths, target_lengths, rng)
        return self.output_head().forward(cache.decoder.x), cache  # (B, T, V)

    def states(
        self, source_ids: np.ndarray, target_ids: np.ndarray, source_lengths: np.ndarray | None = None,
        target_lengths: np.ndarray | None = None, rng: np.random.Generator | None = None,
    ) -> Seq2SeqCache:
        """Everything before the head."""
        source_mask = self.padding(source_ids, source_lengths, "source_ids")  # (B, 1, 1, T_s)
        target_mask = self.padding(target_ids, target_lengths, "target_ids")  # (B, 1, 1, T)
        context, encoder = self.encode(source_ids, source_mask, rng)  # (B, T_s, d_model)
        return Seq2SeqCache(encoder, self._decoder_states(target_ids, context, source_mask, target_mask, rng=rng))

    def encode(
        self, source_ids: np.ndarray, source_mask: np.ndarray | None = None, rng: np.random.Generator | None = None,
    ) -> tuple[np.ndarray, EncodeCache]:
        """The context (B, T_s, d_model), which the decoder reads."""
        self.require_batch("source_ids", source_ids)
        x, source = (self.source_embedding or self.target_embedding).forward(source_ids)  # (B, T_s, d_model)
        x *= math.sqrt(self.config.d_model)  # in place: x is a new array
        band = Band() if self.config.in_tiles(x, x.shape[1]) else None
        context, stack = self.encoder.forward(x, mask=source_mask, rng=rng, band=band, recompute=self.recompute)
        return context, EncodeCache(source, stack)

    def decode(
        self, target_ids: np.ndarray, context: np.ndarray, source_mask: np.ndarray | None = None,
        target_mask: np.ndarray | None = None, past: Past | None = None, rng: np.random.Generator | None = None,
    ) -> tuple[np.ndarray, DecodeCache]:
        """Logits for every target position. With `past`, target_ids has only new tokens, and there is no backward."""
        cache = self._decoder_states(target_ids, context, source_mask, target_mask, past, rng)
        return self.output_head().forward(cache.x), cache  # (B, T, V)

    def _decoder_states(
        self, target_ids: np.ndarray, context: np.ndarray, source_mask: np.ndarray | None,
        target_mask: np.ndarray | None, past: Past | None = None, rng: np.random.Generator | None = None,
    ) -> DecodeCache:
        T_past = 0 if past is None else stored_length("Seq2Seq", past, len(self.decoder.blocks))
        self.require_batch("target_ids", target_ids, T_past)
        require_float("Seq2Seq", context=context)
        T = target_ids.shape[1]
        x, target = self.target_embedding.forward(target_ids)  # (B, T, d_model)
        x *= math.sqrt(self.config.d_model)
        mask, band = target_mask, None
        if past is None and self.config.in_tiles(x, max(T, context.shape[1])):
            band = Band(causal=True)  # cross-attention runs in tiles too, without the causal mask
        else:
            mask = causal_mask(T, T_past + T, like=x)  # (T, T_past + T)
            mask = mask if target_mask is None else mask & target_mask
        masks = {"mask": mask, "context_mask": source_mask, "band": band}
        x, stack = self.decoder.forward(x, context, past, rng=rng, recompute=self.recompute, **masks)
        return DecodeCache(target, stack, x)

    def gradients_from_logits(self, cache: Seq2SeqCache, dlogits: np.ndarray) -> Parameters:
        # logits = head(x)
        return self.states_backward(*self.output_head().backward(dlogits, cache.decoder.x), cache)

    def states_backward(self, dx: np.ndarray, dvectors: np.ndarray | None, cache: Seq2SeqCache) -> Parameters:
        """All gradients, from those of the two inputs of the head: x, and the vectors of the tokens."""
        encoder, decoder = cache
        scale, grads = math.sqrt(self.config.d_model), dict[str, Any]()
        # x = decoder(scale * table[target_ids] + positions, context)
        dx, dcontext, grads["decoder"] = self.decoder.backward(dx, decoder.stack)
        # context = encoder(scale * source_table[source_ids] + positions)
        dsource, grads["encoder"] = self.encoder.backward(dcontext, encoder.stack)
        _, of_target = self.target_embedding.backward(dx * scale, decoder.target)
        _, of_source = (self.source_embedding or self.target_embedding).backward(dsource * scale, encoder.source)
        # the table of the target may be used up to three times: then the gradients of its uses add up
        grads["target_embedding"] = of_target
        if self.source_embedding is None:
            of_target["table"] += of_source["table"]
        else:
            grads["source_embedding"] = of_source
        if self.head is None and dvectors is not None:
            of_target["table"] += dvectors
        elif dvectors is not None:
            # vectors = w.T
            grads["head"] = {"w": dvectors.T.copy()}
        return self.ordered(flat_gradients(grads))

    def loss(
        self, source_ids: np.ndarray, target_ids: np.ndarray, targets: np.ndarray,
        source_lengths: np.ndarray | None = None, target_lengths: np.ndarray | None = None, training: bool = False,
        rng: np.random.Generator | None = None,
    ) -> tuple[np.ndarray, LossCache]:
        """The mean of -log p(target) in nats. target_ids begins with the start token; targets is one step ahead.

        Targets of -100 (padding) are ignored. Labels are smoothed only with `training=True`.
        """
        rng = rng if training else None
        cache = self.states(source_ids, target_ids, source_lengths, target_lengths, rng)
        smoothing = self.config.label_smoothing if training else 0.0
        loss, of_loss = self.output_head().loss(cache.decoder.x, targets, self.logits_at_once, smoothing)
        return loss, LossCache(cache, of_loss)

    def backward(self, cache: LossCache, dloss: float = 1.0) -> Parameters:
        """All gradients of dloss * loss, named and ordered like the parameters."""
        # loss = cross_entropy(head(x), targets)
        dx, dvectors = self.output_head().loss_backward(dloss, cache.forward.decoder.x, cache.cross_entropy)
        return self.states_backward(dx, dvectors, cache.forward)

    def attention_weights(
        self, source_ids: np.ndarray, target_ids: np.ndarray, source_lengths: np.ndarray | None = None,
        target_lengths: np.ndarray | None = None, layers: Collection[str] | None = None,
    ) -> Parameters:
        """The weights (B, H, T_q, T_k) of the layers in `layers`, or of all, by name: `encoder.blocks.0.attention`,
        `decoder.blocks.0.cross_attention` and so on."""
        _, cache = self.forward(source_ids, target_ids, source_lengths, target_lengths)
        return attention_weights({"encoder.": cache.encoder.stack.stack, "decoder.": cache.decoder.stack.stack}, layers)

    greedy = greedy_search  # model.greedy(source_ids, start_token, stop_token, ...)
    beam_search = beam_search

    def output_head(self) -> Head:
        """The head: with tied weights its vectors are the rows of the table of the target."""
        if self.head is None:
            return Head(self.target_embedding.table, bool(self.target_embedding.frozen))
        return Head(self.head.w.T, bool(self.head.frozen))

    def padding(self, ids: np.ndarray, lengths: np.ndarray | None = None, argument: str = "ids") -> np.ndarray | None:
        """The mask (B, 1, 1, T) that hides padding, or None without padding; `argument`: the name of ids in errors."""
        self.require_batch(argument, ids)
        like, lengths_name = self.target_embedding.table, argument.replace("ids", "lengths")
        visible = visible_tokens(ids, lengths, self.config.pad_token, like, lengths_name)
        return None if visible is None else visible[:, None, None, :]
