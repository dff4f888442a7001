"""The pictures of Part VI: a sudden fall is visible, the best heads have names, wrong arguments are refused."""

from typing import Any

import numpy as np
import pytest

from numpy_attention import plots
from numpy_attention.app.plots.inside import head_name
from numpy_attention.app.plots.style import drawable
from tests.app.pictures import cells, lightness, ticks


def falling(T: int = 6) -> list[dict[str, Any]]:
    """A log whose loss falls in the second half, between steps 50 and 70; its other rows hold no loss."""
    log: list[dict[str, Any]] = [{"step": 1, "loss": 4.0}]
    for step in range(10, 130, 10):
        low = 4.0 - 4.0 * float(np.clip((step - 40) / 30, 0, 1))
        log.append({"step": step} | {f"loss_at_{t}": 4.0 if t < T // 2 else low for t in range(T)})
    return log


def test_sudden_fall_is_drawn_and_later_lines_are_darker() -> None:
    axes = plots.loss_by_position(falling(), {"guessing": 4.2}).axes[0]
    *lines, level = axes.lines
    assert [line.get_label() for line in lines] == [f"step {step}" for step in (10, 50, 60, 120)]
    assert list(lines[-1].get_ydata()) == [4.0, 4.0, 4.0, 0.0, 0.0, 0.0]
    shades = [float(lightness(line.get_color())) for line in lines]
    assert shades == sorted(shades, reverse=True)
    assert level.get_label() == "guessing"
    assert axes.get_ylim()[0] <= 0.0


def test_even_fall_has_lines_at_even_steps_and_the_axis_starts_at_zero() -> None:
    axes = plots.loss_by_position([{"step": step, "loss_at_0": 13.0 - step} for step in range(11)]).axes[0]
    assert [line.get_label() for line in axes.lines] == [f"step {step}" for step in range(0, 11, 2)]
    assert axes.get_ylim()[0] == 0.0


def test_one_row_gives_one_line() -> None:
    assert len(plots.loss_by_position(falling()[1:2]).axes[0].lines) == 1


def test_refuses_log_without_losses_by_position() -> None:
    with pytest.raises(ValueError, match="loss_by_position: log must be rows with step and loss_at_0"):
        plots.loss_by_position([{"step": 1, "loss": 2.0}, {"loss_at_0": 2.0}])
    with pytest.raises(ValueError, match=r"log must be rows with loss_at_0 to loss_at_5, got another row at step 130"):
        plots.loss_by_position([*falling(), {"step": 130, "loss_at_0": 1.0}])
    with pytest.raises(ValueError, match="loss_by_position: log must be rows with loss_at_0 to loss_at_1"):
        plots.loss_by_position([{"step": 1, "loss_at_0": 1.0, "loss_at_7": 1.0}])
    for odd in ({"step": 1}, [7], None):
        with pytest.raises(TypeError, match="loss_by_position: log must be a list of rows"):
            plots.loss_by_position(odd)


def test_losses_that_are_not_finite_leave_a_gap() -> None:
    log = falling()
    log[1]["loss_at_2"], log[-1]["loss_at_2"] = float("nan"), float("inf")
    lines = plots.loss_by_position(log).axes[0].lines
    assert [lines[0].get_label(), lines[-1].get_label()] == ["step 20", "step 110"], "of the rows that are whole"
    only = plots.loss_by_position([{"step": 1, "loss_at_0": float("inf"), "loss_at_1": 2.0}]).axes[0].lines[0]
    np.testing.assert_array_equal(only.get_ydata(), [np.nan, 2.0])


def test_each_head_has_a_cell_with_its_number() -> None:
    scores = {"blocks.0.attention": np.array([0.5, 0.25]), "blocks.1.attention": np.array([1.0, 0.0])}
    figure = plots.head_scores(scores)
    axes = figure.axes[0]
    assert cells(axes) == {(0, 0): "0.50", (0, 1): "0.25", (1, 0): "1.00", (1, 1): "0.00"}
    assert ticks(axes.yaxis) == ["blocks.0.attention", "blocks.1.attention"]
    assert ticks(axes.xaxis) == ["0", "1"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("head", "layer")
    assert axes.images[0].get_clim() == (0.0, 1.0)
    assert axes.images[0].cmap.name == "white_to_blue"


def test_scores_below_zero_are_drawn_from_orange_to_blue() -> None:
    image = plots.head_scores({"a": np.array([-0.5, 0.25])}).axes[0].images[0]
    assert image.get_clim() == (-1.0, 1.0)
    assert image.cmap.name == "orange_to_blue"
    assert plots.head_scores({"a": np.array([-3.0])}).axes[0].images[0].get_clim() == (-3.0, 3.0)


def test_refuses_invalid_scores() -> None:
    for odd in ({}, {"a": np.ones(2), "b": np.ones(3)}, {"a": np.ones((2, 2))}, {"a": 1.0}, {"a": np.ones(0)}):
        with pytest.raises(ValueError, match=r"head_scores: scores must be \{layer: \(H,\)\}"):
            plots.head_scores(odd)
    with pytest.raises(ValueError, match="head_scores: scores must be finite, got nan"):
        plots.head_scores({"a": np.array([np.nan])})
    with pytest.raises(TypeError, match="head_scores: scores must be of real numbers"):
        plots.head_scores({"a": np.array(["x"])})
    with pytest.raises(TypeError, match="head_scores: scores must be a dict"):
        plots.head_scores(np.ones(3))


def scored() -> list[dict[str, Any]]:
    """Six heads in two blocks with two kinds of scores; head 2 of block 1 is best for one kind, head 1 of block 0 for
    the other."""
    log: list[dict[str, Any]] = [{"step": 5, "loss": 1.0, "other": 1.0}]
    for step in (10, 20):
        row: dict[str, Any] = {"step": step}
        for block in (0, 1):
            for head in range(3):
                row[f"matching.blocks.{block}.attention.{head}"] = step / 100 * block * (head + 1)
                row[f"looking_back.blocks.{block}.attention.{head}"] = 0.9 if (block, head) == (0, 1) else -0.1 * head
        log.append(row)
    return log


def test_each_kind_has_a_panel_and_the_best_heads_look_the_same_in_all() -> None:
    figure = plots.head_scores_over_training(scored())
    assert [axes.get_title() for axes in figure.axes] == ["matching", "looking back"]
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels[:2] == ["block 1, head 2", "block 0, head 1"]
    assert len(labels) == len(set(labels)) == 4
    for axes in figure.axes:
        assert len(axes.lines) == 6
        assert sum(line.get_label() in labels for line in axes.lines) == 4
        assert all(line.get_label() in labels for line in axes.lines[-4:]), "drawn above the others"
        assert axes.get_ylim()[0] < 0.0 < 1.0 < axes.get_ylim()[1]
        assert len({line.get_linestyle() for line in axes.lines[-4:]}) == 4, "told apart without colours, too"
    first, second = ({line.get_label(): line.get_color() for line in axes.lines} for axes in figure.axes)
    assert all(first[label] == second[label] for label in labels)
    curve = next(line for line in figure.axes[0].lines if line.get_label() == "block 1, head 2")
    assert list(curve.get_xdata()) == [10, 20]
    np.testing.assert_allclose(curve.get_ydata(), [0.3, 0.6])


def test_a_head_without_a_score_is_not_the_best() -> None:
    row = {"step": 1} | {f"copying.blocks.0.attention.{h}": value for h, value in enumerate((float("nan"), 0.1, 0.2))}
    labels = [text.get_text() for text in plots.head_scores_over_training([row]).legends[0].get_texts()]
    assert labels == ["block 0, head 2", "block 0, head 1", "block 0, head 0"]


def test_best_head_is_chosen_by_final_score() -> None:
    log = [{"step": 1, "copying.a.0": 0.9, "copying.a.1": 0.1}, {"step": 2, "copying.a.0": 0.2, "copying.a.1": 0.3}]
    labels = [text.get_text() for text in plots.head_scores_over_training(log).legends[0].get_texts()]
    assert labels == ["a.1", "a.0"]


def test_one_head_of_one_kind_is_enough() -> None:
    figure = plots.head_scores_over_training([{"step": 1, "copying.blocks.0.attention.0": 0.5}])
    assert len(figure.axes[0].lines) == 1


def test_refuses_log_without_scores() -> None:
    with pytest.raises(ValueError, match="head_scores_over_training: log must be rows with step and scores"):
        plots.head_scores_over_training([{"step": 1, "loss": 2.0, "val_loss": 1.0}])
    with pytest.raises(TypeError, match="head_scores_over_training: log must be a list of rows"):
        plots.head_scores_over_training([None])


def test_head_name_in_words() -> None:
    assert head_name("blocks.1.attention.3") == "block 1, head 3"
    assert head_name("decoder.blocks.0.cross_attention.12") == "decoder, block 0, cross head 12"
    assert head_name("layers.0") == "layers.0"


WORDS, P = [[" a", "$x"], ["Paris", "extraordinarily"]], np.array([[0.1, 0.2], [0.9, 1.0]])


def written(figure: Any) -> list[str]:
    return [text.get_text() for text in figure.axes[0].texts]


def test_each_word_is_in_its_cell_and_white_on_dark_cells() -> None:
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


def test_wide_table_has_words_in_their_cells_and_accepts_rounded_probabilities() -> None:
    figure = plots.lens_table([["a", "b", "$c$"]], np.array([[0.1, 0.2, 1.0 + 1e-7]]), ["$r$"], ["$x$", "y", "z"])
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == [drawable("$r$")]
    assert written(figure) == ["a", "b", "$c$"]
    assert [text.get_position() for text in figure.axes[0].texts] == [(0, 0), (1, 0), (2, 0)]
    assert [label.get_text() for label in figure.axes[0].get_xticklabels()] == ["$x$", "y", "z"]
    assert not any(one.get_parse_math() for one in (*figure.axes[0].texts, *figure.axes[0].get_xticklabels()))


def test_each_head_is_a_row_and_a_stream_is_one_row() -> None:
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
    ("arguments", "message"),
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
def test_refuses_table_with_wrong_sizes(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        plots.lens_table(*arguments)


@pytest.mark.parametrize(
    ("effects", "message"),
    [
        ({}, "a dict of arrays by place, got an empty one"), ([1.0], "a dict of arrays by place, got list"),
        ({"a": np.zeros(2), "b": np.zeros(3)}, "the same T at all places"),
        ({"a": np.zeros(())}, r"effects\['a'\] must be \(T,\) or \(H, T\)"),
        ({"a": np.zeros(0)}, r"effects\['a'\] must be \(T,\) or \(H, T\)"),
    ],
)
def test_refuses_effects_with_wrong_sizes(effects: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        plots.patching_map(effects)
