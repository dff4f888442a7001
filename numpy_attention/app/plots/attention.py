"""Pictures of attention weights: one head, a layer, a whole model."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from numpy_attention.app.plots.cells import (
    Tokens,
    add_colour_bar,
    draw_weights,
    figure_of_cells,
    inches,
    label_cells,
    labels_of,
    require_mask,
    require_matrices,
    upper_end,
)
from numpy_attention.app.plots.style import FONT, INK, drawable, dress, new_figure
from numpy_attention.errors import dtype_error, require_number, shape_error


def attention_map(
    weights: np.ndarray, queries: Tokens = None, keys: Tokens = None, title: str = "Attention weights",
    mask: np.ndarray | None = None, numbers: bool | None = None, x: str = "key", y: str = "query",
) -> Any:
    """Draw one head: a row for each query, a column for each key. A stronger blue is a larger weight.

    `queries` and `keys` are the tokens; keys default to the queries if there are equally many. `mask` hatches the
    hidden pairs (thin lines), so a reader can distinguish a hidden pair from a small weight. By default each cell shows
    its weight with two decimals if there are few cells; `numbers` forces this on or off. `x` and `y` name the axes.

    Shapes: weights (T_q, T_k), mask broadcastable to it -> Figure

    Raises: TypeError or ValueError if weights is not one matrix of finite numbers >= 0, if the number of tokens differs
    from the number of rows or columns, or if mask is not boolean or has a wrong shape.
    """
    weights = require_matrices("attention_map", weights, 2, "pick one head: weights[0, 0], or use attention_heads")
    mask = None if mask is None else require_mask("attention_map", mask, weights.shape)
    labels = labels_of("attention_map", weights, queries, keys)
    draw = partial(draw_weights, values=weights, largest=upper_end(weights), mask=mask, numbers=numbers)
    return figure_of_cells(weights.shape, draw, labels, title, x, y, "weight")


def attention_heads(
    weights: np.ndarray, queries: Tokens = None, keys: Tokens = None, title: str = "Attention weights, head by head",
    x: str = "key", y: str = "query",
) -> Any:
    """Draw every head of a layer in one grid with one colour scale.

    Shapes: weights (H, T_q, T_k) -> Figure

    Raises: TypeError or ValueError if weights has another shape or does not hold finite numbers >= 0, or if the
    number of tokens differs from the number of rows or columns.
    """
    weights = require_matrices("attention_heads", weights, 3, "pick one sequence of the batch: weights[0]")
    return _grid("attention_heads", {"": weights}, queries, keys, title, x, y)


def attention_layers(
    weights: Mapping[str, np.ndarray], queries: Tokens = None, keys: Tokens = None,
    title: str = "Attention weights, layer by layer", sequence: int = 0, x: str = "key", y: str = "query",
) -> Any:
    """Draw the result of `model.attention_weights(ids)`: a row of heads for each layer, with one colour scale.

    `sequence` picks one sequence of the batch. All layers must have the same queries and keys: draw the encoder, the
    decoder and the cross-attention in three figures.

    Shapes: weights {name: (B, H, T_q, T_k)} -> Figure

    Raises: TypeError or ValueError if weights has other shapes or does not hold finite numbers >= 0, if the number
    of tokens differs from the number of rows or columns, or if the batch has no such sequence.
    """
    if not hasattr(weights, "items"):
        fix = "model.attention_weights(ids) gives one"
        raise dtype_error("attention_layers", "weights", "a dict with at least one layer", type(weights).__name__, fix)
    if not weights:
        raise shape_error("attention_layers", "weights", "a dict with at least one layer", weights)
    fix = "with one sequence give it a batch axis: weights[None]"
    layers = {name: require_matrices("attention_layers", w, 4, fix) for name, w in weights.items()}
    fewest = min(len(w) for w in layers.values())
    place = int(require_number("attention_layers", "sequence", sequence, at_least=-fewest, below=fewest, whole=True))
    layers = {name: w[place] for name, w in layers.items()}
    sizes = {w.shape[1:] for w in layers.values()}
    if len(sizes) > 1:
        fix = "draw encoder, decoder and cross-attention in separate figures"
        raise shape_error("attention_layers", "weights", "the same (T_q, T_k) in all layers", sorted(sizes), fix)
    return _grid("attention_layers", layers, queries, keys, title, x, y)


def _grid(op: str, layers: Mapping[str, np.ndarray], queries: Tokens, keys: Tokens, title: str, x: str, y: str) -> Any:
    has_names = len(layers) > 1 or "" not in layers
    first = next(iter(layers.values()))
    num_heads, T_q, T_k = first.shape
    rows, columns = labels_of(op, first[0], queries, keys)
    width, height = inches(T_q, T_k)
    if has_names:
        across, down = max(w.shape[0] for w in layers.values()), len(layers)
    else:  # as many in a row as fit on a page with readable numbers
        fitting = max(1, min(num_heads, 4, int(11.0 / (0.7 + 0.72 * width))))
        down = -(-num_heads // fitting)
        across = -(-num_heads // down)
    figure = new_figure(1.6 + across * (0.7 + 0.72 * width), 1.0 + down * (0.9 + 0.72 * height))
    grid = figure.subplots(down, across, squeeze=False)
    largest = max(upper_end(w) for w in layers.values())
    places = iter(grid.flat)
    image = None
    for name, heads in layers.items():
        for h, head in enumerate(heads):
            axes = next(places)
            image = draw_weights(axes, head, largest, None, None, fontsize=7)
            dress(axes, f"{name}, head {h}" if name else f"head {h}")
            label_cells(axes, rows, columns, fontsize=7)
        for _ in range(across - len(heads) if has_names else 0):
            next(places).set_axis_off()
    for axes in places:
        axes.set_axis_off()
    figure.suptitle(drawable(title), fontsize=12, color=INK, family=FONT)
    figure.supxlabel(drawable(x), fontsize=10, color=INK, family=FONT)
    figure.supylabel(drawable(y), fontsize=10, color=INK, family=FONT)
    add_colour_bar(figure, image, grid, "weight")
    return figure
