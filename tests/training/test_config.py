"""The settings of a run: refused values, error messages, and the objects made from them."""


import numpy as np
import pytest

from numpy_attention.errors import InputError
from numpy_attention.training.config import OPTIMIZERS, TrainConfig, make_optimizer


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"steps": 0}, "--steps must be at least 1, got 0"),
        ({"dropout": 1.0}, "--dropout must be at least 0 and below 1, got 1.0"),
        ({"learning_rate": float("nan")}, "--learning-rate must be at least 0, got nan"),
        ({"positions": "rotory"}, "--positions must be one of .*rotary.*, got 'rotory'"),
        ({"recompute": 1}, "--recompute must be true or false, got 1"),
        ({"seed": False}, "--seed must be a whole number, got False"),
        ({"task": ["text"]}, "--task must be a text, got a list"),
        ({"lora": 2}, "name one with --from"),
        ({"from_": "m", "lora_alpha": 3.0}, "need a low-rank change: give its rank with --lora"),
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


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizer_gets_its_settings(name):
    config = TrainConfig(optimizer=name, learning_rate=0.5, beta1=0.25, beta2=0.75, weight_decay=0.125)
    optimizer = make_optimizer(config, {"w": np.zeros((2, 2))})
    assert type(optimizer).__name__.lower() == name
    expected = {"learning_rate": 0.5} | ({"momentum": 0.25} if name == "sgd" else {"beta_1": 0.25, "beta_2": 0.75})
    expected |= {"weight_decay": 0.125} if name == "adamw" else {}
    assert expected.items() <= vars(optimizer).items()
