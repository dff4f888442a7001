"""The diagnosis names a sign, a factor, a transpose or a term; of several findings it takes the most specific."""

from typing import Any

import numpy as np
import pytest

from numpy_attention import ops
from numpy_attention.gradcheck import GradientError, gradcheck_layer, gradcheck_vjp, why
from numpy_attention.layers import LayerNorm
from tests.gradcheck.acceptance.strangers import STRANGERS, Stranger
from tests.gradcheck.planted import caught, diagnosis_of


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


@pytest.fixture
def inputs(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    return rng.standard_normal(4) + 1j * rng.standard_normal(4), rng.standard_normal(4)


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


@pytest.mark.parametrize(("said", "f", "vjp"), [
    ("divided by 3 (axis 0 of x) once too often", np.sin, lambda dy, x: dy * np.cos(x) / 3),
    ("right up to a factor of 1 +1.0e-03", np.sin, lambda dy, x: 1.001 * dy * np.cos(x)),
    ("shifted by 1 along axis 1", lambda x: 3 * x, lambda dy, x: np.pad(3 * dy, ((0, 0), (1, 0)))[:, :-1]),
    ("a permutation instead of its inverse", lambda x: np.sort(x, axis=1),
     lambda dy, x: np.take_along_axis(dy, np.argsort(x, axis=1), 1)),
    ("in the wrong direction over the places along axis 1", lambda x: np.cumsum(np.sin(x), axis=1),
     lambda dy, x: np.cumsum(dy, axis=1) * np.cos(x)),
    ("wrong only in the last place along axis 0", np.sin, lambda dy, x: dy * np.cos(x) * [[1], [1], [1.3]]),
])
def test_a_simple_rule_is_named(said: str, f: Any, vjp: Any, rng: np.random.Generator) -> None:
    assert said in diagnosis_of(f, vjp, rng.standard_normal((3, 6)))


def test_an_option_or_a_mask_is_named(rng: np.random.Generator) -> None:
    x, keep = rng.standard_normal((3, 5)), rng.random((3, 5)) < 0.5
    message, _ = caught(lambda x, rate: (np.sin(x) / rate, x), lambda dy, x: dy * np.cos(x), (x,), rate=0.3)
    assert "dx: rate is applied once too often" in message
    message = diagnosis_of(lambda x, keep: np.where(keep, np.sin(x), 0.0),
                           lambda dy, x, keep: np.where(keep, 0.0, dy * np.cos(x)), x, keep)
    assert "right with ~keep in place of keep: the backward inverts keep" in message
