"""Chapter 11: the negative log-likelihood of the targets, and its gradient, prediction minus target."""

from typing import Any

import numpy as np
import pytest

import numpy_attention as na

DTYPES = [np.float32, np.float64]


@pytest.mark.parametrize("dtype", DTYPES)
def test_loss_of_equal_logits_is_log_of_vocabulary_size(dtype: type) -> None:
    loss, _ = na.cross_entropy(np.zeros((3, 4, 50), dtype), np.zeros((3, 4), int))
    np.testing.assert_allclose(loss, np.log(50.0), rtol=float(np.finfo(dtype).eps))
    assert loss.dtype == dtype


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_gradient_is_prediction_minus_target(rng: np.random.Generator, dtype: type) -> None:
    logits, targets = rng.standard_normal((5, 3, 7)).swapaxes(0, 1).astype(dtype), rng.integers(0, 7, (3, 5))
    loss, cache = na.cross_entropy(logits, targets)
    p, _ = na.softmax(logits)
    np.testing.assert_allclose(loss, -np.log(np.take_along_axis(p, targets[..., None], -1)).mean(), rtol=1e-5)
    dlogits = na.cross_entropy_backward(1.0, cache)
    np.testing.assert_allclose(dlogits, (p - np.eye(7)[targets]) / 15, rtol=1e-4, atol=1e-7)
    np.testing.assert_allclose(dlogits.sum(axis=-1), 0.0, atol=1e-7)
    assert dlogits.dtype == dtype
    np.testing.assert_allclose(na.cross_entropy_backward(-3.0, cache), -3.0 * dlogits, rtol=1e-6)


def test_ignored_place_adds_nothing_to_loss_gradient_or_mean(rng: np.random.Generator) -> None:
    logits, targets = rng.standard_normal((2, 5, 7)), rng.integers(0, 7, (2, 5))
    targets[0, 3:] = -100
    counted = targets != -100
    loss, cache = na.cross_entropy(logits, targets, label_smoothing=0.2)
    loss_of_the_rest, cache_of_the_rest = na.cross_entropy(logits[counted], targets[counted], label_smoothing=0.2)
    np.testing.assert_allclose(loss, loss_of_the_rest)
    dlogits = na.cross_entropy_backward(1.0, cache)
    assert not dlogits[~counted].any()
    np.testing.assert_allclose(dlogits[counted], na.cross_entropy_backward(1.0, cache_of_the_rest))


def test_loss_and_gradient_are_zero_if_no_place_counts(rng: np.random.Generator) -> None:
    loss, cache = na.cross_entropy(rng.standard_normal((4, 7)), np.full(4, -100))
    assert loss == 0.0
    assert not na.cross_entropy_backward(1.0, cache).any()


@pytest.mark.parametrize("dtype", DTYPES)
def test_confident_wrong_prediction_has_finite_loss_and_bounded_gradient(dtype: type) -> None:
    logits = np.array([[1e4, 0.0, -1e4]], dtype)
    loss, cache = na.cross_entropy(logits, np.array([2]))
    assert loss == 2e4
    np.testing.assert_array_equal(na.cross_entropy_backward(1.0, cache), [[1.0, 0.0, -1.0]])


def test_smoothing_mixes_in_the_mean_loss_of_all_tokens(rng: np.random.Generator) -> None:
    logits, targets = rng.standard_normal((5, 7)), rng.integers(0, 7, 5)
    plain, _ = na.cross_entropy(logits, targets)
    every, _ = na.cross_entropy(logits, targets, label_smoothing=1.0)
    np.testing.assert_allclose(every, np.mean([na.cross_entropy(logits, np.full(5, t))[0] for t in range(7)]))
    np.testing.assert_allclose(na.cross_entropy(logits, targets, label_smoothing=0.3)[0], 0.7 * plain + 0.3 * every)


@pytest.mark.parametrize(("targets", "options", "message"), [
    (np.array([1, 7]), {}, r"integers in \[0, 7\), got 7; is padding marked with ignore_index = -100\?"),
    (np.array([1, -1]), {}, r"targets must be integers in \[0, 7\), got -1"),
    (np.array([1, -100]), {"ignore_index": -1}, r"got -100; is padding marked with ignore_index = -1\?"),
    (np.array([1, 2, 3]), {}, r"targets must be .* with the leading axes \(2,\) .* one for each row of logits"),
    (np.ones((2, 7), int), {}, "not one-hot vectors"),
    (np.array([1, 2]), {"label_smoothing": 1.5}, r"label_smoothing must be in \[0, 1\], got 1.5"),
], ids=str)
def test_refuses_invalid_targets(targets: np.ndarray, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        na.cross_entropy(np.ones((2, 7)), targets, **options)


def test_refuses_single_target_out_of_range() -> None:
    with pytest.raises(ValueError, match=r"targets must be integers in \[0, 7\), got -1"):
        na.cross_entropy(np.ones(7), np.int64(-1))
    np.testing.assert_allclose(na.cross_entropy(np.ones(7), np.int64(3))[0], np.log(7.0))


@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", "u2", ">i4", "<u4", ">i8", "<i8", ">u8", "<u8"])
def test_losses_and_gradients_accept_targets_of_any_integer_dtype(dtype: str) -> None:
    logits, table = np.random.default_rng(1).standard_normal((2, 3, 3))
    targets = np.array([0, 2, 1])
    for op, back, inputs in (
        (na.cross_entropy, na.cross_entropy_backward, (logits,)),
        (na.linear_cross_entropy, na.linear_cross_entropy_backward, (logits, table)),
    ):
        loss, cache = op(*inputs, targets)
        same, of_these = op(*inputs, targets.astype(dtype))
        assert loss == same
        for one, other in zip(np.atleast_1d(back(1.0, cache)), np.atleast_1d(back(1.0, of_these)), strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("dloss", [None, "1", [1.0], np.ones(1), {}], ids=str)
def test_refuses_dloss_that_is_not_a_number(dloss: Any) -> None:
    for op, back, inputs in (
        (na.cross_entropy, na.cross_entropy_backward, (np.eye(3),)),
        (na.linear_cross_entropy, na.linear_cross_entropy_backward, (np.eye(3), np.eye(3))),
    ):
        _, cache = op(*inputs, np.array([0, 2, 1]))
        with pytest.raises(ValueError, match=rf"^{back.__name__}: dloss must be a single number, got .*; use 1.0 for"):
            back(dloss, cache)


@pytest.mark.parametrize(("options", "message"), [
    ({"class_weights": np.ones(6)}, r"class_weights must be \(V,\) with V = 7 .*, got \(6,\); one weight for"),
    ({"reduction": "average"}, "reduction must be one of mean, sum, none, got 'average'"),
], ids=str)
@pytest.mark.parametrize("op", [na.weighted_cross_entropy, na.negative_log_likelihood])
def test_refuses_invalid_weights_and_reductions(op: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=rf"^{op.__name__}: {message}"):
        op(np.ones((2, 7)), np.array([1, 2]), **options)


def test_class_weights_repeat_a_position_as_often_as_its_weight(rng: np.random.Generator) -> None:
    logits, targets = rng.standard_normal((6, 4)), np.array([0, 1, 2, 2, -100, 3])
    weights = np.array([1.0, 3.0, 2.0, 0.0])
    times = [1, 3, 2, 2, 1, 0]
    for reduction in ("mean", "sum"):
        loss, cache = na.weighted_cross_entropy(logits, targets, class_weights=weights, reduction=reduction)
        repeated = np.repeat(logits, times, axis=0), np.repeat(targets, times)
        expected, repeated_cache = na.weighted_cross_entropy(*repeated, reduction=reduction)
        np.testing.assert_allclose(loss, expected)
        rows = np.split(na.weighted_cross_entropy_backward(0.7, repeated_cache), np.cumsum(times)[:-1])
        dlogits = na.weighted_cross_entropy_backward(0.7, cache)
        np.testing.assert_allclose(dlogits, [row.sum(axis=0) for row in rows], atol=1e-15)


# torch.nn.functional.cross_entropy of PyTorch 2.13 for the arrays in the test below
OF_PYTORCH = {"mean": 1.3299134670110535, "sum": 7.9794808020663215}


def test_class_weights_with_smoothing_and_ignored_targets_equal_pytorch() -> None:
    logits = np.sin(np.arange(20.0)).reshape(5, 4)
    targets, weights = np.array([0, 3, -100, 1, 1]), np.array([0.5, 2.0, 0.0, 1.5])
    options: dict[str, Any] = {"class_weights": weights, "label_smoothing": 0.3}
    for reduction, expected in OF_PYTORCH.items():
        loss, cache = na.weighted_cross_entropy(logits, targets, reduction=reduction, **options)
        assert loss == pytest.approx(expected, rel=1e-15)
    _, cache = na.weighted_cross_entropy(logits, targets, **options)
    of_row_3 = [0.018419541975160075, -0.19411367816369102, 0.1136075128108417, 0.06208662337768922]
    np.testing.assert_allclose(na.weighted_cross_entropy_backward(1.0, cache)[3], of_row_3, rtol=1e-14)


@pytest.mark.parametrize("dtype", DTYPES)
def test_equal_class_weights_change_nothing_in_a_mean(rng: np.random.Generator, dtype: type) -> None:
    logits, targets = rng.standard_normal((3, 5, 7)).astype(dtype), rng.integers(0, 7, (3, 5))
    loss, cache = na.weighted_cross_entropy(logits, targets, class_weights=np.full(7, 0.25, dtype))
    plain, plain_cache = na.cross_entropy(logits, targets)
    eps = float(np.finfo(dtype).eps)
    np.testing.assert_allclose(loss, plain, rtol=4 * eps)
    assert loss.dtype == dtype
    dlogits = na.weighted_cross_entropy_backward(1.0, cache)
    np.testing.assert_allclose(dlogits, na.cross_entropy_backward(1.0, plain_cache), atol=eps)


@pytest.mark.parametrize("dtype", DTYPES)
def test_unreduced_losses_have_the_shape_of_the_targets_and_a_mean_of_their_own(
    rng: np.random.Generator, dtype: type
) -> None:
    logits, targets = rng.standard_normal((3, 5, 7)).astype(dtype), rng.integers(0, 7, (3, 5))
    targets[1, 2:] = -100
    losses, cache = na.weighted_cross_entropy(logits, targets, reduction="none")
    assert losses.shape == (3, 5)
    assert losses.dtype == dtype
    assert not losses[1, 2:].any()
    eps = float(np.finfo(dtype).eps)
    for reduction, share in (("sum", 1.0), ("mean", 1.0 / 12.0)):
        loss, reduced_cache = na.weighted_cross_entropy(logits, targets, reduction=reduction)
        np.testing.assert_allclose(losses.astype(float).sum() * share, loss, rtol=8 * eps)
        dlogits = na.weighted_cross_entropy_backward(1.0, reduced_cache)
        by_position = na.weighted_cross_entropy_backward(np.full((3, 5), share, dtype), cache)
        np.testing.assert_allclose(by_position, dlogits, atol=eps)


def test_negative_log_likelihood_after_log_softmax_is_cross_entropy(rng: np.random.Generator) -> None:
    logits, targets = rng.standard_normal((2, 5, 7)), rng.integers(0, 7, (2, 5))
    targets[0, 3:] = -1
    for options in ({"ignore_index": -1}, {"ignore_index": -1, "label_smoothing": 0.3}):
        log_p, log_cache = na.log_softmax(logits)
        loss, cache = na.negative_log_likelihood(log_p, targets, **options)
        expected, expected_cache = na.cross_entropy(logits, targets, **options)
        np.testing.assert_allclose(loss, expected)
        dlogits = na.log_softmax_backward(na.negative_log_likelihood_backward(0.7, cache), log_cache)
        np.testing.assert_allclose(dlogits, na.cross_entropy_backward(0.7, expected_cache), atol=1e-15)


def test_ignored_position_may_have_infinite_negative_log_likelihood() -> None:
    log_probs = np.array([[-np.inf, 0.0], [-1.0, -2.0]])
    for weights in (None, np.array([0.0, 4.0])):
        loss, cache = na.negative_log_likelihood(log_probs, np.array([0 if weights is not None else -100, 1]),
                                                 class_weights=weights)
        assert loss == 2.0
        np.testing.assert_array_equal(na.negative_log_likelihood_backward(1.0, cache), [[0.0, 0.0], [0.0, -1.0]])


@pytest.mark.parametrize("op", [na.weighted_cross_entropy, na.negative_log_likelihood])
def test_loss_and_gradient_are_zero_if_all_weights_are_zero(op: Any, rng: np.random.Generator) -> None:
    loss, cache = op(rng.standard_normal((4, 7)), rng.integers(0, 7, 4), class_weights=np.zeros(7))
    assert loss == 0.0
    assert not getattr(na, f"{op.__name__}_backward")(1.0, cache).any()


@pytest.mark.parametrize("op", [na.weighted_cross_entropy, na.negative_log_likelihood])
def test_refuses_dloss_of_another_shape_than_the_losses(op: Any) -> None:
    _, cache = op(np.eye(3), np.array([0, 2, 1]), reduction="none")
    backward = getattr(na, f"{op.__name__}_backward")
    for dloss in (1.0, np.ones(2), np.ones((3, 1)), np.ones(3, np.float32)):
        with pytest.raises((TypeError, ValueError), match=rf"^{backward.__name__}: dloss must be .*, got"):
            backward(dloss, cache)
