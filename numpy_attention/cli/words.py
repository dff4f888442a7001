"""What `sample` and `chat` share: the options of sampling, and words as they come."""

import argparse
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from numpy_attention.errors import InputError
from numpy_attention.models.sampling import check_sampling
from numpy_attention.training.data import Vocabulary

MOST_TOKENS = 2**24  # whose ids take 128 MB
UNFINISHED = "\ufffd"  # what decoding shows for the first bytes of a character


def add_sampling(parser: argparse.ArgumentParser, tokens: int, temperature: float) -> None:
    """The options of sampling, with these defaults."""
    add = parser.add_argument
    add("--tokens", type=int, default=tokens, help=f"how many tokens to write at most (default: {tokens})")
    add("--temperature", type=float, default=temperature, help=f"0: always the likeliest (default: {temperature})")
    add("--top-k", type=int, default=None, help="draw from the k likeliest only")
    add("--top-p", type=float, default=None, help="draw from the fewest with this probability together")
    add("--seed", type=int, default=0, help="makes what is drawn repeatable (default: 0)")


def sampling(a: argparse.Namespace) -> dict[str, Any]:
    """The options as `stream` takes them, from the seed on.

    Raises: InputError for settings that no sampler can follow.
    """
    if a.seed < 0:
        raise InputError(f"--seed must be at least 0, got {a.seed}")
    if not 0 <= a.tokens <= MOST_TOKENS:
        raise InputError(f"--tokens must be from 0 to {MOST_TOKENS:,}, got {a.tokens}")
    rng = np.random.default_rng(a.seed)
    try:
        check_sampling(rng, a.temperature, a.top_k, a.top_p)
    except ValueError as error:
        raise InputError(str(error)) from None
    return {"rng": rng, "temperature": a.temperature, "top_k": a.top_k, "top_p": a.top_p}


def words(vocabulary: Vocabulary, ids: Iterable[int]) -> Iterator[str]:
    """The text that the ids spell, piece by piece; together what all of them spell at once.

    A character may be spread over several ids. Its first bytes are kept back until it is whole. Some vocabularies drop
    the space at the beginning of a text, so each piece is decoded together with the one before.
    """
    before: list[int] = []  # the ids of the last piece
    new: list[int] = []  # and those after it
    for i in ids:
        new.append(i)
        said, text = _decoded(vocabulary, before), _decoded(vocabulary, before + new)
        if len(text) > len(said) and not text.endswith(UNFINISHED):
            yield text[len(said) :]
            before, new = new, []
    if rest := _decoded(vocabulary, before + new)[len(_decoded(vocabulary, before)) :]:
        yield rest


def _decoded(vocabulary: Vocabulary, ids: list[int]) -> str:
    return vocabulary.decode(np.array(ids, dtype=np.int64))
