"""Configurations refuse invalid fields; all have the same messages."""

import dataclasses

import pytest

from tests.models import test_gpt, test_seq2seq, test_sequence_classifier

CONFIGS = [test_gpt.CONFIG, test_seq2seq.CONFIG, test_sequence_classifier.CONFIG]


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: type(config).__name__)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"d_model": 13}, "d_model must be divisible by num_heads, got 13 and 2"),
        ({"num_layers": 0}, "num_layers must be at least 1, got 0"),
        ({"d_ff": 0}, "d_ff must be at least 1, got 0"),
        ({"positions": "absolute"}, "positions must be one of learned, .*sinusoidal, got 'absolute'"),
        ({"norm": "batch"}, "norm must be one of layer_norm, rms_norm, got 'batch'"),
        ({"activation": "tanh"}, "activation must be one of relu, .*, got 'tanh'"),
        ({"dropout": 1.0}, r"dropout must be in \[0, 1\), got 1.0"),
    ],
    ids=str,
)
def test_refuses_invalid_fields_of_a_configuration(config, change, message):
    with pytest.raises(ValueError, match=f"{type(config).__name__}: {message}"):
        dataclasses.replace(config, **change)


@pytest.mark.parametrize(
    ("options", "width"),
    [({}, 48), ({"activation": "swiglu"}, 32), ({"activation": "geglu"}, 32), ({"d_ff": 5}, 5)],
    ids=str,
)
def test_hidden_width_is_four_times_d_model_by_default(options, width):
    assert dataclasses.replace(test_gpt.CONFIG, **options).hidden_width() == width


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_heads": 4, "num_kv_heads": 3}, "num_heads must be a multiple of num_kv_heads, got 4 and 3"),
        ({"positions": "rotary", "d_model": 6}, "even width per head"),
        ({"positions": "absolute"}, "positions must be one of learned, rotary, alibi, sinusoidal"),
        ({"rotary_base": 0.0}, "rotary_base must be above 0 and finite, got 0.0"),
        ({"norm_eps": 0.0}, r"norm_eps must be in \(0, 1\), got 0.0"),
        ({"norm_eps": 1.0}, r"norm_eps must be in \(0, 1\), got 1.0"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_refuses_invalid_fields_of_a_gpt(change, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(test_gpt.CONFIG, **change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"share_embeddings": True, "target_vocab_size": 8}, "equal vocabulary sizes"),
        ({"num_decoder_layers": 0}, "num_decoder_layers must be at least 1"),
        ({"label_smoothing": 1.5}, "label_smoothing must be"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_refuses_invalid_fields_of_an_encoder_decoder(change, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(test_seq2seq.CONFIG, **change)
