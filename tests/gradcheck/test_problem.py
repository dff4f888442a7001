"""Ops, functions, layers and models in one form: inputs by name or place, options, gradients in their order."""

import copy
from typing import Any

import numpy as np
import pytest

import numpy_attention as na
from numpy_attention import ops
from numpy_attention.gradcheck import GradientError, gradcheck, gradcheck_layer, gradcheck_model, gradcheck_vjp
from numpy_attention.gradcheck.problem import in_float64, problem_of_layer
from numpy_attention.layers import Linear, MultiHeadAttention
from numpy_attention.models import GPT, GPTConfig


def test_names_and_positions_mean_the_same(rng: np.random.Generator) -> None:
    x, w = rng.standard_normal((2, 3)), rng.standard_normal((3, 4))
    by_name = gradcheck(ops.linear, ops.linear_backward, {"w": w, "x": x})
    by_position = gradcheck(ops.linear, ops.linear_backward, (x, w))
    assert by_name.arguments.keys() == by_position.arguments.keys() == {"x", "w"}


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


def test_every_input_and_every_parameter_of_a_layer(rng: np.random.Generator) -> None:
    layer = MultiHeadAttention(6, 3, rng, bias=True)  # float32
    before = copy.deepcopy(layer.parameters())
    report = gradcheck_layer(layer, {"x": rng.standard_normal((2, 4, 6)).astype(np.float32)}, mask=na.causal_mask(4))
    assert report.arguments.keys() == {"x", *layer.parameters()}
    for name, value in layer.parameters().items():
        assert np.array_equal(value, before[name])


def test_what_is_frozen_goes_along_and_has_no_gradient(rng: np.random.Generator) -> None:
    layer = MultiHeadAttention(6, 3, rng, bias=True)  # float32, while the differences are in float64
    layer.frozen = ("w_q", "b_o")
    before = {name: getattr(owner, name).copy() for name, owner, _ in layer.arrays()}
    x = rng.standard_normal((2, 4, 6)).astype(np.float32)
    report = gradcheck_layer(layer, {"x": x})
    assert report.arguments.keys() >= {"x", *layer.parameters()}
    problem = problem_of_layer(layer, {"x": x}, {})
    assert problem.inputs.keys() == {"x", *before}
    assert problem.parameters == layer.parameters().keys() == before.keys() - {"w_q", "b_o"}
    moved = {**problem.inputs, "w_q": 2 * problem.inputs["w_q"]}
    assert not np.array_equal(problem.run(moved)[0][0], problem.run(problem.inputs)[0][0])
    for name, array in before.items():
        assert np.array_equal(getattr(layer, name), array)


def test_a_layer_of_another_make_needs_only_parameters(rng: np.random.Generator) -> None:
    class Scaled:
        def __init__(self) -> None:
            self.scale, self.shift = np.array([2.0, 3.0]), np.array([1.0, 1.0])

        def parameters(self) -> dict[str, np.ndarray]:
            return {"scale": self.scale}

        def forward(self, x: np.ndarray) -> Any:
            return x * self.scale + self.shift, x

        def backward(self, dy: np.ndarray, cache: np.ndarray) -> Any:
            return dy * self.scale, {"scale": (dy * cache).sum(0)}

    report = gradcheck_layer(Scaled(), {"x": rng.standard_normal((3, 2))})
    assert report.arguments.keys() == {"x", "scale"}


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


def test_an_input_and_a_parameter_of_one_name_are_refused(rng: np.random.Generator) -> None:
    class Clash(Linear):
        def parameters(self) -> dict[str, np.ndarray]:
            return {"x": super().parameters()["w"]}

    with pytest.raises(ValueError, match="has an input and a parameter called x"):
        gradcheck_layer(Clash(3, 4, rng), {"x": rng.standard_normal((2, 3))})


def test_float64_copies_may_be_moved_in_place(rng: np.random.Generator) -> None:
    given = {"x": rng.standard_normal((3, 4)).astype(np.float32).T, "ids": np.arange(3), "b": None}
    exact = in_float64(given)
    assert exact["x"].dtype == np.float64
    assert exact["x"].flags.c_contiguous
    assert not np.shares_memory(exact["x"], given["x"])
    assert exact["ids"] is given["ids"]
    assert exact["b"] is None
