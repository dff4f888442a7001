"""The joint norm of all gradients, and its limit."""

import numpy as np
import pytest

from numpy_attention.training.clipping import clip_by_global_norm, global_norm


def test_clipping_scales_all_gradients_by_one_factor():
    grads = {"a": np.array([[3.0, 0.0]]), "b": np.array([0.0, 4.0, 12.0])}  # joint norm 13
    norm = clip_by_global_norm(grads, 6.5)
    assert norm == 13.0
    np.testing.assert_allclose(grads["a"], [[1.5, 0.0]], rtol=1e-15)
    np.testing.assert_allclose(grads["b"], [0.0, 2.0, 6.0], rtol=1e-15)


def test_short_and_zero_gradients_are_not_changed():
    g = np.random.default_rng(3).standard_normal((4, 5)).astype(np.float32)
    grads = {"w": g.copy()}
    clip_by_global_norm(grads, 100.0)
    np.testing.assert_array_equal(grads["w"], g)
    assert grads["w"].dtype == np.float32
    zero = {"w": np.zeros(3)}
    assert clip_by_global_norm(zero, 1.0) == 0.0
    np.testing.assert_array_equal(zero["w"], 0.0)


def test_clipping_keeps_the_direction():
    rng = np.random.default_rng(4)
    grads = {"w": rng.standard_normal((3, 4)), "b": rng.standard_normal(5)}
    whole = np.concatenate([g.ravel() for g in grads.values()])
    norm = clip_by_global_norm(grads, 0.5)
    clipped = np.concatenate([g.ravel() for g in grads.values()])
    assert norm == pytest.approx(np.linalg.norm(whole), rel=1e-14)
    assert global_norm(grads) == pytest.approx(0.5, rel=1e-14)
    np.testing.assert_allclose(clipped / 0.5, whole / norm, rtol=1e-13)


@pytest.mark.parametrize("max_norm", [0.0, -1.0, np.nan, None], ids=repr)
def test_refuses_an_invalid_max_norm(max_norm):
    with pytest.raises((TypeError, ValueError), match=r"^clip_by_global_norm: max_norm must be .*, got "):
        clip_by_global_norm({"w": np.ones(3)}, max_norm)
