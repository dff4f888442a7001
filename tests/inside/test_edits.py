"""Chapter 38: an edit keeps, zeros and adds elements, and does not change its inputs."""

import numpy as np

from numpy_attention.inside import edit, edit_backward


def test_elements_not_kept_become_zero_even_nan_and_inf() -> None:
    x = np.array([np.nan, np.inf, 2.0])
    y, cache = edit(x, np.array([False, False, True]), np.array([0.5]))
    np.testing.assert_array_equal(y, [0.5, 0.5, 2.5])
    dx, dadd = edit_backward(np.array([1.0, 2.0, 4.0]), cache)
    np.testing.assert_array_equal(dx, [0.0, 0.0, 4.0])
    np.testing.assert_array_equal(dadd, [7.0])


def test_empty_edit_returns_an_equal_copy(rng: np.random.Generator) -> None:
    x = rng.standard_normal((2, 3))
    y, cache = edit(x)
    np.testing.assert_array_equal(y, x)
    assert not np.shares_memory(x, y)
    dx, dadd = edit_backward(y, cache)
    assert dadd is None
    assert not np.shares_memory(dx, y)
