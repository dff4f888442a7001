"""The diagnosis: the most telling of what relations, experiments and places have to say."""

from typing import Any

import numpy as np
import pytest

from numpy_attention import ops
from numpy_attention.gradcheck import GradientError, gradcheck_layer, gradcheck_vjp
from numpy_attention.gradcheck.words.diagnosis import diagnose
from numpy_attention.gradcheck.words.evidence import Evidence
from numpy_attention.layers import Embedding, LayerNorm, Linear
from tests.gradcheck.planted import caught, spoilt


def test_only_the_last_row(rng: np.random.Generator) -> None:
    x = rng.standard_normal((4, 5))
    factors = np.concatenate([np.ones((3, 5)), np.exp(rng.standard_normal((1, 5)))])
    message, report = caught(ops.softmax, spoilt(ops.softmax_backward, lambda dx: dx * factors), {"x": x})
    assert report.arguments["x"].worst[0] == 3
    assert "only the last along axis 0" in message
    assert "stop one short" in message


def test_a_wrong_parameter_of_a_layer_is_named(rng: np.random.Generator) -> None:
    class Forgetful(LayerNorm):
        def backward(self, dy: np.ndarray, cache: Any) -> Any:
            dx, grads = super().backward(dy, cache)
            return dx, {**grads, "gamma": grads["gamma"] / 2}

    with pytest.raises(GradientError, match="dgamma: half of what it should be"):
        gradcheck_layer(Forgetful(5, dtype=np.float64), {"x": rng.standard_normal((2, 3, 5))})


def test_two_gradients_under_each_others_name_are_exchanged(rng: np.random.Generator) -> None:
    q, k, v = (rng.standard_normal((4, 3)) for _ in range(3))

    def backward(dy: np.ndarray, cache: Any) -> Any:
        dq, dk, dv, dbias = ops.scaled_dot_product_attention_backward(dy, cache)
        return dq, dv, dk, dbias

    message, report = caught(ops.scaled_dot_product_attention, backward, {"q": q, "k": k, "v": v})
    assert not report.arguments["q"].wrong.any()
    assert "likely mistake: dk and dv are exchanged: each holds the other's gradient" in message


@pytest.mark.parametrize("error", [5e-6, 1e-4])
def test_gradients_that_only_resemble_each_others_are_not_called_exchanged(
    error: float, rng: np.random.Generator
) -> None:
    q, k, v = (rng.standard_normal((4, 3)) for _ in range(3))

    def backward(dy: np.ndarray, cache: Any) -> Any:
        dq, dk, dv, dbias = ops.scaled_dot_product_attention_backward(dy, cache)
        return dq, (1 + error) * dv, dk, dbias

    message, _ = caught(ops.scaled_dot_product_attention, backward, {"q": q, "k": k, "v": v})
    assert "dk, dv wrong" in message
    assert "exchanged" not in message


def test_an_input_beside_right_parameters_has_lost_a_path(rng: np.random.Generator) -> None:
    class Uneven(LayerNorm):
        def backward(self, dy: np.ndarray, cache: Any) -> Any:
            dx, grads = super().backward(dy, cache)
            return dx * np.linspace(1, 2, dx.size).reshape(dx.shape), grads

    with pytest.raises(GradientError, match=r"every parameter's gradient is right, only dx is wrong"):
        gradcheck_layer(Uneven(5, dtype=np.float64), {"x": rng.standard_normal((2, 3, 5))})


def test_the_first_of_two_outputs_ignored_is_not_called_a_mean(rng: np.random.Generator) -> None:
    def vjp(dy: Any, x: np.ndarray) -> np.ndarray:
        return np.asarray(2 * x * dy[1])

    with pytest.raises(GradientError) as failure:
        gradcheck_vjp(lambda x: (x.sum(0), x * x), vjp, (rng.standard_normal((4, 3)),))
    assert "dx takes nothing from dy of output 0 (of 2, counted from 0)" in str(failure.value)
    assert "mean" not in str(failure.value)


def test_a_sum_that_is_not_reversed_is_told_to_run_from_the_other_end(rng: np.random.Generator) -> None:
    with pytest.raises(GradientError, match="the sum from the other end"):
        gradcheck_vjp(np.cumsum, lambda dy, x: np.cumsum(dy), (rng.standard_normal(6),))
    with pytest.raises(GradientError, match="runs the wrong way along axis 1 of x"):
        gradcheck_vjp(
            lambda x: np.cumsum(np.sin(x), axis=1), lambda dy, x: np.cumsum(dy, axis=1) * np.cos(x),
            (rng.standard_normal((3, 6)),)
        )


def test_the_diagnosis_takes_few_calls(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = before = 0

    def counted(evidence: Evidence) -> str:
        nonlocal before
        before = calls
        return diagnose(evidence)

    monkeypatch.setattr("numpy_attention.gradcheck.check.diagnose", counted)

    def f(x: np.ndarray, w: np.ndarray) -> np.ndarray:
        nonlocal calls
        calls += 1
        return np.asarray(np.tanh(x @ w))

    def vjp(dy: np.ndarray, x: np.ndarray, w: np.ndarray) -> Any:
        factors = np.linspace(1, 2, w.size).reshape(w.shape)
        d = dy * (1 - np.tanh(x @ w) ** 2)
        return d @ w.T, x.T @ d * factors

    with pytest.raises(GradientError) as failure:
        gradcheck_vjp(f, vjp, (rng.standard_normal((3, 4)), rng.standard_normal((4, 5))))
    report = failure.value.report
    assert report is not None
    assert "dw is wrong by no simple rule" in report.diagnosis or "dw is wrong in" in report.diagnosis
    assert 0 < calls - before < 100


def uneven(grad: np.ndarray) -> np.ndarray:
    """Wrong in a way that no relation explains."""
    return grad * np.linspace(1, 2, grad.size).reshape(grad.shape)


OF_ONE = "all other gradients are right: the mistake stands where "
OF_AN_INPUT = "every parameter's gradient is right"


def told_of_a_layer(wrong: str, bias: bool, rng: np.random.Generator) -> str:
    """The diagnosis of a Linear with some of dx, dw, db wrong."""

    class Slipped(Linear):
        def backward(self, dy: np.ndarray, cache: Any) -> Any:
            dx, grads = super().backward(dy, cache)
            grads = {name: uneven(grad) if name in wrong else grad for name, grad in grads.items()}
            return uneven(dx) if "x" in wrong else dx, grads

    with pytest.raises(GradientError) as failure:
        gradcheck_layer(Slipped(3, 4, rng, bias, np.float64), {"x": rng.standard_normal((4, 3))})
    assert failure.value.report is not None
    return failure.value.report.diagnosis


@pytest.mark.parametrize("bias", [True, False])
def test_the_only_wrong_gradient_of_a_layer_is_put_together_wrongly(bias: bool, rng: np.random.Generator) -> None:
    said = told_of_a_layer("w", bias, rng)
    assert OF_ONE + "dw is put together" in said
    assert OF_AN_INPUT not in said


def test_of_several_wrong_gradients_no_place_is_named(rng: np.random.Generator) -> None:
    said = told_of_a_layer("w, b", True, rng)
    assert OF_ONE not in said
    assert OF_AN_INPUT not in said


@pytest.mark.parametrize("wrong", ["x, w", "x, w, b"])
def test_an_input_beside_a_wrong_parameter_has_not_lost_a_path(wrong: str, rng: np.random.Generator) -> None:
    said = told_of_a_layer(wrong, True, rng)
    assert OF_AN_INPUT not in said
    assert OF_ONE not in said


def test_the_only_gradient_of_a_layer_has_no_others_that_are_right(rng: np.random.Generator) -> None:
    class Slipped(Embedding):
        def backward(self, dy: np.ndarray, cache: Any) -> Any:
            dx, grads = super().backward(dy, cache)
            return dx, {name: uneven(grad) for name, grad in grads.items()}

    with pytest.raises(GradientError, match="dtable is wrong") as failure:
        gradcheck_layer(Slipped(9, 3, rng, dtype=np.float64), {"ids": np.array([3, 0, 4, 1])})
    assert OF_ONE not in str(failure.value)


def test_of_an_op_that_has_no_parameters_no_guess_of_a_layer_is_made(rng: np.random.Generator) -> None:
    def vjp(dy: np.ndarray, x: np.ndarray, w: np.ndarray) -> Any:
        return dy @ w.T, uneven(x.T @ dy)

    with pytest.raises(GradientError, match="dx2 is wrong") as failure:
        gradcheck_vjp(np.matmul, vjp, (rng.standard_normal((3, 4)), rng.standard_normal((4, 5))))
    assert OF_ONE not in str(failure.value)
    assert OF_AN_INPUT not in str(failure.value)
