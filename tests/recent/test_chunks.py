"""Chapter 43: the recurrence of Chapter 42, for chunks of any size."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import numpy_attention as na
from numpy_attention.recent.c43_chunks import _inverse
from tests.recent.test_recurrence import RULES, assert_close, draw


def assert_same_as_chapter_42(
    rng: np.random.Generator, arrays: dict[str, Any], chunk_size: int, state: Any = None, rtol: float = 1e-10
) -> None:
    """Compare y, the last state and all gradients, with random gradients of y and of the state."""
    y, cache = na.linear_attention(**arrays, state=state)
    chunked, chunked_cache = na.chunked_linear_attention(**arrays, state=state, chunk_size=chunk_size)
    dy, dstate_end = (rng.standard_normal(x.shape).astype(x.dtype) for x in (y, cache.state))
    expected = y, cache.state, *na.linear_attention_backward(dy, cache, dstate_end)
    found = chunked, chunked_cache.state, *na.chunked_linear_attention_backward(dy, chunked_cache, dstate_end)
    for one, other in zip(found, expected, strict=True):
        assert (one is None) == (other is None)
        if other is not None:
            assert (one.shape, one.dtype) == (other.shape, other.dtype)
            size = max(np.abs(expected[0]).max(), np.abs(other).max())  # ddecay may be zero, and a small difference
            np.testing.assert_allclose(one, other, rtol=rtol, atol=rtol * size)


@given(st.sampled_from(RULES), st.integers(1, 20), st.integers(1, 25), st.booleans(), st.integers(1, 2), st.integers())
def test_every_chunk_size_gives_chapter_42(
    rule: str, T: int, chunk_size: int, with_state: bool, G: int, seed: int
) -> None:
    rng = np.random.default_rng(abs(seed))
    arrays = draw(rng, rule, T=T, H_q=3 * G)
    arrays["k"] /= np.linalg.norm(arrays["k"], axis=-1, keepdims=True)  # as in models; else the delta rule may grow
    state = rng.standard_normal((2, 3, 4, 5)) if with_state else None
    assert_same_as_chapter_42(rng, arrays, chunk_size, state)


@pytest.mark.parametrize("rule", ["linear", "gated"])
def test_one_chunk_is_the_quadratic_form(rng: np.random.Generator, rule: str) -> None:
    arrays = draw(rng, rule, T=9)
    q, k, v, *decays = arrays.values()
    total = np.cumsum(*decays, axis=-2) if decays else np.zeros((9, 1))
    B = np.tril(q @ k.swapaxes(-1, -2) * np.exp(total - total.swapaxes(-1, -2)))
    y, cache = na.chunked_linear_attention(**arrays, scale=1.0, chunk_size=9)
    assert_close(y, B @ v)
    assert len(cache.states) == 2


def test_last_chunk_may_be_shorter(rng: np.random.Generator) -> None:
    arrays = draw(rng, "gated delta", T=11)
    y, cache = na.chunked_linear_attention(**arrays, chunk_size=4)
    assert len(cache.states) == 4
    assert_close(y, na.linear_attention(**arrays)[0])


@pytest.mark.parametrize("rule", ["gated", "gated delta by rows"])
@pytest.mark.parametrize("decay", [-1e4, -1e30, -np.inf])
def test_very_strong_decays_do_not_overflow(rng: np.random.Generator, rule: str, decay: float) -> None:
    """exp(-G_j) alone is infinite; warnings are errors in these tests."""
    arrays = draw(rng, rule, T=13, dtype=np.float32)
    arrays["decay"][..., [2, 3, 8], :] = decay
    assert_same_as_chapter_42(rng, arrays, 6, rtol=2e-5)
    arrays["decay"][...] = decay
    assert_same_as_chapter_42(rng, arrays, 6, rtol=2e-5)


def test_weak_decays_stay_exact_after_a_strong_decay(rng: np.random.Generator) -> None:
    """The difference of two sums near -1e7 would have no correct digit in float32."""
    arrays = draw(rng, "gated", T=30)
    arrays["decay"][..., 0, :] = -1e7
    exact = na.linear_attention(**arrays)[0]
    found = na.chunked_linear_attention(**{name: x.astype(np.float32) for name, x in arrays.items()})[0]
    assert_close(found, exact, 1e-5)


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule.startswith("gated")])
@pytest.mark.parametrize("strong", [slice(None), slice(20, 21)], ids=["all tokens", "one token"])
def test_gradient_of_a_strong_decay_is_exact_in_float32(rng: np.random.Generator, rule: str, strong: slice) -> None:
    """It has the factor exp(-20). A difference of terms without this factor would have no correct digit."""
    arrays = {name: x.astype(np.float32) for name, x in draw(rng, rule, T=64, H_q=6).items()}
    arrays["k"] /= np.linalg.norm(arrays["k"], axis=-1, keepdims=True)
    arrays["decay"][..., strong, :] -= 20
    exact = na.linear_attention(**{name: x.astype(np.float64) for name, x in arrays.items()})
    found = na.chunked_linear_attention(**arrays)
    dy = rng.standard_normal(found[0].shape).astype(np.float32)
    ddecay = na.chunked_linear_attention_backward(dy, found[1])[3]
    expected = na.linear_attention_backward(dy.astype(np.float64), exact[1])[3]
    assert_close(ddecay[..., strong, :], expected[..., strong, :], 3e-6)


def test_equal_keys_that_overwrite_each_other(rng: np.random.Generator) -> None:
    """The matrix of the delta rule is then far from the identity."""
    arrays = draw(rng, "delta", T=70)
    arrays["k"] = np.broadcast_to(arrays["k"][..., :1, :], arrays["k"].shape).copy()
    arrays["k"] /= np.linalg.norm(arrays["k"], axis=-1, keepdims=True)
    arrays["beta"][...] = 1.0
    assert_same_as_chapter_42(rng, arrays, 64)


@pytest.mark.parametrize("C", [1, 2, 16, 17, 40])
def test_inverse_of_a_triangular_matrix(rng: np.random.Generator, C: int) -> None:
    L = np.tril(rng.standard_normal((3, C, C)) / 4, -1)
    assert_close(_inverse(L) @ (np.eye(C) + L), np.broadcast_to(np.eye(C), L.shape), 1e-10)


@pytest.mark.parametrize("rule", RULES)
def test_float32_of_a_long_text_is_close_to_float64(rng: np.random.Generator, rule: str) -> None:
    arrays = draw(rng, rule, T=500)
    for name in "qk":
        arrays[name] /= np.linalg.norm(arrays[name], axis=-1, keepdims=True)
    narrow = {name: x.astype(np.float32) for name, x in arrays.items()}
    found = na.chunked_linear_attention(**narrow, chunk_size=48)
    exact = na.chunked_linear_attention(**arrays, chunk_size=48)
    for one, other in zip(
        na.chunked_linear_attention_backward(*found), na.chunked_linear_attention_backward(*exact), strict=True
    ):
        if other is not None:
            assert_close(one, other, 3e-5)


@pytest.mark.parametrize("chunk_size", [0, -1, 2.0, True, "64"])
def test_refuses_an_invalid_chunk_size(rng: np.random.Generator, chunk_size: Any) -> None:
    with pytest.raises((ValueError, TypeError), match="chunk_size must be"):
        na.chunked_linear_attention(**draw(rng, "linear"), chunk_size=chunk_size)
