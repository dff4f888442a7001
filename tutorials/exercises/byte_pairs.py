"""Exercise: byte pairs from scratch

A text is a list of bytes, ids 0 to 255. The most frequent pair of neighbours becomes one token, with the id 256. Then
all pairs are counted again, the most frequent pair becomes the token 257, and so on.

    banana    98 97 110 97 110 97        (97, 110) occurs twice, and (110, 97) occurs twice
              98 256 256 97              of equally frequent pairs, the smallest: (97, 110) becomes 256

Write learn_merges(ids, num_merges), which returns a list of pairs; it stops early if no pair occurs twice. And write
encode(ids, merges), which applies the merges to another text, in the order in which they were learned.

Count the pair at every place, so aaa contains (a, a) twice. Merge from the left: aaa becomes (aa) a.

    python -m numpy_attention grade tutorials/exercises/byte_pairs.py            check your function
    python -m numpy_attention grade tutorials/exercises/byte_pairs.py --hint 1   three hints, one at a time
"""

from collections import Counter
from itertools import pairwise


def learn_merges(ids, num_merges):
    """A list of ints, the largest number of merges -> a list of pairs (a, b); pair number i becomes the id 256 + i."""
    raise NotImplementedError


def encode(ids, merges):
    """A list of ints, the merges in the order of learning -> a list of ints."""
    raise NotImplementedError
