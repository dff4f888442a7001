"""The optimizers against steps calculated by hand, and with several workers."""

import math

import numpy as np
import pytest

from numpy_attention.pieces import PIECE
from numpy_attention.threads import lent_threads
from numpy_attention.training.c25_optimizers import SGD, Adam, AdamW
from numpy_attention.training.c30_parallel import WORTH_SHARING, Workers


def test_sgd_with_momentum_takes_the_steps_of_the_formula():
    w = np.array([1.0, -2.0])
    optimizer = SGD({"w": w}, learning_rate=0.5, momentum=0.9)
    optimizer.step({"w": np.array([0.2, 0.4])})  # u = (0.2, 0.4)
    np.testing.assert_allclose(w, [0.9, -2.2], rtol=1e-15)
    optimizer.step({"w": np.array([-0.1, 0.3])})  # u = 0.9 (0.2, 0.4) + (-0.1, 0.3) = (0.08, 0.66)
    np.testing.assert_allclose(w, [0.86, -2.53], rtol=1e-15)
    optimizer.step({"w": np.array([0.0, 0.0])}, learning_rate=1.0)  # u = (0.072, 0.594)
    np.testing.assert_allclose(w, [0.788, -3.124], rtol=1e-15)


def test_adam_takes_the_steps_of_the_formula():
    w = np.array([0.5])
    optimizer = Adam({"w": w}, learning_rate=0.1, beta_1=0.5, beta_2=0.75, eps=0.25)
    optimizer.step({"w": np.array([2.0])})
    # m = 1, v = 1; m_hat = 1 / 0.5 = 2, v_hat = 1 / 0.25 = 4; p = 0.5 - 0.1 * 2 / (2 + 0.25)
    first = 0.5 - 0.2 / 2.25
    np.testing.assert_allclose(w, [first], rtol=1e-15)
    optimizer.step({"w": np.array([-1.0])})
    # m = 0.5 - 0.5 = 0: no step
    np.testing.assert_allclose(w, [first], rtol=1e-15)
    optimizer.step({"w": np.array([4.0])})
    # m = 2, v = 0.75 (0.75 + 0.25) + 0.25 * 16 = 4.75; m_hat = 2 / 0.875, v_hat = 4.75 / (1 - 0.421875)
    step = 0.1 * (2 / 0.875) / (math.sqrt(4.75 / 0.578125) + 0.25)
    np.testing.assert_allclose(w, [first - step], rtol=1e-14)


def test_adamw_decays_only_matrices_and_not_the_moments():
    w, b = np.array([[2.0, -4.0]]), np.array([3.0])
    optimizer = AdamW({"w": w, "b": b}, learning_rate=0.1, weight_decay=0.5, eps=1e-300)
    optimizer.step({"w": np.array([[1.0, 1.0]]), "b": np.array([1.0])})
    np.testing.assert_allclose(w, [[2.0 * 0.95 - 0.1, -4.0 * 0.95 - 0.1]], rtol=1e-14)
    np.testing.assert_allclose(b, [2.9], rtol=1e-14)
    np.testing.assert_allclose(optimizer.m["w"], [[0.1, 0.1]], rtol=1e-14)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_array_longer_than_a_piece_takes_the_same_steps(dtype):
    rng = np.random.default_rng(0)
    size = PIECE + 17
    whole = rng.standard_normal((1, size)).astype(dtype)
    g = rng.standard_normal((1, size)).astype(dtype)
    ends = whole[:, [0, PIECE - 1, PIECE, size - 1]].copy()
    of_whole, of_ends = AdamW({"w": whole}), AdamW({"w": ends})
    for _ in range(3):
        of_whole.step({"w": g})
        of_ends.step({"w": g[:, [0, PIECE - 1, PIECE, size - 1]]})
    np.testing.assert_array_equal(whole[:, [0, PIECE - 1, PIECE, size - 1]], ends)
    assert whole.dtype == of_whole.m["w"].dtype == dtype


@pytest.mark.parametrize("kind", [SGD, Adam, AdamW])
def test_step_changes_the_parameter_in_place_and_not_the_gradient(kind):
    rng = np.random.default_rng(1)
    w, g = rng.standard_normal((3, 5)), rng.standard_normal((5, 3)).T  # a gradient in Fortran order
    before, old_gradient = w.copy(), g.copy()
    kind({"w": w}).step({"w": g})
    assert (w != before).all()
    np.testing.assert_array_equal(g, old_gradient)


@pytest.mark.parametrize("make", [lambda p: SGD(p, momentum=0.9), Adam, AdamW])
def test_loaded_state_continues_with_the_same_steps(make):
    rng = np.random.default_rng(2)
    straight = {"w": rng.standard_normal((3, 4)), "b": rng.standard_normal(4)}
    gradients = [{"w": rng.standard_normal((3, 4)), "b": rng.standard_normal(4)} for _ in range(6)]
    resumed = {name: p.copy() for name, p in straight.items()}
    one, two = make(straight), make(resumed)
    for g in gradients[:3]:
        one.step(g)
        two.step(g)
    three = make(resumed)
    three.load_state({name: array.copy() for name, array in two.state().items()})
    for g in gradients[3:]:
        one.step(g)
        three.step(g)
    for name, p in straight.items():
        np.testing.assert_array_equal(p, resumed[name])
    assert one.steps == three.steps == 6


def test_refuses_invalid_parameters_gradients_and_states():
    w = np.zeros((2, 3))
    with pytest.raises(ValueError, match=r"parameters\['a'\] must have its own memory.*tied"):
        Adam({"a": w, "b": w})
    with pytest.raises(ValueError, match="contiguous"):
        Adam({"w": w.T})
    with pytest.raises(TypeError, match="int64"):
        SGD({"w": np.arange(3)})
    with pytest.raises(ValueError, match="at least one"):
        SGD({})
    optimizer = Adam({"w": w})
    with pytest.raises(ValueError, match=r"Adam: grads must have the expected names, got a difference in b, w"):
        optimizer.step({"b": w})
    with pytest.raises(ValueError, match=r"\(2, 3\).*\(3, 2\)"):
        optimizer.step({"w": w.T})
    with pytest.raises(ValueError, match=r"Adam: state must have the expected names, got a difference in v\.w"):
        optimizer.load_state({"steps": np.asarray(1), "m.w": w})


@pytest.mark.parametrize("kind", [Adam, AdamW])
def test_step_with_workers_is_identical(kind):
    rng = np.random.default_rng(5)
    alone = {"w": rng.standard_normal((5, PIECE)), "b": rng.standard_normal(7)}
    shared = {name: p.copy() for name, p in alone.items()}
    grads = {name: rng.standard_normal(p.shape) for name, p in alone.items()}
    one, three = kind(alone), kind(shared)
    with Workers(3) as workers:
        for _ in range(3):
            one.step(grads)
            with workers.sharing(WORTH_SHARING):
                assert lent_threads() == 3
                three.step(grads)
        with workers.sharing(WORTH_SHARING - 1):
            assert lent_threads() == 1, "a small model does not use the workers"
    for name, p in alone.items():
        np.testing.assert_array_equal(shared[name], p)
        np.testing.assert_array_equal(three.v[name], one.v[name])


every_kind = pytest.mark.parametrize("kind", [SGD, Adam, AdamW])


@pytest.mark.parametrize("array", [[1.0, 2.0, 3.0], None, np.arange(3), np.ones((1, 3)).view(np.matrix)], ids=type)
@every_kind
def test_invalid_gradient_or_rate_changes_nothing(kind, array):
    w = np.ones(3)
    optimizer = kind({"w": w})
    for grads, rate in (({"w": array}, None), ({"w": np.ones(3)}, -0.1), ({"w": np.ones(3)}, math.nan)):
        with pytest.raises((TypeError, ValueError), match=r"^\w+: .* must be .*, got "):
            optimizer.step(grads, rate)
    assert optimizer.steps == 0
    np.testing.assert_array_equal(w, np.ones(3))
