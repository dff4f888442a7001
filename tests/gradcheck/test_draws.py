"""Arrays of each kind are what they say, at every size; special values come often enough to be met."""

import numpy as np
import pytest

from numpy_attention.gradcheck.draws import NUMBERS, draw_ids, draw_mask, draw_numbers

SHAPES = {"spd": [(1, 1), (4, 4), (2, 3, 3)], "orthogonal": [(1, 1), (4, 4), (2, 3, 3)]}
OF_ROWS = [(1,), (5,), (3, 4), (2, 3, 1)]


def drawn(kind: str, rng: np.random.Generator, dtype: type, special: bool) -> list[np.ndarray]:
    return [draw_numbers(kind, shape, rng, dtype, special) for shape in SHAPES.get(kind, OF_ROWS) for _ in range(20)]


@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
class TestKinds:
    @pytest.mark.parametrize("kind", NUMBERS)
    def test_dtype_and_finite(self, kind: str, rng: np.random.Generator, dtype: type, special: bool) -> None:
        for x in drawn(kind, rng, dtype, special):
            assert x.dtype == (np.result_type(dtype, np.complex64) if kind == "complex" else dtype)
            assert np.isfinite(x).all()
            assert np.iscomplexobj(x) == (kind == "complex")

    def test_positive_and_simplex(self, rng: np.random.Generator, dtype: type, special: bool) -> None:
        assert all((x > 0).all() for x in drawn("positive", rng, dtype, special))
        for x in drawn("simplex", rng, dtype, special):
            assert (x > 0).all()
            np.testing.assert_allclose(x.sum(-1), 1, rtol=1e-6)

    def test_sorted_and_unit(self, rng: np.random.Generator, dtype: type, special: bool) -> None:
        assert all((np.diff(x, axis=-1) >= 0).all() for x in drawn("sorted", rng, dtype, special))
        for x in drawn("unit", rng, dtype, special):
            np.testing.assert_allclose((x * x).sum(-1), 1, rtol=1e-5)

    def test_distinct_values_are_apart_from_each_other_and_from_zero(
        self, rng: np.random.Generator, dtype: type, special: bool
    ) -> None:
        for x in drawn("distinct", rng, dtype, special):
            ordered = np.sort(np.append(x, 0))
            assert np.diff(ordered).min() > 0.02 * np.abs(x).max()
            assert x.size < 3 or x.min() < 0 < x.max()

    def test_orthogonal_and_spd(self, rng: np.random.Generator, dtype: type, special: bool) -> None:
        for q in drawn("orthogonal", rng, dtype, special):
            np.testing.assert_allclose(q @ q.swapaxes(-1, -2), np.broadcast_to(np.eye(q.shape[-1]), q.shape), atol=1e-5)
        for a in drawn("spd", rng, dtype, special):
            assert np.array_equal(a, a.swapaxes(-1, -2))
            assert (np.linalg.eigvalsh(a.astype(np.float64)) > 0).all()


def test_reflections_are_drawn_as_well_as_rotations(rng: np.random.Generator) -> None:
    signs = {round(float(np.linalg.det(draw_numbers("orthogonal", (3, 3), rng, np.float64)))) for _ in range(30)}
    assert signs == {-1, 1}


def test_rows_and_numbers_of_no_size_are_drawn(rng: np.random.Generator) -> None:
    for kind in NUMBERS:
        shape = (0, 2, 2) if kind in SHAPES else (0, 3)
        assert draw_numbers(kind, shape, rng, np.float64, special=True).shape == shape
    assert draw_numbers("float", (), rng, np.float64, special=True).shape == ()


def test_special_masks_are_open_or_closed_now_and_then(rng: np.random.Generator) -> None:
    masks = [draw_mask((3, 4), rng, special=True) for _ in range(60)]
    assert 3 < sum(mask.all() for mask in masks) < 30
    assert 3 < sum(not mask.any() for mask in masks) < 30
    assert not any(draw_mask((3, 4), rng).all() for _ in range(60))


def test_special_ids_are_all_the_same_or_the_ends_now_and_then(rng: np.random.Generator) -> None:
    ids = [draw_ids((2, 3), 50, None, rng, special=True) for _ in range(60)]
    assert all(((one >= 0) & (one < 50)).all() for one in ids)
    assert sum(len(np.unique(one)) == 1 for one in ids) > 2
    assert any(one.max() == 49 and one.min() == 0 for one in ids)


# A place where a backward can be wrong, of which 25 examples must hold one.
PLACES = {
    "0.0": lambda x: ((x == 0) & ~np.signbit(x)).any(), "-0.0": lambda x: ((x == 0) & np.signbit(x)).any(),
    "1": lambda x: (x == 1).any(), "-1": lambda x: (x == -1).any(), "2": lambda x: (x == 2).any(),
    "a tie at the top": lambda x: ((x == x.max(-1, keepdims=True)).sum(-1) > 1).any(),
    "equal neighbours": lambda x: (x[:, 1:] == x[:, :-1]).any(),
    "a row all alike": lambda x: (x == x[:, :1]).all(-1).any(), "a row of zeros": lambda x: (x == 0).all(-1).any(),
    "beyond three": lambda x: (np.abs(x) > 3).any(), "beyond ten": lambda x: (np.abs(x) > 10).any(),
    "tiny": lambda x: ((np.abs(x) < 1e-5) & (x != 0)).any(),
    "a large row": lambda x: ((x * x).mean(-1) > 60).any(), "a small row": lambda x: (np.abs(x).max(-1) < 1e-2).any(),
    "all negative": lambda x: (x < 0).all(), "all positive": lambda x: (x > 0).all(),
}


@pytest.mark.parametrize("place", PLACES)
def test_twenty_five_special_arrays_hold_every_place(place: str, rng: np.random.Generator) -> None:
    met = 0
    for _ in range(40):
        met += any(PLACES[place](draw_numbers("float", (3, 4), rng, np.float64, special=True)) for _ in range(25))
    assert met >= 35
    usual = [draw_numbers("float", (3, 4), rng, np.float64) for _ in range(25)]
    if place not in ("beyond three", "all negative", "all positive", "a small row"):
        assert not any(PLACES[place](x) for x in usual)
