"""Cells: every number is in its cell and readable, hidden pairs are hatched, labels are plain text."""

import matplotlib as mpl
import numpy as np
import pytest

from numpy_attention import plots
from tests.app.pictures import WORDS, cells, lightness, ticks, weights_of


def test_each_cell_shows_its_weight_with_two_decimals(rng: np.random.Generator) -> None:
    weights = weights_of(rng, 3, 7)  # a square matrix would hide a transposition
    texts = cells(plots.attention_map(weights).axes[0])
    assert texts == {(i, j): f"{weights[i, j]:.2f}" for i in range(3) for j in range(7)}


def test_keys_default_to_the_queries_in_self_attention_only(rng: np.random.Generator) -> None:
    assert ticks(plots.attention_map(weights_of(rng, 6, 6), WORDS).axes[0].xaxis) == WORDS
    assert "hopes" not in ticks(plots.attention_map(weights_of(rng, 6, 5), WORDS).axes[0].xaxis)


def test_large_maps_show_no_numbers_by_default(rng: np.random.Generator) -> None:
    assert not plots.attention_map(weights_of(rng, 3, 11)).axes[0].texts
    assert len(plots.attention_map(weights_of(rng, 3, 11), numbers=True).axes[0].texts) == 33
    assert not plots.attention_map(weights_of(rng, 3, 4), numbers=False).axes[0].texts


def test_numbers_contrast_with_their_cell(rng: np.random.Generator) -> None:
    weights = np.linspace(0.0, 1.0, 30).reshape(5, 6)
    axes = plots.attention_map(weights).axes[0]
    image = axes.images[0]
    for text in axes.texts:
        j, i = (round(p) for p in text.get_position())
        cell, ink = lightness(image.to_rgba(weights)[i, j]), lightness(mpl.colors.to_rgba(text.get_color()))
        assert abs(cell - ink) > 0.35, f"{text.get_text()} is hard to read"


def test_colour_bar_runs_from_zero_to_the_largest_weight(rng: np.random.Generator) -> None:
    weights = weights_of(rng, 5, 4)
    figure = plots.attention_map(weights)
    assert len(figure.axes) == 2
    assert figure.axes[1].get_ylabel() == "weight"
    assert figure.axes[0].images[0].get_clim() == (0.0, weights.max())


def test_hidden_pairs_are_hatched_without_a_number(rng: np.random.Generator) -> None:
    mask = np.array([[True, False, True], [False, False, False]])
    axes = plots.attention_map(weights_of(rng, 2, 3) * mask, mask=mask).axes[0]
    assert set(cells(axes)) == {(0, 0), (0, 2)}
    hatched = {(round(p.get_y() + 0.5), round(p.get_x() + 0.5)) for p in axes.patches if p.get_hatch()}
    assert hatched == {(0, 1), (1, 0), (1, 1), (1, 2)}


def test_row_of_zeros_can_be_drawn() -> None:
    plots.attention_map(np.zeros((2, 3))).draw_without_rendering()


def test_dollars_white_space_and_unknown_letters_become_plain_labels() -> None:
    tokens = ["$x_1$", " ", "\n", "", "漢", "é"]
    figure = plots.attention_map(np.eye(6), tokens)
    assert ticks(figure.axes[0].yaxis) == ["$x_1$", "␣", "↵", "∅", "<6f22>", "é"]
    figure.draw_without_rendering()  # a glyph missing from the font, or bad TeX, would raise


@pytest.mark.parametrize("kind", [np.int64, np.uint8, np.float32, list])
def test_refuses_mask_of_numbers(kind: type) -> None:
    allowed = np.tril(np.ones((4, 4)))
    mask = allowed.astype(int).tolist() if kind is list else allowed.astype(kind)
    with pytest.raises(ValueError, match=r"attention_map: mask must be of bool, True = may look, got \w+; see mask"):
        plots.attention_map(allowed, mask=mask)


def test_mask_broadcasts_to_the_weights() -> None:
    weights = np.full((2, 3), 1 / 3)
    for shape in ((3, 2), (2,), (1, 2, 3), (3, 3)):
        with pytest.raises(ValueError, match=r"attention_map: mask must be broadcastable to \(2, 3\), got"):
            plots.attention_map(weights, mask=np.ones(shape, bool))
    axes = plots.attention_map(weights, mask=[True, False, True]).axes[0]
    assert set(cells(axes)) == {(0, 0), (0, 2), (1, 0), (1, 2)}


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.full((2, 2), -0.5), "weights must be at least 0, got -0.5; use matrix_map"),
        (np.ones((2, 2), complex), "weights must be of real numbers, got complex128"),
        (np.array([["a"]]), "weights must be of real numbers, got <U1"),
        (np.array([[0.0, np.inf]]), r"weights must be finite, got inf at \[0, 1\]"),
        (np.array([[np.nan]]), r"weights must be finite, got nan at \[0, 0\]"),
    ],
    ids=["negative", "complex", "letters", "infinite", "none"],
)
def test_refuses_arrays_that_are_not_weights(weights: np.ndarray, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=f"attention_map: {message}"):
        plots.attention_map(weights)


def test_refuses_labels_that_are_not_a_list() -> None:
    with pytest.raises(TypeError, match="attention_map: queries must be a list of 2 labels, got int"):
        plots.attention_map(np.eye(2), 3)  # type: ignore[arg-type]


def test_titles_and_names_with_any_characters_can_be_drawn() -> None:
    title, drawn = "a\ud800 漢\nb", "a<d800> <6f22>\nb"
    figure = plots.attention_heads(np.full((2, 2, 2), 0.5), title=title, x=title, y=title)
    assert (figure.get_suptitle(), figure.get_supxlabel(), figure.get_supylabel()) == (drawn, drawn, drawn)
    figure.draw_without_rendering()
    figure = plots.matrix_map(np.eye(2), title=title, x=title, y=title, value=title)
    axes, bar = figure.axes
    assert axes.get_title() == drawn.replace("\n", " ")  # the title wraps at the width of the figure
    assert (axes.get_xlabel(), axes.get_ylabel(), bar.get_ylabel()) == (drawn, drawn, drawn)
    figure.draw_without_rendering()
    figure = plots.step_error(np.array([1.0, 2.0]), {title: np.array([1.0, 2.0])})
    assert figure.axes[0].get_legend().get_texts()[0].get_text() == drawn
    figure.draw_without_rendering()
