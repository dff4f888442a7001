"""Ids, lengths and targets of every kind given to every model: right, or refused in one sentence of ours."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import numpy_attention as na
from tests.catalogue.test_odd_inputs import OURS

SIZES = {"context_length": 4, "d_model": 4, "num_heads": 2, "num_layers": 1}
RNG = np.random.default_rng(0)
GPT = na.GPT(na.GPTConfig(5, **SIZES), RNG)
SEQ2SEQ = na.Seq2Seq(na.Seq2SeqConfig(5, 5, **SIZES), RNG)
PADDED = na.Seq2Seq(na.Seq2SeqConfig(5, 5, **SIZES, pad_token=0), RNG)
CLASSIFIER = na.SequenceClassifier(na.SequenceClassifierConfig(3, vocab_size=5, **SIZES), RNG)
ENCODER = na.TextEncoder(na.TextEncoderConfig(5, **SIZES), RNG)
IDS = np.array([[1, 2, 3], [4, 0, 1]])
CLASSES = np.array([0, 2])
CALLS: dict[str, Callable[[Any], Any]] = {
    "gpt": lambda ids: GPT.forward(ids)[0],
    "gpt, targets": lambda ids: GPT.loss(IDS, ids)[0],
    "source": lambda ids: SEQ2SEQ.forward(ids, IDS)[0],
    "target": lambda ids: SEQ2SEQ.forward(IDS, ids)[0],
    "source with padding": lambda ids: PADDED.forward(ids, IDS)[0],
    "target with padding": lambda ids: PADDED.forward(IDS, ids)[0],
    "seq2seq, targets": lambda ids: SEQ2SEQ.loss(IDS, IDS, ids)[0],
    "encode": lambda ids: SEQ2SEQ.encode(ids)[0],
    "decode": lambda ids: SEQ2SEQ.decode(ids, SEQ2SEQ.encode(IDS)[0])[0],
    "classifier": lambda ids: CLASSIFIER.forward(ids)[0],
    "text encoder": lambda ids: ENCODER.forward(ids)[0],
    "text encoder, targets": lambda ids: ENCODER.loss(IDS, ids)[0],
    "text encoder, types": lambda ids: ENCODER.forward(IDS, types=ids % 2 if isinstance(ids, np.ndarray) else ids)[0],
}
WRONG = {
    "nothing": None, "a list": IDS.tolist(), "a tuple": tuple(map(tuple, IDS)), "a number": 3, "0-D": np.array(3),
    "an id": np.int64(3), "one sequence": IDS[0], "one too many axes": IDS[None], "floats": IDS.astype(float),
    "bool": IDS > 1, "masked": np.ma.array(IDS), "a matrix": IDS.view(np.matrix), "none in a row": IDS[:, :0],
    "below 0": -IDS, "beyond the table": IDS + 5, "far beyond": IDS.astype(np.uint64) + np.uint64(2**63),
}
DTYPES = ["i1", "u1", "i2", "u2", ">i4", "<u4", ">i8", "<i8", ">u8", "<u8"]


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_ids_may_be_integers_of_any_size_and_order(name: str, dtype: str) -> None:
    np.testing.assert_array_equal(CALLS[name](IDS.astype(dtype)), CALLS[name](IDS))


@pytest.mark.parametrize("name", [name for name in CALLS if name != "text encoder, types"])
@pytest.mark.parametrize("what", WRONG)
def test_ids_that_are_none_are_refused_in_one_sentence(name: str, what: str) -> None:
    with pytest.raises((TypeError, ValueError)) as failure:
        CALLS[name](WRONG[what])
    assert OURS.match(str(failure.value)), str(failure.value)


@pytest.mark.parametrize("call", [
    lambda ids: SEQ2SEQ.greedy(ids, 1, 2), lambda ids: PADDED.beam_search(ids, 1, 2),
], ids=["greedy", "beam"])
@pytest.mark.parametrize("what", WRONG)
def test_a_search_refuses_such_sources_too(call: Callable[[Any], Any], what: str) -> None:
    with pytest.raises((TypeError, ValueError)) as failure:
        call(WRONG[what])
    assert OURS.match(str(failure.value)), str(failure.value)
    assert "ids" in str(failure.value)


@pytest.mark.parametrize("lengths", [
    [3], [1, 2, 3], [[1, 2]], 2, [1.0, 2.0], [-1, 2], [1, 4], np.array([True, False]), np.array(1),
], ids=str)
@pytest.mark.parametrize("forward", [
    lambda lengths: SEQ2SEQ.forward(IDS, IDS, lengths),
    lambda lengths: SEQ2SEQ.forward(IDS, IDS, None, lengths),
    lambda lengths: CLASSIFIER.forward(IDS, lengths),
    lambda lengths: ENCODER.forward(IDS, lengths),
], ids=["source", "target", "classifier", "text encoder"])
def test_lengths_are_one_integer_a_sequence(forward: Callable[[Any], Any], lengths: Any) -> None:
    with pytest.raises((TypeError, ValueError)) as failure:
        forward(lengths)
    assert OURS.match(str(failure.value)), str(failure.value)
    assert "lengths" in str(failure.value)


@pytest.mark.parametrize("dtype", DTYPES)
def test_losses_and_their_gradients_take_targets_of_any_integers(dtype: str) -> None:
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
def test_the_gradient_of_a_loss_is_a_number(dloss: Any) -> None:
    for op, back, inputs in (
        (na.cross_entropy, na.cross_entropy_backward, (np.eye(3),)),
        (na.linear_cross_entropy, na.linear_cross_entropy_backward, (np.eye(3), np.eye(3))),
    ):
        _, cache = op(*inputs, np.array([0, 2, 1]))
        with pytest.raises(ValueError, match="dloss must be a single number, got"):
            back(dloss, cache)


@pytest.mark.parametrize("model", [GPT, SEQ2SEQ, CLASSIFIER, ENCODER], ids=lambda model: type(model).__name__)
def test_a_batch_of_no_sequences_has_a_loss_and_gradients_of_zero(model: Any) -> None:
    none = IDS[:0]
    inputs = {GPT: (none, none), SEQ2SEQ: (none, none, none), CLASSIFIER: (none, CLASSES[:0])}.get(model)
    if inputs is None:  # of texts without others to be told from there is no loss
        assert model.forward(none)[0].shape == (0, 4)
        return
    loss, cache = model.loss(*inputs)
    assert loss == 0.0
    assert not any(grad.any() for grad in model.backward(cache).values())
