"""Pieces cover an array once, and pieces of contiguous arrays can be written to."""

import numpy as np
import pytest

from numpy_attention.pieces import PIECE, in_pieces, non_finite


@pytest.mark.parametrize("shape", [(0,), (3, 5), (PIECE,), (2, PIECE // 2 + 3), (3, PIECE)])
def test_pieces_cover_every_element_once_and_in_order(shape: tuple[int, ...]) -> None:
    x, y = np.arange(np.prod(shape), dtype=np.float64).reshape(shape), np.zeros(shape)
    sizes = []
    for x_piece, y_piece in in_pieces(x, y):
        y_piece += x_piece
        sizes.append(x_piece.size)
    np.testing.assert_array_equal(y, x)
    assert sum(sizes) == x.size
    assert max(sizes) <= PIECE


def test_non_contiguous_array_is_read_in_order(rng: np.random.Generator) -> None:
    x = rng.standard_normal((7, PIECE // 4)).T
    np.testing.assert_array_equal(np.concatenate([piece for (piece,) in in_pieces(x)]), x.reshape(-1))


def test_largest_floats_integers_and_empty_arrays_are_finite():
    most = np.full((3, 70_000), np.finfo(np.float32).max)
    for array in (most, -most, np.array(7), np.zeros((0, 4)), np.zeros((), np.float16), np.ones(5, bool)):
        assert non_finite(array) == ""
