"""Chapter 23, continued. Generating text with a GPT, token by token

The model reads the text so far. The last row of logits gives the next token, which is appended, and the model reads
again. Three things make this practical:

The KV cache. The model is causal, so the keys and values of old tokens never change. A `KeyValueCache` stores them,
and each step runs the model on the new token alone. The products of one token are short, so BLAS uses one thread.

Prompts of unequal length. They are aligned at their right end, with padding on the left, so that all rows grow at the
same column. Padding is masked, and each row counts positions from its own first token. So each prompt gets the same
tokens as without the other prompts:

    ids     . . 4 8 | 1 ...        positions     0 0 0 1 | 2 ...
            7 3 9 2 | 5 ...                      0 1 2 3 | 4 ...

A limited context. The model always reads the last context_length tokens and nothing before them, in long prompts and
in long continuations. Once the text is longer than the context, every step drops the oldest token. Then all positions
move by one and the KV cache is useless: each step runs the model on the whole context, at a constant cost per token.
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
    num_tokens = _num_tokens(num_tokens)
    stop = _stop_ids(model, "stop_token", [] if stop_token is None else stop_token)
    prompts, single = _as_prompts(prompt_ids)
    lengths = np.array([len(prompt) for prompt in prompts])
    T = int(lengths.max())  # columns written so far
    start = T - lengths  # (B,) where each row begins
    ids = np.zeros((len(prompts), T + num_tokens), dtype=np.int64)
    for row, prompt in zip(ids, prompts):
        row[T - len(prompt) : T] = prompt

    end = np.full(len(prompts), T + num_tokens)  # (B,) where each row ends
    running = np.ones(len(prompts), dtype=bool)
    past = [KeyValueCache(min(ids.shape[1], model.config.context_length)) for _ in model.blocks] if use_cache else None
    while T < ids.shape[1]:
        logits = last_logits(model, ids, start, T, past)  # (B, V)
        logits = penalized(logits, [row[a:T] for row, a in zip(ids, start)], repetition_penalty)
        ids[:, T] = sample(logits, rng, temperature, top_k, top_p, min_p)
        T += 1
        stopped = running & np.isin(ids[:, T - 1], stop)
        end[stopped] = T
        running &= ~stopped
        if not running.any():
            break
    end = np.minimum(end, T)
    texts = [row[a:b] for row, a, b in zip(ids, start, end)]
    return texts[0] if single else texts


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
    num_tokens = _num_tokens(num_tokens)
    stop_ids = _stop_ids(model, "stop", stop)
    [prompt, *others], single = _as_prompts(prompt_ids)
    if not single:
        got = f"a list of {1 + len(others)}"
        raise value_error("stream", "prompt_ids", "one prompt, (T,)", got, "generate takes several prompts")
    T = len(prompt)
    ids = np.zeros((1, T + num_tokens), dtype=np.int64)
    ids[0, :T] = prompt
    capacity = min(ids.shape[1], model.config.context_length)
    past = [KeyValueCache(capacity) for _ in model.blocks] if past is None else past
    stored_length("generate", past, len(model.blocks))
    while T < ids.shape[1]:
        logits = last_logits(model, ids, np.zeros(1, np.int64), T, past)  # (1, V)
        logits = penalized(logits, [ids[0, :T]], repetition_penalty)
        ids[:, T] = sample(logits, rng, temperature, top_k, top_p, min_p)
        yield int(ids[0, T])
        if ids[0, T] in stop_ids:
            return
        T += 1


def last_logits(
    model: Any, ids: np.ndarray, start: np.ndarray, T: int, past: list[KeyValueCache] | None
) -> np.ndarray:
    """The logits after column T - 1, on the host; the model runs on the columns that are not in the KV cache.

    Shapes: ids (B, T or more), start (B,), the first column of each row after its padding -> (B, V)
    """
    if T > model.config.context_length:  # the window slides, so no stored key is valid
        first, past = T - model.config.context_length, None
        ids, start, T = ids[:, first:T], np.maximum(start - first, 0), T - first
    stored = 0 if past is None else past[0].length
    positions = mask = None
    if start.any():
        columns = np.arange(T)  # (T_k,), T_k = T
        positions = np.maximum(columns[stored:] - start[:, None], 0)  # (B, T_q)
        seen = (columns >= start[:, None])[:, None, None, :]  # (B, 1, 1, T_k), padding hidden
        mask = causal_mask(T - stored, T) & seen  # (B, 1, T_q, T_k); a block with a window adds its window
        table = model.token_embedding.table  # positions and mask go to its device
        positions, mask = np.asarray(positions, like=table), np.asarray(mask, like=table)
    with quiet(), nullcontext() if T - stored > 1 else blas_threads(1):
        logits, _ = model.forward(ids[:, stored:T], mask=mask, positions=positions, past=past, last_only=True)
    return to_host(logits[:, -1])


def _num_tokens(num_tokens: int) -> int:
    return int(require_number("generate", "num_tokens", num_tokens, at_least=0, at_most=LARGEST, whole=True))


def _stop_ids(model: Any, argument: str, ids: int | Collection[int]) -> np.ndarray:
    """One id or several as an array, (n,)."""
    found = np.array([*ids] if isinstance(ids, (set, frozenset)) else ids).reshape(-1)
    found = found if found.size else np.zeros(0, np.int64)
    require_integers("generate", argument, found, below=model.config.vocab_size)
    return found


def _as_prompts(prompt_ids: Any) -> tuple[list[np.ndarray], bool]:
    single = len(prompt_ids) == 0 or np.ndim(prompt_ids[0]) == 0
    prompts = [np.asarray(prompt) for prompt in ([prompt_ids] if single else prompt_ids)]
    for prompt in prompts:
        if prompt.ndim != 1 or len(prompt) == 0:
            fix = "begin with a newline or another token that can start a text"
            raise shape_error("generate", "a prompt", "(T,) with at least one token", prompt.shape, fix)
        require_integers("generate", "prompt_ids", prompt)
    return prompts, single
