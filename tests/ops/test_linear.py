"""Chapter 1: the linear map and its three gradients."""

import numpy as np
import pytest

import numpy_attention as na

DTYPES = [np.float32, np.float64]


def draw(rng: np.random.Generator, dtype: type, *shapes: tuple[int, ...]) -> list[np.ndarray]:
    return [rng.standard_normal(shape).astype(dtype) for shape in shapes]


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_output_is_a_weighted_sum_of_its_row_plus_bias(rng: np.random.Generator, dtype: type) -> None:
    x, w, b = draw(rng, dtype, (2, 3, 5), (5, 7), (7,))
    y, _ = na.linear(x, w, b)
    for j in range(7):
        np.testing.assert_allclose(y[..., j], sum(x[..., i] * w[i, j] for i in range(5)) + b[j], rtol=1e-4, atol=1e-5)
    assert y.dtype == dtype


def test_gradients_of_w_and_b_are_sums_over_rows(rng: np.random.Generator) -> None:
    x, w, b, dy = draw(rng, np.float64, (4, 3, 5), (5, 7), (7,), (4, 3, 7))
    _, dw, db = na.linear_backward(dy, na.linear(x, w, b)[1])
    rows = [na.linear_backward(dy[n, t], na.linear(x[n, t], w, b)[1]) for n in range(4) for t in range(3)]
    np.testing.assert_allclose(dw, sum(row[1] for row in rows))
    np.testing.assert_allclose(db, sum(row[2] for row in rows))


def test_backward_transposes_a_square_w(rng: np.random.Generator) -> None:
    x, w, dy = draw(rng, np.float64, (3, 5), (5, 5), (3, 5))
    dx, _, _ = na.linear_backward(dy, na.linear(x, w)[1])
    np.testing.assert_allclose(dx, np.einsum("nj,ij->ni", dy, w))
    assert not np.allclose(dx, dy @ w)


def test_gradient_of_missing_bias_is_none(rng: np.random.Generator) -> None:
    x, w, dy = draw(rng, np.float64, (3, 5), (5, 7), (3, 7))
    assert na.linear_backward(dy, na.linear(x, w)[1])[2] is None


def test_without_rows_the_gradients_of_w_and_b_are_zero(rng: np.random.Generator) -> None:
    x, w, b, dy = draw(rng, np.float32, (0, 5), (5, 7), (7,), (0, 7))
    dx, dw, db = na.linear_backward(dy, na.linear(x, w, b)[1])
    assert dx.shape == (0, 5)
    assert not dw.any()
    assert not db.any()


def test_error_recognizes_a_transposed_w(rng: np.random.Generator) -> None:
    x, w = draw(rng, np.float64, (3, 5), (7, 5))
    with pytest.raises(ValueError, match=r"linear: w must be \(d_in, d_out\) with d_in = 5 .* w transposed\?"):
        na.linear(x, w)
