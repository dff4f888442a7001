"""The block: its sublayers in order, compared with plain formulas, and the two gradients of cross-attention."""

import numpy as np
import pytest

import numpy_attention as na
from tests.layers.gradients import MASK, assert_gradients, randomized

X = np.ones((1, 2, 4), np.float32)
DECODERS = {
    "post-norm": {"activation": "gelu", "dropout": 0.2},
    "pre-norm": {"pre_norm": True, "activation": "gelu"},
    "pre-norm, dropout": {"pre_norm": True, "norm": "rms_norm", "activation": "silu", "dropout": 0.2},
}


@pytest.mark.parametrize("variant", DECODERS)
def test_gradients_of_cross_attention_agree_with_central_differences(variant, rng):
    options = DECODERS[variant]
    block = randomized(na.DecoderBlock(12, 3, 7, rng, cross_attention=True, dtype=np.float64, **options), rng)
    x, context = rng.standard_normal((3, 5, 12)), rng.standard_normal((3, 4, 12))
    mask = rng.random((3, 1, 5, 4)) < 0.6
    mask[1, 0, 2] = False  # a query that sees no key
    assert_gradients(block, (x, context), {"mask": MASK, "context_mask": mask, "dropout": True}, rng)


def test_pre_norm_and_post_norm_equal_their_formulas(rng):
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


def test_post_norm_is_the_default(rng):
    block = na.EncoderBlock(12, 3, 7, rng, dtype=np.float64)
    y, _ = block.forward(rng.standard_normal((2, 4, 12)))
    np.testing.assert_allclose(y.std(axis=-1), 1.0, rtol=1e-4)


def test_context_keys_are_stored_at_the_first_step(rng):
    block = na.DecoderBlock(12, 3, 7, rng, cross_attention=True)
    x, context = rng.standard_normal((2, 1, 5, 12)).astype(np.float32)
    past = na.KeyValueCache(5), na.KeyValueCache(5)
    first, _ = block.forward(x[:, :1], context, past=past)
    assert past[1].length == 5
    again, _ = block.forward(x[:, :1], 0 * context, past=(na.KeyValueCache(5), past[1]))  # context is not read
    np.testing.assert_array_equal(again, first)


@pytest.mark.parametrize("pre_norm", [True, False])
def test_decoder_runs_self_attention_cross_attention_feed_forward_in_order(pre_norm, rng):
    block = randomized(
        na.DecoderBlock(12, 3, 7, rng, cross_attention=True, pre_norm=pre_norm, dtype=np.float64), rng
    )
    x, context = rng.standard_normal((2, 5, 12)), rng.standard_normal((2, 4, 12))
    sublayers = [
        (block.norm_1, lambda h: block.attention.forward(h, mask=MASK)[0]),
        (block.norm_cross, lambda h: block.cross_attention.forward(h, context)[0]),
        (block.norm_2, lambda h: block.feed_forward.forward(h)[0]),
    ]
    y = x
    for norm, sublayer in sublayers:
        y = y + sublayer(norm.forward(y)[0]) if pre_norm else norm.forward(y + sublayer(y))[0]
    np.testing.assert_allclose(block.forward(x, context, mask=MASK)[0], y, rtol=1e-12)


def test_encoder_and_decoder_blocks_are_equal_without_cross_attention(rng):
    encoder, decoder = (cls(12, 3, 7, np.random.default_rng(1)) for cls in (na.EncoderBlock, na.DecoderBlock))
    x = rng.standard_normal((2, 5, 12)).astype(np.float32)
    np.testing.assert_array_equal(encoder.forward(x, mask=MASK)[0], decoder.forward(x, mask=MASK)[0])


def test_dropout_is_on_only_with_a_generator(rng):
    block = na.EncoderBlock(12, 3, 7, rng, dropout=0.4)
    same = na.EncoderBlock(12, 3, 7, None)
    same.load_parameters(block.parameters())
    x = rng.standard_normal((2, 5, 12)).astype(np.float32)
    np.testing.assert_array_equal(block.forward(x)[0], same.forward(x, rng=rng)[0])
    assert not np.allclose(block.forward(x, rng=rng)[0], block.forward(x)[0])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: na.EncoderBlock(4, 2, 8, None, norm="batch_norm"), 'norm must be "layer_norm" or "rms_norm"'),
        (lambda: na.EncoderBlock(4, 2, 8, None, dropout=1.0), r"EncoderBlock: dropout must be in \[0, 1\), got 1.0"),
        (lambda: na.EncoderBlock(4, 2, 8, None).forward(X, X), "EncoderBlock: context .* got an array"),
        (lambda: na.DecoderBlock(4, 2, 8, None).forward(X, X), "DecoderBlock: context .* got an array"),
        (
            lambda: na.DecoderBlock(4, 2, 8, None, cross_attention=True).forward(X),
            "DecoderBlock: context .* got None.* built with cross_attention=True",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_refuses_invalid_arguments(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_block_works_with_length_batch_and_heads_of_one(rng):
    for block in (na.EncoderBlock(3, 1, 5, rng), na.DecoderBlock(3, 1, 5, rng, pre_norm=True)):
        y, cache = block.forward(rng.standard_normal((1, 1, 3)).astype(np.float32))
        dx, _ = block.backward(np.ones_like(y), cache)
        assert y.shape == dx.shape == (1, 1, 3)
        assert np.isfinite(y).all()
        assert np.isfinite(dx).all()


@pytest.mark.parametrize("cross_attention", [False, True])
def test_gradients_have_the_names_of_the_parameters(cross_attention, rng):
    block = na.DecoderBlock(12, 3, 7, rng, cross_attention=cross_attention)
    context = rng.standard_normal((2, 5, 12)).astype(np.float32) if cross_attention else None
    y, cache = block.forward(rng.standard_normal((2, 4, 12)).astype(np.float32), context)
    *_, grads = block.backward(y, cache)
    assert grads.keys() == block.parameters().keys()
