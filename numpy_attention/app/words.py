"""The common part of `sample` and `chat`: the options of sampling, and the generated text piece by piece."""

import argparse
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from numpy_attention.errors import InputError
from numpy_attention.models.sampling import check_sampling
from numpy_attention.training.data import Vocabulary

UNFINISHED = "\ufffd"  # the decoder's output for an incomplete character


def add_sampling(parser: argparse.ArgumentParser, tokens: int, temperature: float) -> None:
    """Add the options of sampling, with these defaults."""
    add = parser.add_argument
    add("--tokens", type=int, default=tokens, help=f"the most tokens to write (default: {tokens})")
    add("--temperature", type=float, default=temperature, help=f"0: the most likely token (default: {temperature})")
    add("--top-k", type=int, default=None, help="draw only from the k most likely tokens")
    add("--top-p", type=float, default=None, help="draw only from the smallest set of tokens with this probability")
    add("--seed", type=int, default=0, help="seed of the random draws (default: 0)")


def sampling(a: argparse.Namespace) -> dict[str, Any]:
    """The options as keyword arguments of `stream`.

    Raises: InputError for impossible settings.
    """
    for option, value in (("--seed", a.seed), ("--tokens", a.tokens)):
        if value < 0:
            raise InputError(f"{option} must be at least 0, got {value}")
    options = {"rng": np.random.default_rng(a.seed), "temperature": a.temperature, "top_k": a.top_k, "top_p": a.top_p}
    try:
        check_sampling(**options)
    except ValueError as error:
        raise InputError(str(error)) from None
    return options


def words(vocabulary: Vocabulary, ids: Iterable[int]) -> Iterator[str]:
    """The text of the ids, piece by piece; the pieces together equal the text of all ids decoded at once.

    A character may need several ids. Its first bytes are held back until it is complete. Some vocabularies drop the
    space at the beginning of a text, so each piece is decoded together with the piece before it.
    """
    before: list[int] = []  # the ids of the last piece
    new: list[int] = []  # the ids after it
    for i in ids:
        new.append(i)
        printed, text = _decoded(vocabulary, before), _decoded(vocabulary, before + new)
        if len(text) > len(printed) and not text.endswith(UNFINISHED):
            yield text[len(printed) :]
            before, new = new, []
    if rest := _decoded(vocabulary, before + new)[len(_decoded(vocabulary, before)) :]:
        yield rest


def _decoded(vocabulary: Vocabulary, ids: list[int]) -> str:
    return vocabulary.decode(np.array(ids, dtype=np.int64))
