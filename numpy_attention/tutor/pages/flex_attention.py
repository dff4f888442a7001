"""Functions of the scores and weights with their backwards."""

from functools import partial

import numpy as np

from numpy_attention.ops.c04_masks import causal_mask
from numpy_attention.ops.c06a_flex_attention import Modifier
from numpy_attention.recent.c46_scores import softcap, softcap_backward
from numpy_attention.tutor.entry import Array


def hidden_future(x: Array, hidden: float = -np.inf) -> Array:
    """x with the number `hidden` where the key is at a later position than the query."""
    return np.where(causal_mask(*x.shape[-2:], like=x), x, hidden)


CAUSAL: Modifier = (lambda x: (hidden_future(x), None), lambda dy, _: hidden_future(dy, 0.0))
CAP: Modifier = (partial(softcap, cap=1.5), softcap_backward)
SQUARE: Modifier = (lambda x: (x * x, x), lambda dy, x: 2 * x * dy)
