"""Chapter 23, continued. Generating text with a GPT, token by token

The model reads the text so far. The last row of logits gives the next token, which is appended, and the model reads
again. For a text of T tokens in ids (1, end), and a model that reads at most C tokens, the whole loop is

    while T < end:
        logits, _ = model.forward(ids[:, max(0, T - C) : T], last_only=True)  # (1, 1, V)
        ids[:, T] = sample(logits[:, -1], rng)
        T += 1

`stream` is this loop for one prompt, `last_logits` is a faster form of its second line, and `generate` is the loop for
several prompts at once. The settings of `sample`, from temperature to repetition_penalty, are explained in the next
part of this chapter.

A limited context. The model always reads the last context_length tokens and nothing before them, in long prompts and
in long continuations. Once the text is longer than the context, every step drops the oldest token.

The KV cache. The model is causal, so the keys and values of old tokens never change. A `KeyValueCache` stores them,
and each step runs the model on the new token alone. The products of one token are short, so BLAS uses one thread. When
the oldest token is dropped, all positions move by one and the KV cache is useless: from then on each step runs the
model on the whole context, at a constant cost per token.

Prompts of unequal length. They are aligned at their right end, with padding on the left, so that all rows grow at the
same column. Padding is masked, and each row counts positions from its own first token. So each prompt gets the same
tokens as without the other prompts:

    ids     . . 4 8 | 1 ...        positions     0 0 0 1 | 2 ...
            7 3 9 2 | 5 ...                      0 1 2 3 | 4 ...

Stop tokens. A row ends with its first stop token. The loop runs until every row has ended, and what it writes after
the end of a row is not returned.
"""

from collections.abc import Collection, Iterator
from contextlib import nullcontext
from typing import Any

import numpy as np

from numpy_attention.backend import to_host
from numpy_attention.errors import require_integers, require_number, shape_error, value_error
from numpy_attention.layers.c17a_kv_cache import KeyValueCache, stored_length
from numpy_attention.models.c21a_config import LARGEST
from numpy_attention.models.c23c_sampling import check_sampling, penalized, quiet, sample
from numpy_attention.ops.c04_masks import causal_mask
from numpy_attention.threads import blas_threads


def stream(
    model: Any, prompt_ids: np.ndarray, num_tokens: int, rng: np.random.Generator | None = None,
    temperature: float = 1.0, top_k: int | None = None, top_p: float | None = None, stop: Collection[int] = (),
    past: list[KeyValueCache] | None = None, min_p: float | None = None, repetition_penalty: float = 1.0,
) -> Iterator[int]:
    """Continue one prompt by up to num_tokens tokens; yield each token as soon as it is drawn.

    A token in `stop` ends the text. If the prompt continues the text of an earlier call, pass the KV cache of
    the earlier call as `past`: the model then runs on the new tokens only.

    Shapes: prompt_ids (T,).

    Raises: ValueError for an empty prompt, invalid settings, or logits with NaN or an infinite maximum.
    """
    check_sampling(rng, temperature, top_k, top_p, min_p, repetition_penalty)
    num_tokens = int(require_number("generate", "num_tokens", num_tokens, at_least=0, at_most=LARGEST, whole=True))
    if len(prompt_ids) and np.ndim(prompt_ids[0]):
        got = f"a list of {len(prompt_ids)}"
        raise value_error("stream", "prompt_ids", "one prompt, (T,)", got, "generate takes several prompts")
    prompt, stop_ids = _prompt(prompt_ids), _stop_ids(model, "stop", stop)
    T, end = len(prompt), len(prompt) + num_tokens
    ids = np.zeros((1, end), dtype=np.int64)
    ids[:, :T] = prompt
    past = [KeyValueCache(min(end, model.config.context_length)) for _ in model.blocks] if past is None else past
    while T < end:
        logits = last_logits(model, ids[:, :T], past)  # (1, V)
        logits = penalized(logits, ids[:, :T], repetition_penalty)
        ids[:, T] = sample(logits, rng, temperature, top_k, top_p, min_p)
        yield int(ids[0, T])
        if ids[0, T] in stop_ids:
            return
        T += 1


def last_logits(
    model: Any, ids: np.ndarray, past: list[KeyValueCache] | None = None, start: np.ndarray | int = 0
) -> np.ndarray:
    """The logits after the last column, on the host; the model runs on the columns that are not in the KV cache.

    Shapes: ids (B, T), start (B,), the first column of each row after its padding -> (B, V)
    """
    dropped = max(0, ids.shape[1] - model.config.context_length)
    if dropped:  # the positions have moved, so no stored key is valid
        ids, start, past = ids[:, dropped:], np.maximum(start - dropped, 0), None
    T = ids.shape[1]
    stored = 0 if past is None else stored_length("generate", past, len(model.blocks))
    positions, mask = _padding(start, stored, T, model.token_embedding.table) if np.any(start) else (None, None)
    one_thread = blas_threads(1) if T - stored == 1 else nullcontext()
    with quiet(), one_thread:  # without warnings of overflow: `sample` refuses NaN and infinity
        logits, _ = model.forward(ids[:, stored:], mask=mask, positions=positions, past=past, last_only=True)
    return to_host(logits[:, -1])


def _padding(start: Any, stored: int, T: int, like: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Positions that count from the first token of each row, and a causal mask that also hides the padding.

    Shapes: start (B,) -> positions (B, T_q), mask (B, 1, T_q, T_k), with T_k = T and T_q = T - stored; as the array
    `like`, they are on the host or on a GPU
    """
    start, columns = np.asarray(start, like=like)[:, None], np.arange(T, like=like)  # (B, 1) and (T_k,)
    positions = np.maximum(columns[stored:] - start, 0)
    not_padding = (columns >= start)[:, None, None, :]  # (B, 1, 1, T_k)
    return positions, causal_mask(T - stored, T, like=like) & not_padding


def generate(
    model: Any, prompt_ids: Any, num_tokens: int, rng: np.random.Generator | None = None,
    temperature: float = 1.0, top_k: int | None = None, top_p: float | None = None,
    stop_token: int | Collection[int] | None = None, use_cache: bool = True, min_p: float | None = None,
    repetition_penalty: float = 1.0,
) -> Any:
    """Continue each prompt by up to num_tokens tokens; a row that draws a stop_token (one id or several) ends there.

    Shapes: a prompt (T,) -> (T + num_tokens,); a list of prompts, or an array (B, T) -> a list of arrays.

    Raises: ValueError for an empty prompt, invalid settings, or logits with NaN or an infinite maximum.
    """
    check_sampling(rng, temperature, top_k, top_p, min_p, repetition_penalty)
    num_tokens = int(require_number("generate", "num_tokens", num_tokens, at_least=0, at_most=LARGEST, whole=True))
    stop_ids = _stop_ids(model, "stop_token", () if stop_token is None else stop_token)
    single = len(prompt_ids) == 0 or np.ndim(prompt_ids[0]) == 0
    prompts = [_prompt(prompt) for prompt in ([prompt_ids] if single else prompt_ids)]
    T = max(len(prompt) for prompt in prompts)  # columns written so far
    start = np.array([T - len(prompt) for prompt in prompts])  # (B,) where each row begins
    end = np.full(len(prompts), T + num_tokens)  # (B,) where each row ends
    ids = np.zeros((len(prompts), T + num_tokens), dtype=np.int64)
    for row, a, prompt in zip(ids, start, prompts):
        row[a:T] = prompt
    past = [KeyValueCache(min(ids.shape[1], model.config.context_length)) for _ in model.blocks] if use_cache else None
    while (T < end).any():
        logits = last_logits(model, ids[:, :T], past, start)  # (B, V)
        logits = penalized(logits, [row[a:T] for row, a in zip(ids, start)], repetition_penalty)
        ids[:, T] = sample(logits, rng, temperature, top_k, top_p, min_p)
        end[(T < end) & np.isin(ids[:, T], stop_ids)] = T + 1
        T += 1
    texts = [row[a:b] for row, a, b in zip(ids, start, end)]
    return texts[0] if single else texts


def _prompt(ids: Any) -> np.ndarray:
    prompt = np.asarray(ids)
    if prompt.ndim != 1 or len(prompt) == 0:
        fix = "begin with a newline or another token that can start a text"
        raise shape_error("generate", "a prompt", "(T,) with at least one token", prompt.shape, fix)
    require_integers("generate", "prompt_ids", prompt)
    return prompt


def _stop_ids(model: Any, argument: str, ids: int | Collection[int]) -> np.ndarray:
    stop_ids = np.array([*ids] if isinstance(ids, (set, frozenset)) else ids).reshape(-1)  # one id or several
    if stop_ids.size:
        require_integers("generate", argument, stop_ids, below=model.config.vocab_size)
    return stop_ids
