"""Right results for unusual sizes: one token, one head, one sequence, odd widths, empty input."""

import dataclasses

import numpy as np
import pytest

import numpy_attention as na
from tests.models.gradients import assert_gradients, randomized

V = 5
START, STOP = 1, 2
GPT = na.GPTConfig(V, 5, d_model=3, num_heads=1, num_layers=1)
SEQ2SEQ = na.Seq2SeqConfig(V, 4, 5, d_model=3, num_heads=1, num_layers=1, activation="gelu")
CLASSIFIER = na.SequenceClassifierConfig(
    num_classes=2, context_length=5, d_model=3, num_heads=1, num_layers=1, vocab_size=V, activation="gelu"
)
LENGTHS = [1, 5]


def built(config, rng, **changes):
    kinds = {na.GPTConfig: na.GPT, na.Seq2SeqConfig: na.Seq2Seq, na.SequenceClassifierConfig: na.SequenceClassifier}
    return randomized(kinds[type(config)](dataclasses.replace(config, **changes), rng, np.float64), rng)


@pytest.mark.parametrize("T", LENGTHS)
@pytest.mark.parametrize(
    "changes",
    [
        {"positions": "learned"},
        {"positions": "sinusoidal", "d_model": 5},
        {"positions": "alibi", "d_model": 9, "num_heads": 3},
        {"positions": "rotary", "d_model": 6, "num_heads": 3, "num_kv_heads": 1},
        {"window": 1, "d_ff": 1},
        {"activation": "swiglu", "norm": "rms_norm"},
    ],
    ids=str,
)
def test_gradients_of_a_gpt_of_odd_sizes(changes, T, rng):
    model = built(GPT, rng, **changes)
    ids, targets = rng.integers(0, V, (2, 1, T))
    assert_gradients(model, lambda: model.loss(ids, targets), rng)


def test_single_token_has_zero_gradients_for_query_and_key(rng):
    model = built(GPT, rng, d_model=6, num_heads=2)
    ids = np.array([[3]])
    np.testing.assert_array_equal(model.attention_weights(ids)["blocks.0.attention"], np.ones((1, 2, 1, 1)))
    grads = model.backward(model.loss(ids, np.array([[4]]))[1])
    assert not grads["blocks.0.attention.w_q"].any()
    assert not grads["blocks.0.attention.w_k"].any()
    assert grads["blocks.0.attention.w_v"].any()


@pytest.mark.parametrize("search", ["greedy", "beam_search"])
def test_search_ignores_padding_of_an_empty_source(search, rng):
    model = built(SEQ2SEQ, rng)
    empty = np.array([0])
    found = [getattr(model, search)(np.full((1, T_s), token), START, STOP, source_lengths=empty)[0]
            for T_s, token in ((1, 0), (4, 3), (5, 4))]  # fmt: skip
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])
    assert 1 <= len(found[0]) <= SEQ2SEQ.context_length


def test_an_empty_source_sends_no_gradient_to_the_encoder(rng):
    model = built(SEQ2SEQ, rng)
    source, target, targets = np.array([[3, 4]]), np.array([[1, 3]]), np.array([[3, 2]])
    grads = model.backward(model.loss(source, target, targets, np.array([0]))[1])
    for name, grad in grads.items():
        assert np.isfinite(grad).all(), name
        if name.startswith(("source_embedding.", "encoder.")):
            assert not grad.any(), name


def test_context_of_one_token_gives_a_bigram_model(rng):
    model = built(GPT, rng, context_length=1)
    following = [int(model.forward(np.array([[token]]))[0][0, -1].argmax()) for token in range(V)]
    expected = [0, 4, 2]  # a prompt three times as long as the context: only its last token counts
    for _ in range(6):
        expected.append(following[expected[-1]])
    np.testing.assert_array_equal(model.generate([0, 4, 2], 6, temperature=0.0), expected)


def test_empty_batch_gives_empty_results(rng):
    none = np.zeros((0, 3), dtype=np.int64)
    assert built(GPT, rng).forward(none)[0].shape == (0, 3, V)
    assert built(SEQ2SEQ, rng, tie_weights=True).forward(none, none)[0].shape == (0, 3, 4)
    assert built(SEQ2SEQ, rng).greedy(none, START, STOP) == []
    assert built(SEQ2SEQ, rng).beam_search(none, START, STOP) == []
    assert built(CLASSIFIER, rng).predict(none).shape == (0,)
