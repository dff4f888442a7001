"""Layers: parameters by name, gradients by finite differences, and nothing kept between calls."""

import copy
from collections.abc import Callable

import numpy as np
import pytest

import numpy_attention as na

MASK = na.causal_mask(5)
X = np.ones((1, 2, 4), np.float32)

Make = Callable[[np.random.Generator, type], na.Layer]

# B = 3, T = 5, d_model = 12, d_ff = 7, three heads: all different
LAYERS: dict[str, tuple[Make, dict[str, object]]] = {
    "linear": (lambda rng, dtype: na.Linear(12, 7, rng, dtype=dtype), {}),
    "linear without bias": (lambda rng, dtype: na.Linear(12, 7, rng, bias=False, dtype=dtype), {}),
    "layer norm": (lambda rng, dtype: na.LayerNorm(12, dtype=dtype), {}),
    "rms norm": (lambda rng, dtype: na.RMSNorm(12, dtype=dtype), {}),
    "learned positions": (lambda rng, dtype: na.PositionEmbedding("learned", 6, 12, rng, dtype), {}),
    "sinusoidal positions": (lambda rng, dtype: na.PositionEmbedding("sinusoidal", 6, 12, rng, dtype), {}),
    "attention": (lambda rng, dtype: na.MultiHeadAttention(12, 3, rng, bias=True, dtype=dtype), {"mask": MASK}),
    "attention, shared keys": (
        lambda rng, dtype: na.MultiHeadAttention(12, 4, rng, num_kv_heads=2, d_k=2, d_v=5, dtype=dtype),
        {"mask": MASK}),
    "attention, rotary": (
        lambda rng, dtype: na.MultiHeadAttention(12, 3, rng, rotary_base=100.0, dropout=0.3, dtype=dtype),
        {"mask": MASK}),
    "feed-forward, gelu": (lambda rng, dtype: na.FeedForward(12, 7, rng, "gelu", dropout=0.2, dtype=dtype), {}),
    "feed-forward, swiglu": (lambda rng, dtype: na.FeedForward(12, 7, rng, "swiglu", dtype=dtype), {}),
    "feed-forward, silu": (lambda rng, dtype: na.FeedForward(12, 7, rng, "silu", bias=False, dtype=dtype), {}),
    "encoder, post-norm": (
        lambda rng, dtype: na.EncoderBlock(12, 3, 7, rng, activation="gelu", dropout=0.2, dtype=dtype), {"mask": MASK}),
    "encoder, pre-norm": (
        lambda rng, dtype: na.EncoderBlock(
            12, 3, 7, rng, pre_norm=True, norm="rms_norm", activation="swiglu",
            attention={"num_kv_heads": 1}, dtype=dtype),
        {"mask": MASK}),
    "decoder, post-norm": (
        lambda rng, dtype: na.DecoderBlock(12, 3, 7, rng, activation="gelu", dropout=0.2, dtype=dtype), {"mask": MASK}),
    "decoder, pre-norm": (
        lambda rng, dtype: na.DecoderBlock(12, 3, 7, rng, pre_norm=True, activation="gelu", dtype=dtype),
        {"mask": MASK}),
}  # fmt: skip
CROSS: dict[str, Make] = {
    "attention": lambda rng, dtype: na.MultiHeadAttention(12, 3, rng, bias=True, dtype=dtype),
    "decoder, post-norm": lambda rng, dtype: na.DecoderBlock(
        12, 3, 7, rng, cross_attention=True, activation="gelu", dropout=0.2, dtype=dtype),
    "decoder, pre-norm": lambda rng, dtype: na.DecoderBlock(
        12, 3, 7, rng, cross_attention=True, pre_norm=True, activation="gelu", dtype=dtype),
}  # fmt: skip


def randomized(layer: na.Layer, rng: np.random.Generator) -> na.Layer:
    """Gammas of one and biases of zero would hide mistakes."""
    for p in layer.parameters().values():
        p[...] = 0.6 * rng.standard_normal(p.shape)
    return layer


def assert_gradient(f: Callable[[], float], p: np.ndarray, gradient: np.ndarray, rng: np.random.Generator) -> None:
    """Along a random direction, by central differences with one Richardson step."""
    direction, start = rng.standard_normal(p.shape), p.copy()
    direction /= np.linalg.norm(direction)

    def slope(h: float) -> float:
        p[...] = start + h * direction
        ahead = f()
        p[...] = start - h * direction
        behind = f()
        p[...] = start
        return (ahead - behind) / (2 * h)

    numeric = (4 * slope(5e-4) - slope(1e-3)) / 3
    analytic = float((gradient * direction).sum())
    assert analytic == pytest.approx(numeric, rel=1e-7, abs=1e-8 * (1 + float(np.linalg.norm(gradient))))


def seeded() -> dict[str, object]:
    return {"training": True, "rng": np.random.default_rng(5)}


@pytest.mark.parametrize("name", LAYERS)
def test_gradients_agree_with_differences(name, rng):
    make, options = LAYERS[name]
    layer = randomized(make(rng, np.float64), rng)
    x = rng.standard_normal((3, 5, 12))
    y, cache = layer.forward(x, **options, **seeded())
    dy = rng.standard_normal(y.shape)
    dx, grads = layer.backward(dy, cache)

    def loss() -> float:
        return float((layer.forward(x, **options, **seeded())[0] * dy).sum())

    assert_gradient(loss, x, dx, rng)
    assert grads.keys() == layer.parameters().keys()
    for parameter, p in layer.parameters().items():
        assert grads[parameter].shape == p.shape
        assert_gradient(loss, p, grads[parameter], rng)


@pytest.mark.parametrize("name", CROSS)
def test_gradients_of_cross_attention_agree_with_differences(name, rng):
    layer = randomized(CROSS[name](rng, np.float64), rng)
    x, context = rng.standard_normal((3, 5, 12)), rng.standard_normal((3, 4, 12))
    mask = rng.random((3, 1, 5, 4)) < 0.6
    mask[1, 0, 2] = False  # a query with nothing to see
    options = {"mask": mask} if name == "attention" else {"mask": MASK, "context_mask": mask}
    y, cache = layer.forward(x, context, **options, **seeded())
    dy = rng.standard_normal(y.shape)
    dx, dcontext, grads = layer.backward(dy, cache)

    def loss() -> float:
        return float((layer.forward(x, context, **options, **seeded())[0] * dy).sum())

    assert_gradient(loss, x, dx, rng)
    assert_gradient(loss, context, dcontext, rng)
    assert grads.keys() == layer.parameters().keys()
    for parameter, p in layer.parameters().items():
        assert_gradient(loss, p, grads[parameter], rng)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", LAYERS)
def test_nothing_is_changed_and_the_dtype_is_kept(name, dtype, rng):
    make, options = LAYERS[name]
    layer = randomized(make(rng, dtype), rng)
    x = rng.standard_normal((3, 5, 12)).astype(dtype)
    x.flags.writeable = False
    for p in layer.parameters().values():
        p.flags.writeable = False
    attributes = copy.deepcopy({k: v for k, v in vars(layer).items() if not isinstance(v, na.Layer)})
    y, cache = layer.forward(x, **options, **seeded())
    dy = rng.standard_normal(y.shape).astype(dtype)
    dy.flags.writeable = False
    before = copy.deepcopy(cache)
    dx, grads = layer.backward(dy, cache)
    again, grads_again = layer.backward(dy, cache)

    assert y.dtype == dx.dtype == dtype
    assert all(g.dtype == dtype for g in grads.values())
    np.testing.assert_array_equal(dx, again)
    for name, gradient in grads.items():
        np.testing.assert_array_equal(gradient, grads_again[name])
    assert repr(before) == repr(cache)
    assert repr(attributes) == repr({k: v for k, v in vars(layer).items() if not isinstance(v, na.Layer)})


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_applied_twice_adds_two_gradients(name, rng):
    make, options = LAYERS[name]
    layer = randomized(make(rng, np.float64), rng)
    x_1, x_2 = rng.standard_normal((2, 3, 5, 12))
    y, cache_1 = layer.forward(x_1, **options)
    _, cache_2 = layer.forward(x_2, **options)  # the second call must not disturb the first one's cache
    dy = rng.standard_normal(y.shape)
    _, grads_1 = layer.backward(dy, cache_1)
    _, grads_2 = layer.backward(dy, cache_2)
    both = np.concatenate([x_1, x_2])
    _, cache = layer.forward(both, **options)
    _, grads = layer.backward(np.concatenate([dy, dy]), cache)
    for name, gradient in grads.items():
        np.testing.assert_allclose(grads_1[name] + grads_2[name], gradient, rtol=1e-9, atol=1e-11)


def test_both_dtypes_start_alike():
    for make, _ in LAYERS.values():
        single, double = (make(np.random.default_rng(3), dtype) for dtype in (np.float32, np.float64))
        for name, p in single.parameters().items():
            np.testing.assert_array_equal(p, double.parameters()[name].astype(np.float32))


def test_embedding_adds_the_gradients_of_a_repeated_id(rng):
    layer = na.Embedding(5, 3, rng, dtype=np.float64)
    y, cache = layer.forward(np.array([[4, 1], [4, 4]]))
    dy = rng.standard_normal(y.shape)
    dx, grads = layer.backward(dy, cache)
    assert dx is None
    np.testing.assert_allclose(grads["table"][4], dy[0, 0] + dy[1, 0] + dy[1, 1])
    assert not grads["table"][[0, 2, 3]].any()


def test_rows_of_the_weights_sum_to_one_and_are_in_the_cache(rng):
    layer = na.MultiHeadAttention(12, 3, rng)
    _, cache = layer.forward(rng.standard_normal((2, 5, 12)).astype(np.float32), mask=MASK)
    assert cache.attention.weights.shape == (2, 3, 5, 5)
    np.testing.assert_allclose(cache.attention.weights.sum(axis=-1), 1.0, rtol=1e-6)
    assert not cache.attention.weights[..., ~MASK].any()


def test_initial_weights_have_the_scale_of_glorot(rng):
    layer = na.MultiHeadAttention(64, 8, rng)
    for p in layer.parameters().values():
        assert p.std() == pytest.approx(np.sqrt(2 / (64 + 8)), rel=0.05)
    w = na.Linear(80, 120, rng).w
    assert w.std() == pytest.approx(np.sqrt(2 / 200), rel=0.05)


def test_pre_norm_and_post_norm_are_what_they_say(rng):
    x = rng.standard_normal((2, 4, 12))
    for pre_norm in (True, False):
        block = randomized(na.EncoderBlock(12, 3, 7, rng, pre_norm=pre_norm, dtype=np.float64), rng)
        attention, norm_1 = block.attention, block.norm_1
        feed_forward, norm_2 = block.feed_forward, block.norm_2
        if pre_norm:
            h = x + attention.forward(norm_1.forward(x)[0])[0]
            y = h + feed_forward.forward(norm_2.forward(h)[0])[0]
        else:
            h = norm_1.forward(x + attention.forward(x)[0])[0]
            y = norm_2.forward(h + feed_forward.forward(h)[0])[0]
        np.testing.assert_allclose(block.forward(x)[0], y, rtol=1e-12)


def test_parameters_are_the_live_arrays_under_dotted_names(rng):
    block = na.DecoderBlock(12, 3, 7, rng, cross_attention=True)
    parameters = block.parameters()
    assert parameters["cross_attention.w_q"] is block.cross_attention.w_q
    names = ("w_q", "w_k", "w_v", "w_o", "b_q", "b_k", "b_v", "b_o")
    assert list(parameters)[:8] == [f"attention.{name}" for name in names]
    assert block.num_parameters() == 2 * 4 * (144 + 12) + 3 * 24 + 84 + 7 + 84 + 12
    assert list(na.MultiHeadAttention(12, 3, rng).parameters()) == ["w_q", "w_k", "w_v", "w_o"]


def test_loading_lists_every_difference_and_changes_nothing(rng):
    layer = na.FeedForward(4, 6, rng)
    before = copy.deepcopy(layer.parameters())
    w_2 = before["w_2"]
    wrong = {"w_1": before["w_1"].T, "b_1": before["b_1"].astype(np.float64), "w_2": w_2, "w_3": w_2}
    message = r"(?s)FeedForward.*b_1 is float32 \(6,\).*b_2 is missing.*w_1 is.*w_3 is unknown"
    with pytest.raises(ValueError, match=message):
        layer.load_parameters(wrong)
    for name, p in layer.parameters().items():
        np.testing.assert_array_equal(p, before[name])
    arrays = {name: p + 1 for name, p in before.items()}
    w_1 = layer.w_1
    layer.load_parameters(arrays)
    assert layer.w_1 is w_1
    np.testing.assert_array_equal(w_1, before["w_1"] + 1)


def test_replaced_parameters_are_used(rng):
    block = na.EncoderBlock(4, 2, 6, rng, dtype=np.float64)
    x = rng.standard_normal((2, 3, 4))
    y, _ = block.forward(x)
    flat = np.concatenate([p.ravel() for p in block.parameters().values()])
    places = iter(np.split(flat, np.cumsum([p.size for p in block.parameters().values()])))
    names = []
    block.replace_parameters(lambda name, p: names.append(name) or next(places).reshape(p.shape))
    assert names == list(block.parameters())
    np.testing.assert_array_equal(block.forward(x)[0], y)
    flat *= 2.0
    assert not np.allclose(block.forward(x)[0], y)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: na.MultiHeadAttention(10, 3, None), "d_model must be divisible by num_heads, got 10 and 3"),
        (lambda: na.MultiHeadAttention(12, 4, None, num_kv_heads=3), "num_heads must be a multiple of num_kv_heads"),
        (lambda: na.MultiHeadAttention(12, 4, None, rotary_base=1e4), "d_k must be even, got 3"),
        (lambda: na.MultiHeadAttention(12, 0, None), "must be at least 1"),
        (lambda: na.FeedForward(4, 8, None, "tanh"), "activation must be one of relu"),
        (lambda: na.PositionEmbedding("absolute", 4, 8, None), "kind must be one of learned"),
        (lambda: na.EncoderBlock(4, 2, 8, None, norm="batch_norm"), 'norm must be "layer_norm" or "rms_norm"'),
        (lambda: na.DecoderBlock(4, 2, 8, None).forward(X, X), "context .* got one"),
        (lambda: na.DecoderBlock(4, 2, 8, None, cross_attention=True).forward(X), "context .* got none"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_errors_say_what_is_wrong(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_length_one_batch_one_and_one_head(rng):
    for block in (na.EncoderBlock(3, 1, 5, rng), na.DecoderBlock(3, 1, 5, rng, pre_norm=True)):
        y, cache = block.forward(rng.standard_normal((1, 1, 3)).astype(np.float32))
        dx, _ = block.backward(np.ones_like(y), cache)
        assert y.shape == dx.shape == (1, 1, 3)
        assert np.isfinite(y).all()
        assert np.isfinite(dx).all()


def test_stored_keys_give_what_a_fresh_forward_gives(rng):
    layer = na.MultiHeadAttention(12, 4, rng, num_kv_heads=2, d_k=4, rotary_base=100.0, dtype=np.float64)
    x = rng.standard_normal((2, 5, 12))
    whole, _ = layer.forward(x, mask=MASK)
    past = na.KeyValueCache(capacity=6)
    first, _ = layer.forward(x[:, :2], mask=MASK[:2, :2], past=past, positions=np.arange(2))
    rest, _ = layer.forward(x[:, 2:], mask=MASK[2:], past=past, positions=np.arange(2, 5))
    np.testing.assert_allclose(np.concatenate([first, rest], axis=1), whole, rtol=1e-12)
    with pytest.raises(ValueError, match="room for 6 positions, got 7"):
        layer.forward(x[:, :2], past=past)
