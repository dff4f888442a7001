"""Chapters 52 to 54: which logits get a gradient, no token is dropped, and the losses of the router in a model."""

from typing import Any

import numpy as np
import pytest

import numpy_attention as na

N, E, K = 5, 6, 2


def test_renormalized_weights_are_a_softmax_of_the_chosen_logits_in_both_orders(rng: np.random.Generator) -> None:
    logits, dweights = rng.standard_normal((N, E)), rng.standard_normal((N, K))
    first, of_first = na.route(logits, K)
    last, of_last = na.route(logits, K, order="top_k_first", renormalize=False)
    np.testing.assert_array_equal(first, last)
    np.testing.assert_array_equal(na.route_backward(dweights, of_first), na.route_backward(dweights, of_last))
    np.testing.assert_allclose(first.sum(axis=1), 1.0)
    p = na.softmax(logits)[0]
    raw, cache = na.route(logits, K, renormalize=False)
    np.testing.assert_allclose(raw, np.sort(p, axis=1)[:, ::-1][:, :K], rtol=1e-12)
    np.testing.assert_array_equal(cache.experts, of_first.experts)


def test_experts_that_are_not_chosen_learn_only_from_the_other_losses(rng: np.random.Generator) -> None:
    logits, dweights = rng.standard_normal((N, E)), rng.standard_normal((N, K))
    _, cache = na.route(logits, K)
    chosen = np.zeros((N, E), bool)
    np.put_along_axis(chosen, cache.experts, True, axis=1)
    assert (na.route_backward(dweights, cache)[~chosen] == 0).all()
    assert (na.route_backward(dweights, na.route(logits, K, renormalize=False)[1])[~chosen] != 0).all()
    assert (na.load_balancing_loss_backward(1.0, na.load_balancing_loss(logits, K)[1])[~chosen] != 0).any()
    assert (na.router_z_loss_backward(1.0, na.router_z_loss(logits)[1]) != 0).all()


def test_a_nan_among_the_logits_is_chosen_so_that_the_loss_shows_it() -> None:
    assert np.isnan(na.route(np.array([[np.nan, 1.0, 2.0, 3.0]]), 2)[0]).all()


def test_ties_go_to_the_first_expert() -> None:
    np.testing.assert_array_equal(na.route(np.zeros((2, 4)), 2)[1].experts, [[0, 1], [0, 1]])


def test_the_balance_loss_is_top_k_for_an_even_load_and_more_for_one_favourite() -> None:
    even = 50.0 * np.eye(4)
    assert float(na.load_balancing_loss(even, 1)[0]) == pytest.approx(1.0)
    favourite = np.tile([9.0, 1.0, 0.0, 0.0], (4, 1))
    assert float(na.load_balancing_loss(favourite, 1)[0]) == pytest.approx(4.0, rel=1e-2)
    dlogits = na.load_balancing_loss_backward(1.0, na.load_balancing_loss(favourite, 1)[1])
    assert (dlogits[:, 0] > 0).all()  # a step against the gradient lowers the favourite
    assert (dlogits[:, 1:] < 0).all()


def test_every_token_gets_all_its_experts(rng: np.random.Generator) -> None:
    layer = na.Experts(4, 3, E, K, rng)
    _, cache = layer.forward(rng.standard_normal((2, 7, 4)).astype(np.float32))
    rows = np.concatenate([visit.rows for visit in cache.visits if visit])
    np.testing.assert_array_equal(np.bincount(rows), K)


def tiny(**options: Any) -> na.ExpertsGPT:
    config = na.ExpertsGPTConfig(
        vocab_size=11, context_length=6, d_model=8, num_heads=2, num_layers=2, d_ff=5, positions="rotary",
        norm="rms_norm", bias=False, num_experts=4, **options)
    return na.ExpertsGPT(config, np.random.default_rng(0), np.float64)


def test_shards_of_a_batch_give_the_gradients_of_the_tokens_in_proportion(rng: np.random.Generator) -> None:
    """dloss multiplies all terms of the loss: a loss of a half has half the gradient."""
    model, batch = tiny(balance=0.5, router_z=0.3), (rng.integers(0, 11, (2, 5)), rng.integers(0, 11, (2, 5)))
    _, cache = model.loss(*batch, training=True)
    whole, half = model.backward(cache), model.backward(cache, dloss=np.float64(0.5))
    for name, g in whole.items():
        np.testing.assert_allclose(half[name], 0.5 * g, rtol=1e-12, atol=1e-15)


def test_the_losses_of_the_router_are_added_in_training_only(rng: np.random.Generator) -> None:
    ids, targets = rng.integers(0, 11, (2, 2, 5))
    model, plain = tiny(balance=0.5, router_z=0.25), tiny(balance=0.0)
    assert model.loss(ids, targets)[0] == plain.loss(ids, targets, training=True)[0]
    logits = [block.feed_forward.sublayer.sublayer.logits for block in model.states(ids).stack.blocks]
    more = sum(0.5 * na.load_balancing_loss(x, 2)[0] + 0.25 * na.router_z_loss(x)[0] for x in logits)
    assert model.loss(ids, targets, training=True)[0] == pytest.approx(plain.loss(ids, targets)[0] + more)


def test_a_model_with_experts_is_saved_generates_and_is_refused_with_wrong_options(tmp_path: Any) -> None:
    model = tiny(top_k=3, renormalize=False)
    model.save(tmp_path / "model.npz")
    again = na.ExpertsGPT.load(tmp_path / "model.npz")
    assert again.config == model.config
    ids = np.array([1, 2, 3])
    np.testing.assert_array_equal(again.generate(ids, 3, temperature=0.0), model.generate(ids, 3, temperature=0.0))
    for options, message in [
        ({"top_k": 5}, "top_k must be"), ({"router_order": "first"}, "router_order must be one of"),
        ({"activation": "gelu"}, "activation must be swiglu"), ({"balance": -1.0}, "balance must be"),
    ]:
        with pytest.raises(ValueError, match=message):
            tiny(**options)
