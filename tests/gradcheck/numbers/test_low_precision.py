"""float32 and float16: held to what the same backward says in float64, element by element."""

from typing import Any

import numpy as np
import pytest

from numpy_attention import ops
from numpy_attention.gradcheck import GradientError, gradcheck, gradcheck_vjp


@pytest.mark.parametrize(("size", "error"), [(2_000, 1e-3), (100_000, 1e-2), (100_000, 1e-3)])
def test_one_element_of_many(size: int, error: float, rng: np.random.Generator) -> None:
    x = rng.standard_normal(size).astype(np.float32)
    x[7] = 1.25

    def vjp(dy: np.ndarray, x: np.ndarray, factor: float = 1.0) -> np.ndarray:
        dx = 2 * dy * x
        dx[7] *= dx.dtype.type(factor)
        return dx

    gradcheck_vjp(lambda x: x * x, vjp, (x,))
    with pytest.raises(GradientError, match=r"dx\[7\]"):
        gradcheck_vjp(lambda x: x * x, lambda dy, x: vjp(dy, x, 1 + error), (x,))


@pytest.mark.parametrize("size", [2_000, 100_000])
def test_one_element_of_many_that_is_off_by_little_and_in_float32_only(size: int, rng: np.random.Generator) -> None:
    x = rng.standard_normal(size).astype(np.float32)
    x[7] = 1.25

    def vjp(dy: np.ndarray, x: np.ndarray) -> np.ndarray:
        dx = 2 * dy * x
        dx[7] *= 1 if x.dtype == np.float64 else np.float32(1 + 1e-4)
        return dx

    with pytest.raises(GradientError, match=r"dx\[7\](.|\n)*the same backward is right in float64"):
        gradcheck_vjp(lambda x: x * x, vjp, (x,))


def test_what_is_wrong_in_float32_only_is_said_to_be_right_in_float64(rng: np.random.Generator) -> None:
    x = rng.standard_normal((3, 5)).astype(np.float32)

    def vjp(dy: np.ndarray, x: np.ndarray) -> np.ndarray:
        return dy * np.cos(x) * (1 if x.dtype == np.float64 else np.float32(1.01))

    with pytest.raises(GradientError, match="the same backward is right in float64"):
        gradcheck_vjp(np.sin, vjp, (x,))


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_long_sums_that_cancel_raise_no_alarm(dtype: type, rng: np.random.Generator) -> None:
    x, w = (rng.standard_normal(shape).astype(dtype) for shape in ((40, 30), (30, 2)))
    gradcheck(ops.linear, ops.linear_backward, {"x": x, "w": w})
    gradcheck(ops.softmax, ops.softmax_backward, {"x": x})


def test_a_backward_for_one_dtype_only_is_judged_as_it_is(rng: np.random.Generator) -> None:
    x = rng.standard_normal((3, 5)).astype(np.float32)

    def vjp(dy: np.ndarray, x: np.ndarray, factor: Any = 1) -> np.ndarray:
        if x.dtype != np.float32:
            raise TypeError("float32 only")
        return dy * np.cos(x) * np.float32(factor)

    assert gradcheck_vjp(np.sin, vjp, (x,)).ok
    with pytest.raises(GradientError):
        gradcheck_vjp(np.sin, lambda dy, x: vjp(dy, x, 1.001), (x,))


def test_a_function_that_computes_in_float32_inside(rng: np.random.Generator) -> None:
    x = rng.standard_normal((3, 5))

    def inside(x: np.ndarray) -> np.ndarray:
        return np.tanh(x.astype(np.float32)).astype(np.float64)

    def out(x: np.ndarray) -> np.ndarray:
        return np.tanh(x).astype(np.float32)

    for f in (inside, out):
        for dtype in (np.float64, np.float32):
            gradcheck_vjp(f, lambda dy, x, t=dtype: (dy * (1 - np.tanh(x) ** 2)).astype(t), (x,))
            with pytest.raises(GradientError):
                gradcheck_vjp(f, lambda dy, x, t=dtype: (dy * (1 - np.tanh(x))).astype(t), (x,))


def test_a_backward_that_gives_no_floats_in_float64_is_judged_in_its_own_dtype() -> None:
    def vjp(dy: np.ndarray, x: np.ndarray) -> np.ndarray:
        return 3 * dy if x.dtype == np.float32 else np.zeros(x.shape, int)

    def one_of_them(dy: np.ndarray, x: np.ndarray, w: np.ndarray) -> Any:
        return dy, vjp(dy, w)

    assert gradcheck_vjp(lambda x: 3 * x, vjp, (np.ones(4, np.float32),)).ok
    assert gradcheck_vjp(lambda x, w: x + 3 * w, one_of_them, tuple(np.ones((2, 4), np.float32))).ok
