"""The joint norm of all gradients, and its largest length."""

import numpy as np
import pytest

from numpy_attention.training.clipping import clip_by_global_norm, global_norm


def test_clipping_scales_all_gradients_by_one_factor():
    grads = {"a": np.array([[3.0, 0.0]]), "b": np.array([0.0, 4.0, 12.0])}  # joint norm 13
    norm = clip_by_global_norm(grads, 6.5)
    assert norm == 13.0
    np.testing.assert_allclose(grads["a"], [[1.5, 0.0]], rtol=1e-15)
    np.testing.assert_allclose(grads["b"], [0.0, 2.0, 6.0], rtol=1e-15)


def test_short_gradients_and_zero_gradients_pass_the_clip_unchanged():
    g = np.random.default_rng(3).standard_normal((4, 5)).astype(np.float32)
    grads = {"w": g.copy()}
    clip_by_global_norm(grads, 100.0)
    np.testing.assert_array_equal(grads["w"], g)
    assert grads["w"].dtype == np.float32
    zero = {"w": np.zeros(3)}
    assert clip_by_global_norm(zero, 1.0) == 0.0
    np.testing.assert_array_equal(zero["w"], 0.0)


def test_a_clip_that_is_not_positive_is_refused():
    with pytest.raises(ValueError, match="max_norm"):
        clip_by_global_norm({"w": np.ones(3)}, 0.0)


def test_the_direction_of_the_step_stays():
    rng = np.random.default_rng(4)
    grads = {"w": rng.standard_normal((3, 4)), "b": rng.standard_normal(5)}
    whole = np.concatenate([g.ravel() for g in grads.values()])
    norm = clip_by_global_norm(grads, 0.5)
    clipped = np.concatenate([g.ravel() for g in grads.values()])
    assert norm == pytest.approx(np.linalg.norm(whole), rel=1e-14)
    assert global_norm(grads) == pytest.approx(0.5, rel=1e-14)
    np.testing.assert_allclose(clipped / 0.5, whole / norm, rtol=1e-13)


def test_no_gradients_have_no_norm():
    with pytest.raises(ValueError, match="at least one array"):
        global_norm({})
