"""The diagnosis names a sign, a factor, a transpose or a term; of several findings it takes the most specific."""

from typing import Any

import numpy as np
import pytest

from numpy_attention import ops
from numpy_attention.gradcheck import GradientError, gradcheck_layer, gradcheck_vjp, why
from numpy_attention.layers import LayerNorm
from tests.gradcheck.acceptance.strangers import STRANGERS, Stranger
from tests.gradcheck.planted import caught, times, with_mistake


def test_only_the_last_row(rng: np.random.Generator) -> None:
    x = rng.standard_normal((4, 5))
    factors = np.concatenate([np.ones((3, 5)), np.exp(rng.standard_normal((1, 5)))])
    message, report = caught(ops.softmax, with_mistake(ops.softmax_backward, lambda dx: dx * factors), {"x": x})
    assert report.arguments["x"].worst[0] == 3
    assert "only the last place along axis 0" in message


def test_a_wrong_parameter_of_a_layer_is_named(rng: np.random.Generator) -> None:
    class Forgetful(LayerNorm):
        def backward(self, dy: np.ndarray, cache: Any) -> Any:
            dx, grads = super().backward(dy, cache)
            return dx, {**grads, "gamma": grads["gamma"] / 2}

    with pytest.raises(GradientError, match="dgamma: half of what it should be"):
        gradcheck_layer(Forgetful(5, dtype=np.float64), {"x": rng.standard_normal((2, 3, 5))})


def test_exchanged_gradients_are_recognized(rng: np.random.Generator) -> None:
    q, k, v = (rng.standard_normal((4, 3)) for _ in range(3))

    def backward(dy: np.ndarray, cache: Any) -> Any:
        dq, dk, dv, dbias = ops.scaled_dot_product_attention_backward(dy, cache)
        return dq, dv, dk, dbias

    message, report = caught(ops.scaled_dot_product_attention, backward, {"q": q, "k": k, "v": v})
    assert not report.arguments["q"].wrong.any()
    assert "likely mistake: dk and dv are exchanged: each holds the other's gradient" in message


def test_a_wrong_input_with_right_parameters_has_lost_a_path(rng: np.random.Generator) -> None:
    class Uneven(LayerNorm):
        def backward(self, dy: np.ndarray, cache: Any) -> Any:
            dx, grads = super().backward(dy, cache)
            return dx * np.linspace(1, 2, dx.size).reshape(dx.shape), grads

    with pytest.raises(GradientError, match=r"the gradients of all parameters are right, only dx is wrong"):
        gradcheck_layer(Uneven(5, dtype=np.float64), {"x": rng.standard_normal((2, 3, 5))})


def test_a_sum_that_is_not_reversed_is_recognized(rng: np.random.Generator) -> None:
    with pytest.raises(GradientError, match="runs in the wrong direction over the places along axis 1 of x"):
        gradcheck_vjp(
            lambda x: np.cumsum(np.sin(x), axis=1), lambda dy, x: np.cumsum(dy, axis=1) * np.cos(x),
            (rng.standard_normal((3, 6)),)
        )


def test_sign(rng: np.random.Generator) -> None:
    x = rng.standard_normal((3, 5))
    message, _ = caught(ops.softmax, lambda dy, cache: -ops.softmax_backward(dy, cache), (x,))
    assert "the sign is wrong" in message


def test_transposed_square_matrix(rng: np.random.Generator) -> None:
    x, w = rng.standard_normal((2, 4)), rng.standard_normal((4, 4))
    message, report = caught(ops.linear, with_mistake(ops.linear_backward, lambda dw: dw.T, 1), {"x": x, "w": w})
    assert [argument.symbol for argument in report.arguments.values() if argument.wrong.any()] == ["dw"]
    assert "dw: transposed" in message


def test_mean_in_place_of_the_batch_sum(rng: np.random.Generator) -> None:
    x, w, b = rng.standard_normal((3, 4)), rng.standard_normal((4, 5)), rng.standard_normal(5)
    message, _ = caught(ops.linear, with_mistake(ops.linear_backward, times(1 / 3), 2), {"x": x, "w": w, "b": b})
    assert "divided by 3 (axis 0 of x) once too often" in message


def test_the_softmax_without_its_sum(rng: np.random.Generator) -> None:
    message, _ = caught(ops.softmax, lambda dy, cache: dy * cache.y, {"x": rng.standard_normal((3, 5))})
    assert "is the path through a sum (of a softmax, `- sum(dy * w)`) missing" in message


def test_the_softmax_diagonal_alone(rng: np.random.Generator) -> None:
    message, _ = caught(ops.softmax, lambda dy, cache: dy * cache.y * (1 - cache.y), {"x": rng.standard_normal((3, 5))})
    assert "only the diagonal of the Jacobian" in message


def test_a_single_dy_left_out(rng: np.random.Generator) -> None:
    inputs = {"logits": rng.standard_normal((7, 4)), "targets": rng.integers(0, 4, 7)}
    message, _ = caught(
        ops.cross_entropy, lambda dy, cache: ops.cross_entropy_backward(np.ones_like(dy), cache), inputs,
    )
    assert "dy, a single number here, is left out" in message


def test_the_variance_path_of_a_norm(rng: np.random.Generator) -> None:
    def backward(dy: np.ndarray, cache: Any) -> Any:
        x, inverse, gamma = cache
        d = dy * gamma
        return (d - d.mean(-1, keepdims=True)) * inverse, (dy * (x - x.mean(-1, keepdims=True)) * inverse).sum(0)

    def norm(x: np.ndarray, gamma: np.ndarray) -> Any:
        inverse = 1 / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
        return (x - x.mean(-1, keepdims=True)) * inverse * gamma, (x, inverse, gamma)

    message, _ = caught(norm, backward, {"x": rng.standard_normal((3, 5)), "gamma": rng.standard_normal(5)})
    assert "path through the variance" in message


def test_the_identity_path_of_a_residual_branch(rng: np.random.Generator) -> None:
    message, _ = caught(
        lambda x: (x + np.tanh(x), x), lambda dy, x: dy / np.cosh(x) ** 2, {"x": rng.standard_normal((3, 4))}
    )
    assert "dx: in `x + np.tanh(x)`" in message
    assert "the path through `x` is missing" in message


def f(z: np.ndarray, x: np.ndarray) -> Any:
    return z**3 * x, np.abs(z) ** 2


def ours(dy: Any, z: np.ndarray, x: np.ndarray) -> Any:
    return dy[0] * np.conj(3 * z * z * x) + 2 * z * dy[1], (dy[0] * np.conj(z**3)).real


def theirs(dy: Any, z: np.ndarray, x: np.ndarray) -> Any:
    return dy[0] * 3 * z * z * x + 2 * np.conj(z) * dy[1], (dy[0] * z**3).real


@pytest.fixture
def inputs(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    return rng.standard_normal(4) + 1j * rng.standard_normal(4), rng.standard_normal(4)


def test_a_gradient_in_the_convention_of_jax_and_autograd_is_wrong_here(inputs: Any) -> None:
    assert gradcheck_vjp(f, ours, inputs).ok
    with pytest.raises(GradientError):
        gradcheck_vjp(f, theirs, inputs)


@pytest.mark.parametrize("stranger", STRANGERS, ids=lambda one: one.name)
def test_a_mistake_in_strangers_code(stranger: Stranger) -> None:
    with pytest.raises(GradientError) as failure:
        stranger.check()
    said = failure.value.report.diagnosis if failure.value.report else str(failure.value)
    assert stranger.names_the_cause(said), said


def cell(x: np.ndarray, w: np.ndarray, u: np.ndarray) -> np.ndarray:
    h, states = np.zeros(u.shape[0]), []
    for one in x:
        h = np.tanh(one @ w + h @ u)
        states.append(h)
    return np.stack(states)


def cell_back(g: np.ndarray, x: np.ndarray, w: np.ndarray, u: np.ndarray) -> Any:
    h = np.concatenate([np.zeros((1, len(u))), cell(x, w, u)])
    d = (g + 0.3 * g[::-1]) * (1 - h[1:] ** 2)  # no simple rule
    return d @ w.T, x.T @ d, h[:-1].T @ d


def test_the_diagnosis_has_a_budget_of_calls(rng: np.random.Generator) -> None:
    calls = 0

    def counted(*given: np.ndarray) -> np.ndarray:
        nonlocal calls
        calls += 1
        return cell(*given)

    inputs = (rng.standard_normal((6, 4)), rng.standard_normal((4, 5)), rng.standard_normal((5, 5)))
    with pytest.raises(GradientError) as failure:
        gradcheck_vjp(counted, cell_back, inputs)
    report = failure.value.report
    assert report is not None
    assert calls < report.calls + why.CALLS
    assert "no simple rule found" in report.diagnosis


def test_the_diagnosis_has_a_budget_of_time(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(why, "SECONDS", 0.0)
    with pytest.raises(GradientError, match="no simple rule found"):
        gradcheck_vjp(np.cumsum, lambda dy, x: np.cumsum(dy), (rng.standard_normal(6),))
