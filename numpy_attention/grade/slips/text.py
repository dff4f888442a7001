"""Slips in byte pairs, and in choosing the next token."""

from collections import Counter
from itertools import pairwise

import numpy as np

from numpy_attention.grade import references
from numpy_attention.grade.slips.registry import slip
from numpy_attention.ops.softmax import softmax
from numpy_attention.training.byte_pairs import Pair, merged

Array = np.ndarray


@slip("learn_merges", "stand_in")
def counted_once(ids: list[int], num_merges: int) -> list[Pair]:
    """The most frequent pairs of the first text: after each merge the pairs are others, and must be counted anew.

    Hides: the first merge is right.
    """
    counts = Counter(pairwise(ids))
    return sorted((pair for pair in counts if counts[pair] > 1), key=lambda pair: (-counts[pair], pair))[:num_merges]


@slip("learn_merges", "stand_in")
def first_of_equals(ids: list[int], num_merges: int) -> list[Pair]:
    """Of pairs that are equally frequent it takes the one that stands first; here it must be that of the lowest ids.

    Hides: it is as good a vocabulary, but not the same one for another order of the same texts.
    """
    merges: list[Pair] = []
    while len(merges) < num_merges and (counts := Counter(pairwise(ids))) and max(counts.values()) > 1:
        merges.append(counts.most_common(1)[0][0])
        ids = merged(ids, merges[-1], 255 + len(merges))
    return merges


@slip("learn_merges", "stand_in")
def pairs_that_stand_once(ids: list[int], num_merges: int) -> list[Pair]:
    """It goes on where no pair stands twice, and gives an id to what this text has once: nothing is learned by that.

    Hides: right while the text is long enough.
    """
    merges: list[Pair] = []
    while len(merges) < num_merges and (counts := Counter(pairwise(ids))):
        merges.append(min(counts, key=lambda pair: (-counts[pair], pair)))
        ids = merged(ids, merges[-1], 255 + len(merges))
    return merges


@slip("encode", "stand_in")
def merges_from_the_last(ids: list[int], merges: list[Pair]) -> list[int]:
    """The merges are replayed from the last to the first; a merge can be made only where its parts have been.

    Hides: right with a single merge.
    """
    for i, pair in reversed(list(enumerate(merges))):
        ids = merged(ids, pair, 256 + i)
    return ids


@slip("encode", "stand_in")
def ids_from_255(ids: list[int], merges: list[Pair]) -> list[int]:
    """The first merge gets the id 255, which is a byte: the bytes are 0 to 255, so the first new id is 256.

    Hides: that byte occurs in no text.
    """
    for i, pair in enumerate(merges):
        ids = merged(ids, pair, 255 + i)
    return ids


def _put_back(kept: Array, order: Array) -> Array:
    back = np.zeros_like(kept)
    np.put_along_axis(back, order, kept, axis=-1)
    with np.errstate(all="ignore"):
        return np.asarray(back / back.sum(axis=-1, keepdims=True))


@slip("top_p", "stand_in")
def one_too_few(logits: Array, p: float) -> Array:
    """It keeps the tokens while their sum is at most p; the one that takes the sum past p belongs to them.

    Hides: it differs by one token; where the first alone is likelier than p, nothing is left, 0 / 0.
    """
    y = softmax(logits)[0]
    order = np.argsort(-y, axis=-1, kind="stable")
    ranked = np.take_along_axis(y, order, axis=-1)
    return _put_back(np.where(np.cumsum(ranked, axis=-1) <= p, ranked, 0.0), order)


@slip("top_p", "stand_in")
def not_made_one_again(logits: Array, p: float) -> Array:
    """What is kept no longer sums to one: divide by its sum.

    Hides: whoever draws by the share of the sum, or hands it to a softmax, will not see it.
    """
    y = references.top_p(logits, p)
    return np.where(y > 0, softmax(logits)[0], 0.0)


@slip("top_p", "stand_in")
def left_in_order_of_rank(logits: Array, p: float) -> Array:
    """The probabilities stay sorted, the likeliest first: each must go back to the place of its token.

    Hides: sums and numbers are right, and in a test whose tokens are sorted, all is.
    """
    order = np.argsort(-logits, axis=-1, kind="stable")
    return np.take_along_axis(references.top_p(logits, p), order, axis=-1)


@slip("top_p", "stand_in")
def unlikeliest_kept(logits: Array, p: float) -> Array:
    """It sorts with the unlikeliest first, as np.argsort does, and keeps those.

    Hides: what is kept sums to one.
    """
    y = softmax(logits)[0]
    order = np.argsort(y, axis=-1, kind="stable")
    ranked = np.take_along_axis(y, order, axis=-1)
    before = np.cumsum(ranked, axis=-1) - ranked
    return _put_back(np.where(before < p, ranked, 0.0), order)


@slip("top_p", "stand_in")
def single_tokens_above_p(logits: Array, p: float) -> Array:
    """It keeps the tokens that are likelier than p by themselves; top-p asks for the sum of them and all likelier ones.

    Hides: with one sure token it is right.
    """
    y = softmax(logits)[0]
    with np.errstate(all="ignore"):
        kept = np.where(y >= p, y, 0.0)
        return np.asarray(kept / kept.sum(axis=-1, keepdims=True))


@slip("draw", "stand_in")
def zero_drawn(probabilities: Array, u: float) -> int:
    """The first token at which the sum reaches u: for u = 0 that is token 0, even if its probability is 0.

    Hides: u is exactly 0 once in 2^53 draws.
    """
    return int((np.cumsum(probabilities) < u).sum())


@slip("draw", "stand_in")
def always_the_likeliest(probabilities: Array, u: float) -> int:
    """u takes no part: the likeliest token is taken each time, and that is no draw.

    Hides: it is right more often than any other single answer.
    """
    return int(np.argmax(probabilities))
