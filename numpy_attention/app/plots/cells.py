"""The common parts of all pictures of matrices: cells with numbers and hatches, labels, and the colour bar."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from numpy_attention.app.plots import style
from numpy_attention.errors import broadcasts_to, dtype_error, shape_error, value_error
from numpy_attention.pieces import non_finite

FEW = 10  # up to this many rows and columns, each cell shows its number
MANY = 48  # with more rows or columns, tokens do not fit as labels, and positions replace them

Tokens = Sequence[object] | None


def figure_of_cells(
    shape: tuple[int, ...], draw: Callable[[Any], Any], labels: tuple[list[str], list[str]], title: str, x: str, y: str,
    value: str | None = None, margins: tuple[float, float] = (2.4, 1.6),
) -> Any:
    """A figure of one matrix, whose cells `draw` draws; `value` is the label of the colour bar, if there is one."""
    T_q, T_k = shape
    width, height = inches(T_q, T_k)
    figure = style.new_figure(margins[0] + width, margins[1] + height)
    axes = figure.subplots()
    image = draw(axes)
    style.dress(axes, style.fit(title, figure), x, y)
    label_cells(axes, *labels)
    if value is not None:
        add_colour_bar(figure, image, axes, value)
    return figure


def draw_weights(
    axes: Any, values: np.ndarray, largest: float, mask: np.ndarray | None, numbers: bool | None, fontsize: float = 9
) -> Any:
    """Draw weights as squares from white to blue; hidden pairs are hatched and show no number."""
    from matplotlib.patches import Rectangle

    blues = style.colour_map("white_to_blue", style.WHITE_TO_BLUE)
    image = axes.imshow(values, cmap=blues, vmin=0.0, vmax=largest, aspect="equal", interpolation="nearest")
    visible = np.broadcast_to(True if mask is None else mask, values.shape)
    for i, j in np.argwhere(~visible):
        corner = (j - 0.5, i - 0.5)
        axes.add_patch(Rectangle(corner, 1, 1, facecolor="none", edgecolor="#bbbbbb", hatch="///", linewidth=0))
    if max(values.shape) <= FEW if numbers is None else numbers:
        write_numbers(axes, image, values, visible, fontsize)
    return image


def draw_values(axes: Any, values: np.ndarray, largest: float, few: int = FEW) -> Any:
    """Draw any numbers as squares: white to blue if no number is negative, otherwise orange below zero."""
    colours, low = style.colour_map("white_to_blue", style.WHITE_TO_BLUE), 0.0
    if values.min() < 0.0:
        colours, low = style.colour_map("orange_to_blue", style.ORANGE_TO_BLUE), -largest
    image = axes.imshow(values, cmap=colours, vmin=low, vmax=largest, aspect="equal", interpolation="nearest")
    if max(values.shape) <= few:
        write_numbers(axes, image, values, np.full(values.shape, True), 9)
    return image


def write_numbers(axes: Any, image: Any, values: np.ndarray, visible: np.ndarray, fontsize: float) -> None:
    """Write each visible number with two decimals, in dark ink on light cells and in white on dark cells."""
    lightness = image.to_rgba(values)[..., :3] @ np.array([0.299, 0.587, 0.114])
    for i, j in np.argwhere(visible):
        colour = "white" if lightness[i, j] < 0.5 else style.INK
        text = f"{values[i, j]:.2f}".replace("-0.00", "0.00")
        axes.text(j, i, text, ha="center", va="center", color=colour, fontsize=fontsize, family=style.FONT)


def label_cells(axes: Any, rows: list[str], columns: list[str], fontsize: float = 9) -> None:
    """Write tokens to the left of their rows and below their columns; a `$` is a token, not the start of a formula."""
    if rows:
        axes.set_yticks(range(len(rows)), rows, fontsize=fontsize, parse_math=False)
    if columns:
        long = max(len(label) for label in columns) > 3
        turned: dict[str, Any] = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"} if long else {}
        axes.set_xticks(range(len(columns)), columns, fontsize=fontsize, parse_math=False, **turned)
    if not rows or not columns:  # positions are whole numbers
        from matplotlib.ticker import MaxNLocator

        for axis in [] if rows else [axes.yaxis], [] if columns else [axes.xaxis]:
            for one in axis:
                one.set_major_locator(MaxNLocator(integer=True, nbins=8))
    axes.tick_params(length=0 if rows or columns else 3)


def add_colour_bar(figure: Any, image: Any, axes: Any, label: str) -> None:
    """Draw the colour scale to the right of the cells."""
    bar = figure.colorbar(image, ax=axes, shrink=0.85, pad=0.02)
    bar.set_label(style.drawable(label), fontsize=10, color=style.INK, family=style.FONT)
    bar.ax.tick_params(labelsize=8, colors=style.INK, labelfontfamily=style.FONT)
    bar.outline.set_linewidth(0.5)


def require_matrices(op: str, array: np.ndarray, ndim: int, fix: str) -> np.ndarray:
    """Return the array in float64; refuse another number of axes, an axis of length 0, and non-finite numbers."""
    array = np.asarray(array)
    argument = {"mask_map": "mask", "positions_map": "table", "matrix_map": "matrix"}.get(op, "weights")
    if array.ndim != ndim or 0 in array.shape:
        expected = {2: "one matrix (T_q, T_k)", 3: "(H, T_q, T_k)", 4: "(B, H, T_q, T_k) in each layer"}[ndim]
        expected = {"matrix_map": "one matrix (n, m)", "positions_map": "one matrix (T, d_model)"}.get(op, expected)
        raise shape_error(op, argument, expected, array.shape, fix)
    array = require_finite(op, argument, array)
    if argument == "weights" and array.min() < 0.0:
        raise value_error(op, argument, "at least 0", array.min(), "use matrix_map to draw negative numbers")
    return array


def require_finite(op: str, argument: str, array: np.ndarray) -> np.ndarray:
    """Return the array in float64; refuse an array that does not hold finite real numbers."""
    if array.dtype.kind not in "fiub":
        raise dtype_error(op, argument, "of real numbers", array.dtype)
    array = array.astype(np.float64)
    if value := non_finite(array):
        raise value_error(op, argument, "finite", value)
    return array


def require_mask(op: str, mask: np.ndarray, shape: tuple[int, ...] | None = None) -> np.ndarray:
    """Return the mask; refuse integers (`~` turns 0 and 1 into -1 and -2), other non-booleans, and wrong shapes."""
    mask = np.asarray(mask)
    if mask.dtype != np.bool_:
        raise shape_error(op, "mask", "of bool, True = may look", mask.dtype, "see mask_from_blocked")
    if shape is not None and not broadcasts_to(mask.shape, shape):
        raise shape_error(op, "mask", f"broadcastable to {shape}", mask.shape)
    return mask


def labels_of(
    op: str, values: np.ndarray, queries: Tokens, keys: Tokens, square: bool = True
) -> tuple[list[str], list[str]]:
    """The labels of rows and columns; in self-attention (`square`) the keys default to the queries."""
    T_q, T_k = values.shape
    if square and keys is None and queries is not None and T_q == T_k:
        keys = queries
    names = ("queries", "keys") if square else ("rows", "columns")
    for name, given, T in zip(names, (queries, keys), (T_q, T_k)):
        require_labels(op, name, given, T, f", one for each of the {name} of {(T_q, T_k)}")
    return (
        style.as_labels(queries, spaces=square) if queries is not None and T_q <= MANY else [],
        style.as_labels(keys, spaces=square) if keys is not None and T_k <= MANY else [],
    )


def require_labels(op: str, name: str, labels: Tokens, count: int, why: str = "") -> None:
    """Refuse labels unless they are None, or one for each row or column."""
    if labels is not None and not hasattr(labels, "__len__"):
        raise dtype_error(op, name, f"a list of {count} labels", type(labels).__name__)
    if labels is not None and len(labels) != count:
        raise shape_error(op, name, f"{count} labels{why}", len(labels))


def upper_end(values: np.ndarray) -> float:
    """The upper end of the colour scale: the largest value, or 1 if this value is zero."""
    return float(values.max()) or 1.0


def inches(T_q: int, T_k: int) -> tuple[float, float]:
    """Width and height of all cells together; cells are square, and larger if there are few cells."""
    longest = max(T_q, T_k)
    cell = 0.55 if longest <= FEW else max(0.22, 4.0 / longest)
    cell = min(cell, 9.0 / longest)
    return max(cell * T_k, 1.2), max(cell * T_q, 1.2)
