"""Chapter 23, continued. Writing with a GPT, token by token

The model reads the text so far, its last row of logits gives the next token, the token is appended, and so on.
Three things make it practical:

Stored keys. The model is causal, so the keys and values of old tokens never change. They are kept
(`KeyValueCache`), and each step runs the model on the new token alone.

Prompts of unequal length are written flush right, with padding on their left: all rows then grow at the same column.
Padding is masked, and a row counts its positions from its own first token, so each row gets what it would get alone:

    ids     . . 4 8 | 1 ...        positions     0 0 0 1 | 2 ...
            7 3 9 2 | 5 ...                      0 1 2 3 | 4 ...

A limited context. The model always reads the last context_length tokens and nothing before them; this is the one
rule, for long prompts and for long continuations alike. Once the text is longer than that, every step drops the
oldest token. Then all positions move by one and stored keys are of no use: each step is a pass over the context,
which costs the same for every further token.

Texts need nothing of each other. Where threads are lent (Chapter 31), each reads some of them; the next tokens are
drawn for all at once, so that the same generator writes the same texts however many threads there are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, Protocol

import numpy as np

from numpy_attention.backend import to_host
from numpy_attention.errors import dtype_error, require_integers, require_number, require_size, shape_error, value_error
from numpy_attention.layers.block import Block
from numpy_attention.layers.embedding import Embedding
from numpy_attention.layers.kv_cache import KeyValueCache, stored_length
from numpy_attention.models.gpt_config import GPTConfig
from numpy_attention.models.sampling import check_sampling, quiet, sample
from numpy_attention.ops.masks import causal_mask, sliding_window_mask
from numpy_attention.threads import share, shares


class LanguageModel(Protocol):
    """What generation asks of a model: GPT's logits, and where its parts stand."""

    config: GPTConfig
    token_embedding: Embedding
    blocks: list[Block]

    def forward(self, *args: Any, **kwargs: Any) -> tuple[np.ndarray, Any]: ...


def generate(
    model: LanguageModel,
    prompt_ids: Any,
    num_tokens: int,
    rng: np.random.Generator | None = None,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    stop_token: int | None = None,
    use_cache: bool = True,
) -> Any:
    """Continue each prompt by up to num_tokens tokens; a row ends early, with its stop_token.

    Shapes: a prompt (T,) -> (T + num_tokens,); a list of prompts, or an array (B, T) -> a list of such arrays.

    Raises: ValueError for an empty prompt, settings that no sampler can follow, or logits that are no numbers.
    """
    check_sampling(rng, temperature, top_k, top_p)
    require_size("generate", "num_tokens", num_tokens, at_least=0)
    if stop_token is not None:
        require_number("generate", "stop_token", stop_token, whole=True)
    prompts, single = _as_prompts(prompt_ids)
    lengths = np.array([len(prompt) for prompt in prompts])
    T = int(lengths.max())  # columns written so far
    start = T - lengths  # (B,) where each row begins
    ids = np.zeros((len(prompts), T + num_tokens), dtype=np.int64)
    for row, prompt in zip(ids, prompts):
        row[T - len(prompt) : T] = prompt

    end = np.full(len(prompts), T + num_tokens)  # (B,) where each row ends
    running = np.ones(len(prompts), dtype=bool)
    capacity = min(ids.shape[1], model.config.context_length)
    parts = shares(len(prompts))  # of the rows, one for each thread there is
    columns = []
    for rows in parts:
        past = [KeyValueCache(capacity) for _ in model.blocks] if use_cache else None
        columns.append(_logits_column_by_column(model, ids[rows], start[rows], T, past))
    logits: list[Any] = [None] * len(parts)  # of each part its (b, V)

    def read(i: int) -> None:
        logits[i] = next(columns[i])

    while T < ids.shape[1]:
        share(read, range(len(parts)))
        ids[:, T] = sample(np.concatenate(logits), rng, temperature, top_k, top_p)
        T += 1
        if stop_token is not None:
            stopped = running & (ids[:, T - 1] == stop_token)
            end[stopped] = T
            running &= ~stopped
            if not running.any():
                break
    end = np.minimum(end, T)
    texts = [row[a:b] for row, a, b in zip(ids, start, end)]
    return texts[0] if single else texts


def stream(
    model: LanguageModel,
    prompt_ids: np.ndarray,
    num_tokens: int,
    rng: np.random.Generator | None = None,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    stop: Collection[int] = (),
    past: list[KeyValueCache] | None = None,
) -> Iterator[int]:
    """Continue one prompt by up to num_tokens tokens, and give each as soon as it is drawn; one of `stop` is the last.

    `past` of an earlier call, if the prompt goes on where that one has ended, saves running its tokens again.

    Shapes: prompt_ids (T,).

    Raises: ValueError for an empty prompt, settings that no sampler can follow, or logits that are no numbers.
    """
    check_sampling(rng, temperature, top_k, top_p)
    require_size("generate", "num_tokens", num_tokens, at_least=0)
    [prompt, *others], single = _as_prompts(prompt_ids)
    if not single:
        got = f"a list of {1 + len(others)}"
        raise value_error("stream", "prompt_ids", "one prompt, (T,)", got, "generate takes several")
    T = len(prompt)
    ids = np.concatenate([prompt, np.zeros(num_tokens, np.int64)])[None]  # (1, T + num_tokens)
    capacity = min(ids.shape[1], model.config.context_length)
    past = [KeyValueCache(capacity) for _ in model.blocks] if past is None else past
    stored_length("generate", past, len(model.blocks))
    for logits in _logits_column_by_column(model, ids, np.zeros(1, np.int64), T, past):
        ids[:, T] = sample(logits, rng, temperature, top_k, top_p)
        yield int(ids[0, T])
        if ids[0, T] in stop:
            return
        T += 1


def _logits_column_by_column(
    model: LanguageModel, ids: np.ndarray, start: np.ndarray, T: int, past: list[KeyValueCache] | None
) -> Iterator[np.ndarray]:
    """The logits (B, V) after column T - 1, and again when the caller has written column T, to the end of ids."""
    while T < ids.shape[1]:
        if T > model.config.context_length:
            past = None  # the window slides: nothing stored is valid
        yield to_host(_last_logits(model, ids, start, T, past))
        T += 1


def _last_logits(
    model: LanguageModel, ids: np.ndarray, start: np.ndarray, T: int, past: list[KeyValueCache] | None
) -> np.ndarray:
    """The logits after column T - 1, from the columns that are not stored yet."""
    first = max(0, T - model.config.context_length)  # the first column the model reads
    first_new = first if past is None else past[0].length  # the first column to run
    num_padding = np.maximum(start - first, 0)  # (B,) columns of padding in the window
    positions = mask = None
    if num_padding.any():
        columns = np.arange(first, T) - first  # (T_k,)
        positions = np.maximum(columns - num_padding[:, None], 0)  # (B, T_k)
        positions = positions[:, first_new - first :]  # (B, T_q)
        T_q, T_k = positions.shape[1], len(columns)
        window = model.config.window
        mask = causal_mask(T_q, T_k) if window is None else sliding_window_mask(T_q, window, T_k)
        mask = mask & (columns >= num_padding[:, None])[:, None, None, :]  # (B, 1, T_q, T_k), no looking at padding
        table = model.token_embedding.table  # it tells where the model lives
        positions, mask = np.asarray(positions, like=table), np.asarray(mask, like=table)
    with quiet():
        logits, _ = model.forward(ids[:, first_new:T], mask=mask, positions=positions, past=past, last_only=True)
    return logits[:, -1]


def _as_prompts(prompt_ids: Any) -> tuple[list[np.ndarray], bool]:
    try:
        single = not hasattr(prompt_ids, "__len__") or len(prompt_ids) == 0 or np.ndim(prompt_ids[0]) == 0
        prompts = [np.asarray(prompt) for prompt in ([prompt_ids] if single else prompt_ids)]
    except (TypeError, ValueError, LookupError):  # a dict, a set, or lists of numbers and lists
        raise dtype_error("generate", "prompt_ids", "ids (T,), or a list of such", type(prompt_ids).__name__) from None
    for prompt in prompts:
        if prompt.ndim != 1 or len(prompt) == 0:
            fix = "start from a newline or another token that begins a text"
            raise shape_error("generate", "a prompt", "(T,) with at least one token", prompt.shape, fix)
        require_integers("generate", "prompt_ids", prompt)
    return prompts, single
