"""Chapter 12, appendix: the cost of a band, the mask, and the parts of the heads."""

import math

import numpy as np
import pytest

import numpy_attention as na
from numpy_attention.ops import c12a_tiles as tiles
from numpy_attention.threads import lend


@pytest.mark.parametrize("block_size", [64, None])
def test_number_of_tiles_of_a_window_grows_linearly_with_the_text(block_size: int | None) -> None:
    size = tiles.tile_size(block_size, 4096, na.Band(causal=True))

    def scores(T: int, band: na.Band) -> int:
        rows = list(tiles.query_tiles(T, size))
        cut = ((r, c) for r in rows for c in tiles.key_tiles(r, T, T, size, band))
        return sum((r.stop - r.start) * (c.stop - c.start) for r, c in cut)

    window = na.Band(causal=True, window=100)
    assert scores(4096, window) <= 4096 * (100 + size.queries)
    assert scores(4096, na.Band(causal=True)) > 4096 * 2048


def test_mask_is_not_widened_to_all_heads() -> None:
    q, mask = np.zeros((3, 4, 50, 2)), np.ones((3, 1, 50, 60), bool)
    pairs = tiles.Pairs(mask, na.Band(), q, np.zeros((3, 4, 60, 2)))
    assert pairs.mask is not None
    assert np.shares_memory(pairs.mask, mask)


@pytest.mark.parametrize(
    ("threads", "most", "expected"),
    [
        (1, 9, [8]), (2, 9, [4, 4]), (3, 9, [3, 3, 2]), (8, 9, [1] * 8), (20, 9, [1] * 8), (2, 1, [1] * 8),
        (2, 3, [2, 2, 2, 2]), (2, 2, [2, 2, 2, 2]), (3, 2, [2, 2, 1, 1, 1, 1]), (1, 3, [3, 3, 2]),
    ],
)  # fmt: skip
def test_lent_threads_get_equally_many_parts_of_the_heads(
    threads: int, most: int, expected: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiles, "TILE_ELEMENTS", most * 4 * 5)
    monkeypatch.setattr(tiles, "FEW_SCORES", 8 * 4 * 5 - 1)
    with lend(lambda work, items: None, threads):
        found = list(tiles.head_tiles((8, 1, 4, 2), 5, tiles.TileSize(4, 5)))
        assert len(list(tiles.head_tiles((7, 1, 4, 2), 5, tiles.TileSize(4, 5)))) == math.ceil(7 / most)  # few scores
    assert [heads.stop - heads.start for heads in found] == expected
    assert [head for heads in found for head in range(heads.start, heads.stop)] == [*range(8)]
