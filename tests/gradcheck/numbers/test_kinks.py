"""At a corner any slope in between may stand; along a tie the derivative exists, and is asked for."""

from typing import Any

import numpy as np
import pytest

from numpy_attention.gradcheck import GradientError, gradcheck_vjp


def largest(x: np.ndarray) -> np.ndarray:
    return x.max(-1, keepdims=True)


def one_of_them(dy: np.ndarray, x: np.ndarray) -> np.ndarray:
    return dy * (np.arange(x.shape[-1]) == x.argmax(-1)[..., None])


def shared(dy: np.ndarray, x: np.ndarray) -> np.ndarray:
    tied = x == largest(x)
    return dy * tied / tied.sum(-1, keepdims=True)


def to_each(dy: np.ndarray, x: np.ndarray) -> np.ndarray:
    return dy * (x == largest(x))


@pytest.mark.parametrize("row", [[0.0, 2.0, 2.0], [0.0, 0.0, 0.0, -1.0], [-3e5, -3e5, -4e5], [1e-6, 1e-6, 0.0]])
def test_at_a_tie_one_gets_dy_or_all_share_it_but_not_each(row: list[float]) -> None:
    x = np.array([row, np.linspace(-1, 1, len(row))])
    for right in (one_of_them, shared):
        assert gradcheck_vjp(largest, right, (x,)).kinks == sum(value == max(row) for value in row)
    with pytest.raises(GradientError, match="moved together have a derivative") as failure:
        gradcheck_vjp(largest, to_each, (x,))
    assert "give dy to one of them, or share it" in str(failure.value)


def test_at_a_tie_of_zeros_somebody_must_get_dy() -> None:
    x = np.zeros((1, 3))  # the maximum is zero too, and with it all terms
    for right in (one_of_them, shared):
        assert gradcheck_vjp(largest, right, (x,)).kinks == 3
    with pytest.raises(GradientError, match="gradients add up to 0"):
        gradcheck_vjp(largest, lambda dy, x: 0 * x, (x,))


def test_a_tie_between_two_arguments() -> None:
    x, y = np.array([0.5, 1.0, 2.0]), np.array([0.5, 3.0, 1.0])

    def both(dy: np.ndarray, x: np.ndarray, y: np.ndarray) -> Any:
        return dy * (x >= y), dy * (y >= x)

    gradcheck_vjp(np.maximum, lambda dy, x, y: (dy * (x >= y), dy * (y > x)), (x, y))
    with pytest.raises(GradientError, match="moved together have a derivative"):
        gradcheck_vjp(np.maximum, both, (x, y))


@pytest.mark.parametrize("k", [0, 1, 2, 3])
def test_three_equal_numbers_in_a_sort(k: int) -> None:
    x = np.array([1.0, 0.3, 1.0, -2.0, 1.0])

    def vjp(dy: np.ndarray, x: np.ndarray) -> np.ndarray:
        dx = np.zeros_like(x)
        dx[np.argsort(x, kind="stable")] = dy
        return dx

    gradcheck_vjp(np.sort, vjp, (np.roll(x, k),))
    with pytest.raises(GradientError):
        gradcheck_vjp(np.sort, lambda dy, x: 3 * vjp(dy, x), (np.roll(x, k),))


def test_the_median_of_three_equal_numbers() -> None:
    x = np.array([0.0, -1.0, 0.0, 2.0, 0.0])

    def median(x: np.ndarray) -> np.ndarray:
        return np.sort(x)[2:3]

    def vjp(dy: np.ndarray, x: np.ndarray) -> np.ndarray:
        return dy * (np.arange(5) == np.argsort(x, kind="stable")[2])

    assert gradcheck_vjp(median, vjp, (x,)).ok
    with pytest.raises(GradientError):
        gradcheck_vjp(median, lambda dy, x: dy * (np.arange(5) == 3), (x,))


def test_two_relus_in_a_chain_at_their_corner() -> None:
    x = np.array([0.0, 1.5, -2.0])

    def f(x: np.ndarray) -> np.ndarray:
        return np.maximum(2 * np.maximum(x, 0), 0)

    for at_zero in (0.0, 0.5, 1.0):
        slope = at_zero * at_zero
        report = gradcheck_vjp(f, lambda dy, x, s=slope: 2 * dy * np.where(x == 0, s, x > 0), (x,))
        assert report.kinks == 1
    with pytest.raises(GradientError):
        gradcheck_vjp(f, lambda dy, x: 2 * dy * np.where(x == 0, -0.5, x > 0), (x,))


def test_a_point_where_the_function_is_smooth_is_no_corner() -> None:
    """relu(x) - relu(-x) is x: what conventions make of its two corners is wrong."""
    with pytest.raises(GradientError):
        gradcheck_vjp(
            lambda x: np.maximum(x, 0) - np.maximum(-x, 0), lambda dy, x: dy * (x != 0), (np.array([0.0, 1.0, -1.0]),)
        )
