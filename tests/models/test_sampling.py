"""Sampling draws tokens with the right probabilities."""

import warnings

import numpy as np
import pytest

from numpy_attention.models.c23c_sampling import sample


def frequencies(logits, rng, **options):
    draws = sample(np.broadcast_to(logits, (40_000, len(logits))), rng, **options)
    return np.bincount(draws, minlength=len(logits)) / len(draws)


def test_frequencies_of_tokens_equal_the_softmax(rng):
    logits = np.array([0.5, -1.0, 2.0, 0.0])
    p = np.exp(logits) / np.exp(logits).sum()
    np.testing.assert_allclose(frequencies(logits, rng), p, atol=0.015)
    p = np.exp(logits / 0.5) / np.exp(logits / 0.5).sum()
    np.testing.assert_allclose(frequencies(logits, rng, temperature=0.5), p, atol=0.015)


def test_top_k_keeps_k_tokens_and_top_p_the_smallest_set_that_reaches_p(rng):
    logits = np.log(np.array([0.1, 0.5, 0.15, 0.25]))
    np.testing.assert_allclose(frequencies(logits, rng, top_k=2), [0, 2 / 3, 0, 1 / 3], atol=0.015)
    np.testing.assert_allclose(frequencies(logits, rng, top_p=0.7), [0, 2 / 3, 0, 1 / 3], atol=0.015)
    np.testing.assert_allclose(frequencies(logits, rng, top_p=0.8), [0, 5 / 9, 1.5 / 9, 2.5 / 9], atol=0.015)
    np.testing.assert_allclose(frequencies(logits, rng, top_k=3, top_p=0.5), [0, 1, 0, 0])
    assert sample(logits[None], None, temperature=0.0) == [1]
    assert sample(np.full((1, 5), -1e4), rng, top_k=9, top_p=1.0).shape == (1,)
    equal = frequencies(np.zeros(4), rng, top_k=2)  # of equal logits, exactly two
    assert (equal > 0).sum() == 2


def test_min_p_keeps_tokens_at_least_so_many_times_as_likely_as_the_first(rng):
    logits = np.log(np.array([0.1, 0.5, 0.15, 0.25]))
    np.testing.assert_allclose(frequencies(logits, rng, min_p=0.4), [0, 2 / 3, 0, 1 / 3], atol=0.015)
    np.testing.assert_allclose(frequencies(logits, rng, min_p=0.25), [0, 5 / 9, 1.5 / 9, 2.5 / 9], atol=0.015)
    np.testing.assert_allclose(frequencies(logits, rng, min_p=1.0), [0, 1, 0, 0])
    np.testing.assert_allclose(frequencies(logits, rng, min_p=0.0), np.exp(logits), atol=0.015)
    hot = frequencies(logits, rng, temperature=2.0, min_p=0.5)  # the probabilities after the temperature count
    roots = np.sqrt(np.array([0, 0.5, 0.15, 0.25]))
    np.testing.assert_allclose(hot, roots / roots.sum(), atol=0.015)


def test_temperature_near_zero_takes_the_most_likely_token_without_a_warning(rng):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for temperature in (5e-324, 1e-320, 1e-300):
            assert sample(np.array([[0.5, -1e30, 2.0, 0.0]]), rng, temperature) == [2]


@pytest.mark.parametrize("row", [[0.0, np.nan], [np.nan, np.nan], [0.0, np.inf], [-np.inf, -np.inf]], ids=str)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_refuses_logits_with_nan_or_infinity(row, temperature, rng):
    with pytest.raises(ValueError, match=r"sample: the logits are -?(nan|inf): the weights are too large or damaged"):
        sample(np.array([[1.0, 2.0], row]), rng, temperature)


def test_token_with_logit_minus_infinity_is_never_drawn(rng):
    assert sample(np.array([[-np.inf, 0.0]]), rng) == [1]


def test_top_k_keeps_the_first_of_equal_logits(rng):
    logits = rng.integers(0, 3, (500, 20)).astype(float)
    tokens = sample(logits, rng, top_k=2)
    kept = np.argsort(-logits, axis=-1, kind="stable")[:, :2]
    assert (kept == tokens[:, None]).any(axis=1).all()
