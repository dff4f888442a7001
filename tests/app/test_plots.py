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
from numpy_attention.app.plots import style

WORDS = ["Manchester", "United", "hopes", "to", "perform", "better"]


def weights_of(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Rows that sum to one."""
    return na.softmax(3.0 * rng.standard_normal(shape))[0]


def ticks(axis: Any) -> list[str]:
    return [label.get_text() for label in axis.get_ticklabels()]


def texts(artist: Any) -> list[str]:
    return [text.get_text() for text in artist.texts]


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
        "attention_heads": plots.attention_heads(weights_of(rng, 2, 6, 6), WORDS),
        "attention_layers": plots.attention_layers({name: weights_of(rng, 1, 2, 6, 6) for name in ("a", "b")}),
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
        axes = figure.axes[0]
        assert axes.get_title() or figure.get_suptitle(), f"{name}: no title"
        assert axes.get_xlabel() or figure.get_supxlabel(), f"{name}: no label at the bottom"
        assert axes.get_ylabel() or figure.get_supylabel(), f"{name}: no label at the side"


@pytest.mark.slow
def test_every_picture_is_drawn_without_a_warning(rng: np.random.Generator) -> None:
    for name, figure in one_of_each(rng).items():
        assert figure._repr_png_().startswith(b"\x89PNG"), f"{name}: a notebook cannot display it"  # type: ignore[attr-defined]


def test_save_writes_the_format_of_the_file_ending_and_the_same_svg_again(tmp_path: Path) -> None:
    figure = style.new_figure(1.0, 1.0)
    first, second = (plots.save(figure, tmp_path / f"{i}.svg").read_bytes() for i in range(2))
    assert first == second
    assert b"<svg" in first
    assert plots.save(figure, str(tmp_path / "a.png"), dpi=20).read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ValueError, match="not supported"):
        plots.save(figure, tmp_path / "a.pngg")


def test_pictures_do_not_depend_on_matplotlib_settings() -> None:
    plain = plots.matrix_map(np.eye(2))._repr_png_()
    with mpl.rc_context({"font.family": "monospace", "font.size": 31, "axes.titlesize": 40, "image.cmap": "jet"}):
        assert plots.matrix_map(np.eye(2))._repr_png_() == plain


def test_without_matplotlib_the_error_names_the_package_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'numpy-attention\[plots\]'"):
        plots.training_curves([{"step": 1, "loss": 2.0}])


@pytest.mark.parametrize("colours", [style.WHITE_TO_BLUE, style.ORANGE_TO_BLUE[1::-1]], ids=["positive", "negative"])
def test_larger_numbers_are_darker_in_grey(colours: tuple[str, ...]) -> None:
    grey = lightness(style.colour_map("test", colours)(np.linspace(1.0, 0.0, 40)))
    assert np.all(np.diff(grey) > 0.0), "lightness must run one way"
    assert grey[-1] - grey[0] > 0.55


def test_each_weight_is_in_its_cell_and_readable() -> None:
    weights = np.linspace(0.0, 1.0, 15).reshape(3, 5)  # a square matrix would hide a transposition
    axes, bar = plots.attention_map(weights, ["you", "$x_1$", " "], ["le", "\n", "", "漢", "é"], x="read").axes
    assert cells(axes) == {(i, j): f"{weights[i, j]:.2f}" for i in range(3) for j in range(5)}
    assert (ticks(axes.yaxis), ticks(axes.xaxis)) == (["you", "$x_1$", "␣"], ["le", "↵", "∅", "<6f22>", "é"])
    assert (axes.get_xlabel(), axes.get_ylabel(), bar.get_ylabel()) == ("read", "query", "weight")
    assert axes.images[0].get_clim() == (0.0, weights.max())
    for text in axes.texts:
        j, i = (round(p) for p in text.get_position())
        cell, ink = lightness(axes.images[0].to_rgba(weights)[i, j]), lightness(mpl.colors.to_rgba(text.get_color()))
        assert abs(cell - ink) > 0.35, f"{text.get_text()} is hard to read"


def test_keys_default_to_queries_and_large_maps_show_no_numbers(rng: np.random.Generator) -> None:
    assert ticks(plots.attention_map(weights_of(rng, 6, 6), WORDS).axes[0].xaxis) == WORDS
    large = weights_of(rng, 6, 11)
    assert "hopes" not in ticks(plots.attention_map(large, WORDS).axes[0].xaxis)
    assert not plots.attention_map(large).axes[0].texts
    assert len(plots.attention_map(large, numbers=True).axes[0].texts) == 66


def test_hidden_pairs_are_hatched_without_a_number(rng: np.random.Generator) -> None:
    mask = np.array([[True, False, True], [False, False, False]])
    axes = plots.attention_map(weights_of(rng, 2, 3) * mask, mask=mask).axes[0]
    assert set(cells(axes)) == {(0, 0), (0, 2)}
    hatched = {(round(p.get_y() + 0.5), round(p.get_x() + 0.5)) for p in axes.patches if p.get_hatch()}
    assert hatched == {(0, 1), (1, 0), (1, 1), (1, 2)}
    figure = plots.mask_map(mask)
    assert np.array_equal(np.asarray(figure.axes[0].images[0].get_array()) > 0, mask)
    assert sum(bool(p.get_hatch()) for p in figure.axes[0].patches) == 4
    assert [t.get_text() for t in figure.legends[0].get_texts()] == ["may look", "hidden"]


def test_each_head_has_a_panel_and_all_share_one_scale(rng: np.random.Generator) -> None:
    weights = weights_of(rng, 5, 3, 4)
    panels = [axes for axes in plots.attention_heads(weights, ["a", "b", "c"]).axes if axes.get_title()]
    assert [axes.get_title() for axes in panels] == [f"head {h}" for h in range(5)]
    for h, axes in enumerate(panels):
        assert np.array_equal(axes.images[0].get_array(), weights[h])
        assert axes.images[0].get_clim() == (0.0, weights.max())
        assert ticks(axes.yaxis) == ["a", "b", "c"]


def test_layers_are_rows_and_only_the_chosen_sequence_is_drawn(rng: np.random.Generator) -> None:
    weights = {"blocks.0.attention": weights_of(rng, 2, 3, 4, 5), "blocks.1.attention": weights_of(rng, 2, 1, 4, 5)}
    figure = plots.attention_layers(weights, sequence=1, x="read", y="written")
    panels = {axes.get_title(): axes for axes in figure.axes if axes.get_title()}
    assert list(panels) == [*(f"blocks.0.attention, head {h}" for h in range(3)), "blocks.1.attention, head 0"]
    below = panels["blocks.1.attention, head 0"]
    assert np.array_equal(below.images[0].get_array(), weights["blocks.1.attention"][1, 0])
    assert (below.get_subplotspec().rowspan.start, below.get_subplotspec().colspan.start) == (1, 0)
    assert (figure.get_supxlabel(), figure.get_supylabel()) == ("read", "written")


def test_matrix_has_orange_below_zero_and_its_own_labels() -> None:
    matrix = np.array([[1.0, -2.0, 0.5], [0.0, -1e-9, 1.5]])
    axes = plots.matrix_map(matrix, ["a b", "c"], ["x", "y", "z"], "m", x="to", y="from").axes[0]
    assert (axes.images[0].get_clim(), axes.images[0].cmap.name) == ((-2.0, 2.0), "orange_to_blue")
    assert list(cells(axes).values()) == ["1.00", "-2.00", "0.50", "0.00", "0.00", "1.50"]
    assert (ticks(axes.yaxis), ticks(axes.xaxis)) == (["a b", "c"], ["x", "y", "z"])
    assert plots.matrix_map(np.array([[1.0, 3.0]])).axes[0].images[0].get_clim() == (0.0, 3.0)
    assert "a" not in ticks(plots.matrix_map(np.eye(3), ["a", "b", "c"]).axes[0].xaxis)


def test_positions_run_to_the_right_and_dimensions_down() -> None:
    table = na.sinusoidal_positions(50, 64)
    axes = plots.positions_map(table).axes[0]
    assert np.array_equal(axes.images[0].get_array(), table.T)
    low, high = axes.images[0].get_clim()
    assert low == -high, "zero must lie in the middle of the scale"


def test_training_curves_skip_missing_values_and_name_levels() -> None:
    log = [{"loss": 9.0}, {"step": 1, "loss": 3.0}, {"step": 2, "loss": 2.0, "val_loss": 2.5, "accuracy": 0.5}]
    losses, accuracies = plots.training_curves([*log, {"step": 3, "val_loss": None}], {"trigram": 1.7}).axes
    lines = {line.get_label(): line for line in losses.lines}
    assert list(lines["training batch"].get_ydata()) == [3.0, 2.0]
    assert list(lines["held out"].get_xdata()) == [2]
    assert texts(losses) == ["trigram"]
    assert np.all(np.asarray(losses.lines[-1].get_ydata()) == 1.7)
    assert accuracies.get_ylabel() == "accuracy"
    assert len(plots.training_curves(log[:2]).axes) == 1, "no accuracy, no panel for it"


def test_gradient_flow_draws_layers_parameters_and_zeros(rng: np.random.Generator) -> None:
    table, w_q, w_o = rng.normal(size=(7, 3)), rng.normal(size=(3, 5)), rng.normal(size=4)
    one = {"table": table, "blocks.10.attention.w_q": w_q, "blocks.10.attention.w_o": w_o, "head.w": np.zeros(2)}
    axes = plots.gradient_flow({"pre-LN": one, "post-LN": one}).axes[0]
    assert ticks(axes.xaxis) == ["table", "blocks.10", "head"]
    both = np.concatenate([w_q.ravel(), w_o])
    expected = [np.sqrt(np.mean(part**2)) for part in (table, both)]
    np.testing.assert_allclose(axes.lines[0].get_ydata(), [*expected, np.nan], rtol=1e-12)
    alone = [np.sqrt(np.mean(part**2)) for part in (w_q, w_o)]
    np.testing.assert_allclose(axes.lines[1].get_ydata(), alone, rtol=1e-12)
    crosses = [line for line in axes.lines if line.get_marker() == "x"]
    assert [round(float(line.get_xdata()[0])) for line in crosses] == [2, 2]
    assert [t.get_text() for t in axes.get_legend().get_texts()] == ["pre-LN", "post-LN"]
    assert axes.get_yscale() == "log"


def test_step_error_and_largest_curvature_draw_a_line_for_each_name() -> None:
    steps = np.array([0.1, 0.01])
    axes = plots.step_error(steps, {"complex step": [0.0, -1e-16], "central": [1e-4, 1e-6]}).axes[0]
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    assert list(axes.lines[0].get_ydata()) == [1e-17, 1e-16]
    assert axes.lines[0].get_marker() != axes.lines[1].get_marker(), "told apart without colours, too"
    axes = plots.largest_curvature([0, 10], {0.1: [4.0, 25.0], 0.05: [3.0, 41.0]}).axes[0]
    assert [t.get_text() for t in axes.get_legend().get_texts()] == ["learning rate 0.1", "learning rate 0.05"]
    assert [list(line.get_ydata()) for line in axes.lines] == [[4.0, 25.0], [20.0, 20.0], [3.0, 41.0], [40.0, 40.0]]


def test_sudden_fall_of_the_loss_is_drawn_and_a_diverged_loss_leaves_a_gap() -> None:
    falls = np.clip((np.arange(10, 130, 10) - 40) / 30, 0, 1)  # between steps 50 and 70
    log = [{"step": 10 * i + 10, "loss_at_0": 4.0, "loss_at_1": 4.0 - 4.0 * f} for i, f in enumerate(falls)]
    axes = plots.loss_by_position([{"step": 1, "loss": 4.0}, *log], {"guessing": 4.2}).axes[0]
    *lines, level = axes.lines
    assert [line.get_label() for line in lines] == [f"step {step}" for step in (10, 50, 60, 120)]
    assert list(lines[-1].get_ydata()) == [4.0, 0.0]
    shades = [float(lightness(line.get_color())) for line in lines]
    assert shades == sorted(shades, reverse=True)
    assert level.get_label() == "guessing"
    line = plots.loss_by_position([{"step": 1, "loss_at_0": float("inf"), "loss_at_1": 2.0}]).axes[0].lines[0]
    np.testing.assert_array_equal(line.get_ydata(), [np.nan, 2.0])


def test_head_scores_are_in_the_cells_of_layers_and_heads() -> None:
    axes = plots.head_scores({"blocks.0.attention": [0.5, 0.25], "blocks.1.attention": [1.0, 0.0]}).axes[0]
    assert cells(axes) == {(0, 0): "0.50", (0, 1): "0.25", (1, 0): "1.00", (1, 1): "0.00"}
    assert (ticks(axes.yaxis), ticks(axes.xaxis)) == (["blocks.0.attention", "blocks.1.attention"], ["0", "1"])
    assert axes.images[0].get_clim() == (0.0, 1.0)
    assert plots.head_scores({"a": [-0.5, 0.25]}).axes[0].images[0].get_clim() == (-1.0, 1.0)


def test_best_heads_look_the_same_in_every_panel_and_have_names() -> None:
    log: list[dict[str, Any]] = [{"step": 5, "loss": 1.0}]
    for step in (10, 20):
        heads = [(block, head) for block in (0, 1) for head in range(3)]
        row = {f"matching.blocks.{b}.attention.{h}": step / 100 * b * (h + 1) for b, h in heads}
        row |= {f"looking_back.blocks.{b}.attention.{h}": 0.9 if (b, h) == (0, 1) else -0.1 * h for b, h in heads}
        log.append({"step": step} | row)
    log[-1]["matching.blocks.0.attention.0"] = float("nan")  # not the best
    figure = plots.head_scores_over_training(log)
    assert [axes.get_title() for axes in figure.axes] == ["matching", "looking back"]
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels[:2] == ["block 1, head 2", "block 0, head 1"]
    assert len(labels) == 4
    first, second = ({line.get_label(): line.get_color() for line in axes.lines} for axes in figure.axes)
    assert all(first[label] == second[label] for label in labels)
    curve = next(line for line in figure.axes[0].lines if line.get_label() == "block 1, head 2")
    assert list(curve.get_xdata()) == [10, 20]
    np.testing.assert_allclose(curve.get_ydata(), [0.3, 0.6])


def test_patching_map_has_a_row_for_each_place_and_head() -> None:
    effects = {"blocks.0": np.array([1.0, -2.0, 0.0]), "decoder.blocks.1.cross_attention": np.arange(6.0).reshape(2, 3)}
    axes, bar = plots.patching_map(effects, [" a", "b", "c"], value="nats").axes
    assert (ticks(axes.xaxis), bar.get_ylabel()) == (["␣a", "b", "c"], "nats")
    assert ticks(axes.yaxis) == ["blocks.0", "decoder, block 1, cross head 0", "decoder, block 1, cross head 1"]
    np.testing.assert_array_equal(axes.images[0].get_array(), [[1, -2, 0], [0, 1, 2], [3, 4, 5]])


def test_lens_table_has_each_word_in_its_cell_and_white_on_dark_cells() -> None:
    p = np.array([[0.1, 0.2], [0.9, 1.0 + 1e-7]])
    axes, bar = plots.lens_table([[" a", "$x"], ["Paris", "extraordinarily"]], p, ["0", "1"], [" is", "?"]).axes
    assert cells(axes) == {(0, 0): "␣a", (0, 1): "$x", (1, 0): "Paris", (1, 1): "extraordina…"}
    assert [text.get_color() == "white" for text in axes.texts] == [False, False, True, True]
    assert (ticks(axes.yaxis), ticks(axes.xaxis), bar.get_ylabel()) == (["0", "1"], ["␣is", "?"], "probability")
    assert not any(one.get_parse_math() for one in (*axes.texts, *axes.get_xticklabels()))


two = np.full((2, 2), 0.5)
MISTAKES: dict[str, tuple[Any, str]] = {
    "a batch of heads": (lambda: plots.attention_map(two[None]), r"attention_map: weights .*weights\[0, 0\]"),
    "scores": (lambda: plots.attention_map(-two), "weights must be at least 0, got -0.5; use matrix_map"),
    "nan": (lambda: plots.attention_map(two * np.nan), r"weights must be finite, got nan at \[0, 0\]"),
    "a token too many": (lambda: plots.attention_map(two, ["a", "b", "c"]), "queries must be 2 labels, got 3"),
    "a mask of 0 and 1": (lambda: plots.attention_map(two, mask=np.eye(2)), "mask must be of bool.*mask_from_blocked"),
    "another mask": (lambda: plots.attention_map(two, mask=np.ones((3, 2), bool)), r"broadcastable to \(2, 2\)"),
    "a mask map of numbers": (lambda: plots.mask_map(np.eye(3)), "mask_map: mask must be of bool"),
    "a batch of layers": (lambda: plots.attention_heads(two[None, None]), r"\(H, T_q, T_k\).*weights\[0\]"),
    "no batch": (lambda: plots.attention_layers({"a": two[None]}), r"\(B, H, T_q, T_k\) .*weights\[None\]"),
    "no dict": (lambda: plots.attention_layers([two]), r"got list; model.attention_weights\(ids\)"),  # type: ignore[arg-type]
    "two sizes": (
        lambda: plots.attention_layers({"a": two[None, None], "b": two[None, None, :1]}), "the same .* in all layers"
    ),
    "a label too few": (lambda: plots.matrix_map(two, columns=["a"]), "matrix_map: columns must be 2 labels"),
    "a log without losses": (lambda: plots.training_curves([{"step": 3}]), "log must be rows with step"),
    "no gradients": (lambda: plots.gradient_flow({}), "gradient_flow: grads must be"),
    "no losses by position": (lambda: plots.loss_by_position([{"step": 1}]), "rows with step and loss_at_0"),
    "no scores": (lambda: plots.head_scores_over_training([{"step": 1}]), "rows with step and scores"),
    "unequal layers": (lambda: plots.head_scores({"a": [1.0], "b": [1.0, 2.0]}), "one H for all layers"),
    "unequal places": (lambda: plots.patching_map({"a": [1.0], "b": [1.0, 2.0]}), "one T for all places"),
    "words missing": (lambda: plots.lens_table([["a", "b"]], two), "words must be 2 lists of 2"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_typical_mistake_is_refused_with_its_reason(mistake: str) -> None:
    call, message = MISTAKES[mistake]
    with pytest.raises((TypeError, ValueError), match=message):
        call()
