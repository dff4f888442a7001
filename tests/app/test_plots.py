"""The pictures: every number is in its cell or on its line, labels are right, typical mistakes are refused."""

import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.figure import Figure

import numpy_attention as na
from numpy_attention import plots

WORDS = ["Manchester", "United", "hopes", "to", "perform", "better"]


def weights_of(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Rows that sum to one."""
    return na.softmax(3.0 * rng.standard_normal(shape))[0]


def ticks(axis: Any) -> list[str]:
    return [label.get_text() for label in axis.get_ticklabels()]


def cells(axes: Any) -> dict[tuple[int, int], str]:
    """The text of each cell by (row, column)."""
    return {(round(t.get_position()[1]), round(t.get_position()[0])): t.get_text() for t in axes.texts}


def lightness(rgba: Any) -> np.ndarray:
    """How light a colour prints in grey."""
    return np.asarray(rgba)[..., :3] @ np.array([0.299, 0.587, 0.114])


def one_of_each(rng: np.random.Generator) -> dict[str, Figure]:
    log = [{"step": i, "loss": 2.0 / (i + 1), "accuracy": 1 - 1 / (i + 1), "val_loss": 2.1 / (i + 1)} for i in range(9)]
    along = [{"step": i, "loss_at_0": 4.0, "loss_at_1": 4.0 / i, "copying.blocks.0.attention.1": i / 9} for i in (1, 5)]
    grads = {"token_embedding.table": rng.normal(size=(5, 4)), "blocks.0.attention.w_q": rng.normal(size=(4, 4))}
    return {
        "attention_map": plots.attention_map(weights_of(rng, 6, 6), WORDS),
        "attention_heads": plots.attention_heads(weights_of(rng, 2, 3, 3), WORDS[:3]),
        "attention_layers": plots.attention_layers({name: weights_of(rng, 1, 1, 3, 3) for name in ("a", "b")}),
        "line_panels": plots.line_panels({"a panel": {"a line": ([1, 2], [3, 4])}}, "step", "loss"),
        "mask_map": plots.mask_map(na.causal_mask(6), WORDS),
        "matrix_map": plots.matrix_map(rng.normal(size=(3, 4)), list("abc"), title="a matrix"),
        "positions_map": plots.positions_map(na.sinusoidal_positions(50, 64)),
        "training_curves": plots.training_curves(log, {"guessing": 1.0}),
        "gradient_flow": plots.gradient_flow(grads),
        "step_error": plots.step_error(10.0 ** -np.arange(1, 6), {"central": 10.0 ** -np.arange(2, 7)}),
        "largest_curvature": plots.largest_curvature(np.arange(3), {0.1: np.array([5.0, 30.0, 21.0])}),
        "loss_by_position": plots.loss_by_position(along, {"guessing": 4.2}),
        "head_scores": plots.head_scores({"blocks.0.attention": rng.random(3), "blocks.1.attention": rng.random(3)}),
        "head_scores_over_training": plots.head_scores_over_training(along),
        "patching_map": plots.patching_map({"blocks.0": rng.normal(size=6)}, WORDS),
        "lens_table": plots.lens_table([WORDS, WORDS], rng.random((2, 6)), ["blocks.0", "norm"]),
    }


def test_every_picture_has_title_and_labels(rng: np.random.Generator) -> None:
    pictures = one_of_each(rng)
    assert set(pictures) == set(plots.__all__) - {"save"}
    for name, figure in pictures.items():
        for text in ("title", "xlabel", "ylabel"):
            assert any(getattr(axes, f"get_{text}")() for axes in figure.axes), f"{name}: no {text}"


@pytest.mark.slow
def test_every_picture_is_drawn_without_a_warning(rng: np.random.Generator) -> None:
    for name, figure in one_of_each(rng).items():
        assert figure._repr_png_().startswith(b"\x89PNG"), f"{name}: a notebook cannot display it"  # type: ignore[attr-defined]


def test_save_writes_the_format_of_the_file_ending_and_the_same_svg_again(tmp_path: Path) -> None:
    figure = plots.new_figure(1.0, 1.0)
    first, second = (plots.save(figure, tmp_path / f"{i}.svg").read_bytes() for i in range(2))
    assert first == second != b""
    assert plots.save(figure, str(tmp_path / "a.png"), dpi=20).read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ValueError, match="not supported"):
        plots.save(figure, tmp_path / "a.pngg")


def test_without_matplotlib_the_error_names_the_package_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ModuleNotFoundError, match="pip install matplotlib"):
        plots.training_curves([{"step": 1, "loss": 2.0}])


def test_each_weight_is_in_its_cell_and_readable() -> None:
    weights = np.linspace(0.0, 1.0, 15).reshape(3, 5)  # a square matrix would hide a transposition
    axes, bar = plots.attention_map(weights, ["you", "$x_1$", " "], ["le", "\n", " a", "a b", "é"], x="read").axes
    assert cells(axes) == {(i, j): f"{weights[i, j]:.2f}" for i in range(3) for j in range(5)}
    assert (ticks(axes.yaxis), ticks(axes.xaxis)) == (["you", "$x_1$", "␣"], ["le", "↵", "␣a", "a b", "é"])
    assert (axes.get_xlabel(), axes.get_ylabel(), bar.get_ylabel()) == ("read", "query", "weight")
    assert axes.images[0].get_clim() == (0.0, weights.max())
    for text in axes.texts:
        j, i = (round(p) for p in text.get_position())
        cell, ink = lightness(axes.images[0].to_rgba(weights)[i, j]), lightness(mpl.colors.to_rgba(text.get_color()))
        assert abs(cell - ink) > 0.35, f"{text.get_text()} is hard to read"


def test_hidden_pairs_are_hatched_without_a_number(rng: np.random.Generator) -> None:
    mask = np.array([[True, False, True], [False, False, False]])
    axes = plots.attention_map(weights_of(rng, 2, 3) * mask, mask=mask).axes[0]
    assert set(cells(axes)) == {(0, 0), (0, 2)}
    hatched = {(round(p.get_y() + 0.5), round(p.get_x() + 0.5)) for p in axes.patches if p.get_hatch()}
    assert hatched == {(0, 1), (1, 0), (1, 1), (1, 2)}
    axes = plots.mask_map(mask).axes[0]
    assert np.array_equal(axes.images[0].get_array(), mask)
    assert (sum(bool(p.get_hatch()) for p in axes.patches), len(axes.texts)) == (4, 0)
    assert "filled: may look; hatched: hidden" in axes.get_xlabel()


def test_each_head_has_a_panel_and_all_share_one_scale(rng: np.random.Generator) -> None:
    weights = weights_of(rng, 3, 3, 4)
    *panels, bar = plots.attention_heads(weights, ["a", "b", "c"], WORDS[:4]).axes
    assert bar.get_ylabel() == "weight"
    assert [axes.get_title() for axes in panels] == [f"head {h}" for h in range(3)]
    assert [bool(axes.get_xlabel()) for axes in panels] == [False, True, True], "only below the last of a column"
    for h, axes in enumerate(panels):
        assert np.array_equal(axes.images[0].get_array(), weights[h])
        assert axes.images[0].get_clim() == (0.0, weights.max())
        assert ticks(axes.yaxis) == ["a", "b", "c"]


def test_training_curves_skip_missing_values_and_name_levels() -> None:
    log = [{"loss": 9.0}, {"step": 1, "loss": 3.0}, {"step": 2, "loss": 2.0, "val_loss": 2.5, "accuracy": 0.5}]
    losses, accuracies = plots.training_curves([*log, {"step": 3, "val_loss": None}], {"trigram": 1.7}).axes
    lines = {line.get_label(): line for line in losses.lines}
    assert list(lines["training batch"].get_ydata()) == [3.0, 2.0]
    assert list(lines["held out"].get_xdata()) == [2]
    assert [text.get_text() for text in losses.texts] == ["trigram"]
    assert np.all(np.asarray(losses.lines[-1].get_ydata()) == 1.7)
    assert (losses.get_ylabel(), accuracies.get_ylabel()) == ("loss (nats)", "accuracy")


def test_gradient_flow_draws_layers_parameters_and_zeros(rng: np.random.Generator) -> None:
    table, w_q, w_o = rng.normal(size=(7, 3)), rng.normal(size=(3, 5)), rng.normal(size=4)
    one = {"table": table, "blocks.10.attention.w_q": w_q, "blocks.10.attention.w_o": w_o, "head.w": np.zeros(2)}
    axes = plots.gradient_flow({"pre-LN": one, "post-LN": one}).axes[0]
    assert ticks(axes.xaxis) == ["table", "blocks.10", "head"]
    size = {name: np.sqrt(np.mean(part**2)) for name, part in {**one, "both": np.append(w_q, w_o)}.items()}
    lines, marks = axes.lines[:2], axes.lines[2:]
    for line, mark in zip(lines, marks):
        np.testing.assert_allclose(line.get_ydata(), [size["table"], size["both"], 1e-17])
        np.testing.assert_allclose(mark.get_ydata(), [*(size[name] for name in [*one][:3]), 1e-17])
    assert [t.get_text() for t in axes.get_legend().get_texts()] == ["pre-LN", "post-LN"]


def test_lens_table_has_each_word_in_its_cell_and_white_on_dark_cells() -> None:
    p = np.array([[0.1, 0.2], [0.9, 1.0 + 1e-7]])
    axes, bar = plots.lens_table([[" a", "$x"], ["Paris", "of"]], p, ["0", "1"], [" is", "?"]).axes
    assert cells(axes) == {(0, 0): "␣a", (0, 1): "$x", (1, 0): "Paris", (1, 1): "of"}
    assert [text.get_color() == "white" for text in axes.texts] == [False, False, True, True]
    assert (ticks(axes.yaxis), ticks(axes.xaxis), bar.get_ylabel()) == (["0", "1"], ["␣is", "?"], "probability")


two = np.full((2, 2), 0.5)
MISTAKES: dict[str, tuple[Any, str]] = {
    "a batch of heads": (lambda: plots.attention_map(two[None]), r"attention_map: each map must be a matrix, got \(1,"),
    "nan": (lambda: plots.attention_map(two * np.nan), "attention_map: each number must be finite, got nan at"),
    "a token too many": (lambda: plots.attention_map(two, ["a", "b", "c"]), "one for each row, 2, got 3"),
    "a mask of 0 and 1": (lambda: plots.mask_map(np.eye(2)), "mask must be of bool.*mask_from_blocked"),
    "a batch of layers": (lambda: plots.attention_heads(two[None, None]), r"a matrix, got .* pick one with \[0\]"),
    "a label too few": (lambda: plots.matrix_map(two, columns=["a"]), "matrix_map: labels of columns must be one for"),
    "a log without losses": (lambda: plots.training_curves([{"step": 3}]), "log must be rows with step"),
    "no scores": (lambda: plots.head_scores_over_training([{"step": 1}]), "rows with step and scores"),
    "words missing": (lambda: plots.lens_table([["a", "b"]], two), r"words must be \(2, 2\), as the probabilities"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_typical_mistake_is_refused_with_its_reason(mistake: str) -> None:
    call, message = MISTAKES[mistake]
    with pytest.raises((TypeError, ValueError), match=message):
        call()
