"""Pictures of other matrices: masks, tables of positions, any matrix."""

from functools import partial
from typing import Any

import numpy as np

from numpy_attention.app.plots.cells import (
    Tokens,
    add_colour_bar,
    draw_values,
    draw_weights,
    figure_of_cells,
    labels_of,
    require_mask,
    require_matrices,
    upper_end,
)
from numpy_attention.app.plots.style import FONT, INK, ORANGE_TO_BLUE, WHITE_TO_BLUE, colour_map, dress, fit, new_figure


def mask_map(mask: np.ndarray, queries: Tokens = None, keys: Tokens = None, title: str = "Who may look at whom") -> Any:
    """Draw a mask: a cell is filled if the query may look at the key, and hatched if it may not.

    Shapes: mask (T_q, T_k) of bool -> Figure

    Raises: ValueError if mask is not one boolean matrix.
    """
    mask = require_mask("mask_map", mask)
    allowed = require_matrices("mask_map", mask, 2, "pick one: mask[0, 0]")
    labels = labels_of("mask_map", allowed, queries, keys)
    draw = partial(draw_weights, values=0.6 * allowed, largest=1.0, mask=mask, numbers=False)
    figure = figure_of_cells(allowed.shape, draw, labels, title, "key", "query", margins=(2.0, 1.9))

    from matplotlib.patches import Patch

    fill = colour_map("white_to_blue", WHITE_TO_BLUE)(0.6)
    seen = Patch(facecolor=fill, edgecolor=INK, label="may look")
    hidden = Patch(facecolor="white", edgecolor="#888888", hatch="///", label="hidden")
    handles = [seen, hidden]
    figure.legend(handles=handles, loc="outside lower center", ncols=2, frameon=False, prop={"family": FONT, "size": 9})
    return figure


def matrix_map(
    matrix: np.ndarray, rows: Tokens = None, columns: Tokens = None, title: str = "", x: str = "column",
    y: str = "row", value: str = "value",
) -> Any:
    """Draw any matrix with its numbers: zero is white, positive blue, negative orange.

    Shapes: matrix (n, m) -> Figure

    Units: those of the matrix; `value` is the label of the colour bar, for example "nats".

    Raises: TypeError or ValueError if the array is not one matrix of finite numbers, or if the number of labels differs
    from the number of rows or columns.
    """
    matrix = require_matrices("matrix_map", matrix, 2, "pick one: matrix[0]")
    labels = labels_of("matrix_map", matrix, rows, columns, square=False)
    draw = partial(draw_values, values=matrix, largest=upper_end(np.abs(matrix)))
    return figure_of_cells(matrix.shape, draw, labels, title, x, y, value)


def positions_map(table: np.ndarray, title: str = "Sinusoidal positions") -> Any:
    """Draw a table of positions: one column for each position, one row for each dimension.

    Zero is white, positive numbers are blue, negative numbers are orange.

    Shapes: table (T, d_model) -> Figure

    Raises: TypeError or ValueError if the table is not one matrix of finite numbers.
    """
    table = require_matrices("positions_map", table, 2, "one row for each position")
    limit = upper_end(np.abs(table))
    figure = new_figure(8.5, 3.8)
    axes = figure.subplots()
    colours = colour_map("orange_to_blue", ORANGE_TO_BLUE)
    image = axes.imshow(table.T, cmap=colours, aspect="auto", vmin=-limit, vmax=limit, interpolation="nearest")
    dress(axes, fit(title, figure), "position", "dimension")
    add_colour_bar(figure, image, axes, "value")
    return figure
