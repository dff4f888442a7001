"""The common parts of all pictures of matrices: cells with numbers and hatches, labels, and the colour bar."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from numpy_attention.app.plots import style
from numpy_attention.errors import shape_error, value_error
from numpy_attention.pieces import non_finite

FEW = 10  # up to this many rows and columns, each cell shows its number
MANY = 48  # with more rows or columns, tokens do not fit as labels, and positions replace them

Tokens = Sequence[object] | None


def figure_of_cells(
    values: np.ndarray, rows: list[str], columns: list[str], title: str, x: str, y: str, value: str | None = None,
    margins: tuple[float, float] = (2.4, 1.6), **look: Any,
) -> Any:
    """A figure of one matrix; `value` is the label of the colour bar, if there is one; `draw_cells` gets the `look`."""
    width, height = inches(*values.shape)
    figure = style.new_figure(margins[0] + width, margins[1] + height)
    axes = figure.subplots()
    image = draw_cells(axes, values, **look)
    style.dress(axes, style.fit(title, figure), x, y)
    label_cells(axes, rows, columns)
    if value is not None:
        add_colour_bar(figure, image, axes, value)
    return figure


def draw_cells(
    axes: Any, values: np.ndarray, largest: float = 0.0, numbers: bool | None = None, visible: np.ndarray | None = None,
    texts: Sequence[Sequence[str]] | None = None, fontsize: float = 9, aspect: str = "equal",
) -> Any:
    """Draw a matrix: zero is white, positive numbers are blue, and negative numbers, if there are any, are orange.

    `largest` is the number with the strongest colour. Each cell shows its number or its text, by default if there are
    few cells. Where `visible` is False, the cell is hatched and shows no number.
    """
    from matplotlib.patches import Rectangle

    largest = largest or float(np.abs(values).max()) or 1.0
    colours, low = style.colour_map("white_to_blue", style.WHITE_TO_BLUE), 0.0
    if values.min() < 0.0:
        colours, low = style.colour_map("orange_to_blue", style.ORANGE_TO_BLUE), -largest
    image = axes.imshow(values, cmap=colours, vmin=low, vmax=largest, aspect=aspect, interpolation="nearest")
    visible = np.broadcast_to(True if visible is None else visible, values.shape)
    for i, j in np.argwhere(~visible):
        corner = (j - 0.5, i - 0.5)
        axes.add_patch(Rectangle(corner, 1, 1, facecolor="none", edgecolor="#bbbbbb", hatch="///", linewidth=0))
    if numbers if numbers is not None else max(values.shape) <= FEW:
        lightness = image.to_rgba(values)[..., :3] @ np.array([0.299, 0.587, 0.114])
        for i, j in np.argwhere(visible):
            text = texts[i][j] if texts else f"{values[i, j]:.2f}".replace("-0.00", "0.00")
            look = {"color": "white" if lightness[i, j] < 0.5 else style.INK, "ha": "center", "va": "center"}
            axes.text(j, i, text, fontsize=fontsize, family=style.FONT, parse_math=False, **look)
    return image


def label_cells(axes: Any, rows: list[str], columns: list[str], fontsize: float = 9) -> None:
    """Write tokens to the left of their rows and below their columns; a `$` is a token, not the start of a formula."""
    from matplotlib.ticker import MaxNLocator

    turned: dict[str, Any] = {}
    if max(map(len, columns), default=0) > 3:
        turned = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"}
    for axis, labels, look in ((axes.yaxis, rows, {}), (axes.xaxis, columns, turned)):
        if labels:
            axis.set_ticks(range(len(labels)), labels, fontsize=fontsize, parse_math=False, **look)
        else:
            axis.set_major_locator(MaxNLocator(integer=True, nbins=8))  # positions are whole numbers
    axes.tick_params(length=0 if rows or columns else 3)


def add_colour_bar(figure: Any, image: Any, axes: Any, label: str) -> None:
    """Draw the colour scale to the right of the cells."""
    bar = figure.colorbar(image, ax=axes, shrink=0.85, pad=0.02)
    bar.set_label(label, fontsize=10, color=style.INK, family=style.FONT)
    bar.ax.tick_params(labelsize=8, colors=style.INK, labelfontfamily=style.FONT)
    bar.outline.set_linewidth(0.5)


def inches(T_q: int, T_k: int) -> tuple[float, float]:
    """Width and height of all cells together; cells are square, and larger if there are few cells."""
    longest = max(T_q, T_k)
    cell = 0.55 if longest <= FEW else max(0.22, 4.0 / longest)
    cell = min(cell, 9.0 / longest)
    return max(cell * T_k, 1.2), max(cell * T_q, 1.2)


def checked(op: str, argument: str, array: Any, shape: str, fix: str = "") -> np.ndarray:
    """The array in float64; refuse another number of axes, an empty array, and numbers that are not finite."""
    array = np.asarray(array)
    if array.ndim != shape.count(",") + 1 or not array.size:
        raise shape_error(op, argument, shape, array.shape, fix)
    if value := non_finite(array):
        raise value_error(op, argument, "finite", value)
    return array.astype(np.float64)


def labels_of(op: str, argument: str, labels: Tokens, count: int, tokens: bool = True) -> list[str]:
    """The labels of rows or columns; [] if there are none, or too many to read. White space in tokens is visible."""
    if labels is not None and len(labels) != count:
        raise shape_error(op, argument, f"{count} labels", len(labels))
    if labels is None or count > MANY:
        return []
    return style.as_labels(labels) if tokens else [str(label) for label in labels]
