"""Byte-pair encoding (Chapter 27, continued): the merged pairs, and the ids of a text."""

from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from numpy_attention.catalogue.exercise import Exercise, Questions, Quiz
from numpy_attention.catalogue.mistake import stands_in_for
from numpy_attention.training.byte_pairs import Pair, merged

CHAPTER = 27


def learn_merges(
    ids: list[int], num_merges: int, *, at_least: int = 2,
    rank: Callable[[int, Pair], Any] = lambda count, pair: (-count, pair),
) -> list[Pair]:
    """Count, merge the most frequent pair (of equally frequent pairs the smallest), and repeat."""
    merges: list[Pair] = []
    while len(merges) < num_merges and (counts := Counter(pairwise(ids))) and max(counts.values()) >= at_least:
        merges.append(min(counts, key=lambda pair: rank(counts[pair], pair)))
        ids = merged(ids, merges[-1], 255 + len(merges))
    return merges


@stands_in_for("learn_merges")
def counted_once(ids: list[int], num_merges: int) -> list[Pair]:
    """It counts the pairs only once, but each merge changes the pairs, so they must be counted again.

    Hides: the first merge is right.
    """
    counts = Counter(pairwise(ids))
    return sorted((pair for pair in counts if counts[pair] > 1), key=lambda pair: (-counts[pair], pair))[:num_merges]


@stands_in_for("learn_merges")
def first_of_equals(ids: list[int], num_merges: int) -> list[Pair]:
    """Of equally frequent pairs it takes the first in the text; it must take the smallest pair.

    Hides: the vocabulary is equally good, but it depends on the order of the texts.
    """
    return learn_merges(ids, num_merges, rank=lambda count, pair: -count)


@stands_in_for("learn_merges")
def pairs_that_occur_once(ids: list[int], num_merges: int) -> list[Pair]:
    """It does not stop when no pair occurs twice: it gives an id to a pair that occurs once, which is useless.

    Hides: right if the text is long enough.
    """
    return learn_merges(ids, num_merges, at_least=1)


def encode(ids: list[int], merges: list[Pair], first_id: int = 256) -> list[int]:
    """Apply the merges in the order in which they were learned."""
    for i, pair in enumerate(merges):
        ids = merged(ids, pair, first_id + i)
    return ids


@stands_in_for("encode")
def merges_from_the_last(ids: list[int], merges: list[Pair]) -> list[int]:
    """The merges are applied from the last to the first, but a merge needs the new ids of earlier merges.

    Hides: right for a single merge.
    """
    for i, pair in reversed(list(enumerate(merges))):
        ids = merged(ids, pair, 256 + i)
    return ids


@stands_in_for("encode")
def ids_from_255(ids: list[int], merges: list[Pair]) -> list[int]:
    """The first merge gets the id 255, but the bytes are 0 to 255, so the first new id is 256.

    Hides: the byte 255 does not occur in UTF-8 text.
    """
    return encode(ids, merges, first_id=255)


def _about_merges(rng: np.random.Generator) -> Questions:
    yield "one merge of 'banana'", (list(b"banana"), 1)
    yield "no pair of 'abc' occurs twice", (list(b"abc"), 2)
    yield "two pairs of 'cdxabycdzab' are equally frequent", (list(b"cdxabycdzab"), 1)
    yield "two merges of 'abcabcabd': the second contains the id of the first", (list(b"abcabcabd"), 2)
    yield "an empty text", ([], 3)
    yield "random letters", (rng.integers(97, 101, 40).tolist(), 6)


def _about_encoding(rng: np.random.Generator) -> Questions:
    yield "'banana' with one merge", (list(b"banana"), [(97, 110)])
    yield "'aaaaa' with one merge, from the left", (list(b"aaaaa"), [(97, 97)])
    yield "'abcd', where a merge contains the id of another", (list(b"abcd"), [(97, 98), (256, 99)])
    yield "'abc', where the first merge takes the b", (list(b"abc"), [(98, 99), (97, 98)])
    yield "an empty text", ([], [(97, 98)])
    text = rng.integers(97, 101, 30).tolist()
    yield "random letters, with the merges of other letters", (
        text, learn_merges(rng.integers(97, 101, 60).tolist(), 5))


OURS = {"learn_merges": learn_merges, "encode": encode}
EXERCISES = (
    Exercise(
        "byte_pairs", 12,
        quizzes={"learn_merges": Quiz(learn_merges, _about_merges), "encode": Quiz(encode, _about_encoding)},
        not_allowed=("merged", "count_chunks"),
    ),
)
