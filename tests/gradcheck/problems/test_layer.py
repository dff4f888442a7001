"""A layer or a model as a problem: every input, every parameter, and the layer stays as it is."""

import copy
from typing import Any

import numpy as np
import pytest

import numpy_attention as na
from numpy_attention.gradcheck import GradientError, gradcheck_layer, gradcheck_model
from numpy_attention.gradcheck.problems.layer import problem_of_layer
from numpy_attention.layers import Linear, MultiHeadAttention
from numpy_attention.models import GPT, GPTConfig


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


def test_an_input_and_a_parameter_of_one_name_are_refused(rng: np.random.Generator) -> None:
    class Clash(Linear):
        def parameters(self) -> dict[str, np.ndarray]:
            return {"x": super().parameters()["w"]}

    with pytest.raises(ValueError, match="has an input and a parameter called x"):
        gradcheck_layer(Clash(3, 4, rng), {"x": rng.standard_normal((2, 3))})


def test_inputs_of_a_layer_may_be_trees(rng: np.random.Generator) -> None:
    class Gated:
        def __init__(self) -> None:
            self.scale = np.array([2.0, 3.0])

        def parameters(self) -> dict[str, np.ndarray]:
            return {"scale": self.scale}

        def forward(self, batch: dict[str, Any]) -> Any:
            x, gate = batch["x"], batch["gate"]
            return {"y": x * self.scale * gate, "kept": x > 0}, (x, gate)

        def backward(self, dy: dict[str, Any], cache: Any) -> Any:
            x, gate = cache
            assert dy["kept"] is None
            scaled = dy["y"] * self.scale
            dscale = (dy["y"] * x * gate).sum(0)
            return {"x": scaled * gate, "gate": (scaled * x).sum()}, {"scale": dscale}

    report = gradcheck_layer(Gated(), ({"x": rng.standard_normal((3, 2)), "gate": 0.7, "ids": np.arange(3)},))
    assert report.arguments.keys() == {"batch.x", "batch.gate", "scale"}

    class Forgetful(Gated):
        def backward(self, dy: dict[str, Any], cache: Any) -> Any:
            dbatch, grads = super().backward(dy, cache)
            return {**dbatch, "gate": 2 * dbatch["gate"]}, grads

    with pytest.raises(GradientError, match=r"Forgetful: dbatch\.gate wrong"):
        gradcheck_layer(Forgetful(), ({"x": rng.standard_normal((3, 2)), "gate": 0.7},))
