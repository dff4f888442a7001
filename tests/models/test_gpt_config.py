"""The configuration of a GPT refuses invalid fields."""

import dataclasses

import pytest

from tests.models.test_gpt import CONFIG


@pytest.mark.parametrize(
    ("options", "width"),
    [({}, 48), ({"activation": "swiglu"}, 32), ({"activation": "geglu"}, 32), ({"d_ff": 5}, 5)],
    ids=str,
)
def test_hidden_width_is_four_times_d_model_by_default(options, width):
    assert dataclasses.replace(CONFIG, **options).hidden_width() == width


def test_odd_width_per_head_is_allowed_without_rotary_positions():
    assert dataclasses.replace(CONFIG, d_model=6).d_model // CONFIG.num_heads == 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"d_model": 13}, "d_model must be divisible by num_heads, got 13 and 2"),
        ({"num_heads": 4, "num_kv_heads": 3}, "num_heads must be a multiple of num_kv_heads, got 4 and 3"),
        ({"positions": "rotary", "d_model": 6}, "even width per head"),
        ({"positions": "absolute"}, "positions must be one of learned, rotary, alibi, sinusoidal"),
        ({"norm": "batch"}, "norm must be one of"),
        ({"activation": "tanh"}, "activation must be one of"),
        ({"num_layers": 0}, "num_layers must be at least 1, got 0"),
        ({"dropout": 1.0}, "dropout must be in"),
        ({"rotary_base": 0.0}, "rotary_base must be above 0 and finite, got 0.0"),
        ({"norm_eps": 0.0}, r"norm_eps must be in \(0, 1\), got 0.0"),
        ({"norm_eps": 1.0}, r"norm_eps must be in \(0, 1\), got 1.0"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_refuses_invalid_fields(change, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(CONFIG, **change)
