"""What a backward returns is looked at before its numbers: NaN, shapes, changed arrays, and the round-off to allow."""

import re
from typing import Any

import numpy as np
import pytest

from numpy_attention import ops
from numpy_attention.gradcheck import GradientError, gradcheck, gradcheck_layer
from numpy_attention.gradcheck.claims import ask_backward, claims, explain_shape, random_cotangent
from numpy_attention.gradcheck.problem import OpProblem
from numpy_attention.layers import Linear
from tests.gradcheck.planted import spoilt


def test_missing_batch_sum_by_shape(rng: np.random.Generator) -> None:
    x, w, b = rng.standard_normal((3, 4)), rng.standard_normal((4, 5)), rng.standard_normal(5)

    def backward(dy: np.ndarray, cache: Any) -> Any:
        dx, dw, _ = ops.linear_backward(dy, cache)
        return dx, dw, dy

    with pytest.raises(GradientError, match=r"db has shape \(3, 5\)(.|\n)*sum over the batch axes \(0,\) is missing"):
        gradcheck(ops.linear, backward, {"x": x, "w": w, "b": b})


def test_nan_is_named_with_its_place(rng: np.random.Generator) -> None:
    x = rng.standard_normal((3, 5))

    def spoil(dx: np.ndarray) -> np.ndarray:
        dx[2, 3] = np.nan
        return dx

    with pytest.raises(GradientError, match=re.escape("dx holds nan at index (2, 3)")):
        gradcheck(ops.softmax, spoilt(ops.softmax_backward, spoil), {"x": x})
    x[1, 1] = np.inf
    with pytest.raises(GradientError, match=re.escape("the input x holds inf at index (1, 1)")):
        gradcheck(ops.softmax, ops.softmax_backward, {"x": x})


@pytest.mark.parametrize(("returned", "dtype"), [
    (np.zeros((3, 5), int), "int64"), (np.ones((3, 5), bool), "bool"), (np.zeros((3, 5), object), "object"),
    (np.array([["x"] * 5] * 3), "<U1"), ("text", "<U4"), (object(), "object"),
])
def test_a_gradient_that_holds_no_floats_is_named_with_what_it_holds(
    returned: Any, dtype: str, rng: np.random.Generator
) -> None:
    with pytest.raises(GradientError, match=re.escape(f"gradcheck softmax: dx holds {dtype}, but x holds float64")):
        gradcheck(ops.softmax, lambda dy, cache: returned, {"x": rng.standard_normal((3, 5))})


def test_a_backward_that_answers_in_floats_once_only(rng: np.random.Generator) -> None:
    for later in (np.zeros((3, 5), int), np.zeros((3, 5), object), "text", None, np.zeros((5, 3))):
        for times in range(1, 12):
            left = [times]

            def backward(dy: np.ndarray, cache: Any, left: list[int] = left, later: Any = later) -> Any:
                left[0] -= 1
                return ops.softmax_backward(dy, cache) if left[0] >= 0 else later

            with pytest.raises(GradientError, match=r"^gradcheck softmax: (?!dx holds)"):
                gradcheck(ops.softmax, backward, {"x": rng.standard_normal((3, 5))})


def test_a_backward_that_raises_and_gradients_in_another_order(rng: np.random.Generator) -> None:
    x, w = rng.standard_normal((3, 4)), rng.standard_normal((4, 2))
    with pytest.raises(GradientError, match=r"the backward raised ValueError: matmul(.|\n)*should be transposed"):
        gradcheck(ops.linear, lambda dy, cache: (dy @ w, x.T @ dy, None), {"x": x, "w": w})
    with pytest.raises(GradientError, match=r"this is the shape of w: are the arguments, or the gradients, in the"):
        gradcheck(ops.linear, lambda dy, cache: (x.T @ dy, dy @ w.T, None), {"x": x, "w": w})


def test_backward_that_changes_dy_or_its_cache(rng: np.random.Generator) -> None:
    x = rng.standard_normal((3, 4))

    def changes_dy(dy: np.ndarray, cache: Any) -> np.ndarray:
        dy *= 2
        return dy / 2

    def changes_cache(dy: np.ndarray, cache: Any) -> np.ndarray:
        cache[0] *= 2
        return dy * cache[0] / 2

    with pytest.raises(GradientError, match="changed dy in place"):
        gradcheck(lambda x: (x.copy(), None), changes_dy, {"x": x})
    with pytest.raises(GradientError, match="called twice gives two different dx"):
        gradcheck(lambda x: (x * x / 2, [x.copy()]), changes_cache, {"x": x})


def test_a_parameter_without_a_gradient_is_named(rng: np.random.Generator) -> None:
    class Forgetful(Linear):
        def backward(self, dy: np.ndarray, cache: Any) -> Any:
            dx, grads = super().backward(dy, cache)
            return dx, {"w": grads["w"]}

    with pytest.raises(GradientError, match="no gradient for the parameter b"):
        gradcheck_layer(Forgetful(3, 4, rng, dtype=np.float64), (rng.standard_normal((2, 3)),))


def test_an_input_that_is_changed_in_place_is_named(rng: np.random.Generator) -> None:
    def doubles(x: np.ndarray) -> Any:
        x *= 2
        return x.copy(), None

    with pytest.raises(GradientError, match="the input x was changed in place; work on a new array"):
        gradcheck(doubles, lambda dy, cache: 2 * dy, {"x": rng.standard_normal(3)})


def test_dy_is_random_repeatable_and_of_the_outputs_dtype() -> None:
    y = (np.zeros((2, 3), np.float32), np.zeros(4, np.int64))
    first, again, other = (random_cotangent(y, seed) for seed in (1, 1, 2))
    assert [one.dtype for one in first] == [np.float32, np.float64]
    assert all(np.array_equal(a, b) for a, b in zip(first, again))
    assert not np.array_equal(first[0], other[0])


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_the_allowance_is_a_few_last_bits_of_the_gradients_own_dtype(dtype: type, rng: np.random.Generator) -> None:
    x = rng.standard_normal((5, 7)).astype(dtype)
    problem = OpProblem(ops.silu, ops.silu_backward, {"x": x}, {})
    dy, grads = ask_backward(problem, 0)
    (claim,), moves = claims(problem, dy, grads, terms=1.0)
    last_bit = float(np.finfo(dtype).eps) * np.abs(claim.gradient).max()
    assert last_bit < claim.base < 8 * last_bit
    assert 0 < claim.jitter.max() < 200 * last_bit
    assert claim.eps == float(np.finfo(dtype).eps)
    assert len(moves) == 6
    assert all(move.arrays["x"].dtype == dtype and not np.array_equal(move.arrays["x"], x) for move in moves)


@pytest.mark.parametrize(("got", "expected", "words"), [
    ((4, 3), (3, 4), "transposed"),
    ((2, 3, 4), (3, 4), "the sum over the batch axes (0,) is missing"),
    ((1, 1), (1,), "or a reshape to the shape of the argument"),
    ((1, 3), (3,), "or a reshape to the shape of the argument"),
    ((3, 4), (3, 1), "the sum over axes (1,), along which the argument was broadcast"),
    ((6,), (2, 3), "a reshape is missing"),
    ((3,), (2, 3), "summed over too many axes"),
    ((5, 7), (2, 3), "a gradient has the shape of its argument"),
])
def test_a_wrong_shape_is_explained(got: tuple[int, ...], expected: tuple[int, ...], words: str) -> None:
    assert words in explain_shape(got, expected)


def test_a_reshape_loses_nothing_but_axes_of_length_one() -> None:
    assert explain_shape((1, 2, 3), (3,)) == "the sum over the batch axes (0, 1) is missing"
