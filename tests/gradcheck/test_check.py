"""The checker on right gradients: no false alarm, whatever the function looks like, and a report of what it did."""

import copy
from typing import Any

import numpy as np
import pytest

import numpy_attention as na
from numpy_attention import ops
from numpy_attention.gradcheck import GradientError, gradcheck, gradcheck_layer, gradcheck_model, gradcheck_vjp
from numpy_attention.gradcheck.check import check
from numpy_attention.gradcheck.problem import problem_of_op
from numpy_attention.layers import LayerNorm, Linear, MultiHeadAttention
from numpy_attention.models import GPT, GPTConfig


def test_the_package_is_the_function_and_holds_the_parts() -> None:
    import numpy_attention.gradcheck.strategies

    x = np.random.default_rng(0).standard_normal((2, 3))
    assert na.gradcheck(na.softmax, na.softmax_backward, {"x": x}).ok
    assert na.gradcheck.strategies is numpy_attention.gradcheck.strategies
    assert issubclass(na.gradcheck.GradientError, AssertionError)


def test_names_and_positions_mean_the_same(rng: np.random.Generator) -> None:
    x, w = rng.standard_normal((2, 3)), rng.standard_normal((3, 4))
    by_name = gradcheck(ops.linear, ops.linear_backward, {"w": w, "x": x})
    by_position = gradcheck(ops.linear, ops.linear_backward, (x, w))
    assert by_name.arguments.keys() == by_position.arguments.keys() == {"x", "w"}


def test_layer_norm_of_width_two_raises_no_alarm(rng: np.random.Generator) -> None:
    for dtype in (np.float64, np.float32):
        for _ in range(20):
            x, gamma, beta = (rng.standard_normal(shape).astype(dtype) for shape in ((3, 2), 2, 2))
            x[0] = x[0, 0] + dtype(1e-3) * rng.standard_normal(2).astype(dtype)  # ill-conditioned to the limit
            gradcheck(ops.layer_norm, ops.layer_norm_backward, {"x": x, "gamma": gamma, "beta": beta})


def test_softmax_with_scores_of_500_raises_no_alarm(rng: np.random.Generator) -> None:
    for dtype in (np.float64, np.float32):
        for _ in range(20):
            x = (500 * rng.standard_normal((3, 4))).astype(dtype)
            gradcheck(ops.softmax, ops.softmax_backward, {"x": x})


def test_a_loss_too_small_to_move_raises_no_alarm() -> None:
    for gap in (24.0, 27.0, 30.0, 33.0, 36.0, 40.0, 440.0):
        inputs = {"logits": np.array([[gap, 0.0]]), "targets": np.array([0])}
        gradcheck(ops.cross_entropy, ops.cross_entropy_backward, inputs)


@pytest.mark.parametrize("approximate", ["tanh", "none"])
def test_stairs_of_round_off_raise_no_alarm(approximate: str) -> None:
    """Far to the left gelu is x times so many last bits of a 1: a stair that is straight over every small step."""
    for x in (-5.5, -6.0, -6.801165233553521, -7.2, -8.29, -10.383746126, -12.0):
        gradcheck(ops.gelu, ops.gelu_backward, {"x": np.array([[x]])}, approximate=approximate)


def test_an_error_beside_a_corner_is_found() -> None:
    """A relu that is off is no stair of round-off, however near it is to going on."""
    x = np.array([[-3e-4, 1.0]])
    gradcheck(ops.relu, ops.relu_backward, {"x": x})
    with pytest.raises(GradientError, match=r"dx\[0, 0\]"):
        gradcheck(ops.relu, lambda dy, cache: dy * np.array([[1e-3, 1.0]]), {"x": x})


def test_float16_gradients_are_checked_at_their_own_precision(rng: np.random.Generator) -> None:
    x = rng.standard_normal((3, 4)).astype(np.float16)
    gradcheck(ops.softmax, ops.softmax_backward, {"x": x})
    with pytest.raises(GradientError):
        gradcheck(ops.softmax, lambda dy, cache: ops.softmax_backward(dy, cache) * np.float16(1.3), {"x": x})


def test_values_of_very_different_sizes(rng: np.random.Generator) -> None:
    x = np.array([1e-9, 1e-3, 1.0, 1e3, 1e7])
    gradcheck(lambda x: (np.log(x), x), lambda dy, x: dy / x, {"x": x})
    gradcheck(lambda x: (x * x, x), lambda dy, x: 2 * dy * x, {"x": x})


def test_a_corner_is_reported_as_a_kink_and_not_as_an_error(rng: np.random.Generator) -> None:
    x = rng.standard_normal((3, 4))
    x[1, 2] = 0.0
    report = gradcheck(ops.relu, ops.relu_backward, {"x": x})
    assert np.argwhere(report.arguments["x"].kinks).tolist() == [[1, 2]]
    assert "1 element at a kink" in str(report)


def test_a_tie_in_a_max_is_a_kink(rng: np.random.Generator) -> None:
    x = np.array([[1.0, 3.0, 3.0], [0.0, 2.0, 1.0]])

    def backward(dy: np.ndarray, x: np.ndarray) -> np.ndarray:
        dx = np.zeros_like(x)
        dx[np.arange(len(x)), x.argmax(-1)] = dy
        return dx

    report = gradcheck(lambda x: (x.max(-1), x), backward, {"x": x})
    assert np.argwhere(report.arguments["x"].kinks).tolist() == [[0, 1], [0, 2]]


def test_a_slope_outside_both_sides_of_a_corner_is_an_error() -> None:
    with pytest.raises(GradientError):
        gradcheck(lambda x: (np.maximum(x, 0), x), lambda dy, x: dy * np.where(x == 0, 3.0, x > 0),
                  {"x": np.array([0.0, 1.0, -2.0])})


def test_the_edge_of_a_domain_is_no_error() -> None:
    report = gradcheck(lambda x: (np.sqrt(x), x), lambda dy, x: dy / (2 * np.sqrt(np.maximum(x, 1e-300))),
                       {"x": np.array([1e-320, 1.0, 4.0])})
    assert report.ok


def test_several_outputs_none_gradients_and_options(rng: np.random.Generator) -> None:
    x, w = rng.standard_normal((3, 4)), rng.standard_normal(4)

    def op(x: np.ndarray, w: np.ndarray, power: int = 1) -> Any:
        return (x**power, (x * w).sum(-1)), (x, w, power)

    def backward(dy: tuple[np.ndarray, np.ndarray], cache: Any) -> Any:
        x, _, power = cache
        dfirst, dsecond = dy
        return dfirst * power * x ** (power - 1) + dsecond[:, None] * cache[1], None

    report = gradcheck(op, backward, {"x": x, "w": w}, power=3)
    assert report.arguments.keys() == {"x"}


def test_integers_and_masks_are_passed_but_not_differentiated(rng: np.random.Generator) -> None:
    report = gradcheck(ops.embedding, ops.embedding_backward, (np.array([[1, 1], [0, 2]]), rng.standard_normal((3, 4))))
    assert report.arguments.keys() == {"table"}


def test_a_generator_draws_the_same_mask_in_every_call(rng: np.random.Generator) -> None:
    gradcheck(ops.dropout, ops.dropout_backward, {"x": rng.standard_normal((3, 4))}, rate=0.5, rng=rng)


def test_a_large_array_is_checked_in_few_calls(rng: np.random.Generator) -> None:
    report = gradcheck(ops.silu, ops.silu_backward, {"x": rng.standard_normal((200, 300))})
    assert report.calls <= 40
    assert "random directions" in str(report)
    assert report.error < 1e-9


def test_many_wrong_elements_of_a_large_array_cost_a_bounded_number_of_calls(rng: np.random.Generator) -> None:
    with pytest.raises(GradientError, match="twice what it should be") as failure:
        gradcheck(ops.silu, lambda dy, cache: 2 * ops.silu_backward(dy, cache), {"x": rng.standard_normal((100, 100))})
    assert failure.value.report is not None
    assert failure.value.report.calls <= 1700


def test_every_input_and_every_parameter_of_a_layer(rng: np.random.Generator) -> None:
    layer = MultiHeadAttention(6, 3, rng, bias=True)  # float32
    before = copy.deepcopy(layer.parameters())
    report = gradcheck_layer(layer, {"x": rng.standard_normal((2, 4, 6)).astype(np.float32)}, mask=na.causal_mask(4))
    assert report.arguments.keys() == {"x", *layer.parameters()}
    for name, value in layer.parameters().items():
        assert np.array_equal(value, before[name])


def test_a_parameter_without_a_gradient_is_named(rng: np.random.Generator) -> None:
    class Forgetful(Linear):
        def backward(self, dy: np.ndarray, cache: Any) -> Any:
            dx, grads = super().backward(dy, cache)
            return dx, {"w": grads["w"]}

    with pytest.raises(GradientError, match="no gradient for the parameter b"):
        gradcheck_layer(Forgetful(3, 4, rng, dtype=np.float64), (rng.standard_normal((2, 3)),))


def test_a_wrong_parameter_of_a_layer_is_named(rng: np.random.Generator) -> None:
    class Forgetful(LayerNorm):
        def backward(self, dy: np.ndarray, cache: Any) -> Any:
            dx, grads = super().backward(dy, cache)
            return dx, {**grads, "gamma": grads["gamma"] / 2}

    with pytest.raises(GradientError, match="dgamma: half of what it should be"):
        gradcheck_layer(Forgetful(5, dtype=np.float64), {"x": rng.standard_normal((2, 3, 5))})


def test_every_parameter_of_a_model(rng: np.random.Generator) -> None:
    config = GPTConfig(vocab_size=5, context_length=4, d_model=4, num_heads=2, num_layers=1, d_ff=3)
    model = GPT(config, rng, np.float64)
    ids = rng.integers(0, 5, (2, 4))
    report = gradcheck_model(model, {"ids": ids[:, :-1], "targets": ids[:, 1:]})
    assert report.arguments.keys() == model.parameters().keys()


def test_a_function_that_is_no_op_is_pointed_to_gradcheck_vjp() -> None:
    with pytest.raises(TypeError, match="gradcheck_vjp"):
        gradcheck(lambda x: np.sin(x) + 1, lambda dy, cache: dy, {"x": np.ones(3)})
    assert gradcheck_vjp(np.sin, lambda dy, x: dy * np.cos(x), (np.ones(3),)).ok


def test_one_array_instead_of_a_tuple_is_refused() -> None:
    with pytest.raises(TypeError, match=r"write \(x,\)"):
        gradcheck(ops.relu, ops.relu_backward, np.ones(3))


def test_the_wrong_number_of_gradients_is_named() -> None:
    with pytest.raises(GradientError, match="returned 3 gradients for 1 arrays of floats"):
        gradcheck(ops.relu, lambda dy, cache: (dy, dy, dy), {"x": np.ones(3)})


def test_samples_look_at_so_many_elements_and_find_what_is_wrong_among_them(rng: np.random.Generator) -> None:
    def backward(dy: np.ndarray, cache: Any) -> Any:
        dx, dw, db = ops.linear_backward(dy, cache)
        dw[1, 2] *= 1.001
        return dx, dw, db

    inputs = {"x": rng.standard_normal((3, 4)), "w": rng.standard_normal((4, 5))}
    right = problem_of_op(ops.linear, ops.linear_backward, inputs, {})
    wrong = problem_of_op(ops.linear, backward, inputs, {})
    found = 0
    for seed in range(20):
        report = check(right, seed, sample=8)
        assert sum(int(np.isfinite(one.numeric).sum()) for one in report.arguments.values()) == 8
        assert report.calls < 8 * 5
        assert report.error < 1e-8
        try:
            check(wrong, seed, sample=8)
        except GradientError as error:
            alarm = error.report
            found += alarm is not None and alarm.arguments["w"].worst == (1, 2)
    assert 0 < found < 20  # one in four is to be expected: 8 of 32 elements
