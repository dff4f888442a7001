"""The KV cache: append, read and reorder keys and values."""

import numpy as np
import pytest

import numpy_attention as na
from numpy_attention.layers.c17a_kv_cache import stored_length


def test_append_returns_old_and_new_keys_in_order(rng):
    past = na.KeyValueCache(capacity=4)
    assert past.filled() is None
    k, v = rng.standard_normal((2, 3, 2, 4, 5))
    past.append(k[:, :, :3], v[:, :, :3])
    found = past.append(k[:, :, 3:], v[:, :, 3:])
    for pair in (found, past.filled()):
        np.testing.assert_array_equal(pair[0], k)
        np.testing.assert_array_equal(pair[1], v)
    assert past.length == 4


def test_refuses_to_store_beyond_the_capacity(rng):
    past = na.KeyValueCache(capacity=6)
    past.append(*rng.standard_normal((2, 1, 2, 5, 3)))
    with pytest.raises(ValueError, match="at most 6 positions, got 7"):
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


def stored(rng):
    past = na.KeyValueCache(capacity=4)
    past.append(*rng.standard_normal((2, 2, 3, 1, 5)))
    return past


@pytest.mark.parametrize("shape", [(1, 3, 1, 5), (2, 1, 1, 5), (2, 3, 1, 4), (3, 1, 5), (2, 3, 4, 5)], ids=str)
def test_refuses_keys_of_another_shape_and_changes_nothing(shape, rng):
    past = stored(rng)
    k, v = (array.copy() for array in past.filled())
    with pytest.raises(ValueError, match=r"KeyValueCache: k.* must be "):
        past.append(np.ones(shape), np.ones(shape))
    assert past.length == 1
    np.testing.assert_array_equal(past.filled()[0], k)
    np.testing.assert_array_equal(past.filled()[1], v)
    past.append(np.ones((2, 3, 3, 5)), np.ones((2, 3, 3, 5)))  # the free room has not changed


def test_refuses_keys_and_values_of_different_lengths(rng):
    with pytest.raises(ValueError, match=r"k and v must be .*, got \(2, 3, 1, 5\) and \(2, 3, 2, 5\)"):
        na.KeyValueCache(4).append(np.ones((2, 3, 1, 5)), np.ones((2, 3, 2, 5)))
    with pytest.raises(ValueError, match=r"k and v must be .*, got \(2, 3, 1\) and \(2, 3, 1, 5\)"):
        na.KeyValueCache(4).append(np.ones((2, 3, 1)), np.ones((2, 3, 1, 5)))


def test_refuses_keys_of_another_dtype(rng):
    past = stored(rng)
    with pytest.raises(TypeError, match="float32"):
        past.append(*rng.standard_normal((2, 2, 3, 1, 5), dtype=np.float32))
    assert past.length == 1


@pytest.mark.parametrize("k", [[], None, np.array(1.0), np.ones((2, 3, 1, 5), complex), np.ones((2, 3, 1, 5), "f")])
def test_refuses_keys_that_are_not_suitable_arrays(k, rng):
    for past in (na.KeyValueCache(4), stored(rng)):
        with pytest.raises((TypeError, ValueError), match=r"KeyValueCache: .* must be "):
            past.append(k, np.ones((2, 3, 1, 5)))
        assert past.length == (past.filled() is not None)


@pytest.mark.parametrize("capacity", [-1, float("nan"), "x", 1.0, None, True])
def test_refuses_capacity_that_is_not_a_whole_number(capacity):
    with pytest.raises((TypeError, ValueError), match="KeyValueCache: capacity must be "):
        na.KeyValueCache(capacity)


def test_refuses_rows_that_are_not_stored(rng):
    past = stored(rng)
    for rows in ([0, 1], np.array([2]), np.array([-1]), np.array([0.0])):
        with pytest.raises((TypeError, ValueError), match="KeyValueCache: rows must be "):
            past.reorder(rows)


@pytest.mark.parametrize("rows", [np.zeros((2, 2), int), np.array(1)], ids=["a matrix", "a number"])
def test_refuses_rows_of_another_rank_and_changes_nothing(rows, rng):
    past = stored(rng)
    with pytest.raises(ValueError, match=r"KeyValueCache: rows must be \(B,\), .*, got \("):
        past.reorder(rows)
    assert past.filled()[0].shape == (2, 3, 1, 5)


@pytest.mark.parametrize("past", [[], [None] * 2, [na.KeyValueCache(8), None], [na.KeyValueCache(8)], 3])
def test_refuses_past_without_one_cache_for_each_block(past):
    with pytest.raises(ValueError, match="GPT: past must be a list of KeyValueCaches, one for each of 2 blocks, got"):
        stored_length("GPT", past, 2)


def test_refuses_unequal_caches_before_storing_anything(rng):
    model = na.GPT(na.GPTConfig(5, 8, d_model=8, num_heads=2, num_layers=2), rng)
    past = [na.KeyValueCache(8), na.KeyValueCache(3)]
    with pytest.raises(ValueError, match=r"past must be KV caches of equal length .*, got 0 of 3 and 0 of 8; create"):
        model.forward(np.zeros((1, 6), int), past=past)
    assert [one.length for one in past] == [0, 0]
    past = [na.KeyValueCache(8), na.KeyValueCache(8)]
    past[1].append(*rng.standard_normal((2, 1, 2, 1, 4)).astype(np.float32))
    with pytest.raises(ValueError, match=r"past must be KV caches of equal length .*, got 0 of 8 and 1 of 8; create"):
        model.forward(np.zeros((1, 6), int), past=past)
    assert [one.length for one in past] == [0, 1]
