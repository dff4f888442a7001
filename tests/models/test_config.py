"""All configurations refuse the same invalid fields with the same messages."""

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
