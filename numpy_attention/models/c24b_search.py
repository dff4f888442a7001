"""Chapter 24, continued. Finding the best output sequence

The decoder gives the probability of one token after another. Their product is the probability of the sequence. There
are V^T sequences of length T, too many to try all.

Greedy search (greedy decoding) takes the most likely token at each step. It is fast, but a good first word may lead
to a bad sentence.

Beam search keeps the `beam_size` most likely beginnings. A beginning that takes the stop token is finished and keeps
its place in the beam. Each further token multiplies the product by a probability below one, so the plain product
prefers short sentences. The length penalty corrects this: sequences are compared by

    score = log p(y) / ((5 + |y|) / 6)^alpha

A beam of two. Each number is the product of all probabilities so far; each column keeps the two largest products:

    start --+-- the 0.6 --+-- cat 0.3 ----- stop 0.2       finished
            |             +-- dog 0.1       (dropped)
            +-- a   0.3 ----- cat 0.2 ----- sat  0.1       grows on
"""

from typing import Any

import numpy as np

from numpy_attention.backend import to_host
from numpy_attention.errors import require_number, require_size
from numpy_attention.layers.c17a_kv_cache import KeyValueCache
from numpy_attention.models.c21_stack import Past
from numpy_attention.models.c23c_sampling import quiet, require_finite
from numpy_attention.ops.c11a_weighted_losses import log_softmax


def greedy_search(
    model: Any, source_ids: np.ndarray, start_token: int, stop_token: int, max_tokens: int | None = None,
    source_lengths: np.ndarray | None = None,
) -> list[np.ndarray]:
    """Take the most likely token at each step, for all sources at once, until all have taken the stop token.

    Shapes: source_ids (B, T_s) -> B arrays of at most max_tokens (default: context_length), without the start token
    and with the stop token.

    Raises: ValueError for max_tokens outside [1, context_length], or logits with NaN or an infinite maximum.
    """
    source_mask = model.padding(source_ids, source_lengths, "source_ids")
    max_tokens = _checked(model, start_token, stop_token, max_tokens)
    with quiet():
        context, _ = model.encode(source_ids, source_mask)
    past = [(KeyValueCache(max_tokens), KeyValueCache(context.shape[1])) for _ in model.decoder.blocks]
    B = len(source_ids)
    ids = np.full((B, 1 + max_tokens), start_token, dtype=np.int64)
    T, end = 1, np.full(B, 1 + max_tokens)  # columns written so far; where each row ends
    while (T < end).any():
        logits = _last_logits(model, ids[:, T - 1 : T], context, source_mask, past)
        ids[:, T] = np.argmax(logits, axis=-1)
        end[(T < end) & (ids[:, T] == stop_token)] = T + 1
        T += 1
    return [row[1:b] for row, b in zip(ids, end)]


def beam_search(
    model: Any, source_ids: np.ndarray, start_token: int, stop_token: int, max_tokens: int | None = None,
    beam_size: int = 4, length_penalty: float = 0.6, source_lengths: np.ndarray | None = None,
) -> list[np.ndarray]:
    """The best of `beam_size` sequences for each source; `length_penalty` is alpha; 0 compares plain probabilities.

    Shapes: source_ids (B, T_s) -> B arrays of at most max_tokens (default: context_length), without the start token
    and with the stop token.

    Raises: ValueError for a beam_size below 1, a length_penalty outside [0, 10], max_tokens outside
    [1, context_length], or logits with NaN or an infinite maximum.

    Source: Wu et al., Google's Neural Machine Translation System (2016), equation 14.
    """
    require_size("beam_search", "beam_size", beam_size)
    require_number("beam_search", "length_penalty", length_penalty, at_least=0, at_most=10)
    source_mask = model.padding(source_ids, source_lengths, "source_ids")
    max_tokens = _checked(model, start_token, stop_token, max_tokens)
    with quiet():
        context, _ = model.encode(source_ids, source_mask)
    results = []
    for b in range(len(source_ids)):
        mask = None if source_mask is None else source_mask[b : b + 1]
        finished = _beam(model, context[b : b + 1], mask, start_token, stop_token, max_tokens, beam_size)
        scores = [log_p / ((5.0 + len(ids)) / 6.0) ** length_penalty for log_p, ids in finished]
        results.append(finished[int(np.argmax(scores))][1])
    return results


def _beam(
    model: Any, context: np.ndarray, mask: np.ndarray | None, start_token: int, stop_token: int,
    max_tokens: int, beam_size: int,
) -> list[tuple[float, np.ndarray]]:
    """Up to beam_size sequences for one source, each with its log probability."""
    past = [(KeyValueCache(max_tokens), KeyValueCache(context.shape[1])) for _ in model.decoder.blocks]
    ids = np.full((1, 1), start_token, dtype=np.int64)  # (n, 1 + t), the n unfinished beginnings
    log_p = np.zeros(1)  # (n,)
    finished: list[tuple[float, np.ndarray]] = []
    for _ in range(max_tokens):
        rows_context = np.broadcast_to(context, (len(ids), *context.shape[1:]))
        logits = _last_logits(model, ids[:, -1:], rows_context, mask, past)
        candidates = log_p[:, None] + log_softmax(logits.astype(np.float64))[0]  # (n, V)
        best = np.argsort(-candidates, axis=None, kind="stable")[: beam_size - len(finished)]
        rows, tokens = np.divmod(best, candidates.shape[1])
        ids = np.concatenate([ids[rows], tokens[:, None]], axis=1)  # (n, 1 + t + 1)
        log_p = candidates[rows, tokens]
        growing = tokens != stop_token
        finished += [(float(p), row[1:]) for p, row in zip(log_p[~growing], ids[~growing])]
        ids, log_p, rows = ids[growing], log_p[growing], rows[growing]
        if len(ids) == 0:
            break
        for self_past, cross_past in past:
            self_past.reorder(rows)
            cross_past.reorder(rows)
    return finished + [(float(p), row[1:]) for p, row in zip(log_p, ids)]


def _last_logits(
    model: Any, ids: np.ndarray, context: np.ndarray, mask: np.ndarray | None, past: Past
) -> np.ndarray:
    """The logits (n, V) after the last of the ids."""
    with quiet():
        logits, _ = model.decode(ids, context, mask, past=past)
    last = to_host(logits[:, -1])
    require_finite("search", last)
    return last


def _checked(model: Any, start_token: int, stop_token: int, max_tokens: int | None) -> int:
    V = model.config.target_vocab_size
    require_number("search", "start_token", start_token, at_least=0, below=V, whole=True)
    require_number("search", "stop_token", stop_token, at_least=-1, below=V, whole=True)  # -1: no stop token
    limit = model.config.context_length
    if max_tokens is None:
        return limit
    fix = "a target cannot be longer than the model's context_length"
    return int(require_number("search", "max_tokens", max_tokens, at_least=1, at_most=limit, whole=True, fix=fix))
