"""Checks of batches, and padding."""

import numpy as np
import pytest

import numpy_attention as na
from numpy_attention.models.c22b_padding import visible_tokens
from tests.models.test_sequence_classifier import classifier


@pytest.mark.parametrize("shape", [(2, 8), (4,), (2, 0), (2, 3, 4)], ids=str)
def test_refuses_ids_of_wrong_shape(shape, rng):
    with pytest.raises(ValueError, match=r"SequenceClassifier: ids must be \(B, T\)"):
        classifier(rng).forward(np.zeros(shape, int))


def test_tokens_in_the_kv_cache_count_towards_the_context():
    model, ids = na.GPT(na.GPTConfig(5, 5, 4, 2, 1), None), np.zeros((2, 3), int)
    model.require_batch("ids", ids, T_past=2)
    with pytest.raises(ValueError, match=r"GPT: ids must be \(B, T\) with T at most the context_length 5"):
        model.require_batch("ids", ids, T_past=3)


def test_lengths_override_the_pad_token():
    ids = np.array([[3, 0, 4], [0, 0, 0]])
    of_lengths = visible_tokens(ids, np.array([2, 0]), 0, like=ids)
    np.testing.assert_array_equal(of_lengths, [[True, True, False], [False, False, False]])
    np.testing.assert_array_equal(visible_tokens(ids, None, 0, like=ids), ids != 0)
    assert visible_tokens(ids, None, None, like=ids) is None


def test_error_names_the_argument_with_invalid_lengths(rng):
    sizes = {"context_length": 4, "d_model": 4, "num_heads": 2, "num_layers": 1}
    model = na.Seq2Seq(na.Seq2SeqConfig(source_vocab_size=5, target_vocab_size=5, pad_token=0, **sizes), rng)
    ids = np.ones((2, 3), np.int64)
    message = r"padding: source_lengths must be \(B,\) = \(2,\), one per sequence, got \(\)"
    with pytest.raises(ValueError, match=message):
        model.attention_weights(ids, ids, source_lengths=np.array(3))
