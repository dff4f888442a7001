"""Questions about byte pairs: the merges of a text, and the ids of a text."""

import numpy as np

from numpy_attention.training.c27a_byte_pairs import learn_merges as learn_from_chunks
from numpy_attention.tutor.exercise import Questions, Quiz


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
    text, other = rng.integers(97, 101, 30).tolist(), rng.integers(97, 101, 60).tolist()
    yield "random letters, with the merges of other letters", (text, learn_from_chunks({bytes(other).decode(): 1}, 261))


QUESTIONS = {"learn_merges": Quiz(_about_merges), "encode": Quiz(_about_encoding)}
