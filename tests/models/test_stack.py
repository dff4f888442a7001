"""The stack: positions, blocks and the last norm in order, and gradients from the last block to the first."""

import dataclasses

import numpy as np
import pytest

from numpy_attention.models.c21e_weights import attention_weights
from numpy_attention.models.c24c_stacks import Stack
from tests.layers.gradients import assert_gradients, randomized
from tests.models.test_seq2seq import CONFIG


def stack(rng, cross_attention=False, **changes):
    config = dataclasses.replace(CONFIG, **changes)
    return randomized(Stack(config, 2, rng, cross_attention, np.float64), rng)


@pytest.mark.parametrize("pre_norm", [True, False])
def test_stack_equals_its_parts_run_in_order(pre_norm, rng):
    layer, x = stack(rng, pre_norm=pre_norm), rng.standard_normal((3, 5, 12))
    y, _ = layer.position_embedding.forward(x)
    for block in layer.blocks:
        y, _ = block.forward(y)
    if pre_norm:  # the residual stream has not been normalized yet
        y, _ = layer.norm.forward(y)
    else:
        assert layer.norm is None
    np.testing.assert_array_equal(layer.forward(x)[0], y)


@pytest.mark.parametrize(("pre_norm", "positions"), [(True, "learned"), (False, "sinusoidal")])
def test_gradients_agree_with_central_differences(pre_norm, positions, rng):
    layer = stack(rng, pre_norm=pre_norm, positions=positions, dropout=0.2)
    assert_gradients(layer, (rng.standard_normal((3, 5, 12)),), {"dropout": True}, rng)


@pytest.mark.parametrize("pre_norm", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_gradient_of_the_context_is_the_sum_over_all_blocks(pre_norm, rng):
    layer = stack(rng, cross_attention=True, pre_norm=pre_norm, dropout=0.2)
    x, context = rng.standard_normal((2, 3, 12)), rng.standard_normal((2, 2, 12))
    assert_gradients(layer, (x, context), {"dropout": True}, rng)


def test_weights_have_the_names_of_their_layers(rng):
    layer, x = stack(rng, cross_attention=True), rng.standard_normal((3, 5, 12))
    _, cache = layer.forward(x, context=rng.standard_normal((3, 4, 12)))
    shapes = {name: weights.shape for name, weights in attention_weights({"decoder.": cache.stack}).items()}
    assert shapes == {
        f"decoder.blocks.{i}.{kind}": (3, 2, 5, T_k)
        for i in range(2)
        for kind, T_k in (("attention", 5), ("cross_attention", 4))
    }
