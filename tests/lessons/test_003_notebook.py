"""Lesson 003, parts 1 to 5: attention, many heads, positions, and the encoder block, forward and backward."""

import math
from collections.abc import Callable

import numpy as np
import pytest

import numpy_attention as na
from numpy_attention import plots


def attention_of_the_notebook(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    scores = np.einsum("...qd,...kd->...qk", q, k) / np.sqrt(q.shape[-1])
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = e / e.sum(axis=-1, keepdims=True)
    return np.einsum("...qk,...kd->...qd", weights, v), weights


def heads_of_the_notebook(p: dict[str, np.ndarray], x: np.ndarray, num_heads: int) -> np.ndarray:
    """The notebook's multi-head self-attention, head by head, with column slices instead of reshape and transpose."""
    d_k = x.shape[-1] // num_heads
    heads = []
    for h in range(num_heads):
        own = slice(h * d_k, (h + 1) * d_k)
        heads.append(attention_of_the_notebook(*(x @ p[name][:, own] for name in ("w_q", "w_k", "w_v")))[0])
    return np.concatenate(heads, axis=-1) @ p["w_o"]


def norm_of_the_notebook(x: np.ndarray, gamma: np.ndarray, beta: np.ndarray) -> np.ndarray:
    centred = x - x.mean(axis=-1, keepdims=True)
    return gamma * centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-6) + beta


def slope_along(f: Callable[[], float], arrays: list[np.ndarray], directions: list[np.ndarray]) -> float:
    """The derivative of f() when every array moves along its direction: one Richardson step of differences."""
    def central(h: float) -> float:
        values = []
        for sign in (1, -1):
            for array, direction in zip(arrays, directions):
                array += sign * h * direction
            values.append(f())
            for array, direction in zip(arrays, directions):
                array -= sign * h * direction
        return (values[0] - values[1]) / (2 * h)

    return (4 * central(5e-4) - central(1e-3)) / 3


class TestAttention:
    """Part 2: length 4, d_k = d_v = 8, and sizes that the notebook allows but does not try."""

    def test_the_demo_has_its_shapes_and_its_rows_sum_to_one(self, rng: np.random.Generator) -> None:
        q, k, v = rng.standard_normal((3, 4, 8))
        y, cache = na.scaled_dot_product_attention(q, k, v)
        expected, weights = attention_of_the_notebook(q, k, v)
        assert (y.shape, cache.weights.shape) == ((4, 8), (4, 4))
        np.testing.assert_allclose(cache.weights.sum(axis=-1), 1.0, rtol=1e-14)
        np.testing.assert_allclose(y, expected, rtol=1e-12)
        np.testing.assert_allclose(cache.weights, weights, rtol=1e-12)

    def test_queries_and_keys_of_different_number_and_values_of_another_width(self, rng: np.random.Generator) -> None:
        q, k, v = rng.standard_normal((2, 3, 5)), rng.standard_normal((2, 7, 5)), rng.standard_normal((2, 7, 4))
        y, cache = na.scaled_dot_product_attention(q, k, v)
        np.testing.assert_allclose(y, attention_of_the_notebook(q, k, v)[0], rtol=1e-12)
        assert (y.shape, cache.weights.shape) == ((2, 3, 4), (2, 3, 7))
        mask = rng.random((2, 3, 7)) < 0.6
        mask[..., 0] = True
        for option in ({}, {"mask": mask}):
            report = na.gradcheck.gradcheck(
                na.scaled_dot_product_attention, na.scaled_dot_product_attention_backward, (q, k, v), **option
            )
            assert report.error < 1e-8

    def test_boolean_mask_has_the_same_meaning(self, rng: np.random.Generator) -> None:
        q, k, v = rng.standard_normal((3, 4, 8))
        mask = np.tri(4, dtype=bool)
        scores = np.where(mask, q @ k.T / np.sqrt(8), -1e9)
        e = np.exp(scores - scores.max(axis=-1, keepdims=True))
        expected = e / e.sum(axis=-1, keepdims=True) @ v
        np.testing.assert_allclose(na.scaled_dot_product_attention(q, k, v, mask=mask)[0], expected, rtol=1e-12)

    def test_the_heat_map_shows_two_decimals_in_each_cell_and_a_colour_bar(self, rng: np.random.Generator) -> None:
        _, cache = na.scaled_dot_product_attention(*rng.standard_normal((3, 4, 8)))
        axes, bar = plots.attention_map(cache.weights).axes
        assert sorted(t.get_text() for t in axes.texts) == sorted(f"{w:.2f}" for w in cache.weights.ravel())
        assert bar.get_ylabel() == "weight"


class TestManyHeads:
    """Part 3: x (2, 6, 64), eight heads."""

    def test_the_demo_forward(self, rng: np.random.Generator) -> None:
        layer = na.MultiHeadAttention(64, 8, rng, dtype=np.float64)
        x = rng.standard_normal((2, 6, 64))
        y, cache = layer.forward(x)
        assert y.shape == (2, 6, 64)
        assert cache.attention.weights.shape == (2, 8, 6, 6)
        np.testing.assert_allclose(y, heads_of_the_notebook(layer.parameters(), x, 8), rtol=1e-10, atol=1e-12)

    def test_the_demo_backward_along_random_directions(self, rng: np.random.Generator) -> None:
        layer = na.MultiHeadAttention(64, 8, rng, dtype=np.float64)
        x, dy = rng.standard_normal((2, 2, 6, 64))
        _, cache = layer.forward(x)
        dx, grads = layer.backward(dy, cache)
        p = layer.parameters()
        for array, gradient in [(x, dx), *((p[name], grads[name]) for name in p)]:
            v = rng.standard_normal(array.shape)
            slope = slope_along(lambda: float(np.sum(dy * heads_of_the_notebook(p, x, 8))), [array], [v])
            assert np.sum(gradient * v) == pytest.approx(slope, rel=1e-7)

    def test_every_element_of_a_small_one(self, rng: np.random.Generator) -> None:
        layer = na.MultiHeadAttention(6, 3, rng, dtype=np.float64)
        assert na.gradcheck.gradcheck_layer(layer, {"x": rng.standard_normal((2, 4, 6))}).error < 1e-7

    def test_the_weights_start_with_glorots_scale(self, rng: np.random.Generator) -> None:
        p = na.MultiHeadAttention(64, 8, rng, dtype=np.float64).parameters()
        assert set(p) == {"w_q", "w_k", "w_v", "w_o"}
        for name, w in p.items():
            assert w.shape == (64, 64), name
            assert w.std() == pytest.approx(math.sqrt(2 / (64 + 8)), rel=5 / math.sqrt(2 * w.size)), name
            assert abs(w.mean()) < 5 * w.std() / math.sqrt(w.size), name

    def test_heads_that_do_not_divide_d_model_are_refused(self, rng: np.random.Generator) -> None:
        with pytest.raises(ValueError, match="d_model must be divisible by num_heads, got 64 and 7"):
            na.MultiHeadAttention(64, 7, rng)

    def test_keys_of_another_length_work(self, rng: np.random.Generator) -> None:
        layer = na.MultiHeadAttention(8, 2, rng, dtype=np.float64)
        x, context = rng.standard_normal((2, 3, 8)), rng.standard_normal((2, 5, 8))
        assert layer.forward(x, context)[0].shape == (2, 3, 8)
        assert na.gradcheck.gradcheck_layer(layer, {"x": x, "context": context}).error < 1e-7


class TestPositions:
    """Part 4: the table (50, 64)."""

    def test_every_number_of_the_table(self) -> None:
        table = na.sinusoidal_positions(50, 64, dtype=np.float64)
        assert table.shape == (50, 64)
        for t in range(50):
            for i in range(32):
                angle = t / 10000 ** (2 * i / 64)
                assert table[t, 2 * i] == pytest.approx(math.sin(angle), abs=1e-14)
                assert table[t, 2 * i + 1] == pytest.approx(math.cos(angle), abs=1e-14)

    @pytest.mark.parametrize("k", [1, 7, 30, -3])
    def test_pe_at_pos_plus_k_is_one_linear_map_of_pe_at_pos(self, k: int) -> None:
        """The map depends on k alone: turns of each (sin, cos) pair by the angle k f_i."""
        table = na.sinusoidal_positions(50, 64, dtype=np.float64)
        turn = np.zeros((64, 64))
        for i in range(32):
            a = k / 10000 ** (2 * i / 64)
            turn[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = [[math.cos(a), math.sin(a)], [-math.sin(a), math.cos(a)]]
        positions = [t for t in range(50) if 0 <= t + k < 50]
        np.testing.assert_allclose(table[positions] @ turn.T, table[[t + k for t in positions]], atol=1e-13)
        np.testing.assert_allclose(turn @ turn.T, np.eye(64), atol=1e-14)

    def test_only_positions_distinguish_shuffled_words(self, rng: np.random.Generator) -> None:
        x = rng.standard_normal((6, 8))
        order = rng.permutation(6)
        position = na.sinusoidal_positions(6, 8, dtype=np.float64)
        plain = na.scaled_dot_product_attention(x, x, x)[0]
        shuffled = na.scaled_dot_product_attention(x[order], x[order], x[order])[0]
        np.testing.assert_allclose(shuffled, plain[order], rtol=1e-12)
        placed, placed_shuffled = x + position, x[order] + position
        with_positions = na.scaled_dot_product_attention(placed, placed, placed)[0]
        moved = na.scaled_dot_product_attention(placed_shuffled, placed_shuffled, placed_shuffled)[0]
        assert np.abs(moved - with_positions[order]).max() > 0.01

    def test_odd_width_works(self) -> None:
        odd = na.sinusoidal_positions(10, 7, dtype=np.float64)
        angles = np.arange(10)[:, None] / 10000 ** (np.arange(0, 7, 2) / 7)
        np.testing.assert_allclose(odd[:, 0::2], np.sin(angles), atol=1e-14)
        np.testing.assert_allclose(odd[:, 1::2], np.cos(angles[:, :3]), atol=1e-14)


class TestBlock:
    """Part 5: the post-LN encoder block, x (2, 10, 64) with positions, eight heads, d_ff 256, eps 1e-6."""

    @staticmethod
    def block(rng: np.random.Generator, d_model: int, num_heads: int, d_ff: int) -> na.EncoderBlock:
        options = {"norm_eps": 1e-6, "attention": {"bias": False}, "dtype": np.float64}
        block = na.EncoderBlock(d_model, num_heads, d_ff, rng, **options)
        for name, p in block.parameters().items():  # ones and zeros would hide mistakes in the norms
            if "norm" in name or ".b_" in name:
                p += 0.3 * rng.standard_normal(p.shape)
        return block

    @staticmethod
    def block_of_the_notebook(p: dict[str, np.ndarray], x: np.ndarray, num_heads: int) -> np.ndarray:
        attention = {name.removeprefix("attention."): w for name, w in p.items() if name.startswith("attention.")}
        x = x + heads_of_the_notebook(attention, x, num_heads)
        x = norm_of_the_notebook(x, p["norm_1.gamma"], p["norm_1.beta"])
        hidden = np.maximum(0.0, x @ p["feed_forward.w_1"] + p["feed_forward.b_1"])
        fed = hidden @ p["feed_forward.w_2"] + p["feed_forward.b_2"]
        return norm_of_the_notebook(x + fed, p["norm_2.gamma"], p["norm_2.beta"])

    def test_layer_norm_with_its_eps(self, rng: np.random.Generator) -> None:
        x = 1e-3 * rng.standard_normal((2, 10, 64))  # so small that eps changes the result
        gamma, beta = rng.standard_normal((2, 64))
        y, _ = na.layer_norm(x, gamma, beta, eps=1e-6)
        np.testing.assert_allclose(y, norm_of_the_notebook(x, gamma, beta), rtol=1e-10, atol=1e-12)
        assert np.abs(na.layer_norm(x, gamma, beta)[0] - y).max() > 0.1, "eps 1e-5 is another function here"

    def test_the_demo_keeps_the_shape_and_gives_the_notebooks_numbers(self, rng: np.random.Generator) -> None:
        block = self.block(rng, 64, 8, 256)
        x = rng.standard_normal((2, 10, 64)) + na.sinusoidal_positions(10, 64, dtype=np.float64)
        y, cache = block.forward(x)
        assert y.shape == x.shape
        assert cache.attention.attention.weights.shape == (2, 8, 10, 10)
        np.testing.assert_allclose(y, self.block_of_the_notebook(block.parameters(), x, 8), rtol=1e-10, atol=1e-11)

    def test_the_demo_backward_along_a_random_direction_of_every_parameter(self, rng: np.random.Generator) -> None:
        block = self.block(rng, 64, 8, 256)
        x = rng.standard_normal((2, 10, 64)) + na.sinusoidal_positions(10, 64, dtype=np.float64)
        dy = rng.standard_normal(x.shape)
        _, cache = block.forward(x)
        dx, grads = block.backward(dy, cache)
        p = block.parameters()
        assert set(grads) == set(p)
        for name, array, gradient in [("x", x, dx), *((name, p[name], grads[name]) for name in p)]:
            v = rng.standard_normal(array.shape)
            # Random directions of length 1e-2: a longer step would move some relu input across 0.
            v *= 1e-2 / np.linalg.norm(v)
            slope = slope_along(lambda: float(np.sum(dy * self.block_of_the_notebook(p, x, 8))), [array], [v])
            assert np.sum(gradient * v) == pytest.approx(slope, rel=1e-5, abs=1e-9), name
