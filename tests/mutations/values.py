"""Compares functions without a backward with plain formulas: masks, positions, the error function."""

import math
import sys
from typing import Any

import numpy as np

from numpy_attention.ops.attention import scaled_dot_product_attention
from numpy_attention.ops.masks import causal_mask, sliding_window_mask
from numpy_attention.ops.positions import alibi_bias, alibi_slopes
from numpy_attention.ops.tiled_attention import tiled_attention
from numpy_attention.ops.tiles import FEW_SCORES, TILE_ELEMENTS, Band, TileSize
from numpy_attention.recent.convolution import causal_convolution
from numpy_attention.threads import lend
from tests.ops.test_positions import PUBLISHED


def _masks(make: Any, rule: Any, *options: Any) -> None:
    for T_q, T_k in ((3, None), (4, 4), (2, 5), (5, 2), (1, 4), (0, None), (0, 3), (3, 0)):
        mask = make(T_q, *options, *(() if T_k is None else (T_k,)))
        T_k = T_q if T_k is None else T_k
        assert mask.shape == (T_q, T_k)
        expected = [[rule(i + T_k - T_q, j) for j in range(T_k)] for i in range(T_q)]
        assert mask.dtype == bool
        assert mask.tolist() == expected


def _windows(make: Any) -> None:
    _masks(make, lambda at, j: at - 2 < j <= at, 2)
    for ahead in (1, 2, 100):
        of_encoder = lambda T_q, T_k=None, ahead=ahead: make(T_q, 2, T_k, ahead)  # noqa: E731
        _masks(of_encoder, lambda at, j, ahead=ahead: at - 2 < j <= at + ahead)


def _sinusoids(make: Any) -> None:
    for length, d in ((5, 6), (3, 5), (1, 1)):
        table = make(length, d, np.float64)
        for t in range(length):
            for i in range(d):
                angle = t * 10000 ** (-2 * (i // 2) / d)
                assert math.isclose(table[t, i], math.cos(angle) if i % 2 else math.sin(angle), abs_tol=1e-12)


def _rotations(make: Any) -> None:
    rng = np.random.default_rng(0)
    for pairing in ("half", "interleaved"):
        x, positions = rng.standard_normal((3, 6)), np.array([0, 7, 3])
        y, _ = make(x, positions, base=50.0, pairing=pairing)
        for t, place in enumerate(positions):
            for i in range(3):
                a, b = (i, i + 3) if pairing == "half" else (2 * i, 2 * i + 1)
                turned = (x[t, a] + 1j * x[t, b]) * np.exp(1j * place * 50.0 ** (-2 * i / 6))
                assert np.allclose([y[t, a], y[t, b]], [turned.real, turned.imag])


def _slopes(make: Any) -> None:
    assert np.allclose(make(8), [2.0**-h for h in range(1, 9)])
    assert np.allclose(make(2), [2.0**-4, 2.0**-8])
    assert np.allclose(make(6), [2.0**-2, 2.0**-4, 2.0**-6, 2.0**-8, 2.0**-1, 2.0**-3])
    assert np.allclose(make(7), [2.0**-2, 2.0**-4, 2.0**-6, 2.0**-8, 2.0**-1, 2.0**-3, 2.0**-5])


def _frequencies(make: Any) -> None:
    assert np.allclose(make(6, 50.0), [50.0 ** (-2 * i / 6) for i in range(3)])
    for name, (width, base, scaling, published) in PUBLISHED.items():
        assert np.allclose(make(width, base, {"type": name.partition(",")[0], **scaling}), published, rtol=1e-6, atol=0)


def _temperature(make: Any) -> None:
    assert [make(factor) for factor in (1.0, math.e**10)] == [1.0, 2.0]


def _alibi(make: Any) -> None:
    for T_q, T_k in ((3, None), (2, 4)):
        bias = make(2, T_q, T_k, np.float64)
        K = T_k or T_q
        for h, i, j in np.ndindex(2, T_q, K):
            assert math.isclose(bias[h, i, j], -(2.0 ** (-4 * (h + 1))) * abs(i + K - T_q - j), abs_tol=1e-15)


def _padding(make: Any) -> None:
    mask = make(np.array([0, 2, 3]), 3)
    assert mask.shape == (3, 1, 1, 3)
    assert mask[:, 0, 0].tolist() == [[False] * 3, [True, True, False], [True] * 3]
    assert make([1], 2)[0, 0, 0].tolist() == [True, False]


def _erf(erf: Any) -> None:
    x = np.concatenate([np.linspace(-7, 7, 4001), [0.0, 1e-300, -1e-9, 30.0, -40.0, 0.5, 1.0, 2.0, 4.0]])
    exact = np.array([math.erf(t) for t in x])
    assert np.max(np.abs(erf(x) - exact)) <= 1e-15
    narrow = erf(x.astype(np.float32))
    assert narrow.dtype == np.float32
    assert np.max(np.abs(narrow - exact)) <= 5e-7


def _blocked(adapt: Any) -> None:
    assert adapt(np.array([[0, 1], [1, 0]])).tolist() == [[True, False], [False, True]]


def _additive(adapt: Any) -> None:
    assert adapt(np.array([0.0, -1e9, -np.inf, -1e4])).tolist() == [True, False, False, False]


def _tile_size(size: Any) -> None:
    assert [size(None, T, True) for T in (1, 2048, 2049)] == [(128, 512), (128, 512), (256, 512)]
    assert [size(None, T, False) for T in (1, 2048, 2049)] == [(512, 512)] * 3
    assert [size(3, 5, causal) for causal in (True, False)] == [(3, 3)] * 2


def _head_tiles(tiles: Any) -> None:
    """Every head occurs once; each tile contains as many heads as its number of elements allows."""
    for N, G, T_q, T_k, size in (
        (7, 1, 300, 200, (400, 401)), (5, 3, 5, 4, (2, 3)), (9, 2, 900, 900, (200, 200)), (4, 1, 999, 999, (999, 1000)),
        (TILE_ELEMENTS + 1, 1, 1, 1, (1, 2)), (FEW_SCORES, 1, 1, 1, (1, 2)), (FEW_SCORES + 1, 1, 1, 1, (1, 2)),
    ):
        elements = G * min(size[0], T_q) * min(size[1], T_k)
        most = max(1, TILE_ELEMENTS // elements)
        for lent in (1, 2, 3):
            threads = lent if N * elements > FEW_SCORES else 1
            with lend(lambda work, items: None, lent):
                found = list(tiles((N, G, T_q, 8), T_k, TileSize(*size)))
            assert [head for heads in found for head in range(heads.start, heads.stop)] == [*range(N)]
            sizes = [heads.stop - heads.start for heads in found]
            assert len(sizes) == min(N, threads * -(-N // (threads * most)))
            assert sizes == sorted(sizes, reverse=True)
            assert sizes[0] - sizes[-1] <= 1
            assert sizes[0] <= most


def _query_tiles(tiles: Any) -> None:
    for T_q, block in ((300, 400), (5, 2), (900, 100), (1, 1)):
        rows_of = [(row, min(row + block, T_q)) for row in range(0, T_q, block)]
        assert [(rows.start, rows.stop) for rows in tiles(T_q, TileSize(block, 7))] == rows_of


def _key_tiles(tiles: Any) -> None:
    """All keys; with a band, the keys from the farthest to the nearest that one of the queries may see."""
    for T_q, T_k, block in ((5, 5, 2), (2, 7, 3), (7, 2, 2), (9, 9, 1)):
        for row in range(0, T_q, block):
            rows = slice(row, min(row + block, T_q))
            for band in (Band(), Band(True), Band(True, 1), Band(True, 3), Band(True, 20), Band(False, 2, None, 1),
                         Band(ahead=3)):
                places = [i + T_k - T_q for i in range(rows.start, rows.stop)]
                expected = [j for j in range(T_k) if j <= places[-1] + band.last_ahead]
                expected = [j for j in expected if band.window is None or j > places[0] - band.window]
                found = list(tiles(rows, T_q, T_k, TileSize(99, block), band))
                assert [j for columns in found for j in range(T_k)[columns]] == expected
                assert all(0 < columns.stop - columns.start <= block for columns in found)


def _pairs(pairs: Any) -> None:
    """In every tile, the bias of Chapter 8 and the masks of Chapter 4."""
    rng = np.random.default_rng(0)
    for lead, G, T_q, T_k, shape, t in (
        ((2, 4), 2, 5, 7, (2, 1, 5, 7), 2), ((2, 2), 1, 7, 4, (1, 7, 1), 2), ((3, 2), 2, 6, 6, (3, 2, 1, 6), 2),
        ((1, 4), 2, 4, 4, None, 2), ((3,), 1, 2, 2, (3, 2, 2), 1), ((3,), 1, 4, 3, (4, 3), 2)
    ):
        H, groups = lead[-1], (int(np.prod(lead)) // G, G)
        mask = None if shape is None else rng.random(shape) < 0.7
        scores = rng.standard_normal((*lead, T_q, T_k))
        for band in (Band(), Band(True), Band(True, 1), Band(True, 3), Band(False, None, alibi_slopes(H)),
                     Band(True, 2, alibi_slopes(H)), Band(False, 2, None, 1), Band(ahead=2)):
            expected = scores - (0 if band.slopes is None else -alibi_bias(H, T_q, T_k, np.float64))
            seen = sliding_window_mask(T_q, band.window or T_q + T_k, T_k, min(band.last_ahead, T_q + T_k))
            expected = np.where(seen if mask is None else seen & mask, expected, -np.inf)
            made = pairs(mask, band, scores[..., :3], T_k, groups)
            for head, row, column in np.ndindex(groups[0], T_q - t + 1, T_k - t + 1):
                place = slice(head, head + 1), slice(None), slice(row, row + t), slice(column, column + t)
                tile = scores.reshape(*groups, T_q, T_k)[place].reshape(1, G * t, t).copy()
                made.apply_band(tile, place[0], place[2], place[3])
                wanted = expected.reshape(*groups, T_q, T_k)[place]
                assert np.allclose(tile.reshape(wanted.shape), wanted, rtol=1e-14)


def _tile_dropout(made: Any) -> None:
    """Equal numbers for equal tiles, different numbers for different tiles; the right rate, and a mean of one."""
    drop, s = made(0.3, 5), np.zeros((1, 300, 200))
    one, two, head, other_head = slice(0, 300), slice(300, 600), slice(3, 4), slice(4, 5)
    factors = drop.factors(s, head, one, one)
    assert factors.shape == s.shape
    assert np.allclose(np.unique(factors), [0.0, 1 / 0.7])
    assert abs((factors == 0.0).mean() - 0.3) < 0.01
    assert np.array_equal(factors, drop.factors(s, head, one, one))
    others = [drop.factors(s, other_head, one, one), drop.factors(s, head, two, one), drop.factors(s, head, one, two)]
    others.append(made(0.3, 6).factors(s, head, one, one))
    both = drop.factors(np.zeros((2, 300, 200)), slice(3, 5), one, one)
    assert np.array_equal(both, np.concatenate([factors, others[0]]))
    for i, other in enumerate(others):  # independent: neither equal nor shifted
        assert abs((factors * other).mean() - 1.0) < 0.03
        assert not any(np.array_equal(other, third) for third in others[:i])
    assert made(0.3, None).factors(s, head, one, one) is None


def _drawn_keys(attend: Any) -> None:
    def key(rate: float, rng: np.random.Generator | None) -> Any:
        x = np.zeros((1, 1, 2))
        return attend(x, x, x, dropout=rate, rng=rng)[1].dropout.key

    keys = [key(0.3, np.random.default_rng(seed)) for seed in (0, 0, 1)]
    assert keys[0] == keys[1] != keys[2]
    assert key(0.3, None) is None
    assert key(0.0, np.random.default_rng(0)) is None


def _weights(weights_of: Any) -> None:
    """The weights of Chapter 6, with heads that share keys, with one head axis, and without a head axis."""
    rng = np.random.default_rng(0)
    for lead, lead_k in (((2, 4), (2, 2)), ((3,), (3,)), ((), ())):
        q, k, v = (rng.standard_normal(shape) for shape in ((*lead, 5, 3), (*lead_k, 7, 3), (*lead_k, 7, 2)))
        mask = rng.random((*lead, 5, 7)) < 0.8
        _, cache = tiled_attention(q, k, v, mask, causal=True, scale=0.7, block_size=2)
        _, plain = scaled_dot_product_attention(q, k, v, mask & causal_mask(5, 7), scale=0.7)
        assert np.allclose(weights_of(cache), plain.weights)


def _sums(sum_of: Any, exact: Any) -> None:
    x = np.random.default_rng(0).standard_normal((3, 4, 5))
    for axis in (0, 1, 2, -1):
        assert np.allclose(sum_of(x, axis), exact(x, axis))


def _sum_over_rows(sum_of: Any) -> None:
    x = np.random.default_rng(0).standard_normal((3, 4))
    assert np.allclose(sum_of(x), x.sum(axis=0))


def _sum_to_shape(summed: Any) -> None:
    x = np.random.default_rng(0).standard_normal((3, 4, 2))
    for shape, exact in (((), x.sum()), ((2,), x.sum((0, 1))), ((4, 1), x.sum((0, 2))[:, None]), ((3, 4, 2), x)):
        found = summed(x, shape)
        assert found.shape == shape
        assert np.allclose(found, exact)
        assert not np.shares_memory(found, x)


def _folds(fold: Any) -> None:
    """The rows of query heads that share a key head are below each other, in the order of the heads, for any axes."""
    for lead, H_kv, G in (((2, 3), 2, 2), ((2,), 3, 2), ((1,), 1, 3), ((2, 2), 2, 1)):
        x, k = np.arange(np.prod(lead) * H_kv * G * 20.0).reshape(*lead, H_kv * G, 4, 5), np.zeros((*lead, H_kv, 7, 6))
        folded = fold(x, k)
        assert folded.shape == (*lead, H_kv, G * 4, 5)
        for h in range(H_kv * G):
            below = (h % G) * 4
            assert np.array_equal(folded[..., h // G, below : below + 4, :], x[..., h, :, :])


def _add_at(add_at: Any) -> None:
    """Two tokens, each at many places: this code does not run with the catalogue's small arrays."""
    rng = np.random.default_rng(0)
    ids, dy, dtable = rng.integers(0, 2, 137), rng.standard_normal((137, 61)), rng.standard_normal((3, 61))
    exact = dtable + np.eye(3)[ids].T @ dy
    add_at(dtable, ids, dy)
    assert np.allclose(dtable, exact)


def _state_gradient(backward: Any) -> None:
    """Two tokens and four weights: the last state is the last row of the old state, and x."""
    x, state, d = np.random.default_rng(0).standard_normal((3, 3, 2))
    y, cache = causal_convolution(x[1:], np.ones((2, 4)), state=state)
    (dx, _, _, dstate), (dx_0, _, _, dstate_0) = backward(y, cache, d), backward(y, cache)
    assert np.allclose(np.concatenate([dstate - dstate_0, dx - dx_0]), np.concatenate([np.zeros((2, 2)), d]))


def _band(band: Any) -> None:
    ahead = [made.last_ahead for made in (band(causal=True), band(window=3, ahead=2), band())]
    assert ahead == [0, 2, sys.maxsize]


def _grouped(grouped: Any) -> None:
    """One token, one number: no entry of the catalogue draws such sizes."""
    one = np.ones((1, 1))
    assert [x.shape for x in grouped(one, one, one, None, None, None) if x is not None] == [(1, 1, 1)] * 4


def _wide(wide: Any) -> None:
    for dtype, wider in ((np.float16, np.float32), (np.float32, np.float32), (np.float64, np.float64)):
        assert wide(np.ones(2, dtype)).dtype == wider


VALUES: dict[str, Any] = {
    "causal_mask": lambda make: _masks(make, lambda at, j: j <= at),
    "sliding_window_mask": _windows,
    "padding_mask": _padding, "mask_from_blocked": _blocked, "mask_from_additive": _additive,
    "sinusoidal_positions": _sinusoids, "rotary": _rotations, "rotary_frequencies": _frequencies,
    "yarn_temperature": _temperature, "alibi_slopes": _slopes, "alibi_bias": _alibi,
    "erf": _erf, "tile_size": _tile_size, "head_tiles": _head_tiles, "query_tiles": _query_tiles,
    "key_tiles": _key_tiles, "Pairs": _pairs, "TileDropout": _tile_dropout,
    "tiled_attention": _drawn_keys, "tiled_attention_weights": _weights,
    "sum_over_rows": _sum_over_rows, "sum_to_shape": _sum_to_shape, "wide": _wide, "fold_heads": _folds,
    "add_at": _add_at, "Band": _band, "grouped": _grouped, "causal_convolution_backward": _state_gradient,
    "max_in_rows": lambda largest: _sums(largest, lambda x, axis: x.max(axis, keepdims=True)),
    "sum_in_rows": lambda sums: _sums(sums, lambda x, axis: x.sum(axis, keepdims=True)),
    "dot_in_rows": lambda dots: _sums(lambda x, axis: dots(x, 1 - x, axis),
                                      lambda x, axis: (x * (1 - x)).sum(axis, keepdims=True)),
}


def is_defined_in(module: Any, name: str) -> bool:
    """Whether a function or class of this name is defined in the module, not imported there."""
    return hasattr(module, name) and getattr(module, name).__module__ == module.__name__
