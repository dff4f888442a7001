"""Ops, functions and layers in one form: inputs by name or place, gradients in order, trees, complex numbers."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest

from numpy_attention import ops
from numpy_attention.gradcheck import GradientError, gradcheck, gradcheck_layer, gradcheck_vjp
from numpy_attention.gradcheck.problem import (
    FunctionProblem,
    LayerProblem,
    OpProblem,
    split_options,
)
from numpy_attention.layers import MultiHeadAttention


def f(x: np.ndarray, seed: int = 7, power: int = 1) -> np.ndarray:
    return x**power + seed


def test_duplicate_or_ambiguous_options_are_refused() -> None:
    with pytest.raises(TypeError, match="the option power was given twice"):
        split_options(f, {"power": 2}, {"power": 2})
    with pytest.raises(TypeError, match=r"seed=5 sets the checker's option, but f has an option seed too"):
        split_options(f, None, {}, {"seed": 5})


def test_a_vjp_draws_the_mask_of_its_function(rng: np.random.Generator) -> None:
    def drop(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return x * (rng.random(x.shape) < 0.6)

    def vjp(dy: np.ndarray, x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return dy * (rng.random(x.shape) < 0.6)

    before = rng.bit_generator.state
    assert gradcheck_vjp(drop, vjp, (np.ones((4, 5)),), options={"rng": rng}).ok
    assert gradcheck_vjp(drop, vjp, (np.ones((4, 5)), rng)).ok
    assert rng.bit_generator.state == before


def test_several_outputs_none_gradients_and_options(rng: np.random.Generator) -> None:
    x, w = rng.standard_normal((3, 4)), rng.standard_normal(4)

    def op(x: np.ndarray, w: np.ndarray, power: int = 1) -> Any:
        return (x**power, (x * w).sum(-1)), (x, w, power)

    def backward(dy: tuple[np.ndarray, np.ndarray], cache: Any) -> Any:
        x, _, power = cache
        dfirst, dsecond = dy
        return dfirst * power * x ** (power - 1) + dsecond[:, None] * cache[1], None

    with pytest.raises(GradientError, match="no gradient for the argument w"):
        gradcheck(op, backward, {"x": x, "w": w}, power=3)
    report = gradcheck(op, backward, {"x": x, "w": w}, power=3, no_gradient=("w",))
    assert report.arguments.keys() == {"x"}


def test_the_error_for_a_plain_function_names_gradcheck_vjp() -> None:
    with pytest.raises(TypeError, match="gradcheck_vjp"):
        gradcheck(lambda x: np.sin(x) + 1, lambda dy, cache: dy, {"x": np.ones(3)})
    assert gradcheck_vjp(np.sin, lambda dy, x: dy * np.cos(x), (np.ones(3),)).ok


def test_one_array_instead_of_a_tuple_is_refused() -> None:
    with pytest.raises(TypeError, match=r"write \(x,\)"):
        gradcheck(ops.relu, ops.relu_backward, np.ones(3))


class Best(NamedTuple):
    values: np.ndarray
    indices: np.ndarray
    total: dict[str, Any]


@dataclass(frozen=True)
class Params:
    w: np.ndarray
    scale: float
    layers: list[dict[str, np.ndarray]]
    k: int = 2


def best(x: np.ndarray, params: Params, *, temperature: float) -> Best:
    h = x @ params.w * params.scale / temperature + params.layers[0]["b"]
    indices = np.argsort(h, -1)[..., : params.k]
    return Best(np.take_along_axis(h, indices, -1), indices, {"total": h.sum(), "rows": len(h)})


def best_vjp(dy: Best, x: np.ndarray, params: Params, *, temperature: float) -> Any:
    assert dy.indices is None
    assert dy.total["rows"] is None
    hidden = x @ params.w
    indices = best(x, params, temperature=temperature).indices
    dh = np.full_like(hidden, dy.total["total"])
    np.put_along_axis(dh, indices, dy.values + dy.total["total"], -1)
    dhidden, dfactor = dh * params.scale / temperature, (dh * hidden).sum()
    dparams = {"w": x.T @ dhidden, "scale": dfactor / temperature, "layers": [{"b": dh.sum(0)}]}
    return dhidden @ params.w.T, dparams, -dfactor * params.scale / temperature**2


@pytest.mark.parametrize("reference", ["both", "differences", "complex"])
def test_trees_numbers_integer_outputs_and_keyword_only_arguments(reference: str, rng: np.random.Generator) -> None:
    params = Params(rng.standard_normal((4, 5)), 1.5, [{"b": rng.standard_normal(5)}])
    inputs = {"temperature": np.float64(2.0), "x": rng.standard_normal((3, 4)), "params": params}
    report = gradcheck_vjp(best, best_vjp, inputs, reference=reference)
    assert list(report.arguments) == ["x", "params.w", "params.scale", "params.layers[0].b", "temperature"]
    assert report.name == "best"

    def forgets_the_row(dy: Best, x: np.ndarray, params: Params, *, temperature: float) -> Any:
        dx, dparams, dtemperature = best_vjp(dy, x, params, temperature=temperature)
        dparams["layers"][0]["b"][-1] *= 1.001
        return dx, dparams, dtemperature

    with pytest.raises(GradientError, match=r"gradcheck best: dparams\.layers\[0\]\.b wrong") as caught:
        gradcheck_vjp(best, forgets_the_row, inputs, reference=reference)
    assert caught.value.report is not None
    assert caught.value.report.arguments["params.layers[0].b"].worst == (4,)


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_complex_inputs_and_outputs_in_the_convention_of_the_page(dtype: type, rng: np.random.Generator) -> None:
    z, w = ((rng.standard_normal(4) + 1j * rng.standard_normal(4)).astype(dtype) for _ in range(2))

    def f(z: np.ndarray, w: np.ndarray) -> Any:
        return z * z * w, np.abs(w) ** 2

    def vjp(dy: Any, z: np.ndarray, w: np.ndarray) -> Any:
        assert dy[0].dtype == z.dtype
        return dy[0] * np.conj(2 * z * w), dy[0] * np.conj(z * z) + 2 * w * dy[1]

    report = gradcheck_vjp(f, vjp, {"z": z, "w": w})
    assert report.arguments.keys() == {"z.real", "z.imag", "w.real", "w.imag"}
    assert FunctionProblem(f, vjp, (z, w), {}).complex
    with pytest.raises(GradientError, match=r"dz\.real, dz\.imag wrong"):
        gradcheck_vjp(f, lambda dy, z, w: (dy[0] * 2 * z * w, vjp(dy, z, w)[1]), {"z": z, "w": w})
    with pytest.raises(GradientError, match=r"dw\.imag"):
        gradcheck_vjp(f, lambda dy, z, w: (vjp(dy, z, w)[0], vjp(dy, z, w)[1].real), {"z": z, "w": w})


def test_excluded_arguments_need_no_gradient(rng: np.random.Generator) -> None:
    def f(p: dict[str, np.ndarray], eps: float) -> np.ndarray:
        return p["w"] * p["frozen"] + eps

    p = {"w": rng.standard_normal(3), "frozen": rng.standard_normal(3)}
    without = ("p.frozen", "eps")
    report = gradcheck_vjp(f, lambda dy, p, eps: {"p": {"w": dy * p["frozen"]}}, (p, 0.1), no_gradient=without)
    assert report.arguments.keys() == {"p.w"}
    problem = FunctionProblem(f, lambda dy, p, eps: ({"w": dy, "frozen": dy}, 1.0), (p, 0.1), {}, ["p.frozen"])
    assert problem.without == {"p.frozen"}
    assert problem.gradients(problem.inputs, (np.ones(3),))["p.frozen"] is None
    with pytest.raises(ValueError, match=r"no_gradient lists 'p\.x', but the inputs are p\.w, p\.frozen, eps"):
        FunctionProblem(f, lambda dy, p, eps: None, (p, 0.1), {}, ["p.x"])
    with pytest.raises(ValueError, match="the inputs hold no floats that have a gradient"):
        FunctionProblem(f, lambda dy, p, eps: None, (p, 0.1), {}, ["p", "eps"])


def test_inputs_without_floats_are_refused() -> None:
    with pytest.raises(ValueError, match=r"gradcheck sin: the inputs hold no floats .*\(x is int64\); convert"):
        gradcheck_vjp(np.sin, lambda dy, x: dy, (np.arange(3),))
    with pytest.raises(ValueError, match=r"gradcheck sin: .*\(no inputs\)"):
        gradcheck_vjp(np.sin, lambda dy: dy, ())
    with pytest.raises(TypeError, match="gradcheck argmax: the function must return arrays of floats, got int64"):
        gradcheck_vjp(np.argmax, lambda dy, x: dy, (np.ones(3),))


def test_an_in_place_forward_is_refused_and_does_not_change_the_callers_arrays() -> None:
    def in_place(x: np.ndarray, ids: np.ndarray) -> Any:
        x *= x
        ids += 1
        return x, x

    def fails(x: np.ndarray, ids: np.ndarray) -> Any:
        x[...], ids[...] = 0.0, 0
        raise RuntimeError("after it has begun")

    given = {"x": np.arange(6.0).reshape(3, 2).T, "ids": np.arange(3)}
    before = {name: value.copy() for name, value in given.items()}
    with pytest.raises(GradientError, match="the input x was changed in place; use a new array in the forward"):
        gradcheck(in_place, lambda dy, x: 2 * x * dy, given)
    assert all(np.array_equal(given[name], before[name]) for name in given)
    with pytest.raises(RuntimeError, match="after it has begun"):
        gradcheck(fails, lambda dy, x: 2 * x * dy, given)
    assert all(np.array_equal(given[name], before[name]) for name in given)
    given["x"] = np.broadcast_to(2.0, (2, 3))
    with pytest.raises(GradientError, match="the input x was changed in place"):
        gradcheck(in_place, lambda dy, x: 2 * x * dy, given)
    problem = OpProblem(ops.linear, ops.linear_backward, {"x": before["x"].T.copy().T, "w": np.ones((3, 2))}, {})
    assert problem.inputs["x"].flags.f_contiguous, "a copy lies in memory as the array does"


def test_frozen_arrays_are_passed_and_have_no_gradient(rng: np.random.Generator) -> None:
    layer = MultiHeadAttention(6, 3, rng, bias=True)  # float32, while the differences are in float64
    layer.frozen = ("w_q", "b_o")
    before = {name: getattr(owner, name).copy() for name, owner, _ in layer.arrays()}
    x = rng.standard_normal((2, 4, 6)).astype(np.float32)
    report = gradcheck_layer(layer, {"x": x})
    assert report.arguments.keys() >= {"x", *layer.parameters()}
    problem = LayerProblem(layer, {"x": x}, {})
    assert problem.inputs.keys() == {"x", *before}
    assert problem.parameters == layer.parameters().keys() == before.keys() - {"w_q", "b_o"}
    moved = {**problem.inputs, "w_q": 2 * problem.inputs["w_q"]}
    assert not np.array_equal(problem.run(moved)[0][0], problem.run(problem.inputs)[0][0])
    for name, array in before.items():
        assert np.array_equal(getattr(layer, name), array)


def test_a_third_party_layer_needs_only_parameters(rng: np.random.Generator) -> None:
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


X, SQUARE = np.arange(12.0).reshape(3, 4), np.arange(16.0).reshape(4, 4)
AXES = "a factor that should be transposed, or axes of the wrong argument"


@pytest.mark.parametrize(("vjp", "x", "mistake"), [
    (lambda dy, x: dy - dy.sum(-1), X, r"a missing \[:, None\] or keepdims=True"),
    (lambda dy, x: dy * x.T, X, "a factor that should be transposed"),
    (lambda dy, x: dy @ x, X, AXES),
    (lambda dy, x: dy.sum(2), X, AXES),
    (lambda dy, x: np.add(dy[0], dy * x[:, :1], out=np.zeros(4)), SQUARE, r"a superfluous \[:, None\] or .*"),
    (lambda dy, x: dy.reshape(5, 2), X, ""),
])
def test_the_likely_mistake_behind_an_error_about_shapes(vjp: Any, x: np.ndarray, mistake: str) -> None:
    with pytest.raises(GradientError, match=f"the backward raised (.|\n)*{mistake}$") as caught:
        gradcheck_vjp(lambda x: 2 * x, vjp, (x,))
    assert ("likely mistake" in str(caught.value)) == bool(mistake)


def test_a_gradient_that_is_not_summed_over_broadcast_axes(rng: np.random.Generator) -> None:
    x, b = rng.standard_normal((3, 4)), rng.standard_normal(4)
    with pytest.raises(GradientError, match=r"db has shape \(3, 4\)(.|\n)*the sum over the batch axes \(0,\) is miss"):
        gradcheck_vjp(lambda x, b: x + b, lambda dy, x, b: (dy, dy), (x, b))
    with pytest.raises(GradientError, match=r"the sum over axes \(0, 2\), along which the argument was broadcast"):
        gradcheck_vjp(lambda x, b: x * b, lambda dy, x, b: (dy * b, dy * x), (np.stack([x, x]), x[:, :1]))
    with pytest.raises(GradientError, match="this is the shape of x: are the arguments, or the gradients, in the"):
        gradcheck_vjp(lambda b, x: b + x, lambda dy, b, x: (dy, dy.sum(0)), (b, x))
