"""Pictures of matrices: attention weights, masks, tables of positions, any matrix."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from numpy_attention.app.plots import cells, style
from numpy_attention.app.plots.cells import Tokens, checked, figure_of_cells, inches, labels_of
from numpy_attention.errors import broadcasts_to, dtype_error, require_bools, shape_error, value_error

Panels = list[list[tuple[str, np.ndarray]]]  # rows of maps, each with its title


def attention_map(
    weights: np.ndarray, queries: Tokens = None, keys: Tokens = None, title: str = "Attention weights",
    mask: np.ndarray | None = None, numbers: bool | None = None, x: str = "key", y: str = "query",
) -> Any:
    """Draw one head: a row for each query, a column for each key. A stronger blue is a larger weight.

    `queries` and `keys` are the tokens; keys default to the queries if there are equally many. `mask` hatches the
    hidden pairs (thin lines), so a reader can distinguish a hidden pair from a small weight. By default each cell shows
    its weight with two decimals if there are few cells; `numbers` forces this on or off. `x` and `y` name the axes.

    Shapes: weights (T_q, T_k), mask broadcastable to it -> Figure

    Raises: ValueError or TypeError for another shape, a weight below 0, a number of tokens that does not fit, or a mask
    that is not boolean.
    """
    op = "attention_map"
    weights = _weights(op, weights, "one matrix (T_q, T_k)", "pick one head: weights[0, 0], or use attention_heads")
    if mask is not None:
        mask = _mask(op, mask)
        if not broadcasts_to(mask.shape, weights.shape):
            raise shape_error(op, "mask", f"broadcastable to {weights.shape}", mask.shape)
    labels = _tokens(op, weights.shape, queries, keys)
    return figure_of_cells(weights, *labels, title, x, y, "weight", visible=mask, numbers=numbers)


def attention_heads(
    weights: np.ndarray, queries: Tokens = None, keys: Tokens = None, title: str = "Attention weights, head by head",
    x: str = "key", y: str = "query",
) -> Any:
    """Draw every head of a layer in one grid with one colour scale.

    Shapes: weights (H, T_q, T_k) -> Figure

    Raises: ValueError for another shape, a weight below 0, or a number of tokens that does not fit.
    """
    op = "attention_heads"
    weights = _weights(op, weights, "(H, T_q, T_k)", "pick one sequence of the batch: weights[0]")
    heads = [(f"head {h}", head) for h, head in enumerate(weights)]
    fitting = max(1, min(4, int(11.0 / (0.7 + 0.72 * inches(*weights.shape[1:])[0]))))  # on a page, readable
    across = -(-len(heads) // -(-len(heads) // fitting))  # rows of nearly equal length
    panels = [heads[i : i + across] for i in range(0, len(heads), across)]
    return _grid(panels, _tokens(op, weights.shape[1:], queries, keys), title, x, y)


def attention_layers(
    weights: Mapping[str, np.ndarray], queries: Tokens = None, keys: Tokens = None,
    title: str = "Attention weights, layer by layer", sequence: int = 0, x: str = "key", y: str = "query",
) -> Any:
    """Draw the result of `model.attention_weights(ids)`: a row of heads for each layer, with one colour scale.

    `sequence` picks one sequence of the batch. All layers must have the same queries and keys: draw the encoder, the
    decoder and the cross-attention in three figures.

    Shapes: weights {name: (B, H, T_q, T_k)} -> Figure

    Raises: ValueError for other shapes, a weight below 0, or a number of tokens that does not fit; TypeError if weights
    is not a dict; IndexError if the batch has no such sequence.
    """
    op, fix = "attention_layers", "with one sequence give it a batch axis: weights[None]"
    if not isinstance(weights, Mapping) or not weights:
        made = "model.attention_weights(ids) gives one"
        raise dtype_error(op, "weights", "a dict with at least one layer", type(weights).__name__, made)
    shape = "(B, H, T_q, T_k) in each layer"
    layers = {name: _weights(op, of_layer, shape, fix)[sequence] for name, of_layer in weights.items()}
    sizes = {of_layer.shape[1:] for of_layer in layers.values()}
    if len(sizes) > 1:
        fix = "draw encoder, decoder and cross-attention in separate figures"
        raise shape_error(op, "weights", "the same (T_q, T_k) in all layers", sorted(sizes), fix)
    panels = [[(f"{name}, head {h}", head) for h, head in enumerate(heads)] for name, heads in layers.items()]
    return _grid(panels, _tokens(op, sizes.pop(), queries, keys), title, x, y)


def mask_map(mask: np.ndarray, queries: Tokens = None, keys: Tokens = None, title: str = "Who may look at whom") -> Any:
    """Draw a mask: a cell is filled if the query may look at the key, and hatched if it may not.

    Shapes: mask (T_q, T_k) of bool -> Figure

    Raises: ValueError or TypeError if mask is not one boolean matrix, or a number of tokens does not fit.
    """
    from matplotlib.patches import Patch

    mask = _mask("mask_map", mask)
    fill = 0.6 * checked("mask_map", "mask", mask, "one matrix (T_q, T_k)", "pick one: mask[0, 0]")
    labels, margins = _tokens("mask_map", mask.shape, queries, keys), (2.0, 1.9)
    look: dict[str, Any] = {"visible": mask, "largest": 1.0, "numbers": False}
    figure = figure_of_cells(fill, *labels, title, "key", "query", margins=margins, **look)
    blue = style.colour_map("white_to_blue", style.WHITE_TO_BLUE)(0.6)
    seen = Patch(facecolor=blue, edgecolor=style.INK, label="may look")
    hidden = Patch(facecolor="white", edgecolor="#888888", hatch="///", label="hidden")
    font = {"family": style.FONT, "size": 9}
    figure.legend(handles=[seen, hidden], loc="outside lower center", ncols=2, frameon=False, prop=font)
    return figure


def matrix_map(
    matrix: np.ndarray, rows: Tokens = None, columns: Tokens = None, title: str = "", x: str = "column",
    y: str = "row", value: str = "value",
) -> Any:
    """Draw any matrix with its numbers: zero is white, positive blue, negative orange.

    Shapes: matrix (n, m) -> Figure

    Units: those of the matrix; `value` is the label of the colour bar, for example "nats".

    Raises: ValueError for another shape, numbers that are not finite, or a number of labels that does not fit.
    """
    matrix = checked("matrix_map", "matrix", matrix, "one matrix (n, m)", "pick one: matrix[0]")
    row_names = labels_of("matrix_map", "rows", rows, matrix.shape[0], tokens=False)
    column_names = labels_of("matrix_map", "columns", columns, matrix.shape[1], tokens=False)
    return figure_of_cells(matrix, row_names, column_names, title, x, y, value)


def positions_map(table: np.ndarray, title: str = "Sinusoidal positions") -> Any:
    """Draw a table of positions: one column for each position, one row for each dimension.

    Shapes: table (T, d_model) -> Figure

    Raises: ValueError for another shape, or numbers that are not finite.
    """
    table = checked("positions_map", "table", table, "one matrix (T, d_model)", "one row for each position")
    figure = style.new_figure(8.5, 3.8)
    axes = figure.subplots()
    image = cells.draw_cells(axes, table.T, numbers=False, aspect="auto")
    style.dress(axes, style.fit(title, figure), "position", "dimension")
    cells.add_colour_bar(figure, image, axes, "value")
    return figure


def _grid(panels: Panels, labels: tuple[list[str], list[str]], title: str, x: str, y: str) -> Any:
    """A figure with a map for each panel; all maps have the same size, labels and colour scale."""
    across, down = max(map(len, panels)), len(panels)
    width, height = inches(*panels[0][0][1].shape)
    figure = style.new_figure(1.6 + across * (0.7 + 0.72 * width), 1.0 + down * (0.9 + 0.72 * height))
    grid = figure.subplots(down, across, squeeze=False)
    largest = max(float(head.max()) for row in panels for _, head in row)
    image = None
    for row, places in zip(panels, grid):
        for (name, head), axes in zip(row, places):
            image = cells.draw_cells(axes, head, largest, fontsize=7)
            style.dress(axes, name)
            cells.label_cells(axes, *labels, fontsize=7)
        for axes in places[len(row) :]:
            axes.set_axis_off()
    font: dict[str, Any] = {"color": style.INK, "family": style.FONT}
    figure.suptitle(title, fontsize=12, **font)
    figure.supxlabel(x, fontsize=10, **font)
    figure.supylabel(y, fontsize=10, **font)
    cells.add_colour_bar(figure, image, grid, "weight")
    return figure


def _weights(op: str, weights: Any, shape: str, fix: str) -> np.ndarray:
    weights = checked(op, "weights", weights, shape, fix)
    if weights.min() < 0.0:
        raise value_error(op, "weights", "at least 0", weights.min(), "use matrix_map to draw negative numbers")
    return weights


def _mask(op: str, mask: Any) -> np.ndarray:
    mask = np.asarray(mask)
    require_bools(op, "mask", mask, "of bool, True = may look", "see mask_from_blocked")
    return mask


def _tokens(op: str, shape: tuple[int, ...], queries: Tokens, keys: Tokens) -> tuple[list[str], list[str]]:
    """The labels of the rows and of the columns; in self-attention the keys are the queries."""
    T_q, T_k = shape
    keys = queries if keys is None and T_q == T_k else keys
    return labels_of(op, "queries", queries, T_q), labels_of(op, "keys", keys, T_k)
