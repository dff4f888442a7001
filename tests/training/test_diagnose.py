"""The diagnosis finds and names the first NaN or infinity."""


import numpy as np
import pytest

from numpy_attention.models.c23_gpt import GPT
from numpy_attention.models.c23a_gpt_config import GPTConfig
from numpy_attention.training.diagnose import first_non_finite


@pytest.fixture
def model(rng):
    return GPT(GPTConfig(vocab_size=11, context_length=7, d_model=12, num_heads=3, num_layers=2), rng)


@pytest.fixture
def batch(rng):
    return rng.integers(0, 11, size=(3, 7)), rng.integers(0, 11, size=(3, 7))


def test_names_a_parameter_that_is_not_finite(model, batch):
    model.parameters()["blocks.1.feed_forward.w_1"][2, 5] = np.inf
    assert first_non_finite(model, [batch], [None]) == "the parameter blocks.1.feed_forward.w_1 holds inf at [2, 5]"


def test_names_the_op_and_layer_that_make_an_infinity(model, batch):
    model.parameters()["blocks.1.feed_forward.w_1"][...] = 3e38  # finite, but not after a product
    message = first_non_finite(model, [batch], [None])
    assert "first came out of linear in blocks.1.feed_forward" in message


def test_finds_an_overflow_in_the_backward(model, batch):
    # values of zero hide w_o from the forward; the gradient of the values goes through it
    model.parameters()["blocks.0.attention.w_v"][...] = 0
    model.parameters()["blocks.0.attention.w_o"][...] = 3e38
    model.parameters()["norm.gamma"][...] = 1e3
    assert np.isfinite(model.loss(*batch)[0])
    assert "first came out of linear_backward in blocks.0.attention" in first_non_finite(model, [batch], [None])


def test_reports_a_step_without_a_nan(model, batch):
    assert first_non_finite(model, [batch], [None]) == "it does not occur again when the step is repeated"
