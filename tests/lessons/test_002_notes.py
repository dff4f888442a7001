"""Lesson 002: why 1 / sqrt(d_k), measured; padding masks for unequal lengths; why several heads."""

import math

import numpy as np
import pytest

import numpy_attention as na


@pytest.mark.parametrize("d_k", [4, 64])
def test_variance_of_a_dot_product_is_d_k_and_one_after_scaling(
    d_k: int, rng: np.random.Generator
) -> None:
    q, k = rng.standard_normal((2, 20_000, d_k))
    products = np.sum(q * k, axis=1)
    # A measured variance has the variance (kurtosis - 1) / n, with kurtosis 3 + 6 / d_k. Five standard deviations.
    tolerance = 5 * math.sqrt((2 + 6 / d_k) / len(products))
    assert products.var() == pytest.approx(d_k, rel=tolerance)
    assert (products / math.sqrt(d_k)).var() == pytest.approx(1.0, rel=tolerance)


def test_a_variance_of_sigma_squared_gives_sigma_to_the_fourth(rng: np.random.Generator) -> None:
    """The notes state 'd_k times higher' for variance sigma^2; for two vectors of this variance it is d_k sigma^4."""
    q, k = 3.0 * rng.standard_normal((2, 20_000, 16))
    assert np.sum(q * k, axis=1).var() == pytest.approx(16 * 3.0**4, rel=0.1)


def saturation(scale: float, rng: np.random.Generator, d_k: int = 512, T: int = 10) -> tuple[float, float]:
    """The mean of the largest weight, and the mean size of dscores for a random dweights."""
    q, k = rng.standard_normal((2, 200, T, d_k))
    weights, cache = na.softmax(scale * q @ k.swapaxes(-1, -2))
    dscores = na.softmax_backward(rng.standard_normal(weights.shape), cache)
    return float(weights.max(axis=-1).mean()), float(np.abs(dscores).mean())


def test_unscaled_softmax_saturates_and_has_small_gradients(rng: np.random.Generator) -> None:
    largest_scaled, gradient_scaled = saturation(1 / math.sqrt(512), rng)
    largest_plain, gradient_plain = saturation(1.0, rng)
    assert largest_scaled < 0.4
    assert largest_plain > 0.9
    assert gradient_plain < gradient_scaled / 4


def test_the_gradient_falls_as_the_width_grows_only_without_the_scale(rng: np.random.Generator) -> None:
    widths = (4, 64, 1024)
    plain = [saturation(1.0, rng, d_k)[1] for d_k in widths]
    scaled = [saturation(1 / math.sqrt(d_k), rng, d_k)[1] for d_k in widths]
    assert plain[0] > 2 * plain[1] > 4 * plain[2]
    assert max(scaled) < 1.2 * min(scaled)


class TestPadding:
    LENGTHS = (2, 5, 3)

    def test_a_padded_batch_gives_what_each_sequence_gives_alone(self, rng: np.random.Generator) -> None:
        T, d_k, d_v = max(self.LENGTHS), 4, 6
        q, k = rng.standard_normal((2, 3, T, d_k))
        v, dy = rng.standard_normal((2, 3, T, d_v))
        mask = na.padding_mask(np.array(self.LENGTHS), T)[:, 0]  # (B, 1, T)
        y, cache = na.scaled_dot_product_attention(q, k, v, mask=mask)
        for b, length in enumerate(self.LENGTHS):
            dy[b, length:] = 0.0  # the output at padding is not used
        dq, dk, dv, _ = na.scaled_dot_product_attention_backward(dy, cache)
        for b, n in enumerate(self.LENGTHS):
            alone, alone_cache = na.scaled_dot_product_attention(q[b, :n], k[b, :n], v[b, :n])
            np.testing.assert_allclose(y[b, :n], alone, rtol=1e-12, atol=1e-14)
            for padded, single in zip((dq, dk, dv), na.scaled_dot_product_attention_backward(dy[b, :n], alone_cache)):
                np.testing.assert_allclose(padded[b, :n], single, rtol=1e-12, atol=1e-14)
                assert np.all(padded[b, n:] == 0.0)

    def test_the_padding_may_hold_anything(self, rng: np.random.Generator) -> None:
        q, k, v = rng.standard_normal((3, 3, 5, 4))
        mask = na.padding_mask(np.array(self.LENGTHS), 5)[:, 0]
        y, _ = na.scaled_dot_product_attention(q, k, v, mask=mask)
        for b, n in enumerate(self.LENGTHS):
            k[b, n:], v[b, n:] = 1e3 * rng.standard_normal((2, 5 - n, 4))
        again, _ = na.scaled_dot_product_attention(q, k, v, mask=mask)
        for b, n in enumerate(self.LENGTHS):
            np.testing.assert_array_equal(again[b, :n], y[b, :n])

    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    @pytest.mark.parametrize("fill", [-1e9, -9e15, -np.inf])
    def test_mask_from_additive_reads_the_large_negative_values_of_the_notes(
        self, fill: float, dtype: type, rng: np.random.Generator
    ) -> None:
        visible = na.padding_mask(np.array(self.LENGTHS), 5)
        additive = np.where(visible, 0.0, fill).astype(dtype)
        assert np.array_equal(na.mask_from_additive(additive), visible)


def test_heads_are_subsets_that_attend_independently(rng: np.random.Generator) -> None:
    layer = na.MultiHeadAttention(12, 3, rng, dtype=np.float64)
    x, dy = rng.standard_normal((2, 2, 5, 12))
    y, cache = layer.forward(x)
    dx, grads = layer.backward(dy, cache)

    heads, columns = [], [slice(4 * h, 4 * h + 4) for h in range(3)]
    for column in columns:  # each head alone, with its own columns of the three matrices
        q, k, v = x @ layer.w_q[:, column], x @ layer.w_k[:, column], x @ layer.w_v[:, column]
        heads.append(na.scaled_dot_product_attention(q, k, v))
    np.testing.assert_allclose(y, np.concatenate([y_h for y_h, _ in heads], axis=-1) @ layer.w_o, rtol=1e-12)

    dx_sum, dconcat = np.zeros_like(x), dy @ layer.w_o.T
    for column, (_, head_cache) in zip(columns, heads):
        gradients = na.scaled_dot_product_attention_backward(np.ascontiguousarray(dconcat[..., column]), head_cache)
        for name, dprojected in zip(("w_q", "w_k", "w_v"), gradients):
            expected = np.einsum("bti,btj->ij", x, dprojected)
            np.testing.assert_allclose(grads[name][:, column], expected, rtol=1e-11, atol=1e-13)
            dx_sum += dprojected @ getattr(layer, name)[:, column].T
    np.testing.assert_allclose(dx, dx_sum, rtol=1e-11, atol=1e-13)
