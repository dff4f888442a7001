"""Curves and the flow of gradients: missing values are skipped, levels have names, zeros are marked."""

from typing import Any

import numpy as np
import pytest

from numpy_attention import plots
from tests.app.pictures import ticks


def test_rows_without_a_value_are_skipped() -> None:
    log = [{"step": 0, "loss": 3.0}, {"step": 1, "loss": 2.0, "val_loss": 2.5}]
    figure = plots.training_curves([*log, {"step": 2, "loss": 1.0, "val_loss": None}])
    lines = {line.get_label(): line for line in figure.axes[0].lines}
    assert list(lines["training batch"].get_ydata()) == [3.0, 2.0, 1.0]
    assert list(lines["held out"].get_xdata()) == [1]
    assert len(figure.axes) == 1, "no accuracy, no panel for it"


def test_accuracy_has_its_own_panel_from_zero_to_one() -> None:
    figure = plots.training_curves([{"step": i, "loss": 1.0, "accuracy": 0.5 + i / 4} for i in range(3)])
    assert [axes.get_ylabel() for axes in figure.axes] == ["loss (nats)", "accuracy"]
    low, high = figure.axes[1].get_ylim()
    assert low < 0.0 < 1.0 < high < 1.1


def test_levels_have_their_names() -> None:
    axes = plots.training_curves([{"step": 1, "loss": 2.0}], {"trigram": 1.712}).axes[0]
    assert [t.get_text() for t in axes.texts] == ["trigram"]
    assert any(np.all(np.asarray(line.get_ydata()) == 1.712) for line in axes.lines)


def test_refuses_empty_log() -> None:
    with pytest.raises(ValueError, match="training_curves: log must be rows with step"):
        plots.training_curves([{"step": 3}])


def test_step_error_has_logarithmic_axes_and_draws_zero_errors() -> None:
    axes = plots.step_error(np.array([0.1, 0.01]), {"complex step": np.array([0.0, -1e-16])}).axes[0]
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    assert list(axes.lines[0].get_ydata()) == [1e-17, 1e-16]


def test_refuses_different_numbers_of_steps_and_errors() -> None:
    with pytest.raises(ValueError, match=r"step_error: errors\['central'\] must be \(n,\)"):
        plots.step_error(np.ones(3), {"central": np.ones(2)})


def test_each_learning_rate_has_a_line_and_a_level() -> None:
    curvatures = {0.1: np.array([4.0, 25.0]), 0.05: np.array([3.0, 41.0])}
    axes = plots.largest_curvature(np.array([0, 10]), curvatures).axes[0]
    assert [t.get_text() for t in axes.get_legend().get_texts()] == ["learning rate 0.1", "learning rate 0.05"]
    assert [t.get_text() for t in axes.texts] == ["2 / 0.1", "2 / 0.05"]
    heights = [list(line.get_ydata()) for line in axes.lines]
    assert heights == [[4.0, 25.0], [20.0, 20.0], [3.0, 41.0], [40.0, 40.0]]
    assert axes.lines[0].get_color() == axes.lines[1].get_color() != axes.lines[2].get_color()


def test_refuses_different_numbers_of_steps_and_curvatures() -> None:
    with pytest.raises(ValueError, match=r"largest_curvature: curvatures\[0.1\] must be \(n,\)"):
        plots.largest_curvature(np.ones(3), {0.1: np.ones(2)})


def test_the_line_is_the_root_mean_square_of_each_layer(rng: np.random.Generator) -> None:
    table, w_q, w_o, head = rng.normal(size=(7, 3)), rng.normal(size=(3, 5)), rng.normal(size=4), rng.normal(size=2)
    grads = {"table": table, "blocks.10.attention.w_q": w_q, "blocks.10.attention.w_o": w_o, "head.w": head}
    axes = plots.gradient_flow(grads).axes[0]
    assert ticks(axes.xaxis) == ["table", "blocks.10", "head"]
    both = np.concatenate([w_q.ravel(), w_o])
    expected = [np.sqrt(np.mean(one**2)) for one in (table, both, head)]
    np.testing.assert_allclose(axes.lines[0].get_ydata(), expected, rtol=1e-12)
    alone = [np.sqrt(np.mean(one**2)) for one in (w_q, w_o)]
    np.testing.assert_allclose(axes.lines[2].get_ydata(), alone, rtol=1e-12)
    assert [len(marks.get_ydata()) for marks in axes.lines[1:]] == [0, 2, 0]  # a single parameter has no mark
    assert axes.get_yscale() == "log"


def test_several_models_have_a_legend(rng: np.random.Generator) -> None:
    one = {"blocks.0.w": rng.normal(size=3), "blocks.1.w": rng.normal(size=3)}
    axes = plots.gradient_flow({"pre-LN": one, "post-LN": one}).axes[0]
    assert [t.get_text() for t in axes.get_legend().get_texts()] == ["pre-LN", "post-LN"]


def test_gradient_of_zero_is_a_cross_at_its_layer(rng: np.random.Generator) -> None:
    figure = plots.gradient_flow({"a": rng.normal(size=3), "dead": np.zeros(4), "b": rng.normal(size=3)})
    figure.draw_without_rendering()
    crosses = [line for line in figure.axes[0].lines if line.get_marker() == "x"]
    assert [round(float(line.get_xdata()[0])) for line in crosses] == [1]


def test_refuses_empty_gradients() -> None:
    with pytest.raises(ValueError, match="gradient_flow: grads must be"):
        plots.gradient_flow({})


def test_rows_without_a_step_are_skipped() -> None:
    axes = plots.training_curves([{"loss": 3.0}, {"step": 2, "loss": 1.0}]).axes[0]
    assert axes.lines[0].get_xdata().tolist() == [2]


@pytest.mark.parametrize(("log", "got"), [([3], "int"), (3, "int"), ({"step": 1, "loss": 2.0}, "dict"), ("ab", "str")])
def test_refuses_log_that_is_not_a_list_of_rows(log: Any, got: str) -> None:
    with pytest.raises(TypeError, match=f"training_curves: log must be a list of rows, .*, got {got}"):
        plots.training_curves(log)
