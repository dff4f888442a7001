"""Chapter 55: U V^T is the gradient of the nuclear norm, five steps come near it, and the optimizer can be resumed."""

import numpy as np
import pytest

import numpy_attention as na
from numpy_attention.gradcheck import gradcheck


def nuclear_norm(w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    u, s, vt = np.linalg.svd(w, full_matrices=False)
    return s.sum(), u @ vt


def test_u_vt_is_the_gradient_of_the_nuclear_norm(rng: np.random.Generator) -> None:
    for shape in ((4, 7), (6, 3)):
        gradcheck(nuclear_norm, lambda dy, u_vt: dy * u_vt, {"w": rng.standard_normal(shape)})


def test_five_steps_bring_singular_values_from_a_hundredth_on_near_one() -> None:
    s = np.geomspace(0.01, 1.0, 40)
    found = np.diagonal(na.orthogonalized(np.diag(s) * 5.0))
    assert found[s >= 0.1].min() > 0.65
    assert found.max() < 1.25
    assert found.min() > 0.3


def test_zeros_stay_zeros_and_the_dtype_stays(rng: np.random.Generator) -> None:
    np.testing.assert_array_equal(na.orthogonalized(np.zeros((3, 2))), 0.0)
    for scale in (1e-30, 1e-8, 1e30):
        o = na.orthogonalized((scale * np.eye(2)).astype(np.float32))
        np.testing.assert_allclose(o, na.orthogonalized(np.eye(2)), rtol=1e-5, atol=1e-6)
    g = rng.standard_normal((3, 5)).astype(np.float32)
    assert na.orthogonalized(g).dtype == np.float32
    np.testing.assert_allclose(na.orthogonalized(g.T), na.orthogonalized(g).T, rtol=1e-5, atol=1e-6)


def test_a_resumed_optimizer_takes_the_same_steps(rng: np.random.Generator) -> None:
    shapes = {"token_embedding.table": (5, 4), "blocks.0.attention.w_q": (4, 4), "blocks.0.norm_1.gamma": (4,)}
    p, q = ({name: np.ones(shape) for name, shape in shapes.items()} for _ in range(2))
    grads = [{name: rng.standard_normal(shape) for name, shape in shapes.items()} for _ in range(4)]
    whole, part = na.Muon(p), na.Muon(q)
    for g in grads[:2]:
        whole.step(g)
        part.step(g)
    resumed = na.Muon(q)
    resumed.load_state(part.state())
    for g in grads[2:]:
        whole.step(g)
        resumed.step(g)
    for name in p:
        np.testing.assert_array_equal(p[name], q[name])


def test_wrong_gradients_are_refused() -> None:
    optimizer = na.Muon({"blocks.0.w": np.ones((2, 3)), "gamma": np.ones(3)})
    with pytest.raises(ValueError, match=r"Muon: grads must have the expected names, got a difference in blocks.0.w"):
        optimizer.step({"gamma": np.ones(3)})
    with pytest.raises(TypeError, match="Muon: grads must"):
        optimizer.step(None)  # type: ignore[arg-type]
    only_matrices = na.Muon({"blocks.0.w": np.ones((2, 3))})
    only_matrices.step({"blocks.0.w": np.ones((2, 3))})
    assert only_matrices.steps == 1
    with pytest.raises(ValueError, match="learning_rate must be"):
        optimizer.step({"blocks.0.w": np.ones((2, 3)), "gamma": np.ones(3)}, -1.0)
    with pytest.raises(ValueError, match=r"g must be \(d_in, d_out\)"):
        na.orthogonalized(np.ones(3))
