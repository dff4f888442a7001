"""An imprint tells two answers apart by outputs, gradients, and what they change."""

from dataclasses import replace
from typing import Any

import numpy as np

from numpy_attention.catalogue import properties
from numpy_attention.catalogue.table import CATALOGUE
from numpy_attention.gallery import MUTANTS
from numpy_attention.gallery.imprint import imprint

SOFTMAX = CATALOGUE["softmax"]


def test_the_same_op_leaves_the_same_imprint_and_another_one_another() -> None:
    assert properties.same(imprint(SOFTMAX, 0, None), imprint(SOFTMAX, 0, None))
    assert not properties.same(imprint(SOFTMAX, 0, None), imprint(SOFTMAX, 1, None))
    spoiled = MUTANTS["diagonal_only"].spoil(SOFTMAX)
    assert not properties.same(imprint(SOFTMAX, 0, None), imprint(spoiled, 0, None))


def test_what_is_changed_in_place_is_seen() -> None:
    entry = CATALOGUE["layer_norm"]
    right, in_dy, in_cache = (
        imprint(one, 0, None)
        for one in (entry, MUTANTS["scratch_in_dy"].spoil(entry), MUTANTS["scratch_in_the_cache"].spoil(entry))
    )
    assert right is not None
    assert in_dy is not None
    assert in_cache is not None
    assert (right.changed_dy, right.changed_cache) == (False, False)
    assert in_dy.changed_dy
    assert in_cache.changed_cache


def test_what_stops_leaves_none() -> None:
    def stops(dy: np.ndarray, cache: Any) -> None:
        raise ZeroDivisionError

    assert imprint(replace(SOFTMAX, op_backward=stops), 0, None) is None
