"""Multi-head attention: weights that sum to one, shared keys, the KV cache."""

import numpy as np
import pytest

import numpy_attention as na
from numpy_attention.layers.c17_multi_head_attention import SharedPositions
from tests.layers.gradients import MASK, assert_gradients, randomized


def test_gradients_of_cross_attention_agree_with_central_differences(rng):
    layer = randomized(na.MultiHeadAttention(12, 3, rng, bias=True, dtype=np.float64), rng)
    x, context = rng.standard_normal((3, 5, 12)), rng.standard_normal((3, 4, 12))
    mask = rng.random((3, 1, 5, 4)) < 0.6
    mask[1, 0, 2] = False  # a query that sees no key
    assert_gradients(layer, (x, context), {"mask": mask}, rng)


def test_rows_of_cached_weights_sum_to_one(rng):
    layer = na.MultiHeadAttention(12, 3, rng)
    _, cache = layer.forward(rng.standard_normal((2, 5, 12)).astype(np.float32), mask=MASK)
    assert cache.attention.weights.shape == (2, 3, 5, 5)
    np.testing.assert_allclose(cache.attention.weights.sum(axis=-1), 1.0, rtol=1e-6)
    assert not cache.attention.weights[..., ~MASK].any()


def test_initial_weights_have_the_scale_of_glorot(rng):
    layer = na.MultiHeadAttention(64, 8, rng)
    for p in layer.parameters().values():
        assert p.std() == pytest.approx(np.sqrt(2 / (64 + 8)), rel=0.05)


def test_each_head_is_a_separate_attention(rng):
    layer = na.MultiHeadAttention(12, 3, rng, dtype=np.float64)
    x = rng.standard_normal((2, 5, 12))
    heads = []
    for columns in (slice(0, 4), slice(4, 8), slice(8, 12)):
        q, k, v = (x @ w[:, columns] for w in (layer.w_q, layer.w_k, layer.w_v))
        heads.append(na.scaled_dot_product_attention(q, k, v, mask=MASK)[0])
    y = np.concatenate(heads, axis=-1) @ layer.w_o
    np.testing.assert_allclose(layer.forward(x, mask=MASK)[0], y, rtol=1e-10)


def test_dropout_acts_on_the_weights_only_with_a_generator(rng):
    layer = na.MultiHeadAttention(12, 3, rng, dropout=0.5)
    x = rng.standard_normal((2, 5, 12)).astype(np.float32)
    without = layer.forward(x)[0]
    assert not np.allclose(layer.forward(x, rng=rng)[0], without)
    np.testing.assert_array_equal(layer.forward(x)[0], without)


def test_bias_on_scores_can_hide_the_same_pairs_as_a_mask(rng):
    layer = na.MultiHeadAttention(12, 3, rng, dtype=np.float64)
    x = rng.standard_normal((2, 5, 12))
    hidden = np.where(MASK, 0.0, -1e9)
    np.testing.assert_allclose(layer.forward(x, scores_bias=hidden)[0], layer.forward(x, mask=MASK)[0], rtol=1e-10)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"d_model": 10, "num_heads": 3}, "d_model must be divisible by num_heads, got 10 and 3"),
        ({"num_heads": 4, "num_kv_heads": 3}, "num_heads must be a multiple of num_kv_heads"),
        ({"num_heads": 4, "rotary_base": 1e4}, "d_k must be even, got 3"),
        ({"num_heads": 0}, "must be at least 1"),
    ],
    ids=str,
)
def test_refuses_heads_that_do_not_fit(options, message):
    with pytest.raises(ValueError, match=message):
        na.MultiHeadAttention(**{"d_model": 12, "rng": None, **options})


def test_kv_cache_gives_the_same_result_as_a_fresh_forward(rng):
    layer = na.MultiHeadAttention(12, 4, rng, num_kv_heads=2, d_k=4, rotary_base=100.0, dtype=np.float64)
    x = rng.standard_normal((2, 5, 12))
    whole, _ = layer.forward(x, mask=MASK)
    past = na.KeyValueCache(capacity=6)
    first, _ = layer.forward(x[:, :2], mask=MASK[:2, :2], past=past, positions=np.arange(2))
    rest, _ = layer.forward(x[:, 2:], mask=MASK[2:], past=past, positions=np.arange(2, 5))
    np.testing.assert_allclose(np.concatenate([first, rest], axis=1), whole, rtol=1e-12)
    with pytest.raises(ValueError, match="at most 6 positions, got 7"):
        layer.forward(x[:, :2], past=past)


def test_refuses_backward_through_kv_cache(rng):
    layer, past = na.MultiHeadAttention(8, 2, rng), na.KeyValueCache(6)
    x, context = rng.standard_normal((2, 1, 3, 8)).astype(np.float32)
    layer.forward(x, context, past=past)
    y, cache = layer.forward(x, context, past=past)
    with pytest.raises(ValueError, match="there is no backward through a KV cache"):
        layer.backward(y, cache)


def random_layer(rng: np.random.Generator, **options: object) -> na.MultiHeadAttention:
    layer = na.MultiHeadAttention(12, 3, rng, dtype=np.float64, **options)
    for p in layer.parameters().values():
        p[...] = rng.standard_normal(p.shape)
    return layer


@pytest.mark.parametrize("qk_norm", ["head", "all"])
def test_qk_norm_makes_the_length_of_queries_and_keys_irrelevant(qk_norm, rng):
    layer, x = random_layer(rng, qk_norm=qk_norm, norm_eps=1e-12), rng.standard_normal((2, 5, 12))
    y, _ = layer.forward(x)
    layer.w_q *= 3.0
    layer.w_k *= 0.2
    np.testing.assert_allclose(layer.forward(x)[0], y, rtol=1e-8)


def test_qk_norm_of_each_head_bounds_the_scores(rng):
    layer, x = random_layer(rng, qk_norm="head"), 100 * rng.standard_normal((2, 5, 12))
    for norm in (layer.norm_q, layer.norm_k):
        norm.gamma[...] = 1.0
    _, cache = layer.forward(x)
    scores = cache.attention.q @ cache.attention.k.swapaxes(-1, -2) * cache.attention.scale
    assert np.abs(scores).max() <= np.sqrt(4)


def test_gate_of_a_head_scales_its_output(rng):
    gated, x = random_layer(rng, output_gate="head"), rng.standard_normal((2, 5, 12))
    g = 1 / (1 + np.exp(-x @ gated.w_gate))  # (B, T, H)
    plain = na.MultiHeadAttention(12, 3, None, dtype=np.float64)
    plain.load_parameters({name: p for name, p in gated.parameters().items() if name != "w_gate"})
    o, _ = plain.heads(x)
    np.testing.assert_allclose(gated.heads(x)[0], o * g.swapaxes(1, 2)[..., None], rtol=1e-12)


def test_only_the_first_columns_are_rotated(rng):
    layer, x = random_layer(rng, rotary_base=100.0, rotary_width=2), rng.standard_normal((1, 5, 12))
    _, cache = layer.forward(x)
    q, _ = na.split_heads(x @ layer.w_q, 3)
    np.testing.assert_array_equal(cache.attention.q[..., 2:], q[..., 2:])
    np.testing.assert_array_equal(cache.attention.q[..., :2], na.rotary(q[..., :2], np.arange(5), 100.0)[0])


POSITIONS = {
    "from 0": lambda: None,
    "(T,)": lambda: np.array([3, 0, 7, 8, 100]),
    "(B, T)": lambda: np.array([[0, 0, 0, 1, 2], [5, 6, 7, 8, 9]]),
    "(B, 1, T)": lambda: np.arange(10).reshape(2, 1, 5),
}


@pytest.mark.parametrize("kind", POSITIONS)
def test_shared_positions_change_nothing(kind, rng):
    shared = SharedPositions(POSITIONS[kind]())
    x, dy = rng.standard_normal((2, 2, 5, 12))
    settings = {"rotary_base": 100.0}, {"rotary_base": 100.0, "rotary_width": 2}, {"rotary_base": 9.0}, {}
    layers = [random_layer(rng, **options) for options in settings for _ in range(2)]
    for layer in layers:
        y, cache = layer.forward(x, positions=shared)
        alone, of_alone = layer.forward(x, positions=POSITIONS[kind]())
        np.testing.assert_array_equal(y, alone)
        (dx, grads), (dx_alone, grads_alone) = layer.backward(dy, cache), layer.backward(dy, of_alone)
        np.testing.assert_array_equal(dx, dx_alone)
        for name, gradient in grads_alone.items():
            np.testing.assert_array_equal(grads[name], gradient)
    assert len(shared.made) == 3  # one for each base and width, for q and k of two layers


@pytest.mark.parametrize(
    ("positions", "error", "message"),
    [
        (np.arange(4), ValueError, r"rotary: positions must be broadcastable to .* = \(2, 4, 5\), got \(4,\)"),
        (np.zeros((3, 5), int), ValueError, r"rotary: positions must be .* \(2, 4, 5\), got \(3, 1, 5\)"),
        (np.zeros((2, 4, 5), int), ValueError, r"rotary: positions must be .* \(2, 2, 5\), got \(2, 4, 5\)"),
        (np.ones(5, bool), TypeError, "rotary: positions must be an array of numbers, got bool"),
        ([0, 1, 2, 3, 4], TypeError, "rotary: positions must be an array of numbers, got list"),
        ([[0, 1, 2, 3, 4]], TypeError, "MultiHeadAttention: positions must be an array, got list"),
    ],
    ids=["too few", "three sequences", "of each query head", "bool", "a list", "a list of lists"],
)
def test_refuses_positions_that_do_not_fit(positions, error, message, rng):
    layer = na.MultiHeadAttention(8, 4, rng, num_kv_heads=2, rotary_base=100.0)
    x = rng.standard_normal((2, 5, 8)).astype(np.float32)
    with pytest.raises(error, match=message):
        layer.forward(x, positions=positions)
    context = x[:, :3]
    with pytest.raises(ValueError, match=r"rotary: positions must be .* = \(2, 2, 3\), got \(5,\)"):
        layer.forward(x, context, positions=np.arange(5))


YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}


def test_yarn_multiplies_only_rotated_columns():
    """Position 3 of heads of width 12, of which 6 columns rotate, as `transformers` 5.23 computes it for StableLM."""
    layer = na.MultiHeadAttention(24, 2, None, rotary_base=1e4, rotary_width=6, rotary_scaling=YARN, dtype=np.float64)
    layer.w_q[:] = np.eye(24)
    x = np.broadcast_to(np.linspace(-1, 1.3, 24), (1, 4, 24))
    _, cache = layer.heads(x)
    published = [1.239713, -1.000368, -0.909982, 0.628381, -0.718431, -0.570786]
    np.testing.assert_allclose(cache.attention.q[0, 0, 3], [*published, *x[0, 3, 6:12]], rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"qk_norm": "heads"}, "qk_norm must be one of None, head, all, got 'heads'"),
        ({"output_gate": "all"}, "output_gate must be one of None, head, element"),
        ({"softcap": -1.0}, r"softcap must be in \[1e-30, 1e\+30\]"),
        ({"rotary_width": 2}, "rotary_width must be None without rotary positions, got 2"),
        ({"rotary_base": 10.0, "rotary_width": 3}, "rotary_width must be even, got 3"),
        ({"rotary_base": 10.0, "rotary_scaling": {"type": "none", "factor": 2.0}}, "must be one of"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_refuses_invalid_options(options, message):
    with pytest.raises(ValueError, match=message):
        na.MultiHeadAttention(12, 3, None, **options)
