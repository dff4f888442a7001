"""Stored keys and values: appended, read back, reordered."""

import numpy as np
import pytest

import numpy_attention as na


def test_what_is_appended_comes_back_behind_the_old(rng):
    past = na.KeyValueCache(capacity=4)
    assert past.filled() is None
    k, v = rng.standard_normal((2, 3, 2, 4, 5))
    past.append(k[:, :, :3], v[:, :, :3])
    found = past.append(k[:, :, 3:], v[:, :, 3:])
    for pair in (found, past.filled()):
        np.testing.assert_array_equal(pair[0], k)
        np.testing.assert_array_equal(pair[1], v)
    assert past.length == 4


def test_nothing_is_stored_beyond_the_capacity(rng):
    past = na.KeyValueCache(capacity=6)
    past.append(*rng.standard_normal((2, 1, 2, 5, 3)))
    with pytest.raises(ValueError, match="room for 6 positions, got 7"):
        past.append(*rng.standard_normal((2, 1, 2, 2, 3)))


def test_rows_are_reordered_and_repeated(rng):
    past = na.KeyValueCache(capacity=3)
    past.reorder(np.array([0]))  # nothing is stored yet, so nothing happens
    k, v = rng.standard_normal((2, 3, 2, 3, 4))
    past.append(k, v)
    past.reorder(np.array([2, 0, 0]))
    found = past.filled()
    np.testing.assert_array_equal(found[0], k[[2, 0, 0]])
    np.testing.assert_array_equal(found[1], v[[2, 0, 0]])


def test_what_does_not_fit_is_refused_and_leaves_all_as_it_was():
    cache = na.KeyValueCache(3)
    cache.append(np.ones((1, 2, 2, 4)), np.ones((1, 2, 2, 4)))
    one = np.ones((1, 2, 1, 4))
    two_texts, two_keys = np.ones((2, 2, 1, 4)), np.ones((1, 2, 2, 4))
    wrong = [
        (None, one), (one, None), (two_texts, two_texts), (one, one[..., :3]), (one[0], one[0]), (one, two_keys),
        (two_keys, two_keys),
    ]
    for k, v in wrong:
        with pytest.raises((TypeError, ValueError), match=r"^KeyValueCache: .*got"):
            cache.append(k, v)
        assert cache.length == 2
    k, _ = cache.append(one, one)
    assert k.shape == (1, 2, 3, 4)
