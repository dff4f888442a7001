"""Cells: every number lands in its own and can be read, what is hidden is hatched, labels are plain text."""

import matplotlib as mpl
import numpy as np

from numpy_attention import plots
from tests.plots.pictures import WORDS, cells, lightness, ticks, weights_of


def test_each_cell_shows_its_own_weight_with_two_decimals(rng: np.random.Generator) -> None:
    weights = weights_of(rng, 3, 7)  # as many rows as columns would hide a transposition
    texts = cells(plots.attention_map(weights).axes[0])
    assert texts == {(i, j): f"{weights[i, j]:.2f}" for i in range(3) for j in range(7)}


def test_keys_default_to_the_queries_in_self_attention_only(rng: np.random.Generator) -> None:
    assert ticks(plots.attention_map(weights_of(rng, 6, 6), WORDS).axes[0].xaxis) == WORDS
    assert "hopes" not in ticks(plots.attention_map(weights_of(rng, 6, 5), WORDS).axes[0].xaxis)


def test_many_cells_carry_no_numbers_unless_asked(rng: np.random.Generator) -> None:
    assert not plots.attention_map(weights_of(rng, 3, 11)).axes[0].texts
    assert len(plots.attention_map(weights_of(rng, 3, 11), numbers=True).axes[0].texts) == 33
    assert not plots.attention_map(weights_of(rng, 3, 4), numbers=False).axes[0].texts


def test_numbers_stand_out_from_their_cell(rng: np.random.Generator) -> None:
    weights = np.linspace(0.0, 1.0, 30).reshape(5, 6)
    axes = plots.attention_map(weights).axes[0]
    image = axes.images[0]
    for text in axes.texts:
        j, i = (round(p) for p in text.get_position())
        cell, ink = lightness(image.to_rgba(weights)[i, j]), lightness(mpl.colors.to_rgba(text.get_color()))
        assert abs(cell - ink) > 0.35, f"{text.get_text()} is hard to read"


def test_there_is_a_colour_bar_from_zero_to_the_largest_weight(rng: np.random.Generator) -> None:
    weights = weights_of(rng, 5, 4)
    figure = plots.attention_map(weights)
    assert len(figure.axes) == 2
    assert figure.axes[1].get_ylabel() == "weight"
    assert figure.axes[0].images[0].get_clim() == (0.0, weights.max())


def test_hidden_pairs_are_hatched_and_carry_no_number(rng: np.random.Generator) -> None:
    mask = np.array([[True, False, True], [False, False, False]])
    axes = plots.attention_map(weights_of(rng, 2, 3) * mask, mask=mask).axes[0]
    assert set(cells(axes)) == {(0, 0), (0, 2)}
    hatched = {(round(p.get_y() + 0.5), round(p.get_x() + 0.5)) for p in axes.patches if p.get_hatch()}
    assert hatched == {(0, 1), (1, 0), (1, 1), (1, 2)}


def test_a_row_of_zeros_draws() -> None:
    plots.attention_map(np.zeros((2, 3))).draw_without_rendering()


def test_dollars_white_space_and_unknown_letters_become_plain_labels() -> None:
    tokens = ["$x_1$", " ", "\n", "", "漢", "é"]
    figure = plots.attention_map(np.eye(6), tokens)
    assert ticks(figure.axes[0].yaxis) == ["$x_1$", "␣", "↵", "∅", "<6f22>", "é"]
    figure.draw_without_rendering()  # a glyph that the font lacks, or bad TeX, would raise
