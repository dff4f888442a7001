"""The n-gram predictors against calculations by hand."""

import math

import numpy as np

from numpy_attention.training.c27_data import CharVocabulary, default_text, split_text
from numpy_attention.training.c27b_ngrams import ngram_losses


def test_losses_of_a_small_text_agree_with_a_calculation_by_hand():
    # training text "abab", held out "b"; V = 2.
    # order 1: N = 4, D = 2, N(b) = 2:          P(b) = (2 + 2 * 1/2) / (4 + 2) = 1/2
    # order 2: after "b" came "a" once:         P(b | b) = (0 + 1 * 1/2) / (1 + 1) = 1/4
    # order 3: after "ab" came "a" once:        P(b | ab) = (0 + 1 * 1/4) / (1 + 1) = 1/8
    ids = CharVocabulary("ab").encode("ababb")
    losses = ngram_losses(ids[:4], ids[4:], 2, order=3)
    np.testing.assert_allclose(losses, [math.log(2), math.log(4), math.log(8)], rtol=1e-14)


def test_the_probabilities_of_all_next_characters_sum_to_one():
    rng = np.random.default_rng(0)
    training = rng.integers(0, 5, size=60)
    for context in range(5):
        total = np.zeros(3)
        for character in range(5):
            ids = np.append(training, context)
            # the context is the end of the training text, so only the held-out character is scored
            total += np.exp(-np.array(ngram_losses(ids, np.array([character]), 5, order=3)))
        np.testing.assert_allclose(total, 1.0, rtol=1e-12)


def test_losses_of_the_default_text():
    text = default_text()
    vocabulary = CharVocabulary(text)
    losses = ngram_losses(*split_text(vocabulary.encode(text)), len(vocabulary))
    np.testing.assert_allclose(losses[1:], [2.318, 1.712, 1.404], atol=6e-4)
