"""Chapter 42: causal attention without a softmax, with a state of fixed size."""

from typing import Any

import numpy as np
import pytest

import numpy_attention as na

B, H, T, d_k, d_v = 2, 3, 7, 4, 5
RULES = ["linear", "gated", "gated by rows", "delta", "gated delta", "gated delta by rows"]


def draw(rng: np.random.Generator, rule: str, T: int = T, H_q: int = H, dtype: Any = np.float64) -> dict[str, Any]:
    """Arguments of linear_attention for a rule, without a state."""
    shapes = {"q": (B, H_q, T, d_k), "k": (B, H, T, d_k), "v": (B, H, T, d_v)}
    arrays = {name: rng.standard_normal(shape) for name, shape in shapes.items()}
    if "gated" in rule:
        arrays["decay"] = -rng.exponential(0.3, (B, H, T, d_k if "rows" in rule else 1))
    if "delta" in rule:
        arrays["beta"] = rng.random((B, H, T, 1))
    return {name: array.astype(dtype) for name, array in arrays.items()}


def gradients(dy: np.ndarray, cache: Any, dstate_end: Any = None) -> dict[str, Any]:
    names = ("dq", "dk", "dv", "ddecay", "dbeta", "dstate")
    return dict(zip(names, na.linear_attention_backward(dy, cache, dstate_end), strict=True))


def assert_close(found: Any, expected: Any, rtol: float = 1e-12) -> None:
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=rtol * np.abs(expected).max())


def test_linear_rule_is_causal_attention_without_a_softmax(rng: np.random.Generator) -> None:
    arrays = draw(rng, "linear")
    q, k, v = arrays.values()
    scores = np.tril(q @ k.swapaxes(-1, -2) / np.sqrt(d_k))
    assert_close(na.linear_attention(**arrays)[0], scores @ v)


def test_gated_rule_multiplies_each_score_by_the_decays_of_the_tokens_between(rng: np.random.Generator) -> None:
    arrays = draw(rng, "gated")
    q, k, v, decay = arrays.values()
    total = np.cumsum(decay, axis=-2)
    scores = np.tril(q @ k.swapaxes(-1, -2) * np.exp(total - total.swapaxes(-1, -2)))
    assert_close(na.linear_attention(**arrays, scale=1.0)[0], scores @ v)


def test_delta_rule_replaces_the_value_of_a_key(rng: np.random.Generator) -> None:
    """A unit key gets a new value; the values of keys at a right angle stay."""
    keys = np.linalg.qr(rng.standard_normal((d_k, d_k)))[0]
    k, v = keys[[0, 1, 0]], rng.standard_normal((3, d_v))
    state = na.linear_attention(k, k, v, beta=np.ones((3, 1)))[1].state
    assert_close(keys[0] @ state, v[2])
    assert_close(keys[1] @ state, v[1])
    assert_close(keys[0] @ na.linear_attention(k, k, v)[1].state, v[0] + v[2])  # the linear rule adds


def test_state_decays_before_the_token_writes(rng: np.random.Generator) -> None:
    arrays = draw(rng, "gated", T=1)
    y, cache = na.linear_attention(**arrays)
    without = {name: arrays[name] for name in "qkv"}
    assert_close(y, na.linear_attention(**without)[0])  # a state of zeros cannot decay
    assert not gradients(np.ones_like(y), cache)["ddecay"].any()
    state = np.ones((B, H, d_k, d_v))
    end = na.linear_attention(**arrays, state=state)[1].state
    assert_close(end, np.exp(arrays["decay"]) * state + cache.state)


@pytest.mark.parametrize("rule", RULES)
def test_two_calls_with_the_state_are_one_call(rng: np.random.Generator, rule: str) -> None:
    arrays, state = draw(rng, rule), rng.standard_normal((B, H, d_k, d_v))
    y, cache = na.linear_attention(**arrays, state=state)
    dy, dstate_end = rng.standard_normal(y.shape), rng.standard_normal(state.shape)
    whole = gradients(dy, cache, dstate_end)
    cut = [{name: x[..., at, :] for name, x in arrays.items()} for at in (slice(0, 3), slice(3, None))]
    y_1, cache_1 = na.linear_attention(**cut[0], state=state)
    y_2, cache_2 = na.linear_attention(**cut[1], state=cache_1.state)
    assert_close(np.concatenate([y_1, y_2], axis=-2), y)
    assert_close(cache_2.state, cache.state)
    second = gradients(dy[..., 3:, :], cache_2, dstate_end)
    first = gradients(dy[..., :3, :], cache_1, second["dstate"])
    assert_close(first["dstate"], whole["dstate"])
    for name in arrays:
        assert_close(np.concatenate([first[f"d{name}"], second[f"d{name}"]], axis=-2), whole[f"d{name}"])


def test_generation_token_by_token_is_the_whole_text(rng: np.random.Generator) -> None:
    arrays, state, found = draw(rng, "gated delta", H_q=2 * H), None, []
    for t in range(T):
        y, cache = na.linear_attention(**{name: x[..., t : t + 1, :] for name, x in arrays.items()}, state=state)
        state = cache.state
        assert state.shape == (B, H, d_k, d_v)  # the memory of the text so far does not grow
        found.append(y)
    np.testing.assert_array_equal(np.concatenate(found, axis=-2), na.linear_attention(**arrays)[0])


@pytest.mark.parametrize("rule", RULES)
def test_grouped_heads_are_repeated_keys_with_summed_gradients(rng: np.random.Generator, rule: str) -> None:
    G = 3
    arrays = draw(rng, rule, H_q=G * H)
    full = {name: x if name == "q" else np.repeat(x, G, axis=1) for name, x in arrays.items()}
    (y, cache), (y_full, cache_full) = (na.linear_attention(**one) for one in (arrays, full))
    assert_close(y, y_full)
    dy = rng.standard_normal(y.shape)
    grads, grads_full = gradients(dy, cache), gradients(dy, cache_full)
    assert_close(grads["dq"], grads_full["dq"])
    for name, x in list(arrays.items())[1:]:
        assert_close(grads[f"d{name}"], grads_full[f"d{name}"].reshape(B, H, G, *x.shape[2:]).sum(axis=2))


@pytest.mark.parametrize(("name", "shape"), [
    ("decay", (H, 1, 1)), ("decay", (H, 1, d_k)), ("decay", (1,)), ("beta", (B, 1, T, 1)), ("beta", (H, 1, 1)),
])
def test_decay_and_beta_are_broadcast_and_their_gradients_summed(
    rng: np.random.Generator, name: str, shape: tuple[int, ...]
) -> None:
    arrays = draw(rng, "gated delta")
    narrow = -rng.random(shape)  # a decay is at most 0, and any beta has gradients
    full = np.broadcast_to(narrow, (*arrays["k"].shape[:-1], shape[-1])).copy()
    (y, cache), (y_full, cache_full) = (na.linear_attention(**{**arrays, name: one}) for one in (narrow, full))
    assert_close(y, y_full)
    dx, dx_full = (gradients(y, one)[f"d{name}"] for one in (cache, cache_full))
    axes = tuple(i for i, size in enumerate((1,) * (4 - len(shape)) + shape) if size == 1 and i < 3)
    assert_close(dx, dx_full.sum(axis=axes, keepdims=True).reshape(shape))


def test_arguments_that_are_none_have_the_gradient_none(rng: np.random.Generator) -> None:
    y, cache = na.linear_attention(**draw(rng, "linear"))
    assert na.linear_attention_backward(y, cache)[3:] == (None, None, None)


@pytest.mark.parametrize("decay", [-1e4, -1e300, -np.inf])
def test_a_very_strong_decay_empties_the_state(rng: np.random.Generator, decay: float) -> None:
    arrays = draw(rng, "gated delta")
    arrays["decay"][..., 4, :] = decay
    y, cache = na.linear_attention(**arrays)
    alone = na.linear_attention(**{name: x[..., 4:, :] for name, x in arrays.items()})[0]
    assert_close(y[..., 4:, :], alone)
    assert all(np.isfinite(x).all() for x in gradients(y, cache).values() if x is not None)


@pytest.mark.parametrize(("change", "message"), [
    ({"k": (B, H, T + 1, d_k), "v": (B, H, T + 1, d_v)}, r"k must be \(\.\.\., H_kv, T, d_k\) with T = 7"),
    ({"q": (B, H, 0, d_k)}, "q must be .* with T at least 1"),
    ({"decay": (B, H, T)}, r"decay must be .* = \(2, 3, 7, 4\).*; add the last axis: decay\[\.\.\., None"),
    ({"decay": (B, T, H, 1)}, "decay must be broadcastable to"),
    ({"beta": (B, H, T, d_k)}, r"beta must be broadcastable to .* = \(2, 3, 7, 1\)"),
    ({"state": (B, H, d_v, d_k)}, r"state must be .*, got \(2, 3, 5, 4\); did you pass state transposed"),
])
def test_refuses_wrong_shapes(rng: np.random.Generator, change: dict[str, Any], message: str) -> None:
    arrays = draw(rng, "gated delta") | {name: np.ones(shape) for name, shape in change.items()}
    for op in (na.linear_attention, na.chunked_linear_attention):
        with pytest.raises(ValueError, match=message):
            op(**arrays)


@pytest.mark.parametrize("largest", [1.1, 1000.0, np.inf])
def test_refuses_a_decay_far_above_zero(rng: np.random.Generator, largest: float) -> None:
    arrays = draw(rng, "gated")
    arrays["decay"][1, 2, 3, 0] = largest
    with pytest.raises(ValueError, match=r"decay must be at most 0 .*, got .*; it is the logarithm"):
        na.linear_attention(**arrays)
    arrays["decay"][...] = 0.0
    assert_close(na.linear_attention(**arrays)[0], na.linear_attention(*(arrays[name] for name in "qkv"))[0])


def test_refuses_a_gradient_of_the_state_with_another_shape_or_dtype(rng: np.random.Generator) -> None:
    y, cache = na.linear_attention(**draw(rng, "linear"))
    with pytest.raises(ValueError, match="dstate_end must be"):
        na.linear_attention_backward(y, cache, cache.state[0])
    with pytest.raises(TypeError, match="dstate_end must be"):
        na.linear_attention_backward(y, cache, cache.state.astype(np.float32))
