"""The methods that every task inherits."""

import numpy as np
import pytest

from numpy_attention.errors import InputError
from numpy_attention.models.gpt import GPT
from numpy_attention.training.config import TrainConfig
from numpy_attention.training.tasks.copying import CopyTask


def test_model_is_built_from_settings_and_can_be_rebuilt():
    task = CopyTask(TrainConfig(layers=1, heads=2, d_model=8, context=5))
    model = task.build(GPT, np.random.default_rng(0), vocab_size=7)
    assert (model.config.num_layers, model.config.d_model, model.config.vocab_size) == (1, 8, 7)
    assert GPT.config_class(**task.model_settings(model)) == model.config


def test_wrong_sizes_are_an_input_error():
    task = CopyTask(TrainConfig(heads=3, d_model=8, context=5))
    with pytest.raises(InputError, match="divisible"):
        task.build(GPT, None, vocab_size=7)
