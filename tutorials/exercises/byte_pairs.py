"""Exercise: byte pairs from scratch

A text is a list of bytes. The id of a byte is 0 to 255. Find the pair of neighbours that occurs most often, and
replace it everywhere by a new token with the id 256. Then count all pairs again. Now the most frequent pair is
replaced by the token 257, and so on.

    banana    98 97 110 97 110 97        (97, 110) and (110, 97) both occur twice: take the smallest pair
              98 256 256 97              256 has replaced the pair (97, 110)

Write two functions. learn_merges(ids, num_merges) returns the list of the replaced pairs. It stops early if no pair
occurs twice. encode(ids, merges) replaces these pairs in another text, in the order in which they were learned.

Count every place where a pair occurs: aaa contains (a, a) twice. Merge from the left: aaa becomes (aa) a.

    python -m numpy_attention grade tutorials/exercises/byte_pairs.py            check your function
    python -m numpy_attention grade tutorials/exercises/byte_pairs.py --hint 1   the first of three hints
"""

from collections import Counter
from itertools import pairwise


def learn_merges(ids, num_merges):
    """ids (a list of ints), num_merges (the maximum) -> a list of pairs. Pair i becomes 256 + i (i = 0, 1, ...)."""
    raise NotImplementedError


def encode(ids, merges):
    """ids (a list of ints), merges (in the order in which they were learned) -> the new ids, a list of ints."""
    raise NotImplementedError
