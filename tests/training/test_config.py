"""The settings of a run: refused values, error messages, and the objects made from them."""


import numpy as np
import pytest

from numpy_attention.errors import InputError
from numpy_attention.models.c23a_gpt_config import GPTConfig
from numpy_attention.training.config import OPTIMIZERS, TrainConfig, command_line, make_optimizer


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"steps": 0}, "--steps must be at least 1, got 0"),
        ({"steps": True}, "--steps must be a whole number, got True"),
        ({"dropout": 1.0}, "--dropout must be at least 0 and below 1, got 1.0"),
        ({"learning_rate": float("nan")}, "--learning-rate must be at least 0, got nan"),
        ({"learning_rate": float("inf")}, "--learning-rate must be at least 0, got inf"),
        ({"positions": "rotory"}, "--positions must be one of .*rotary.*, got 'rotory'"),
        ({"text": 3}, "--text must be a text, got 3"),
        ({"recompute": 1}, "--recompute must be true or false, got 1"),
        ({"seed": False}, "--seed must be a whole number, got False"),
        ({"task": ["text"]}, "--task must be a text, got a list"),
        ({"lora": 2}, "name one with --from"),
        ({"from_": "m", "lora_alpha": 3.0}, "need a low-rank change: give its rank with --lora"),
        ({"from_": "m", "keep": "merged"}, "--lora-alpha and --keep need"),
        ({"workers": 10**6}, "--workers must be at least 0 and below 1025, got 1000000"),
        ({"vocab_size": 256}, "--vocab-size must be at least 257, got 256"),
    ],
)
def test_refuses_value_out_of_bounds_and_names_the_option(values, message):
    with pytest.raises(InputError, match=message) as caught:
        TrainConfig(**values)
    assert "\n" not in str(caught.value)


def test_mapping_round_trips_and_unknown_setting_is_refused_with_its_source():
    config = TrainConfig(steps=3, text="a.txt")
    assert TrainConfig.from_mapping(config.to_mapping(), "") == config
    with pytest.raises(InputError, match=r"run\.toml: there is no setting 'stpes'; did you mean 'steps'\?"):
        TrainConfig.from_mapping({"stpes": 3}, "run.toml")
    with pytest.raises(InputError, match=r"run\.toml: --steps must be at least 1"):
        TrainConfig.from_mapping({"steps": 0}, "run.toml")


def test_help_shows_default_and_choices():
    message = {spelling: options["help"] for spelling, options in command_line()}
    assert message["--steps"] == "optimizer steps (default: 1200)"
    assert message["--text"].endswith("of Python 3.11)")
    assert message["--optimizer"] == "the optimizer: adamw, adam, sgd (default: adamw)"
    assert "default" not in message["--recompute"]


def test_model_sizes_match_the_settings():
    sizes = TrainConfig(d_ff=0, d_model=24, heads=3).model_sizes()
    config = GPTConfig(vocab_size=7, **sizes)
    assert (config.d_ff, config.d_model, config.num_heads) == (None, 24, 3)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizer_gets_its_settings(name):
    config = TrainConfig(optimizer=name, learning_rate=0.5, beta1=0.25, beta2=0.75, weight_decay=0.125)
    optimizer = make_optimizer(config, {"w": np.zeros((2, 2))}, None)
    assert type(optimizer).__name__.lower() == name
    expected = {"learning_rate": 0.5} | ({"momentum": 0.25} if name == "sgd" else {"beta_1": 0.25, "beta_2": 0.75})
    expected |= {"weight_decay": 0.125} if name == "adamw" else {}
    assert expected.items() <= vars(optimizer).items()
