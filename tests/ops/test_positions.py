"""Chapter 8: three ways to add the position of a token."""

import numpy as np
import pytest

import numpy_attention as na


@pytest.mark.parametrize("d_model", [6, 7, 1])
def test_table_holds_sines_and_cosines_from_fast_to_slow(d_model: int) -> None:
    table = na.sinusoidal_positions(5, d_model, dtype=np.float64)
    for column in range(d_model):
        frequency = 10000.0 ** (-(column - column % 2) / d_model)
        np.testing.assert_allclose(table[:, column], (np.cos if column % 2 else np.sin)(np.arange(5) * frequency))


def test_moving_forward_turns_each_pair_by_an_angle_independent_of_position() -> None:
    table = na.sinusoidal_positions(9, 6, dtype=np.float64)
    pairs = table[:, 0::2] * 1j + table[:, 1::2]  # cos + i sin
    turns = pairs[3:] / pairs[:-3]
    np.testing.assert_allclose(turns, np.broadcast_to(turns[0], turns.shape))


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rotary_keeps_lengths_and_its_backward_turns_back(rng: np.random.Generator, pairing: str, dtype: type) -> None:
    x, positions = rng.standard_normal((2, 3, 5, 8)).astype(dtype), rng.integers(0, 1000, 5)
    y, cache = na.rotary(x, positions, pairing=pairing)
    assert y.dtype == dtype
    np.testing.assert_allclose(np.linalg.norm(y, axis=-1), np.linalg.norm(x, axis=-1), rtol=1e-5)
    np.testing.assert_allclose(na.rotary_backward(y, cache), x, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
def test_scores_of_turned_vectors_depend_only_on_distance(rng: np.random.Generator, pairing: str) -> None:
    q, k = rng.standard_normal((2, 1, 8))

    def score(t: int, s: int) -> float:
        turned = [na.rotary(x, np.array([p]), pairing=pairing)[0][0] for x, p in ((q, t), (k, s))]
        return float(turned[0] @ turned[1])

    np.testing.assert_allclose(score(7, 3), score(104, 100))
    assert abs(score(7, 3) - score(3, 7)) > 1e-3


def test_rotary_changes_nothing_at_position_zero(rng: np.random.Generator) -> None:
    x = rng.standard_normal((4, 6))
    np.testing.assert_array_equal(na.rotary(x, np.zeros(4, int))[0], x)


def test_pairings_differ_only_in_the_order_of_columns(rng: np.random.Generator) -> None:
    x, positions = rng.standard_normal((5, 8)), np.arange(5)
    order = np.arange(8).reshape(4, 2).T.reshape(-1)  # 0 2 4 6 1 3 5 7
    half, _ = na.rotary(x[:, order], positions)
    np.testing.assert_allclose(half, na.rotary(x, positions, pairing="interleaved")[0][:, order])


def test_far_positions_are_accurate_in_float32(rng: np.random.Generator) -> None:
    x, positions = rng.standard_normal((3, 8)), np.array([10**6, 10**6 + 1, 10**7])
    exact = na.rotary(x, positions)[0]
    np.testing.assert_allclose(na.rotary(x.astype(np.float32), positions)[0], exact, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("num_heads", [1, 2, 6, 8, 12, 16])
def test_slopes_decrease_and_are_between_zero_and_one(num_heads: int) -> None:
    slopes = na.alibi_slopes(num_heads)
    assert slopes.shape == (num_heads,)
    assert len(set(slopes.tolist())) == num_heads
    assert ((slopes > 0) & (slopes < 1)).all()
    lower = 2 ** (num_heads.bit_length() - 1)
    np.testing.assert_allclose(slopes[1:lower] / slopes[: lower - 1], 2.0 ** (-8.0 / lower))
    assert (np.diff(slopes[lower:]) < 0).all()


def test_alibi_bias_is_minus_slope_times_distance() -> None:
    bias = na.alibi_bias(3, 2, 5, dtype=np.float64)
    distance = np.array([[3, 2, 1, 0, 1], [4, 3, 2, 1, 0]])
    np.testing.assert_allclose(bias, -na.alibi_slopes(3)[:, None, None] * distance)


def test_refuses_gradient_of_wrong_shape_or_dtype() -> None:
    _, cache = na.rotary(np.ones((3, 5, 8), np.float32), np.arange(5))
    with pytest.raises(ValueError, match=r"rotary_backward: dy must be \(3, 5, 8\)"):
        na.rotary_backward(np.ones((2, 5, 8), np.float32), cache)  # this shape would broadcast
    with pytest.raises(TypeError, match="rotary_backward: dy must be float32"):
        na.rotary_backward(np.ones((3, 5, 8)), cache)


@pytest.mark.parametrize(("call", "error", "message"), [
    (lambda x: na.rotary(x[:, :7], np.arange(5)), ValueError, "with even d_k, got"),
    (lambda x: na.rotary(x, np.arange(5), pairing="other"), ValueError, 'pairing must be "half" or "interleaved"'),
    (lambda x: na.rotary(x, np.arange(4)), ValueError, r"positions must be broadcastable to \(\.\.\., T\) = \(5,\)"),
    (lambda x: na.rotary(x, np.zeros((5, 1), int)), ValueError, "positions must be broadcastable"),
    (lambda x: na.rotary(x, np.ones(5, bool)), TypeError, "positions must be an array of numbers, got bool"),
    (lambda x: na.rotary(x, range(5)), TypeError, "positions must be an array of numbers, got range"),
    (lambda x: na.sinusoidal_positions(-1, 4), ValueError, "length must be at least 0, got -1"),
    (lambda x: na.sinusoidal_positions(3, 0), ValueError, "d_model must be at least 1, got 0"),
    (lambda x: na.alibi_slopes(0), ValueError, "alibi_slopes: num_heads must be at least 1, got 0"),
    (lambda x: na.alibi_bias(0, 3), ValueError, "alibi_bias: num_heads must be at least 1, got 0"),
    (lambda x: na.alibi_bias(2, 3, -1), ValueError, "T_k must be at least 0, got -1"),
], ids=[
    "odd d_k", "another pairing", "four for five", "two axes for one", "bool", "a range", "length -1", "no width",
    "slopes of no heads", "bias of no heads", "T_k -1",
])
def test_refuses_invalid_positions_and_sizes(call: object, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call(np.ones((5, 8)))
