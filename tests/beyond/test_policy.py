"""Chapter 51: why the loss of the first step is 0, when the clip acts, and what the averages weigh."""

import numpy as np
import pytest

import numpy_attention as na

GROUPS, ANSWERS, T = 2, 4, 6
B = GROUPS * ANSWERS


@pytest.fixture
def answers(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Log-probabilities of answers, and advantages of groups."""
    rewards = rng.integers(0, 2, (GROUPS, ANSWERS)) + 0.1 * rng.random((GROUPS, ANSWERS))
    return np.log(rng.random((B, T))), na.group_advantages(rewards).reshape(B)


def test_at_the_first_step_the_loss_is_0_and_the_gradient_is_not(answers: tuple[np.ndarray, np.ndarray]) -> None:
    log_probs, A = answers
    loss, cache = na.clipped_policy_loss(log_probs, log_probs, A)
    assert abs(float(loss)) < 1e-15
    assert (cache.ratio == 1).all()
    assert not cache.clipped.any()
    dlog_probs, *_ = na.clipped_policy_loss_backward(1.0, cache)
    np.testing.assert_allclose(dlog_probs, np.broadcast_to(-A[:, None] / (B * T), (B, T)))


@pytest.mark.parametrize(("A", "change", "clipped"), [
    (1.0, 0.3, True), (1.0, -0.3, False), (-1.0, -0.3, True), (-1.0, 0.3, False), (1.0, 0.1, False), (-1.0, 0.1, False),
])
def test_only_a_token_that_moved_far_enough_in_its_direction_is_clipped(A: float, change: float, clipped: bool) -> None:
    old = np.array([[-1.0]])
    loss, cache = na.clipped_policy_loss(old + change, old, np.array([A]))
    dlog_probs, *_ = na.clipped_policy_loss_backward(1.0, cache)
    assert cache.clipped[0, 0] == clipped
    assert float(dlog_probs[0, 0]) == (0.0 if clipped else pytest.approx(-A * np.exp(change)))
    assert float(loss) == pytest.approx(-A * (np.clip(np.exp(change), 0.8, 1.2) if clipped else np.exp(change)))


def test_averages_weigh_tokens_of_long_answers_differently() -> None:
    log_probs, A = np.zeros((2, 5)), np.array([1.0, -1.0])
    mask = np.arange(5) < np.array([1, 4])[:, None]  # answers of 1 and 4 tokens
    of_answers, of_tokens = (
        na.clipped_policy_loss_backward(
            1.0, na.clipped_policy_loss(log_probs, log_probs, A, mask, average=average)[1])[0]
        for average in ("answers", "tokens")
    )
    np.testing.assert_allclose(of_answers, [[-1 / 2, 0, 0, 0, 0], [1 / 8, 1 / 8, 1 / 8, 1 / 8, 0]])
    np.testing.assert_allclose(of_tokens, [[-1 / 5, 0, 0, 0, 0], [1 / 5, 1 / 5, 1 / 5, 1 / 5, 0]])


def test_the_estimate_of_kl_is_never_negative_and_its_mean_is_the_divergence(rng: np.random.Generator) -> None:
    p, q = rng.random((2, 7))
    p, q = p / p.sum(), q / q.sum()
    log_probs, reference = np.log(p)[None], np.log(q)[None]  # one column for each token
    _, cache = na.clipped_policy_loss(log_probs, log_probs, np.ones(1), reference_log_probs=reference, kl=0.5)
    assert (cache.estimate >= 0).all()
    assert float((p * cache.estimate).sum()) == pytest.approx(float((p * np.log(p / q)).sum()), rel=1e-12)
    near = np.full((1, 1), 1e-9)
    _, cache = na.clipped_policy_loss(0 * near, 0 * near, np.ones(1), reference_log_probs=near, kl=0.5)
    assert float(cache.estimate[0, 0]) == pytest.approx(0.5e-18, rel=1e-3)


def test_one_ratio_for_an_answer_is_the_geometric_mean_of_its_tokens(rng: np.random.Generator) -> None:
    old, change = rng.standard_normal((2, B, T))
    _, of_tokens = na.clipped_policy_loss(old + change, old, np.ones(B), clip=0.9)
    _, of_answers = na.clipped_policy_loss(old + change, old, np.ones(B), clip=0.9, ratio="sequence")
    np.testing.assert_allclose(of_answers.ratio[:, 0], of_tokens.ratio.prod(axis=1) ** (1 / T))


def test_far_from_the_old_model_everything_is_finite_except_a_wrong_move() -> None:
    old = np.full((3, 1), -800.0)
    loss, cache = na.clipped_policy_loss(old + 800, old, np.array([1.0, 0.0, 0.0]))
    assert float(loss) == pytest.approx(-1.2 / 3)
    for gradient in na.clipped_policy_loss_backward(1.0, cache)[:2]:
        np.testing.assert_array_equal(gradient, 0.0)
    hidden = np.array([[True], [True], [False]])
    loss, _ = na.clipped_policy_loss(old + 800, old, np.array([1.0, 0.0, -1.0]), hidden)
    assert np.isfinite(loss)


def test_options_are_refused_in_one_sentence() -> None:
    x, A = np.zeros((2, 3)), np.zeros(2)
    for options, message in {
        "kl": ({"kl": 0.1}, "kl must be 0 without reference_log_probs"), "clip": ({"clip": 1.5}, "clip must be"),
        "average": ({"average": "mean"}, "average must be one of answers, tokens"),
        "ratio": ({"ratio": "word"}, "ratio must be one of token, sequence"),
    }.values():
        with pytest.raises(ValueError, match=message):
            na.clipped_policy_loss(x, x, A, **options)
    with pytest.raises(ValueError, match="one number for each answer"):
        na.clipped_policy_loss(x, x, np.zeros(3))


@pytest.mark.parametrize("rewards", [[0.1, 0.1, 0.1], [0.1 + 0.7, 0.7 + 0.1, 0.2 + 0.6, 0.8], [0.0, 0.0]])
def test_equal_rewards_give_no_advantage_in_spite_of_rounding(rewards: list[float]) -> None:
    np.testing.assert_array_equal(na.group_advantages(np.array([rewards])), 0.0)


@pytest.mark.parametrize("size", [1e-200, 1.0, 1e300])
def test_advantages_do_not_depend_on_the_size_of_the_rewards(size: float) -> None:
    found = na.group_advantages(size * np.array([[1.0, 0.0, 0.0, 1.0], [0.0, 0.0, 0.0, 2.0]]))
    np.testing.assert_allclose(found, [[1, -1, -1, 1], np.array([-1, -1, -1, 3]) / np.sqrt(3)])


def test_a_reference_far_away_counts_nothing_without_kl_and_hidden_tokens_may_be_anything() -> None:
    x, A = np.zeros((2, 3)), np.array([1.0, -1.0])
    loss, cache = na.clipped_policy_loss(x, x, A, reference_log_probs=x + 1000)
    assert abs(loss) < 1e-15
    assert all(np.isfinite(g).all() for g in na.clipped_policy_loss_backward(1.0, cache) if g is not None)
    hidden, mask = np.where(np.eye(2, 3), -np.inf, x), ~np.eye(2, 3, dtype=bool)
    loss, cache = na.clipped_policy_loss(hidden, hidden, A, mask)
    assert abs(loss) < 1e-15
    assert np.isnan(na.clipped_policy_loss(np.full((2, 3), np.nan), x, A)[0])
