"""Results are compared to the last bit, or up to rounding; tuples, dicts and caches are compared by parts."""

import numpy as np

from numpy_attention.tutor.compare import close, same


def test_same_and_close_compare_all_parts_of_a_cache() -> None:
    a, b = ({"x": (np.array([1.0, np.nan]), [1, None]), "rng": np.random.default_rng(1)} for _ in range(2))
    assert same(a, b)
    b["rng"].random()
    assert not same(a, b)
    assert not same(np.ones(2), np.ones(2, np.float32))
    assert close(np.ones(3), np.ones(3) + 1e-12)
    assert not close(np.ones(3), np.ones(3) + 1e-10)
    assert close(np.array([-6.7e-15]), np.array([7.5e-15]))  # as for the bias of the keys: its gradient is zero
    assert not close(np.array([0.0]), np.array([1e-12]))


def test_no_gradient_is_close_only_to_no_gradient() -> None:
    x = np.ones(2)
    assert close(None, None)
    assert not close(None, x)
    assert not close(x, None)
    assert close((x, None), (x, None))
    assert not close((x, None), (x, x))
    assert not close((x, x), (x, None))
