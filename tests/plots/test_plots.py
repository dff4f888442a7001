"""The pictures: what is written on them, that every number lands in its cell, and that nothing global is touched."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.figure import Figure

import numpy_attention as na
from numpy_attention import plots
from numpy_attention.plots import style

ROOT = Path(__file__).parents[1]
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
    grads = {"token_embedding.table": rng.normal(size=(5, 4)), "blocks.0.attention.w_q": rng.normal(size=(4, 4))}
    return {
        "attention_map": plots.attention_map(weights_of(rng, 6, 6), WORDS),
        "attention_heads": plots.attention_heads(weights_of(rng, 5, 6, 6), WORDS),
        "attention_layers": plots.attention_layers({name: weights_of(rng, 1, 3, 6, 6) for name in ("a", "b")}),
        "mask_map": plots.mask_map(na.causal_mask(6), WORDS),
        "matrix_map": plots.matrix_map(rng.normal(size=(3, 4)), list("abc"), title="a matrix"),
        "positions_map": plots.positions_map(na.sinusoidal_positions(50, 64)),
        "training_curves": plots.training_curves(log, {"guessing": 1.0}),
        "gradient_flow": plots.gradient_flow(grads),
        "step_error": plots.step_error(10.0 ** -np.arange(1, 6), {"central": 10.0 ** -np.arange(2, 7)}),
    }


def test_every_picture_has_a_title_and_labels_and_draws_without_a_warning(rng: np.random.Generator) -> None:
    pictures = one_of_each(rng)
    assert set(pictures) == set(plots.__all__) - {"save"}
    for name, figure in pictures.items():
        figure.draw_without_rendering()
        axes = figure.axes[0]
        assert axes.get_title() or figure.get_suptitle(), f"{name}: no title"
        assert axes.get_xlabel() or figure.get_supxlabel(), f"{name}: no label at the bottom"
        assert axes.get_ylabel() or figure.get_supylabel(), f"{name}: no label at the side"


def test_drawing_imports_no_pyplot_and_changes_no_setting(tmp_path: Path) -> None:
    code = (
        "import sys, matplotlib as mpl, numpy as np; before = dict(mpl.rcParams)\n"
        "from numpy_attention import plots\n"
        "plots.save(plots.attention_map(np.eye(3)), sys.argv[1])\n"
        "plots.save(plots.training_curves([{'step': 1, 'loss': 2.0}]), sys.argv[1])\n"
        "assert 'matplotlib.pyplot' not in sys.modules, 'pyplot was imported'\n"
        "assert dict(mpl.rcParams) == before, 'a setting changed'\n"
    )
    command = [sys.executable, "-W", "error", "-c", code, str(tmp_path / "out.png")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")


def test_pictures_are_part_of_the_package_and_matplotlib_is_loaded_with_the_first_one_only() -> None:
    code = "import sys, numpy_attention as na; na.plots.attention_map; assert 'matplotlib' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_without_matplotlib_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'numpy-attention\[plots\]'") as caught:
        plots.attention_map(np.eye(2))
    assert "\n" not in str(caught.value)


def test_a_notebook_can_display_the_figure(rng: np.random.Generator) -> None:
    for figure in one_of_each(rng).values():
        assert figure._repr_png_().startswith(b"\x89PNG")


def test_the_look_does_not_depend_on_the_readers_settings(rng: np.random.Generator) -> None:
    weights = weights_of(rng, 4, 4)
    plain = plots.attention_map(weights, list("abcd"))._repr_png_()
    with mpl.rc_context({"font.family": "monospace", "font.size": 31, "axes.titlesize": 40, "image.cmap": "jet"}):
        assert plots.attention_map(weights, list("abcd"))._repr_png_() == plain


class TestAttentionMap:
    def test_each_cell_shows_its_own_weight_with_two_decimals(self, rng: np.random.Generator) -> None:
        weights = weights_of(rng, 3, 7)  # as many rows as columns would hide a transposition
        texts = cells(plots.attention_map(weights).axes[0])
        assert texts == {(i, j): f"{weights[i, j]:.2f}" for i in range(3) for j in range(7)}

    def test_rows_are_queries_and_columns_are_keys(self, rng: np.random.Generator) -> None:
        axes = plots.attention_map(weights_of(rng, 2, 3), ["you", "I"], ["le", "chat", "noir"]).axes[0]
        assert ticks(axes.yaxis) == ["you", "I"]
        assert ticks(axes.xaxis) == ["le", "chat", "noir"]
        assert (axes.get_xlabel(), axes.get_ylabel()) == ("key", "query")

    def test_the_axes_can_be_given_names(self, rng: np.random.Generator) -> None:
        names = {"x": "read", "y": "written"}
        axes = plots.attention_map(weights_of(rng, 2, 3), **names).axes[0]
        assert (axes.get_xlabel(), axes.get_ylabel()) == ("read", "written")
        for figure in (
            plots.attention_heads(weights_of(rng, 2, 2, 3), **names),
            plots.attention_layers({"a": weights_of(rng, 1, 2, 2, 3)}, **names),
        ):
            assert (figure.get_supxlabel(), figure.get_supylabel()) == ("read", "written")

    def test_keys_default_to_the_queries_in_self_attention_only(self, rng: np.random.Generator) -> None:
        assert ticks(plots.attention_map(weights_of(rng, 6, 6), WORDS).axes[0].xaxis) == WORDS
        assert "hopes" not in ticks(plots.attention_map(weights_of(rng, 6, 5), WORDS).axes[0].xaxis)

    def test_many_cells_carry_no_numbers_unless_asked(self, rng: np.random.Generator) -> None:
        assert not plots.attention_map(weights_of(rng, 3, 11)).axes[0].texts
        assert len(plots.attention_map(weights_of(rng, 3, 11), numbers=True).axes[0].texts) == 33
        assert not plots.attention_map(weights_of(rng, 3, 4), numbers=False).axes[0].texts

    def test_numbers_stand_out_from_their_cell(self, rng: np.random.Generator) -> None:
        weights = np.linspace(0.0, 1.0, 30).reshape(5, 6)
        axes = plots.attention_map(weights).axes[0]
        image = axes.images[0]
        for text in axes.texts:
            j, i = (round(p) for p in text.get_position())
            cell, ink = lightness(image.to_rgba(weights)[i, j]), lightness(mpl.colors.to_rgba(text.get_color()))
            assert abs(cell - ink) > 0.35, f"{text.get_text()} is hard to read"

    def test_there_is_a_colour_bar_from_zero_to_the_largest_weight(self, rng: np.random.Generator) -> None:
        weights = weights_of(rng, 5, 4)
        figure = plots.attention_map(weights)
        assert len(figure.axes) == 2
        assert figure.axes[1].get_ylabel() == "weight"
        assert figure.axes[0].images[0].get_clim() == (0.0, weights.max())

    def test_hidden_pairs_are_hatched_and_carry_no_number(self, rng: np.random.Generator) -> None:
        mask = np.array([[True, False, True], [False, False, False]])
        axes = plots.attention_map(weights_of(rng, 2, 3) * mask, mask=mask).axes[0]
        assert set(cells(axes)) == {(0, 0), (0, 2)}
        hatched = {(round(p.get_y() + 0.5), round(p.get_x() + 0.5)) for p in axes.patches if p.get_hatch()}
        assert hatched == {(0, 1), (1, 0), (1, 1), (1, 2)}

    def test_a_long_title_is_broken_into_lines_that_fit(self, rng: np.random.Generator) -> None:
        figure = plots.attention_map(weights_of(rng, 3, 2), title="who looks at whom, in words without an end")
        figure.draw_without_rendering()
        box = figure.axes[0].title.get_window_extent()
        assert box.x0 >= 0.0
        assert box.x1 <= figure.bbox.width
        assert box.y1 <= figure.bbox.height

    def test_a_row_of_zeros_draws(self) -> None:
        plots.attention_map(np.zeros((2, 3))).draw_without_rendering()

    def test_dollars_white_space_and_unknown_letters_become_plain_labels(self) -> None:
        tokens = ["$x_1$", " ", "\n", "", "漢", "é"]
        figure = plots.attention_map(np.eye(6), tokens)
        assert ticks(figure.axes[0].yaxis) == ["$x_1$", "␣", "↵", "∅", "<6f22>", "é"]
        figure.draw_without_rendering()  # a glyph that the font lacks, or bad TeX, would raise

    @pytest.mark.parametrize(
        ("shape", "tokens", "said"),
        [((2, 3, 3), None, r"weights\[0, 0\]"), ((0, 3), None, "one matrix"), ((3, 3), ["a", "b"], "3 labels.*got 2")],
    )
    def test_wrong_arguments_are_named(self, shape: tuple[int, ...], tokens: list[str] | None, said: str) -> None:
        with pytest.raises(ValueError, match=f"attention_map: .*{said}"):
            plots.attention_map(np.zeros(shape), tokens)


class TestGrids:
    def test_every_head_has_its_own_panel_on_one_scale(self, rng: np.random.Generator) -> None:
        weights = weights_of(rng, 5, 3, 4)
        figure = plots.attention_heads(weights, ["a", "b", "c"])
        panels = [axes for axes in figure.axes if axes.images and axes.get_title()]
        assert [axes.get_title() for axes in panels] == [f"head {h}" for h in range(5)]
        for h, axes in enumerate(panels):
            assert np.array_equal(axes.images[0].get_array(), weights[h])
            assert axes.images[0].get_clim() == (0.0, weights.max())
            assert ticks(axes.yaxis) == ["a", "b", "c"]

    def test_layers_are_rows_and_the_chosen_sequence_is_drawn(self, rng: np.random.Generator) -> None:
        weights = {"blocks.0.attention": weights_of(rng, 2, 3, 4, 5), "blocks.1.attention": weights_of(rng, 2, 1, 4, 5)}
        figure = plots.attention_layers(weights, sequence=1)
        panels = {axes.get_title(): axes for axes in figure.axes if axes.get_title()}
        assert list(panels) == [*(f"blocks.0.attention, head {h}" for h in range(3)), "blocks.1.attention, head 0"]
        for block, head in ((0, 2), (1, 0)):
            drawn = panels[f"blocks.{block}.attention, head {head}"].images[0].get_array()
            assert np.array_equal(drawn, weights[f"blocks.{block}.attention"][1, head])
        below = panels["blocks.1.attention, head 0"].get_subplotspec()
        assert (below.rowspan.start, below.colspan.start) == (1, 0)

    def test_one_layer_keeps_its_name(self, rng: np.random.Generator) -> None:
        figure = plots.attention_layers({"encoder.0": weights_of(rng, 1, 2, 3, 3)})
        assert figure.axes[0].get_title() == "encoder.0, head 0"

    def test_wrong_arguments_are_named(self, rng: np.random.Generator) -> None:
        with pytest.raises(ValueError, match=r"attention_heads: weights must be \(H, T_q, T_k\).*weights\[0\]"):
            plots.attention_heads(weights_of(rng, 2, 5, 3, 4))
        with pytest.raises(ValueError, match="at least one layer"):
            plots.attention_layers({})
        with pytest.raises(ValueError, match="one \\(T_q, T_k\\) in all layers"):
            plots.attention_layers({"a": weights_of(rng, 1, 1, 2, 2), "b": weights_of(rng, 1, 1, 2, 3)})


class TestMask:
    def test_visible_pairs_are_filled_and_hidden_ones_hatched(self, rng: np.random.Generator) -> None:
        mask = rng.random((4, 6)) < 0.5
        figure = plots.mask_map(mask)
        axes = figure.axes[0]
        assert np.array_equal(np.asarray(axes.images[0].get_array()) > 0, mask)
        assert sum(bool(p.get_hatch()) for p in axes.patches) == (~mask).sum()
        assert [t.get_text() for t in figure.legends[0].get_texts()] == ["may look", "hidden"]

    def test_a_mask_of_numbers_is_refused(self) -> None:
        with pytest.raises(ValueError, match="mask_map: mask must be of bool, True = may look, got int64"):
            plots.mask_map(np.eye(3, dtype=np.int64))


class TestMatrix:
    def test_signs_have_colours_and_zero_lies_in_the_middle(self) -> None:
        matrix = np.array([[1.0, -2.0, 0.5], [0.0, -1e-9, 1.5]])
        axes = plots.matrix_map(matrix, ["a b", "c"], ["x", "y", "z"], "m", x="to", y="from").axes[0]
        assert axes.images[0].get_clim() == (-2.0, 2.0)
        expected = [["1.00", "-2.00", "0.50"], ["0.00", "0.00", "1.50"]]
        assert cells(axes) == {(i, j): expected[i][j] for i in range(2) for j in range(3)}
        assert (ticks(axes.yaxis), ticks(axes.xaxis)) == (["a b", "c"], ["x", "y", "z"])
        assert (axes.get_xlabel(), axes.get_ylabel(), axes.get_title()) == ("to", "from", "m")

    def test_without_a_negative_number_the_scale_starts_at_zero(self) -> None:
        assert plots.matrix_map(np.array([[1.0, 3.0]])).axes[0].images[0].get_clim() == (0.0, 3.0)

    def test_labels_of_rows_say_nothing_of_columns(self) -> None:
        axes = plots.matrix_map(np.eye(3), ["a", "b", "c"]).axes[0]
        assert "a" not in ticks(axes.xaxis)
        with pytest.raises(ValueError, match="matrix_map: columns must be 3 labels"):
            plots.matrix_map(np.eye(3), columns=["a"])


class TestPositions:
    def test_positions_run_along_and_dimensions_down(self) -> None:
        table = na.sinusoidal_positions(50, 64)
        axes = plots.positions_map(table).axes[0]
        assert np.array_equal(axes.images[0].get_array(), table.T)
        assert (axes.get_xlabel(), axes.get_ylabel()) == ("position", "dimension")
        low, high = axes.images[0].get_clim()
        assert low == -high, "zero must lie in the middle of the scale"


@pytest.mark.parametrize("colours", [style.WHITE_TO_BLUE[::-1], style.BLUE_TO_RED], ids=["weights", "positions"])
def test_maps_stay_readable_in_grey(colours: tuple[str, ...]) -> None:
    grey = lightness(style.colour_map("test", colours)(np.linspace(0.0, 1.0, 40)))
    assert np.all(np.diff(grey) > 0.0), "lightness must run one way"
    assert grey[-1] - grey[0] > 0.55


class TestCurves:
    def test_a_row_without_a_value_is_skipped(self) -> None:
        log = [{"step": 0, "loss": 3.0}, {"step": 1, "loss": 2.0, "val_loss": 2.5}]
        figure = plots.training_curves([*log, {"step": 2, "loss": 1.0, "val_loss": None}])
        lines = {line.get_label(): line for line in figure.axes[0].lines}
        assert list(lines["training batch"].get_ydata()) == [3.0, 2.0, 1.0]
        assert list(lines["held out"].get_xdata()) == [1]
        assert len(figure.axes) == 1, "no accuracy, no panel for it"

    def test_accuracy_has_its_own_panel_from_zero_to_one(self) -> None:
        figure = plots.training_curves([{"step": i, "loss": 1.0, "accuracy": 0.5 + i / 4} for i in range(3)])
        assert [axes.get_ylabel() for axes in figure.axes] == ["loss (nats)", "accuracy"]
        low, high = figure.axes[1].get_ylim()
        assert low < 0.0 < 1.0 < high < 1.1

    def test_levels_are_named(self) -> None:
        axes = plots.training_curves([{"step": 1, "loss": 2.0}], {"trigram": 1.712}).axes[0]
        assert [t.get_text() for t in axes.texts] == ["trigram"]
        assert any(np.all(np.asarray(line.get_ydata()) == 1.712) for line in axes.lines)

    def test_an_empty_log_is_refused(self) -> None:
        with pytest.raises(ValueError, match="training_curves: log must be rows with step"):
            plots.training_curves([{"step": 3}])

    def test_lines_differ_in_more_than_colour(self, rng: np.random.Generator) -> None:
        steps = np.array([0.1, 0.01])
        axes = plots.step_error(steps, {str(n): rng.random(2) for n in range(5)}).axes[0]
        assert len({(line.get_marker(), str(line._dash_pattern)) for line in axes.lines}) == 5

    def test_both_axes_of_the_step_are_logarithmic_and_zero_has_a_place(self) -> None:
        axes = plots.step_error(np.array([0.1, 0.01]), {"complex step": np.array([0.0, -1e-16])}).axes[0]
        assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
        assert list(axes.lines[0].get_ydata()) == [1e-17, 1e-16]

    def test_steps_and_errors_must_be_equally_many(self) -> None:
        with pytest.raises(ValueError, match=r"step_error: errors\['central'\] must be \(n,\)"):
            plots.step_error(np.ones(3), {"central": np.ones(2)})


class TestGradientFlow:
    def test_the_line_is_the_root_mean_square_of_each_layer(self, rng: np.random.Generator) -> None:
        table, w_q, w_o, head = rng.normal(size=(7, 3)), rng.normal(size=(3, 5)), rng.normal(size=4), rng.normal(size=2)
        grads = {"table": table, "blocks.10.attention.w_q": w_q, "blocks.10.attention.w_o": w_o, "head.w": head}
        axes = plots.gradient_flow(grads).axes[0]
        assert ticks(axes.xaxis) == ["table", "blocks.10", "head"]
        both = np.concatenate([w_q.ravel(), w_o])
        expected = [np.sqrt(np.mean(one**2)) for one in (table, both, head)]
        np.testing.assert_allclose(axes.lines[0].get_ydata(), expected, rtol=1e-12)
        alone = [np.sqrt(np.mean(one**2)) for one in (w_q, w_o)]
        np.testing.assert_allclose(axes.lines[2].get_ydata(), alone, rtol=1e-12)
        assert axes.get_yscale() == "log"

    def test_several_models_are_told_apart_by_a_legend(self, rng: np.random.Generator) -> None:
        one = {"blocks.0.w": rng.normal(size=3), "blocks.1.w": rng.normal(size=3)}
        axes = plots.gradient_flow({"pre-LN": one, "post-LN": one}).axes[0]
        assert [t.get_text() for t in axes.get_legend().get_texts()] == ["pre-LN", "post-LN"]

    def test_a_gradient_of_zero_is_marked_where_it_stands(self, rng: np.random.Generator) -> None:
        figure = plots.gradient_flow({"a": rng.normal(size=3), "dead": np.zeros(4), "b": rng.normal(size=3)})
        figure.draw_without_rendering()
        crosses = [line for line in figure.axes[0].lines if line.get_marker() == "x"]
        assert [round(float(line.get_xdata()[0])) for line in crosses] == [1]

    def test_no_gradients_are_refused(self) -> None:
        with pytest.raises(ValueError, match="gradient_flow: grads must be"):
            plots.gradient_flow({})


def test_save_writes_the_format_of_the_ending(tmp_path: Path, rng: np.random.Generator) -> None:
    figure = plots.attention_map(weights_of(rng, 2, 2))
    assert plots.save(figure, tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert b"<svg" in plots.save(figure, str(tmp_path / "a.svg")).read_bytes()
    with pytest.raises(ValueError, match="not supported"):
        plots.save(figure, tmp_path / "a.pngg")


@pytest.mark.parametrize("ending", ["svg", "pdf", "png"])
def test_the_same_figure_is_the_same_file(ending: str, tmp_path: Path) -> None:
    first, second = (
        plots.save(plots.matrix_map(np.arange(6.0).reshape(2, 3)), tmp_path / f"{name}.{ending}").read_bytes()
        for name in ("first", "second")
    )
    assert first == second
