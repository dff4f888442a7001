"""Pictures of patches and of lenses: every word stands in its cell, and what does not fit is refused."""

from typing import Any

import numpy as np
import pytest

from numpy_attention import plots
from numpy_attention.plots.style import drawable

WORDS, P = [[" a", "$x"], ["Paris", "extraordinarily"]], np.array([[0.1, 0.2], [0.9, 1.0]])


def written(figure: Any) -> list[str]:
    return [text.get_text() for text in figure.axes[0].texts]


def test_every_word_stands_in_its_cell_white_where_it_is_dark() -> None:
    figure = plots.lens_table(WORDS, P, ["block 0", "block 1"], [" is", "?"])
    assert written(figure) == ["␣a", "$x", "Paris", "extraordina…"]
    assert [text.get_color() == "white" for text in figure.axes[0].texts] == [False, False, True, True]
    assert [text.get_position() for text in figure.axes[0].texts] == [(0, 0), (1, 0), (0, 1), (1, 1)]
    assert (figure.axes[0].get_xlabel(), figure.axes[0].get_ylabel()) == ("position", "stream")
    assert figure.axes[0].images[0].get_clim() == (0.0, 1.0)
    assert figure.axes[1].get_ylabel() == "probability"
    np.testing.assert_array_equal(figure.axes[0].images[0].get_array(), P)
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == ["␣is", "?"]
    assert figure._repr_png_().startswith(b"\x89PNG")


def test_the_words_of_a_table_that_is_wider_than_high_stand_in_their_cells_and_rounding_is_forgiven() -> None:
    figure = plots.lens_table([["a", "b", "$c$"]], np.array([[0.1, 0.2, 1.0 + 1e-7]]), ["$r$"], ["$x$", "y", "z"])
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == [drawable("$r$")]
    assert written(figure) == ["a", "b", "$c$"]
    assert [text.get_position() for text in figure.axes[0].texts] == [(0, 0), (1, 0), (2, 0)]
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == ["$x$", "y", "z"]
    assert not any(one.get_parse_math() for one in (*figure.axes[0].texts, *figure.axes[0].get_xticklabels()))


def test_heads_are_rows_of_their_own_and_streams_are_one() -> None:
    effects = {"blocks.0": np.array([1.0, -2.0, 0.0]), "blocks.1.attention": np.arange(6.0).reshape(2, 3)}
    figure = plots.patching_map(effects, [" a", "b", "c"], value="nats")
    axes, bar = figure.axes
    assert (axes.get_xlabel(), axes.get_ylabel(), bar.get_ylabel()) == ("position", "place", "nats")
    assert [label.get_text() for label in axes.get_xticklabels()] == ["␣a", "b", "c"]
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert labels == ["blocks.0", "block 1, head 0", "block 1, head 1"]
    np.testing.assert_array_equal(figure.axes[0].images[0].get_array(), [[1, -2, 0], [0, 1, 2], [3, 4, 5]])
    assert figure._repr_png_().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((WORDS[:1], P), "words must be 2 lists of 2"),
        ((WORDS, P - 0.2), "probabilities must be from 0 to 1"),
        ((WORDS, P * np.nan), "probabilities must be finite"),
        ((WORDS, P[0]), r"probabilities must be \(n, m\)"),
        ((WORDS, P, ["one"]), "rows must be 2 labels, got 1"),
        ((WORDS, P, None, 5), "columns must be a list of 2 labels, got int"),
        ((5, P), "words must be"),
    ],
)
def test_a_table_that_does_not_fit_is_refused(arguments: tuple[Any, ...], said: str) -> None:
    with pytest.raises((TypeError, ValueError), match=said):
        plots.lens_table(*arguments)


@pytest.mark.parametrize(
    ("effects", "said"),
    [
        ({}, "a dict of arrays by place, got an empty one"), ([1.0], "a dict of arrays by place, got list"),
        ({"a": np.zeros(2), "b": np.zeros(3)}, "of one T at all places"),
        ({"a": np.zeros(())}, r"effects\['a'\] must be \(T,\) or \(H, T\)"),
        ({"a": np.zeros(0)}, r"effects\['a'\] must be \(T,\) or \(H, T\)"),
    ],
)
def test_effects_that_do_not_fit_are_refused(effects: Any, said: str) -> None:
    with pytest.raises((TypeError, ValueError), match=said):
        plots.patching_map(effects)
