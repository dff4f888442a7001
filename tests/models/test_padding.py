"""Batches that are refused, and tokens that only fill a batch."""

import numpy as np
import pytest

from numpy_attention.models.padding import check_batch, visible_tokens
from tests.models.test_sequence_classifier import classifier


@pytest.mark.parametrize("shape", [(2, 8), (4,), (2, 0), (2, 3, 4)], ids=str)
def test_ids_that_do_not_fit_are_refused(shape, rng):
    with pytest.raises(ValueError, match=r"SequenceClassifier: ids must be \(B, T\)"):
        classifier(rng).forward(np.zeros(shape, int))


def test_stored_tokens_count_towards_the_context():
    ids = np.zeros((2, 3), int)
    check_batch("GPT", "ids", ids, 5, T_past=2)
    with pytest.raises(ValueError, match=r"GPT: ids must be \(B, T\) with T at most the context_length 5"):
        check_batch("GPT", "ids", ids, 5, T_past=3)


def test_lengths_say_which_tokens_are_real_and_win_over_the_pad_token():
    ids = np.array([[3, 0, 4], [0, 0, 0]])
    of_lengths = visible_tokens(ids, np.array([2, 0]), 0, like=ids)
    np.testing.assert_array_equal(of_lengths, [[True, True, False], [False, False, False]])
    np.testing.assert_array_equal(visible_tokens(ids, None, 0, like=ids), ids != 0)
    assert visible_tokens(ids, None, None, like=ids) is None
