"""What has no backward is held to plain formulas: masks, positions, the error function."""

import math
from typing import Any

import numpy as np

from numpy_attention.ops.tiled_attention import _TILE_ELEMENTS


def _masks(make: Any, rule: Any, *options: Any) -> None:
    for T_q, T_k in ((3, None), (4, 4), (2, 5), (5, 2), (1, 4)):
        mask = make(T_q, *options, *(() if T_k is None else (T_k,)))
        T_k = T_k or T_q
        expected = [[rule(i + T_k - T_q, j) for j in range(T_k)] for i in range(T_q)]
        assert mask.dtype == bool
        assert mask.tolist() == expected


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


def _query_tiles(tiles: Any) -> None:
    """Every query of every head once, and as many heads at once as a tile of so many elements holds."""
    for N, G, T_q, T_k, block in (
        (7, 1, 300, 200, 400), (5, 3, 5, 4, 2), (9, 2, 900, 900, 100), (4, 1, 999, 999, 999),
        (_TILE_ELEMENTS, 1, 1, 1, 1)
    ):
        most = max(1, _TILE_ELEMENTS // (G * min(block, T_q) * min(block, T_k)))
        found = list(tiles((N, G, T_q, 8), T_k, block))
        pairs = [(heads.start, rows.start, rows.stop) for heads, rows in found]
        rows_of = [(row, min(row + block, T_q)) for row in range(0, T_q, block)]
        assert pairs == [(head, *rows) for head in range(0, N, most) for rows in rows_of]
        assert all(heads.stop - heads.start == most for heads, _ in found)


def _key_tiles(tiles: Any) -> None:
    """All keys, or with a causal mask those that one of the queries may see, and no more."""
    for T_q, T_k, block in ((5, 5, 2), (2, 7, 3), (7, 2, 2)):
        for row in range(0, T_q, block):
            rows = slice(row, min(row + block, T_q))
            for causal, end in ((False, T_k), (True, max(0, min(T_k, rows.stop + T_k - T_q)))):
                found = [range(T_k)[columns] for columns in tiles(rows, T_q, T_k, block, causal)]
                assert [j for columns in found for j in columns] == list(range(end))


def _sums(sum_of: Any, exact: Any) -> None:
    x = np.random.default_rng(0).standard_normal((3, 4, 5))
    for axis in (0, 1, 2, -1):
        assert np.allclose(sum_of(x, axis), exact(x, axis))


def _sum_over_rows(sum_of: Any) -> None:
    x = np.random.default_rng(0).standard_normal((3, 4))
    assert np.allclose(sum_of(x), x.sum(axis=0))


def _folds(fold: Any) -> None:
    """Every number of a query head below those of the heads before it that share its key head, under any axes."""
    for lead, H_kv, G in (((2, 3), 2, 2), ((2,), 3, 2), ((1,), 1, 3), ((2, 2), 2, 1)):
        x, k = np.arange(np.prod(lead) * H_kv * G * 20.0).reshape(*lead, H_kv * G, 4, 5), np.zeros((*lead, H_kv, 7, 6))
        folded = fold(x, k)
        assert folded.shape == (*lead, H_kv, G * 4, 5)
        for h in range(H_kv * G):
            below = (h % G) * 4
            assert np.array_equal(folded[..., h // G, below : below + 4, :], x[..., h, :, :])


def _add_at(add_at: Any) -> None:
    """Two tokens, each at many places: a way that the catalogue's small arrays do not take."""
    rng = np.random.default_rng(0)
    ids, dy, dtable = rng.integers(0, 2, 137), rng.standard_normal((137, 61)), rng.standard_normal((3, 61))
    exact = dtable + np.eye(3)[ids].T @ dy
    add_at(dtable, ids, dy)
    assert np.allclose(dtable, exact)


def _wide(wide: Any) -> None:
    for dtype, wider in ((np.float16, np.float32), (np.float32, np.float32), (np.float64, np.float64)):
        assert wide(np.ones(2, dtype)).dtype == wider


VALUES: dict[str, Any] = {
    "causal_mask": lambda make: _masks(make, lambda at, j: j <= at),
    "sliding_window_mask": lambda make: _masks(make, lambda at, j: at - 2 < j <= at, 2),
    "padding_mask": _padding, "mask_from_blocked": _blocked, "mask_from_additive": _additive,
    "sinusoidal_positions": _sinusoids, "rotary": _rotations, "alibi_slopes": _slopes, "alibi_bias": _alibi,
    "erf": _erf, "_query_tiles": _query_tiles, "_key_tiles": _key_tiles,
    "sum_over_rows": _sum_over_rows, "wide": _wide, "fold_heads": _folds,
    "add_at": _add_at,
    "max_in_rows": lambda largest: _sums(largest, lambda x, axis: x.max(axis, keepdims=True)),
    "sum_in_rows": lambda sums: _sums(sums, lambda x, axis: x.sum(axis, keepdims=True)),
    "dot_in_rows": lambda dots: _sums(lambda x, axis: dots(x, 1 - x, axis),
                                      lambda x, axis: (x * (1 - x)).sum(axis, keepdims=True)),
}
VALUE_CHAPTERS = dict.fromkeys(VALUES, "masks") | {
    "sinusoidal_positions": "positions", "rotary": "positions", "alibi_slopes": "positions", "alibi_bias": "positions",
    "erf": "erf", "_query_tiles": "tiled_attention", "_key_tiles": "tiled_attention",
    "sum_over_rows": "sums", "sum_in_rows": "sums", "dot_in_rows": "sums", "max_in_rows": "sums",
    "wide": "sums",
    "fold_heads": "attention", "add_at": "embedding",
}
