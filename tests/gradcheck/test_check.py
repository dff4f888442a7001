"""The whole checker: its arguments, its reports, and no false alarms."""

from typing import Any

import numpy as np
import pytest

import numpy_attention as na
from numpy_attention import ops
from numpy_attention.gradcheck import GradientError, gradcheck_vjp
from numpy_attention.gradcheck.check import check
from numpy_attention.gradcheck.problem import OpProblem


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


@pytest.mark.parametrize("condition", [1e2, 1e4, 1e6])
def test_linear_solves_are_judged_correctly(condition: float) -> None:
    def vjp(dy: np.ndarray, a: np.ndarray, b: np.ndarray) -> Any:
        db = np.linalg.solve(a.T, dy)
        return -db @ np.linalg.solve(a, b).T, db

    for seed in range(2):
        rng = np.random.default_rng(seed)
        left, right = (np.linalg.qr(rng.standard_normal((5, 5)))[0] for _ in range(2))
        a, b = left * np.geomspace(1, 1 / condition, 5) @ right, rng.standard_normal((5, 2))
        assert gradcheck_vjp(np.linalg.solve, vjp, (a, b), seed=seed).ok
        with pytest.raises(GradientError, match="da"):
            gradcheck_vjp(np.linalg.solve, lambda dy, a, b: (1.001 * vjp(dy, a, b)[0], vjp(dy, a, b)[1]), (a, b))


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


def test_noise_is_allowed_for_relative_to_the_gradient_or_absolutely() -> None:
    """Noise that is equal in every call: the derivative is known to 1 %."""
    def noisy(x: np.ndarray) -> np.ndarray:
        return np.sin(x) + 1e-4 * np.modf(np.abs(np.real(x)) * 1e7)[0]

    x = np.linspace(1.0, 2.0, 5)
    for allowed in ({}, {"rtol": 1e-3}, {"atol": 1e-3}):
        with pytest.raises(GradientError, match="dx not resolved"):
            gradcheck_vjp(noisy, lambda dy, x: dy * np.cos(x), (x,), **allowed)
    for allowed in ({"rtol": 0.1}, {"atol": 0.1}):
        assert gradcheck_vjp(noisy, lambda dy, x: dy * np.cos(x), (x,), **allowed).ok


@pytest.mark.parametrize(("vjp", "text"), [
    (lambda dy, x: None, r"no gradient for the argument x; if x has no gradient, pass no_gradient=\['x'\]"),
    (lambda dy, x: {"dx": dy}, "a gradient called 'dx'; the names must be names of arguments: x"),
    (lambda dy, x: {}, "no gradient for the argument x"),
    (lambda dy, x: dy * (1 + 1j), "dx is complex, but x is real"),
], ids=["none", "name", "missing", "complex"])
def test_missing_gradients_are_refused(vjp: Any, text: str) -> None:
    with pytest.raises(GradientError, match=text):
        gradcheck_vjp(lambda x: x * 1.0, vjp, (np.arange(3.0),))


def counted(op: Any, op_backward: Any, x: np.ndarray, **options: Any) -> tuple[int, int]:
    """The number of calls of the op, counted and according to the report."""
    calls = 0

    def counting(x: np.ndarray) -> Any:
        nonlocal calls
        calls += 1
        return op(x)

    report = check(OpProblem(counting, op_backward, {"x": x}, {}), structure=False, **options)
    return calls, report.calls


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


@pytest.mark.parametrize("reference", ["both", "complex", "differences"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("shape", [(3, 4), (60, 50)])
def test_skipped_elements_may_be_nan_and_all_others_are_compared(
    shape: tuple[int, int], dtype: type, reference: str, rng: np.random.Generator
) -> None:
    x = rng.uniform(1, 2, shape).astype(dtype)
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


def test_skip_takes_the_path_of_an_array_and_the_name_of_a_complex_one(rng: np.random.Generator) -> None:
    tree = {"w": rng.standard_normal(3), "s": 2.0}

    def vjp(dy: np.ndarray, p: Any) -> Any:
        return {"w": dy * p["s"] + np.array([0, 9, 0]), "s": (dy * p["w"]).sum() + 1}

    skip: dict[str, Any] = {"p.w": np.arange(3) == 1, "p.s": True}
    assert gradcheck_vjp(lambda p: p["w"] * p["s"], vjp, (tree,), skip=skip).ok
    z = rng.standard_normal(4) + 1j
    report = gradcheck_vjp(
        lambda z: z**3, lambda dy, z: dy * np.conj(3 * z**2) + (np.arange(4) == 2), (z,), skip={"z": np.arange(4) == 2}
    )
    assert [np.isnan(one.numeric).sum() for one in report.arguments.values()] == [1, 1]
    layer = na.LayerNorm(4, dtype=np.float64)
    report = na.gradcheck.gradcheck_layer(layer, (rng.standard_normal((3, 4)),), skip={"gamma": np.arange(4) == 1})
    assert np.isnan(report.arguments["gamma"].numeric[1])


MASK = np.zeros((2, 3), bool)


@pytest.mark.parametrize(("skip", "message"), [
    (MASK, "skip must be a dict by name, got ndarray"),
    ({"y": MASK}, "the names in skip must be among x, got 'y'$"),
    ({"x": MASK.tolist()}, r"the names in skip must be among x, got 'x\[0\]\[0\]'; x is one array$"),
    ((MASK, MASK), r"skip must hold at most 1 arrays, got 2"),
    ({"x": MASK[0]}, r"skip\['x'\] must be bools of shape \(2, 3\), the shape of x, got bool of shape \(3,\)"),
    ({"x": MASK.astype(int)}, r"skip\['x'\] must be bools of shape \(2, 3\), the shape of x, got int64"),
    ({"x": None}, r"skip\['x'\] must be bools of shape \(2, 3\), the shape of x, got object of shape \(\)"),
])
def test_a_wrong_mask_is_one_line(skip: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        na.gradcheck(ops.silu, ops.silu_backward, (np.ones((2, 3)),), skip=skip)


def noise(size: float, x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return size * rng.uniform(-0.5, 0.5, x.shape)


@pytest.mark.parametrize("size", [1e-12, 1e-9, 1e-6, 1e-4])
def test_known_noise_is_allowed_and_a_larger_mistake_is_found(size: float) -> None:
    """In the forward, in the backward, in both; added or multiplied; with and without a complex step."""
    rng = np.random.default_rng(0)

    def times(x: np.ndarray) -> np.ndarray:
        return np.sin(x) * (1 + noise(size, x, rng))

    def plus(x: np.ndarray) -> np.ndarray:
        return np.sin(x) + noise(size, x, rng)

    def cubed(x: np.ndarray) -> np.ndarray:
        return np.abs(x) ** 3 + noise(size, x, rng)

    def cos(dy: np.ndarray, x: np.ndarray) -> np.ndarray:
        return dy * np.cos(x) + noise(size, x, rng)

    def square(dy: np.ndarray, x: np.ndarray) -> np.ndarray:
        return dy * 3 * np.abs(x) * x + noise(size, x, rng)

    x = np.linspace(0.5, 1.4, 6).reshape(2, 3)
    for f, vjp, finds in ((times, cos, 10), (plus, cos, 10), (np.sin, cos, 10), (cubed, square, 100_000)):
        for seed in range(1):
            assert gradcheck_vjp(f, vjp, (x,), seed=seed, nondet=size).ok
            by = finds * size + 1e-9

            def wrong(dy: np.ndarray, x: np.ndarray, vjp: Any = vjp, by: float = by) -> Any:
                return vjp(dy, x) + by * (np.arange(6).reshape(2, 3) == 4)

            with pytest.raises(GradientError):
                gradcheck_vjp(f, wrong, (x,), seed=seed, nondet=size, robustness=False)
            with pytest.raises(GradientError, match="differen"):
                gradcheck_vjp(f, vjp, (x,), seed=seed, nondet=size / 100)


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
    with pytest.raises(TypeError, match=r"skip=\(array.*,\) sets the checker's option"):
        gradcheck_vjp(masked, vjp, (x,), skip=(np.zeros((20, 4), dtype=bool),))
