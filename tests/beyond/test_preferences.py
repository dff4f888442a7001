"""Chapter 50: what a pair of answers teaches, and what it does not."""

import numpy as np
import pytest

import numpy_attention as na

B, T, V = 3, 5, 7  # all different


def test_the_loss_starts_at_log_2_and_only_the_difference_counts(rng: np.random.Generator) -> None:
    chosen, rejected, shift = rng.standard_normal((3, B))
    loss, cache = na.dpo_loss(chosen, rejected, chosen, rejected, beta=0.3)
    assert float(loss) == pytest.approx(np.log(2.0), rel=1e-15)
    dchosen, drejected, *_ = na.dpo_loss_backward(1.0, cache)
    np.testing.assert_allclose(dchosen, -0.3 / 2 / B)
    np.testing.assert_allclose(drejected, 0.3 / 2 / B)
    lower, _ = na.dpo_loss(chosen - 5.0 + shift, rejected - 5.0 + shift, chosen, rejected, beta=0.3)
    assert float(lower) == pytest.approx(np.log(2.0), rel=1e-12)  # both rewards fell by the same number


def test_pairs_in_the_right_order_have_little_gradient() -> None:
    _, cache = na.bradley_terry_loss(np.array([9.0, 0.0, -9.0]), np.zeros(3))
    dchosen, _ = na.bradley_terry_loss_backward(3.0, cache)
    np.testing.assert_allclose(dchosen, [-1.2e-4, -0.5, -1.0], atol=2e-4)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rewards_far_apart_give_finite_losses(dtype: type) -> None:
    loss, cache = na.bradley_terry_loss(np.array([1e4, -1e4], dtype), np.array([-1e4, 1e4], dtype))
    assert float(loss) == 1e4
    np.testing.assert_array_equal(na.bradley_terry_loss_backward(1.0, cache)[0], [0.0, -0.5])


def test_the_question_has_no_gradient(rng: np.random.Generator) -> None:
    logits, targets = rng.standard_normal((B, T, V)), rng.integers(0, V, (B, T))
    mask = np.arange(T) >= np.array([1, 3, 5])[:, None]  # the last answer is empty
    for average in (False, True):
        y, cache = na.sequence_log_probability(logits, targets, mask, average)
        assert y[2] == 0.0
        dlogits = na.sequence_log_probability_backward(rng.standard_normal(B), cache)
        assert (dlogits[~mask] == 0).all()
        assert (dlogits[mask] != 0).all()


def test_a_hidden_token_may_have_the_probability_0() -> None:
    logits, targets = np.array([[[0.0, -np.inf], [0.0, 1.0]]]), np.array([[1, 1]])
    y, _ = na.sequence_log_probability(logits, targets, np.array([[False, True]]))
    np.testing.assert_allclose(y, -np.log1p(np.exp(-1.0)))


def test_a_target_of_minus_100_counts_as_a_masked_token(rng: np.random.Generator) -> None:
    logits, targets = rng.standard_normal((B, T, V)), rng.integers(0, V, (B, T))
    mask = rng.random((B, T)) < 0.5
    for average in (False, True):
        y, _ = na.sequence_log_probability(logits, np.where(mask, targets, -100), average=average)
        np.testing.assert_array_equal(y, na.sequence_log_probability(logits, targets, mask, average)[0])
