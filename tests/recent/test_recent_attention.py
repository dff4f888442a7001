"""Multi-head attention of recent models: QK-norm, the gate, and rotary positions of a part of the columns."""

import numpy as np
import pytest

import numpy_attention as na


def random_layer(rng: np.random.Generator, **options: object) -> na.RecentAttention:
    layer = na.RecentAttention(12, 3, rng, dtype=np.float64, **options)
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
    plain.w_o[...] = gated.w_o[...] = np.eye(12)  # so the outputs of the heads are the output
    (o, _), (gated_o, _) = na.split_heads(plain.forward(x)[0], 3), na.split_heads(gated.forward(x)[0], 3)
    np.testing.assert_allclose(gated_o, o * g.swapaxes(1, 2)[..., None], rtol=1e-12)


def test_only_the_first_columns_are_rotated(rng):
    layer, x = random_layer(rng, rotary_base=100.0, rotary_width=2), rng.standard_normal((1, 5, 12))
    _, cache = layer.forward(x)
    q, _ = na.split_heads(x @ layer.w_q, 3)
    np.testing.assert_array_equal(cache.attention.q[..., 2:], q[..., 2:])
    np.testing.assert_array_equal(cache.attention.q[..., :2], na.rotary(q[..., :2], np.arange(5), 100.0)[0])


YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}


def test_yarn_multiplies_only_rotated_columns():
    """Position 3 of heads of width 12, of which 6 columns rotate, as `transformers` 5.23 computes it for StableLM."""
    layer = na.RecentAttention(24, 2, None, rotary_base=1e4, rotary_width=6, rotary_scaling=YARN, dtype=np.float64)
    layer.w_q[:] = np.eye(24)
    x = np.broadcast_to(np.linspace(-1, 1.3, 24), (1, 4, 24))
    _, cache = layer.forward(x)
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
        na.RecentAttention(12, 3, None, **options)
