"""Pictures of attention: rows are queries, columns are keys; every head and layer has its place."""

import numpy as np
import pytest

from numpy_attention import plots
from tests.app.pictures import ticks, weights_of


def test_rows_are_queries_and_columns_are_keys(rng: np.random.Generator) -> None:
    axes = plots.attention_map(weights_of(rng, 2, 3), ["you", "I"], ["le", "chat", "noir"]).axes[0]
    assert ticks(axes.yaxis) == ["you", "I"]
    assert ticks(axes.xaxis) == ["le", "chat", "noir"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("key", "query")


def test_axes_have_the_given_names(rng: np.random.Generator) -> None:
    names = {"x": "read", "y": "written"}
    axes = plots.attention_map(weights_of(rng, 2, 3), **names).axes[0]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("read", "written")
    for figure in (
        plots.attention_heads(weights_of(rng, 2, 2, 3), **names),
        plots.attention_layers({"a": weights_of(rng, 1, 2, 2, 3)}, **names),
    ):
        assert (figure.get_supxlabel(), figure.get_supylabel()) == ("read", "written")


@pytest.mark.parametrize(
    ("shape", "tokens", "message"),
    [((2, 3, 3), None, r"weights\[0, 0\]"), ((0, 3), None, "one matrix"), ((3, 3), ["a", "b"], "3 labels.*got 2")],
)
def test_error_names_wrong_argument_of_one_head(shape: tuple[int, ...], tokens: list[str] | None, message: str) -> None:
    with pytest.raises(ValueError, match=f"attention_map: .*{message}"):
        plots.attention_map(np.zeros(shape), tokens)


def test_each_head_has_a_panel_and_all_share_one_scale(rng: np.random.Generator) -> None:
    weights = weights_of(rng, 5, 3, 4)
    figure = plots.attention_heads(weights, ["a", "b", "c"])
    panels = [axes for axes in figure.axes if axes.images and axes.get_title()]
    assert [axes.get_title() for axes in panels] == [f"head {h}" for h in range(5)]
    for h, axes in enumerate(panels):
        assert np.array_equal(axes.images[0].get_array(), weights[h])
        assert axes.images[0].get_clim() == (0.0, weights.max())
        assert ticks(axes.yaxis) == ["a", "b", "c"]


def test_layers_are_rows_and_only_the_chosen_sequence_is_drawn(rng: np.random.Generator) -> None:
    weights = {"blocks.0.attention": weights_of(rng, 2, 3, 4, 5), "blocks.1.attention": weights_of(rng, 2, 1, 4, 5)}
    figure = plots.attention_layers(weights, sequence=1)
    panels = {axes.get_title(): axes for axes in figure.axes if axes.get_title()}
    assert list(panels) == [*(f"blocks.0.attention, head {h}" for h in range(3)), "blocks.1.attention, head 0"]
    for block, head in ((0, 2), (1, 0)):
        drawn = panels[f"blocks.{block}.attention, head {head}"].images[0].get_array()
        assert np.array_equal(drawn, weights[f"blocks.{block}.attention"][1, head])
    below = panels["blocks.1.attention, head 0"].get_subplotspec()
    assert (below.rowspan.start, below.colspan.start) == (1, 0)


def test_one_layer_keeps_its_name(rng: np.random.Generator) -> None:
    figure = plots.attention_layers({"encoder.0": weights_of(rng, 1, 2, 3, 3)})
    assert figure.axes[0].get_title() == "encoder.0, head 0"


def test_error_names_the_wrong_argument_of_a_grid(rng: np.random.Generator) -> None:
    with pytest.raises(ValueError, match=r"attention_heads: weights must be \(H, T_q, T_k\).*weights\[0\]"):
        plots.attention_heads(weights_of(rng, 2, 5, 3, 4))
    with pytest.raises(ValueError, match="at least one layer"):
        plots.attention_layers({})
    with pytest.raises(ValueError, match="the same \\(T_q, T_k\\) in all layers"):
        plots.attention_layers({"a": weights_of(rng, 1, 1, 2, 2), "b": weights_of(rng, 1, 1, 2, 3)})


def test_refuses_sequence_outside_the_batch(rng: np.random.Generator) -> None:
    weights = {"a": weights_of(rng, 2, 1, 2, 2), "b": weights_of(rng, 3, 1, 2, 2)}
    for sequence in (2, -3, 1.0, None):
        with pytest.raises((TypeError, ValueError), match=r"attention_layers: sequence must be .*in \[-2, 2\), got"):
            plots.attention_layers(weights, sequence=sequence)  # type: ignore[arg-type]
    drawn = plots.attention_layers(weights, sequence=-1).axes[1].images[0].get_array()
    assert np.array_equal(drawn, weights["b"][-1, 0])


def test_refuses_layers_without_names(rng: np.random.Generator) -> None:
    with pytest.raises(TypeError, match=r"weights must be a dict .*, got list; model.attention_weights\(ids\)"):
        plots.attention_layers([weights_of(rng, 1, 1, 2, 2)])  # type: ignore[arg-type]
