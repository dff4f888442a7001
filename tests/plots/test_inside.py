"""The pictures of Part VI: the cliff is seen, the best heads are named, and what is missing is refused."""

from typing import Any

import numpy as np
import pytest

from numpy_attention import plots
from numpy_attention.plots.inside import head_name
from tests.plots.pictures import cells, lightness, ticks


def falling(T: int = 6) -> list[dict[str, Any]]:
    """A log whose loss falls in the second half, between the steps 50 and 70, and whose other rows have none."""
    log: list[dict[str, Any]] = [{"step": 1, "loss": 4.0}]
    for step in range(10, 130, 10):
        low = 4.0 - 4.0 * float(np.clip((step - 40) / 30, 0, 1))
        log.append({"step": step} | {f"loss_at_{t}": 4.0 if t < T // 2 else low for t in range(T)})
    return log


def test_the_fall_is_seen_between_the_first_and_the_last_step_and_later_lines_are_darker() -> None:
    axes = plots.loss_by_position(falling(), {"guessing": 4.2}).axes[0]
    *lines, level = axes.lines
    assert [line.get_label() for line in lines] == [f"step {step}" for step in (10, 50, 60, 120)]
    assert list(lines[-1].get_ydata()) == [4.0, 4.0, 4.0, 0.0, 0.0, 0.0]
    shades = [float(lightness(line.get_color())) for line in lines]
    assert shades == sorted(shades, reverse=True)
    assert level.get_label() == "guessing"
    assert axes.get_ylim()[0] <= 0.0


def test_an_even_fall_has_lines_at_even_steps_and_the_picture_begins_at_zero() -> None:
    axes = plots.loss_by_position([{"step": step, "loss_at_0": 13.0 - step} for step in range(11)]).axes[0]
    assert [line.get_label() for line in axes.lines] == [f"step {step}" for step in range(0, 11, 2)]
    assert axes.get_ylim()[0] == 0.0


def test_one_row_is_one_line() -> None:
    assert len(plots.loss_by_position(falling()[1:2]).axes[0].lines) == 1


def test_a_log_without_losses_by_position_is_refused() -> None:
    with pytest.raises(ValueError, match="loss_by_position: log must be rows with step and loss_at_0"):
        plots.loss_by_position([{"step": 1, "loss": 2.0}, {"loss_at_0": 2.0}])
    with pytest.raises(ValueError, match=r"log must be rows with loss_at_0 to loss_at_5, got another row at step 130"):
        plots.loss_by_position([*falling(), {"step": 130, "loss_at_0": 1.0}])
    with pytest.raises(ValueError, match="loss_by_position: log must be rows with loss_at_0 to loss_at_1"):
        plots.loss_by_position([{"step": 1, "loss_at_0": 1.0, "loss_at_7": 1.0}])
    for odd in ({"step": 1}, [7], None):
        with pytest.raises(TypeError, match="loss_by_position: log must be a list of rows"):
            plots.loss_by_position(odd)


def test_losses_that_are_no_numbers_leave_a_gap() -> None:
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


def test_scores_below_zero_are_drawn_from_blue_to_red() -> None:
    image = plots.head_scores({"a": np.array([-0.5, 0.25])}).axes[0].images[0]
    assert image.get_clim() == (-1.0, 1.0)
    assert image.cmap.name == "blue_to_red"
    assert plots.head_scores({"a": np.array([-3.0])}).axes[0].images[0].get_clim() == (-3.0, 3.0)


def test_what_is_no_table_of_scores_is_refused() -> None:
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
    """Six heads in two blocks and two kinds of scores; head 2 of block 1 is the best of one, head 1 of block 0 of the
    other."""
    log: list[dict[str, Any]] = [{"step": 5, "loss": 1.0, "other": 1.0}]
    for step in (10, 20):
        row: dict[str, Any] = {"step": step}
        for block in (0, 1):
            for head in range(3):
                row[f"matching.blocks.{block}.attention.{head}"] = step / 100 * block * (head + 1)
                row[f"looking_back.blocks.{block}.attention.{head}"] = 0.9 if (block, head) == (0, 1) else -0.1 * head
        log.append(row)
    return log


def test_each_kind_has_a_panel_and_the_best_heads_a_name_and_the_same_look_in_each() -> None:
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


def test_the_best_head_is_that_of_the_end() -> None:
    log = [{"step": 1, "copying.a.0": 0.9, "copying.a.1": 0.1}, {"step": 2, "copying.a.0": 0.2, "copying.a.1": 0.3}]
    labels = [text.get_text() for text in plots.head_scores_over_training(log).legends[0].get_texts()]
    assert labels == ["a.1", "a.0"]


def test_one_head_of_one_kind_is_enough() -> None:
    figure = plots.head_scores_over_training([{"step": 1, "copying.blocks.0.attention.0": 0.5}])
    assert len(figure.axes[0].lines) == 1


def test_a_log_without_scores_is_refused() -> None:
    with pytest.raises(ValueError, match="head_scores_over_training: log must be rows with step and scores"):
        plots.head_scores_over_training([{"step": 1, "loss": 2.0, "val_loss": 1.0}])
    with pytest.raises(TypeError, match="head_scores_over_training: log must be a list of rows"):
        plots.head_scores_over_training([None])


def test_a_head_has_a_name_in_words() -> None:
    assert head_name("blocks.1.attention.3") == "block 1, head 3"
    assert head_name("decoder.blocks.0.cross_attention.12") == "decoder, block 0, cross head 12"
    assert head_name("layers.0") == "layers.0"
