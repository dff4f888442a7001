"""Masks, matrices with their signs, tables of positions."""

import numpy as np
import pytest

import numpy_attention as na
from numpy_attention import plots
from tests.app.pictures import cells, ticks


def test_visible_pairs_are_filled_and_hidden_pairs_hatched(rng: np.random.Generator) -> None:
    mask = rng.random((4, 6)) < 0.5
    figure = plots.mask_map(mask)
    axes = figure.axes[0]
    assert np.array_equal(np.asarray(axes.images[0].get_array()) > 0, mask)
    assert sum(bool(p.get_hatch()) for p in axes.patches) == (~mask).sum()
    assert [t.get_text() for t in figure.legends[0].get_texts()] == ["may look", "hidden"]


def test_a_mask_of_numbers_is_refused() -> None:
    with pytest.raises(ValueError, match="mask_map: mask must be of bool, True = may look, got int64"):
        plots.mask_map(np.eye(3, dtype=np.int64))


def test_signs_have_colours_and_zero_is_in_the_middle() -> None:
    matrix = np.array([[1.0, -2.0, 0.5], [0.0, -1e-9, 1.5]])
    axes = plots.matrix_map(matrix, ["a b", "c"], ["x", "y", "z"], "m", x="to", y="from").axes[0]
    assert axes.images[0].get_clim() == (-2.0, 2.0)
    expected = [["1.00", "-2.00", "0.50"], ["0.00", "0.00", "1.50"]]
    assert cells(axes) == {(i, j): expected[i][j] for i in range(2) for j in range(3)}
    assert (ticks(axes.yaxis), ticks(axes.xaxis)) == (["a b", "c"], ["x", "y", "z"])
    assert (axes.get_xlabel(), axes.get_ylabel(), axes.get_title()) == ("to", "from", "m")


def test_without_a_negative_number_the_scale_starts_at_zero() -> None:
    assert plots.matrix_map(np.array([[1.0, 3.0]])).axes[0].images[0].get_clim() == (0.0, 3.0)


def test_row_labels_do_not_become_column_labels() -> None:
    axes = plots.matrix_map(np.eye(3), ["a", "b", "c"]).axes[0]
    assert "a" not in ticks(axes.xaxis)
    with pytest.raises(ValueError, match="matrix_map: columns must be 3 labels"):
        plots.matrix_map(np.eye(3), columns=["a"])


@pytest.mark.parametrize("longest", [3, 20])
def test_long_row_labels_are_not_cut(rng: np.random.Generator, longest: int) -> None:
    rows = [f"{'w' * (longest - 2)} {n}" for n in range(8)]
    figure = plots.matrix_map(rng.standard_normal((8, 6)), rows=rows)
    figure._repr_png_()
    assert min(label.get_window_extent().x0 for label in figure.axes[0].get_yticklabels()) >= 0


def test_positions_run_to_the_right_and_dimensions_down() -> None:
    table = na.sinusoidal_positions(50, 64)
    axes = plots.positions_map(table).axes[0]
    assert np.array_equal(axes.images[0].get_array(), table.T)
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("position", "dimension")
    low, high = axes.images[0].get_clim()
    assert low == -high, "zero must lie in the middle of the scale"
