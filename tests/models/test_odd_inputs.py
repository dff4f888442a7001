"""Unusual ids, lengths, settings, gradients and weights: accepted with right results, or refused in one sentence."""

import dataclasses
import re
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import numpy_attention as na
from numpy_attention.errors import InputError
from numpy_attention.models.generate import stream

OURS = re.compile(r"^\w+: .* must (be|hold) .*, got ")
V = 5
SIZES = {"context_length": 6, "d_model": 4, "num_heads": 2, "num_layers": 1}
CONFIGS = {
    "GPT": na.GPTConfig(V, **SIZES),
    "Seq2Seq": na.Seq2SeqConfig(V, V, **SIZES),
    "SequenceClassifier": na.SequenceClassifierConfig(3, vocab_size=V, **SIZES),
    "TextEncoder": na.TextEncoderConfig(V, **SIZES),
}
IDS = np.array([[1, 2, 0]])
every_model = pytest.mark.parametrize("name", CONFIGS)


def built(name: str, rng: np.random.Generator | None = None, **changes: Any) -> Any:
    rng = rng or np.random.default_rng(0)
    return getattr(na, name)(dataclasses.replace(CONFIGS[name], **changes), rng, np.float64)


def refused(call: Any, *arguments: Any, **options: Any) -> str:
    """The message of the error, after a check that it has the form of our messages."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises((TypeError, ValueError)) as failure:
            call(*arguments, **options)
    assert OURS.match(str(failure.value)), failure.value
    return str(failure.value)


@every_model
def test_refuses_dlogits_of_another_shape_or_dtype(name: str) -> None:
    model = built(name)
    y, cache = model.forward(*([IDS, IDS] if name == "Seq2Seq" else [IDS]))
    for dy in (None, [], y.tolist(), y[0], np.ones((2, *y.shape[1:])), y.astype(np.float32)):
        refused(lambda dy=dy: dict(model.gradients_from_logits(cache, dy)))
    assert dict(model.gradients_from_logits(cache, np.ones_like(y))).keys() == model.parameters().keys()


@every_model
def test_configuration_accepts_numpy_numbers(name: str) -> None:
    plain = CONFIGS[name]
    of_numpy = {}
    for field in dataclasses.fields(plain):
        value = getattr(plain, field.name)
        of_numpy[field.name] = value if value is None or isinstance(value, str) else np.array(value)[()]
    config = dataclasses.replace(plain, **of_numpy)
    assert repr(config) == repr(plain)
    model = getattr(na, name)(config, np.random.default_rng(0))
    assert model.parameters().keys() == built(name).parameters().keys()
    sequences = [IDS, IDS] if name == "Seq2Seq" else [IDS]
    loss, cache = model.loss(*sequences, np.array([1]) if name == "SequenceClassifier" else IDS)
    assert loss.dtype == np.float32
    assert model.backward(cache).keys() == model.parameters().keys()


@every_model
def test_refuses_a_field_of_another_type_and_names_it(name: str) -> None:
    config = CONFIGS[name]
    odd = {int: (2.0, float("nan"), True, "2", [2], -2, 2**62), float: ("a", float("nan"), -1, 1j, True, [0.5])}
    odd |= {bool: ("yes", 1, 2.0), str: (None, 1, ["learned"], np.array(["learned"]))}
    for field in dataclasses.fields(config):
        if field.name == "d_input":  # an alternative to vocab_size
            continue
        kind = next(kind for kind in (int, float, bool, str) if kind.__name__ in str(field.type))
        for value in odd[kind]:
            if value is None and "None" in str(field.type):
                continue
            with pytest.raises((TypeError, ValueError)) as failure:
                dataclasses.replace(config, **{field.name: value})
            assert re.match(rf"{type(config).__name__}: {field.name} must be ", str(failure.value)), failure.value


@pytest.mark.parametrize("prompt", [
    None, 1, 1.5, True, "text", {"a": 1}, {1, 2}, [1, [2]], [[]], [None], [1.5], [True], np.array(1), IDS[None],
    [2**70], np.array([1, V]), [-1],
], ids=repr)
def test_refuses_an_invalid_prompt(prompt: Any) -> None:
    refused(built("GPT").generate, prompt, 2, temperature=0.0)
    refused(lambda: list(stream(built("GPT"), prompt, 2, temperature=0.0)))


@pytest.mark.parametrize("options", [
    {"num_tokens": float("nan")}, {"num_tokens": True}, {"num_tokens": None}, {"temperature": None},
    {"temperature": "1"}, {"temperature": float("inf")}, {"top_k": 1.5}, {"top_k": True}, {"top_p": "a"},
    {"top_p": float("nan")}, {"rng": 3}, {"stop_token": 1.5},
], ids=repr)
def test_refuses_invalid_settings_of_generate(options: Any) -> None:
    plain = {"prompt_ids": [1], "num_tokens": 2, "rng": np.random.default_rng(0)}
    refused(built("GPT").generate, **plain | options)


@pytest.mark.parametrize("options", [
    {"start_token": 1.9}, {"start_token": -1}, {"start_token": V}, {"start_token": None}, {"stop_token": 2.0},
    {"stop_token": V}, {"max_tokens": 1.5}, {"max_tokens": 0}, {"max_tokens": True},
], ids=repr)
@pytest.mark.parametrize("search", ["greedy", "beam_search"])
def test_refuses_invalid_settings_of_a_search(search: str, options: Any) -> None:
    refused(getattr(built("Seq2Seq"), search), **{"source_ids": IDS, "start_token": 1, "stop_token": 2, **options})


@pytest.mark.parametrize("options", [
    {"length_penalty": float("nan")}, {"length_penalty": "a"}, {"length_penalty": 1e308}, {"beam_size": 1.5},
    {"beam_size": True}, {"beam_size": None},
], ids=repr)  # fmt: skip
def test_refuses_invalid_settings_of_beam_search(options: Any) -> None:
    refused(built("Seq2Seq").beam_search, IDS, 1, 2, **options)


def enlarged(name: str, value: float) -> Any:
    """A float32 model with this value in all parameters."""
    model = getattr(na, name)(CONFIGS[name], None)
    for p in model.parameters().values():
        p[...] = value
    return model


@pytest.mark.parametrize("value", [3e38, np.nan, np.inf])
def test_reports_too_large_weights_without_numpy_warnings(value: float) -> None:
    gpt, seq2seq = enlarged("GPT", value), enlarged("Seq2Seq", value)
    message = r"the logits are (nan|inf|-inf): the weights are too large or damaged"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for temperature in (0.0, 1.0):
            with pytest.raises(InputError, match=message):
                gpt.generate([1, 2], 3, np.random.default_rng(0), temperature)
        with pytest.raises(InputError, match=message):
            gpt.generate([[1, 2], [3]], 3, temperature=0.0)
        with pytest.raises(InputError, match=message):
            next(stream(gpt, [1, 2], 3, temperature=0.0))
        with pytest.raises(InputError, match=message):
            seq2seq.greedy(IDS, 1, 2)
        with pytest.raises(InputError, match=message):
            seq2seq.beam_search(IDS, 1, 2)


def test_paused_stream_does_not_change_numpy_error_settings() -> None:
    before = np.geterr()
    tokens = stream(built("GPT"), [1, 2], 3, temperature=0.0)
    next(tokens)
    assert np.geterr() == before


GPT, SEQ2SEQ, PADDED = built("GPT"), built("Seq2Seq"), built("Seq2Seq", pad_token=0)
CLASSIFIER, ENCODER = built("SequenceClassifier"), built("TextEncoder")
PAIR = np.array([[1, 2, 3], [4, 0, 1]])
CLASSES = np.array([0, 2])
CALLS: dict[str, Callable[[Any], Any]] = {
    "gpt": lambda ids: GPT.forward(ids)[0],
    "gpt, targets": lambda ids: GPT.loss(PAIR, ids)[0],
    "source": lambda ids: SEQ2SEQ.forward(ids, PAIR)[0],
    "target": lambda ids: SEQ2SEQ.forward(PAIR, ids)[0],
    "source with padding": lambda ids: PADDED.forward(ids, PAIR)[0],
    "target with padding": lambda ids: PADDED.forward(PAIR, ids)[0],
    "seq2seq, targets": lambda ids: SEQ2SEQ.loss(PAIR, PAIR, ids)[0],
    "encode": lambda ids: SEQ2SEQ.encode(ids)[0],
    "decode": lambda ids: SEQ2SEQ.decode(ids, SEQ2SEQ.encode(PAIR)[0])[0],
    "classifier": lambda ids: CLASSIFIER.forward(ids)[0],
    "text encoder": lambda ids: ENCODER.forward(ids)[0],
    "text encoder, targets": lambda ids: ENCODER.loss(PAIR, ids)[0],
    "text encoder, types": lambda ids: ENCODER.forward(PAIR, types=ids % 2 if isinstance(ids, np.ndarray) else ids)[0],
}
WRONG = {
    "nothing": None, "a list": PAIR.tolist(), "a tuple": tuple(map(tuple, PAIR)), "a number": 3, "0-D": np.array(3),
    "an id": np.int64(3), "one sequence": PAIR[0], "one too many axes": PAIR[None], "floats": PAIR.astype(float),
    "bool": PAIR > 1, "masked": np.ma.array(PAIR), "a matrix": PAIR.view(np.matrix), "none in a row": PAIR[:, :0],
    "below 0": -PAIR, "beyond the table": PAIR + 5, "far beyond": PAIR.astype(np.uint64) + np.uint64(2**63),
}
DTYPES = ["i1", "u1", "i2", "u2", ">i4", "<u4", ">i8", "<i8", ">u8", "<u8"]


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_ids_may_have_any_integer_dtype_and_byte_order(name: str, dtype: str) -> None:
    np.testing.assert_array_equal(CALLS[name](PAIR.astype(dtype)), CALLS[name](PAIR))


@pytest.mark.parametrize("name", [name for name in CALLS if name != "text encoder, types"])
@pytest.mark.parametrize("what", WRONG)
def test_refuses_invalid_ids_in_one_sentence(name: str, what: str) -> None:
    refused(CALLS[name], WRONG[what])


@pytest.mark.parametrize("call", [
    lambda ids: SEQ2SEQ.greedy(ids, 1, 2), lambda ids: PADDED.beam_search(ids, 1, 2),
], ids=["greedy", "beam"])
@pytest.mark.parametrize("what", WRONG)
def test_search_refuses_invalid_sources(call: Callable[[Any], Any], what: str) -> None:
    assert "ids" in refused(call, WRONG[what])


@pytest.mark.parametrize("lengths", [
    [3], [1, 2, 3], [[1, 2]], 2, [1.0, 2.0], [-1, 2], [1, 4], np.array([True, False]), np.array(1),
], ids=str)
@pytest.mark.parametrize("forward", [
    lambda lengths: SEQ2SEQ.forward(PAIR, PAIR, lengths),
    lambda lengths: SEQ2SEQ.forward(PAIR, PAIR, None, lengths),
    lambda lengths: CLASSIFIER.forward(PAIR, lengths),
    lambda lengths: ENCODER.forward(PAIR, lengths),
], ids=["source", "target", "classifier", "text encoder"])
def test_refuses_invalid_lengths(forward: Callable[[Any], Any], lengths: Any) -> None:
    assert "lengths" in refused(forward, lengths)


@pytest.mark.parametrize("model", [GPT, SEQ2SEQ, CLASSIFIER, ENCODER], ids=lambda model: type(model).__name__)
def test_empty_batch_has_zero_loss_and_zero_gradients(model: Any) -> None:
    none = PAIR[:0]
    inputs = {GPT: (none, none), SEQ2SEQ: (none, none, none), CLASSIFIER: (none, CLASSES[:0])}.get(model)
    if inputs is None:  # the loss of a text encoder needs at least one pair
        assert model.forward(none)[0].shape == (0, 4)
        return
    loss, cache = model.loss(*inputs)
    assert loss == 0.0
    assert not any(grad.any() for grad in model.backward(cache).values())
