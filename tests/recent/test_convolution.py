"""Chapter 44: a causal convolution of each channel, whole or in pieces."""

from typing import Any

import numpy as np
import pytest

import numpy_attention as na

Arrays = tuple[np.ndarray, ...]


def drawn(rng: np.random.Generator, T: int = 7, n: int = 4) -> Arrays:
    """x, w, b and state for a batch of 2 and 3 channels."""
    return tuple(rng.standard_normal(shape) for shape in ((2, T, 3), (3, n), (3,), (2, n - 1, 3)))


def in_pieces(x: np.ndarray, w: np.ndarray, b: np.ndarray, state: np.ndarray, ends: list[int]) -> tuple[Any, list[Any]]:
    """The outputs and the last state of one call for each piece, and the caches."""
    parts, caches = [], []
    for piece in np.split(x, ends, axis=1):
        y, cache = na.causal_convolution(piece, w, b, state)
        state = cache.state
        parts.append(y)
        caches.append(cache)
    return (np.concatenate(parts, axis=1), state), caches


def in_pieces_backward(dy: tuple[np.ndarray, np.ndarray], caches: list[Any], ends: list[int]) -> Arrays:
    dx, dw, db, dstate = [], 0.0, 0.0, dy[1]
    for piece, cache in zip(reversed(np.split(dy[0], ends, axis=1)), reversed(caches), strict=True):
        dx_piece, *dwb, dstate = na.causal_convolution_backward(piece, cache, dstate)
        dw, db = dw + dwb[0], db + dwb[1]
        dx.insert(0, dx_piece)
    return np.concatenate(dx, axis=1), dw, db, dstate


def test_each_channel_equals_the_start_of_a_full_convolution(rng: np.random.Generator) -> None:
    x, w, b, _ = drawn(rng)
    y, _ = na.causal_convolution(x, w, b)
    for batch, channel in np.ndindex(2, 3):
        full = np.convolve(x[batch, :, channel], w[channel, ::-1])
        np.testing.assert_allclose(y[batch, :, channel], full[:7] + b[channel], rtol=1e-12)


def test_last_weight_belongs_to_the_token_itself(rng: np.random.Generator) -> None:
    x = rng.standard_normal((2, 5, 3))
    w = np.zeros((3, 4))
    w[:, -1] = 1.0
    np.testing.assert_array_equal(na.causal_convolution(x, w)[0], x)


def test_later_tokens_change_no_earlier_output(rng: np.random.Generator) -> None:
    x, w, b, state = drawn(rng)
    other = x.copy()
    other[:, 4:] += 1.0
    y, changed = (na.causal_convolution(one, w, b, state)[0] for one in (x, other))
    np.testing.assert_array_equal(y[:, :4], changed[:, :4])
    assert (y[:, 4:] != changed[:, 4:]).all()


@pytest.mark.parametrize("n", [1, 2, 4, 9])
@pytest.mark.parametrize("ends", [[3], [1, 2, 3, 4, 5, 6], [1, 1, 5], [0]], ids=str)
def test_pieces_give_outputs_state_and_gradients_of_the_whole_text(
    rng: np.random.Generator, n: int, ends: list[int]
) -> None:
    inputs = drawn(rng, n=n)
    y, cache = na.causal_convolution(*inputs)
    (y_pieces, state), caches = in_pieces(*inputs, ends)
    np.testing.assert_allclose(y_pieces, y, rtol=1e-12, atol=1e-14)
    np.testing.assert_array_equal(state, cache.state)

    dy = rng.standard_normal(y.shape), rng.standard_normal(state.shape)
    whole = na.causal_convolution_backward(dy[0], cache, dy[1])
    for found, right in zip(in_pieces_backward(dy, caches, ends), whole, strict=True):
        np.testing.assert_allclose(found, right, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize(("T", "n"), [(7, 4), (2, 6), (1, 3), (3, 1)])
def test_gradients_of_output_and_last_state_agree_with_the_complex_step(
    rng: np.random.Generator, T: int, n: int
) -> None:
    def op(x: Any, w: Any, b: Any, state: Any) -> Any:
        y, cache = na.causal_convolution(x, w, b, state)
        return (y, cache.state), cache

    def op_backward(dy: Any, cache: Any) -> Any:
        return na.causal_convolution_backward(dy[0], cache, dy[1])

    assert na.gradcheck(op, op_backward, drawn(rng, T, n)).ok


def test_no_state_means_a_state_of_zeros(rng: np.random.Generator) -> None:
    x, w, b, state = drawn(rng)
    y, cache = na.causal_convolution(x, w, b)
    np.testing.assert_array_equal(y, na.causal_convolution(x, w, b, np.zeros_like(state))[0])
    assert na.causal_convolution_backward(y, cache)[3] is None
    assert na.causal_convolution_backward(y, na.causal_convolution(x, w)[1])[2] is None


def test_text_without_tokens_keeps_the_state(rng: np.random.Generator) -> None:
    x, w, b, state = drawn(rng, T=0)
    y, cache = na.causal_convolution(x, w, b, state)
    assert y.shape == (2, 0, 3)
    np.testing.assert_array_equal(cache.state, state)
    dx, dw, db, dstate = na.causal_convolution_backward(y, cache, state)
    assert dx.shape == x.shape
    assert not dw.any()
    assert not db.any()
    np.testing.assert_array_equal(dstate, state)


@pytest.mark.parametrize(("change", "error", "message"), [
    ({"x": np.ones(3)}, ValueError, r"x must be \(\.\.\., T, C\), got \(3,\)"),
    ({"w": np.ones((4, 3))}, ValueError, ".*did you pass w transposed"),
    ({"w": np.ones((3, 0))}, ValueError, r"w must be \(C, n\) with n at least 1"),
    ({"w": np.ones((3, 1, 4))}, ValueError, r"w must be \(C, n\)"),
    ({"b": np.ones(2)}, ValueError, r"b must be \(C,\) with C = 3 as in x .*, got \(2,\)"),
    ({"state": np.ones((2, 4, 3))}, ValueError, r"state must be .* with m = 3 as in w .*, got \(2, 4, 3\)"),
    ({"state": np.ones((3, 3))}, ValueError, "state must be"),
    ({"state": np.ones((2, 3, 3), np.float32)}, TypeError, "state must be float64, the dtype of x"),
    ({"b": np.ones(3, np.float32)}, TypeError, "b must be float64"),
], ids=["no time", "transposed", "no weights", "three axes", "b", "state too long", "no batch", "dtype", "dtype of b"])
def test_refuses_arguments_that_do_not_fit(
    rng: np.random.Generator, change: dict[str, np.ndarray], error: type[Exception], message: str
) -> None:
    arguments = dict(zip(("x", "w", "b", "state"), drawn(rng), strict=True))
    with pytest.raises(error, match=f"causal_convolution: {message}"):
        na.causal_convolution(**{**arguments, **change})
