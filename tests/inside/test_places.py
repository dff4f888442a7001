"""Chapter 38, continued: a layer with a place has the cache and the parameter names of the layer."""

import copy

import numpy as np

import numpy_attention as na
from numpy_attention.inside.c38_edits import Edit
from numpy_attention.inside.c38a_places import Activations, Place, WatchedHeads, WatchedInput, WatchedOutput


def new_place(change: Edit | None = None) -> tuple[Place, Activations, Activations]:
    at: Activations = {}
    gradients: Activations = {}
    return Place("here", change or Edit(), at, gradients), at, gradients


def test_place_records_copies_of_the_array_and_its_gradient() -> None:
    place, at, gradients = new_place()
    y = place.forward(np.ones(2))
    y += 5.0  # a residual path adds in place
    np.testing.assert_array_equal(at["here"], [1.0, 1.0])
    dx = place.backward(np.full(2, 3.0))
    dx += 5.0
    np.testing.assert_array_equal(gradients["here"], [3.0, 3.0])


def test_layer_with_a_place_has_parameters_and_results_of_the_layer(rng: np.random.Generator) -> None:
    x = rng.standard_normal((2, 3, 4))
    attention = na.MultiHeadAttention(4, 2, rng, bias=True, dtype=np.float64)
    with_place = copy.copy(attention)
    with_place.w_o = WatchedHeads(attention.w_o, 2, new_place()[0])
    feed_forward, block = na.FeedForward(4, 5, rng, dtype=np.float64), na.EncoderBlock(4, 2, 5, rng, dtype=np.float64)
    for layer, watched in (
        (attention, with_place), (feed_forward, WatchedOutput(feed_forward, new_place()[0])),
        (block, WatchedInput(block, new_place()[0])),
    ):
        assert all(mine is own for mine, own in zip(watched.parameters().values(), layer.parameters().values()))
        assert list(watched.parameters()) == list(layer.parameters())
        (y, cache), (own_y, own_cache) = watched.forward(x), layer.forward(x)
        np.testing.assert_array_equal(y, own_y)
        (dx, grads), (own_dx, own_grads) = watched.backward(y, cache), layer.backward(y, own_cache)
        np.testing.assert_array_equal(dx, own_dx)
        assert grads.keys() == own_grads.keys()
        for name, grad in grads.items():
            np.testing.assert_array_equal(grad, own_grads[name], err_msg=name)


def test_nan_of_an_ablated_head_does_not_reach_the_result(rng: np.random.Generator) -> None:
    attention = na.MultiHeadAttention(4, 2, rng, dtype=np.float64)
    attention.w_v[:, 2:] = np.nan  # the second head
    place, at, _ = new_place(Edit(np.array([[[True]], [[False]]])))
    attention.w_o = WatchedHeads(attention.w_o, 2, place)
    y, _ = attention.forward(rng.standard_normal((1, 3, 4)))
    assert np.isfinite(y).all()
    assert np.isfinite(at["here"]).all()
