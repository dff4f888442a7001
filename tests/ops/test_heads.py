"""Chapter 7: heads are columns; split moves them, concat moves them back."""

import numpy as np
import pytest

import numpy_attention as na


def test_each_head_has_its_own_columns(rng: np.random.Generator) -> None:
    x = rng.standard_normal((2, 5, 12))
    y, _ = na.split_heads(x, 3)
    assert y.shape == (2, 3, 5, 4)
    for h in range(3):
        np.testing.assert_array_equal(y[:, h], x[..., 4 * h : 4 * (h + 1)])
    assert np.shares_memory(x, y), "a view: no number moves"


@pytest.mark.parametrize("shape", [(5, 12), (2, 5, 12), (2, 7, 5, 12)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_concat_and_split_are_inverse_and_each_is_the_gradient_of_the_other(
    rng: np.random.Generator, shape: tuple[int, ...], dtype: type
) -> None:
    x = rng.standard_normal(shape).astype(dtype)
    heads, split_cache = na.split_heads(x, 3)
    back, concat_cache = na.concat_heads(heads)
    np.testing.assert_array_equal(back, x)
    np.testing.assert_array_equal(na.split_heads_backward(heads, split_cache), x)
    np.testing.assert_array_equal(na.concat_heads_backward(x, concat_cache), heads)


def test_reshape_without_swap_mixes_positions_with_heads(rng: np.random.Generator) -> None:
    x = rng.standard_normal((2, 3, 5, 4))
    y, _ = na.concat_heads(x)
    assert y.shape == x.reshape(2, 5, 12).shape
    assert not np.array_equal(y, x.reshape(2, 5, 12))


@pytest.mark.parametrize("num_heads", [0, -1, 5])
def test_refuses_num_heads_that_does_not_divide_d_model(num_heads: int) -> None:
    with pytest.raises(ValueError, match=r"num_heads must be (a divisor of d_model = 12|at least 1), got"):
        na.split_heads(np.ones((5, 12)), num_heads)


def test_refuses_too_few_axes() -> None:
    with pytest.raises(ValueError, match=r"split_heads: x must be \(\.\.\., T, d_model\), got \(12,\)"):
        na.split_heads(np.ones(12), 3)
    with pytest.raises(ValueError, match=r"concat_heads: x must be .*H, T, d_v\), got \(5, 12\)"):
        na.concat_heads(np.ones((5, 12)))
