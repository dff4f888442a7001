"""The whole checker: its arguments, its reports, and no false alarms."""

from typing import Any

import numpy as np
import pytest

import numpy_attention as na
from numpy_attention import ops
from numpy_attention.gradcheck import GradientError, gradcheck_vjp


def test_the_package_is_the_function_and_holds_the_parts() -> None:
    import numpy_attention.gradcheck.strategies

    x = np.random.default_rng(0).standard_normal((2, 3))
    assert na.gradcheck(na.softmax, na.softmax_backward, {"x": x}).ok
    assert na.gradcheck.strategies is numpy_attention.gradcheck.strategies
    assert issubclass(na.gradcheck.GradientError, AssertionError)


def test_a_wrong_vjp_is_found(rng: np.random.Generator) -> None:
    x, w = rng.standard_normal((3, 4)), rng.standard_normal((4, 2))
    gradcheck_vjp(lambda x, w: x @ w, lambda dy, x, w: (dy @ w.T, x.T @ dy), (x, w))
    with pytest.raises(GradientError, match="dw: the sign is wrong"):
        gradcheck_vjp(lambda x, w: x @ w, lambda dy, x, w: (dy @ w.T, -x.T @ dy), (x, w))


def test_a_forward_may_raise_outside_its_domain() -> None:
    def logarithm(x: np.ndarray) -> np.ndarray:
        assert (x > 0).all(), "positive"
        return np.log(x)

    def of_a_simplex(x: np.ndarray) -> np.ndarray:
        if abs(x.sum() - 1) > 1e-9:
            raise ValueError("no simplex")
        return np.log(x)

    given = ((logarithm, np.array([1e-12, 1e-3, 1.0, 1e3])), (of_a_simplex, np.array([0.2, 0.3, 0.5])))
    for f, x in given:
        assert gradcheck_vjp(f, lambda dy, x: dy / x, (x,)).ok
        with pytest.raises(GradientError, match=r"dx\["):
            gradcheck_vjp(f, lambda dy, x: 1.001 * dy / x, (x,))


def test_an_iteration_that_stops_at_a_tolerance_is_allowed_for() -> None:
    def root(a: np.ndarray) -> np.ndarray:
        x = np.ones_like(a)
        while np.max(np.abs(np.real(x * x - a))) > 1e-6:
            x = (x + a / x) / 2 if np.max(np.abs(np.real(x * x - a))) > 1e-1 else x - (x * x - a) / (2.1 * x)
        return x

    def vjp(dy: np.ndarray, a: np.ndarray) -> np.ndarray:
        return dy / (2 * np.sqrt(a))

    a = np.array([4.5, 5.0, 5.5])
    with pytest.raises(GradientError, match="stops an iteration at a tolerance, allow this error: rtol="):
        gradcheck_vjp(root, vjp, (a,))
    assert gradcheck_vjp(root, vjp, (a,), rtol=1e-4).ok
    with pytest.raises(GradientError):
        gradcheck_vjp(root, lambda dy, a: 1.01 * vjp(dy, a), (a,), rtol=1e-4)


def sqrt_vjp(dy: np.ndarray, x: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        return dy / (2 * np.sqrt(x))


def wrong_at(places: np.ndarray, by: float) -> Any:
    def vjp(dy: np.ndarray, x: np.ndarray) -> np.ndarray:
        dx = sqrt_vjp(dy, x)
        if dx.shape == places.shape:
            dx[places] = dx[places] * by + 1
        return dx

    return vjp


@pytest.mark.parametrize(("shape", "reference"), [((3, 4), "both"), ((3, 4), "differences"), ((60, 50), "both")])
def test_skipped_elements_may_be_nan_and_all_others_are_compared(
    shape: tuple[int, int], reference: str, rng: np.random.Generator
) -> None:
    x = rng.uniform(1, 2, shape)
    mask = rng.random(shape) < 0.2
    mask[0, 0], mask[1, 1] = True, False
    x[mask] = 0
    how: dict[str, Any] = {"skip": {"x": mask}, "reference": reference}
    report = gradcheck_vjp(np.sqrt, sqrt_vjp, (x,), **how)
    assert f"dx: skip leaves out {mask.sum()} of {mask.size} elements" in str(report)
    assert np.isnan(report.arguments["x"].numeric[mask]).all()
    assert gradcheck_vjp(np.sqrt, wrong_at(mask, np.nan), (x,), **how).ok
    one = np.zeros(shape, bool)
    one[1, 1] = True
    with pytest.raises(GradientError, match=r"dx\[1, 1\]") as caught:
        gradcheck_vjp(np.sqrt, wrong_at(one, 1.0), (x,), **how)
    assert caught.value.report is not None
    assert not (caught.value.report.arguments["x"].wrong & mask).any()
    with pytest.raises(GradientError, match="dx holds -inf at index"):
        gradcheck_vjp(np.sqrt, sqrt_vjp, (x,), reference=reference)


MASK = np.zeros((2, 3), bool)


@pytest.mark.parametrize(("skip", "message"), [
    (MASK, "skip must be a dict by name, got ndarray"),
    ({"y": MASK}, "the names in skip must be among x, got 'y'$"),
    ({"x": MASK[0]}, r"skip\['x'\] must be bools of shape \(2, 3\), the shape of x, got bool of shape \(3,\)"),
])
def test_a_wrong_mask_is_one_line(skip: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        na.gradcheck(ops.silu, ops.silu_backward, (np.ones((2, 3)),), skip=skip)


def noise(size: float, x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return size * rng.uniform(-0.5, 0.5, x.shape)


@pytest.mark.parametrize("size", [1e-12, 1e-4])
def test_known_noise_is_allowed_and_a_larger_mistake_is_found(size: float) -> None:
    """Noise in the forward, in the backward, and in both."""
    rng = np.random.default_rng(0)

    def sin(x: np.ndarray) -> np.ndarray:
        return np.sin(x) + noise(size, x, rng)

    def cos(dy: np.ndarray, x: np.ndarray) -> np.ndarray:
        return dy * np.cos(x) + noise(size, x, rng)

    def wrong(dy: np.ndarray, x: np.ndarray) -> np.ndarray:
        return cos(dy, x) + (10 * size + 1e-9) * (x > 1.3)

    x = np.linspace(0.5, 1.4, 6).reshape(2, 3)
    for f, vjp in ((sin, lambda dy, x: dy * np.cos(x)), (np.sin, cos), (sin, cos)):
        assert gradcheck_vjp(f, vjp, (x,), nondet=size).ok
        with pytest.raises(GradientError):
            gradcheck_vjp(f, wrong, (x,), nondet=size, robustness=False)
        with pytest.raises(GradientError, match="differen"):
            gradcheck_vjp(f, vjp, (x,), nondet=size / 100)


def test_nondet_is_named_where_two_runs_differ() -> None:
    rng = np.random.default_rng(0)
    for f, vjp in (
        (lambda x: x + noise(1e-6, x, rng), lambda dy, x: dy), (lambda x: x, lambda dy, x: dy + noise(1e-6, x, rng))
    ):
        with pytest.raises(GradientError, match="a small known difference is allowed by nondet="):
            gradcheck_vjp(f, vjp, (np.ones(3),))


def test_an_option_of_the_function_may_be_called_skip(rng: np.random.Generator) -> None:
    def masked(x: np.ndarray, skip: np.ndarray) -> np.ndarray:
        return np.where(skip, 0.0, x)

    def vjp(dy: np.ndarray, x: np.ndarray, skip: np.ndarray) -> np.ndarray:
        return np.where(skip, 0.0, dy)

    x, mask = rng.standard_normal(4), np.arange(4) == 1
    assert gradcheck_vjp(masked, vjp, (x,), options={"skip": mask}).ok
    with pytest.raises(TypeError, match=r"skip=array.* sets the checker's option, but masked has an option skip too"):
        gradcheck_vjp(masked, vjp, (x,), skip=mask)
