"""Exercise: byte pairs from nothing

A text is a list of bytes, ids 0 to 255. The two neighbours that stand together most often become one token, with the
id 256; then it is counted again, and the next pair becomes 257, and so on.

    banana    98 97 110 97 110 97        (97, 110) stands twice, and so does (110, 97)
              98 256 256 97              of equals the pair of the lowest ids: (97, 110) is 256

Write: learn_merges(ids, num_merges), which returns a list of pairs, shorter when no pair is left that stands twice; and
encode(ids, merges), which makes the same merges in another text, in the order in which they were learned.

Neighbours are counted one place after the other, so aaa holds (a, a) twice; they are merged from the left: (aa) a.

    python -m numpy_attention grade tutorials/exercises/byte_pairs.py            what is right already
    python -m numpy_attention grade tutorials/exercises/byte_pairs.py --hint 1   three hints, one at a time
"""

from collections import Counter
from itertools import pairwise


def learn_merges(ids, num_merges):
    """A list of ints, at most so many merges -> a list of pairs (a, b); merge number i makes the id 256 + i."""
    raise NotImplementedError


def encode(ids, merges):
    """A list of ints, merges as they were learned -> a list of ints."""
    raise NotImplementedError
