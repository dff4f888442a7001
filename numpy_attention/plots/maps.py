"""Pictures that are matrices: attention weights, masks, tables of positions."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from numpy_attention.errors import shape_error
from numpy_attention.plots.style import BLUE_TO_RED, FONT, INK, WHITE_TO_BLUE, colour_map, dress, new_figure, printable

FEW = 10  # up to so many rows and columns, each cell shows its number
MANY = 48  # beyond so many, tokens no longer fit as labels, and positions take their place

Tokens = Sequence[object] | None


def attention_map(
    weights: np.ndarray,
    queries: Tokens = None,
    keys: Tokens = None,
    title: str = "Attention weights",
    mask: np.ndarray | None = None,
    numbers: bool | None = None,
) -> Any:
    """Draw one head: a row for each query, a column for each key, the darker the larger the weight.

    `queries` and `keys` are the tokens; keys default to the queries where there are as many. `mask` hatches the pairs
    that may not meet, so that hidden and merely small can be told apart. `numbers` overrules "two decimals in each
    cell when there are few".

    Shapes: weights (T_q, T_k), mask broadcastable to it -> Figure

    Raises: ValueError for weights that are not one matrix, or tokens that are not one for each row or column.
    """
    weights = _matrices("attention_map", weights, 2, "pick one head, as weights[0, 0], or use attention_heads")
    rows, columns = _tokens("attention_map", weights, queries, keys)
    T_q, T_k = weights.shape
    width, height = _inches(T_q, T_k)
    figure = new_figure(2.4 + width, 1.6 + height)
    axes = figure.subplots()
    image = _draw(axes, weights, rows, columns, _largest(weights), mask, numbers)
    dress(axes, title, "key", "query")
    _label_cells(axes, rows, columns)
    _colour_bar(figure, image, axes, "weight")
    return figure


def attention_heads(
    weights: np.ndarray, queries: Tokens = None, keys: Tokens = None, title: str = "Attention weights, head by head"
) -> Any:
    """Draw every head of a layer in one grid and on one scale.

    Shapes: weights (H, T_q, T_k) -> Figure

    Raises: ValueError for weights of another shape, or tokens that are not one for each row or column.
    """
    weights = _matrices("attention_heads", weights, 3, "pick one sequence of the batch, as weights[0]")
    return _grid("attention_heads", {"": weights}, queries, keys, title)


def attention_layers(
    weights: Mapping[str, np.ndarray],
    queries: Tokens = None,
    keys: Tokens = None,
    title: str = "Attention weights, layer by layer",
    sequence: int = 0,
) -> Any:
    """Draw what `model.attention_weights(ids)` returns: a row of heads for each layer, on one scale.

    `sequence` picks one of the batch. Layers must have the same queries and keys: draw the encoder, the decoder and the
    cross-attention each by itself.

    Shapes: weights {name: (B, H, T_q, T_k)} -> Figure

    Raises: ValueError for weights of other shapes, or tokens that are not one for each row or column.
    """
    if not weights:
        raise shape_error("attention_layers", "weights", "a dict with at least one layer", weights)
    fix = "with one sequence give it a batch axis: weights[None]"
    layers = {name: _matrices("attention_layers", w, 4, fix)[sequence] for name, w in weights.items()}
    sizes = {w.shape[1:] for w in layers.values()}
    if len(sizes) > 1:
        fix = "draw encoder, decoder and cross-attention each by itself"
        raise shape_error("attention_layers", "weights", "of one (T_q, T_k) in all layers", sorted(sizes), fix)
    return _grid("attention_layers", layers, queries, keys, title)


def mask_map(mask: np.ndarray, queries: Tokens = None, keys: Tokens = None, title: str = "Who may look at whom") -> Any:
    """Draw a mask: filled where the query may look at the key, empty and crossed out where it may not.

    Shapes: mask (T_q, T_k) of bool -> Figure

    Raises: ValueError for a mask that is not one boolean matrix.
    """
    mask = np.asarray(mask)
    if mask.dtype != np.bool_:
        raise shape_error("mask_map", "mask", "of bool, True = may look", mask.dtype, "see mask_from_blocked")
    allowed = _matrices("mask_map", mask, 2, "pick one, as mask[0, 0]").astype(np.float64)
    rows, columns = _tokens("mask_map", allowed, queries, keys)
    T_q, T_k = allowed.shape
    width, height = _inches(T_q, T_k)
    figure = new_figure(2.0 + width, 1.9 + height)
    axes = figure.subplots()
    _draw(axes, 0.6 * allowed, rows, columns, 1.0, mask, numbers=False)
    dress(axes, title, "key", "query")
    _label_cells(axes, rows, columns)

    from matplotlib.patches import Patch

    fill = colour_map("white_to_blue", WHITE_TO_BLUE)(0.6)
    handles = [Patch(facecolor=fill, edgecolor=INK, label="may look"),
               Patch(facecolor="white", edgecolor="#888888", hatch="///", label="hidden")]
    figure.legend(handles=handles, loc="outside lower center", ncols=2, frameon=False, prop={"family": FONT, "size": 9})
    return figure


def positions_map(table: np.ndarray, title: str = "Sinusoidal positions") -> Any:
    """Draw a table of positions: one column for each position, one row for each dimension, blue below zero, red above.

    Shapes: table (T, d_model) -> Figure

    Raises: ValueError for a table that is not one matrix.
    """
    table = _matrices("positions_map", table, 2, "one row for each position")
    limit = _largest(np.abs(table))
    figure = new_figure(8.5, 3.8)
    axes = figure.subplots()
    reds = colour_map("blue_to_red", BLUE_TO_RED)
    image = axes.imshow(table.T, cmap=reds, aspect="auto", vmin=-limit, vmax=limit, interpolation="nearest")
    dress(axes, title, "position", "dimension")
    _colour_bar(figure, image, axes, "value")
    return figure


def _grid(op: str, layers: Mapping[str, np.ndarray], queries: Tokens, keys: Tokens, title: str) -> Any:
    named = len(layers) > 1 or "" not in layers
    first = next(iter(layers.values()))
    num_heads, T_q, T_k = first.shape
    rows, columns = _tokens(op, first[0], queries, keys)
    across = max(w.shape[0] for w in layers.values()) if named else min(num_heads, 4)
    down = len(layers) if named else -(-num_heads // across)
    width, height = _inches(T_q, T_k)
    figure = new_figure(1.6 + across * (0.7 + 0.72 * width), 1.0 + down * (0.9 + 0.72 * height))
    grid = figure.subplots(down, across, squeeze=False)
    largest = max(_largest(w) for w in layers.values())
    places = iter(grid.flat)
    image = None
    for name, heads in layers.items():
        for h, head in enumerate(heads):
            axes = next(places)
            image = _draw(axes, head, rows, columns, largest, None, None, fontsize=7)
            dress(axes, f"{name}, head {h}" if name else f"head {h}")
            _label_cells(axes, rows, columns, fontsize=7)
        for _ in range(across - len(heads) if named else 0):
            next(places).set_axis_off()
    for axes in places:
        axes.set_axis_off()
    figure.suptitle(title, fontsize=12, color=INK, family=FONT)
    figure.supxlabel("key", fontsize=10, color=INK, family=FONT)
    figure.supylabel("query", fontsize=10, color=INK, family=FONT)
    _colour_bar(figure, image, grid, "weight")
    return figure


def _draw(
    axes: Any, values: np.ndarray, rows: list[str], columns: list[str], largest: float, mask: np.ndarray | None,
    numbers: bool | None, fontsize: float = 9,
) -> Any:
    blues = colour_map("white_to_blue", WHITE_TO_BLUE)
    image = axes.imshow(values, cmap=blues, vmin=0.0, vmax=largest, aspect="equal", interpolation="nearest")
    if mask is not None:
        _hatch(axes, ~np.broadcast_to(mask, values.shape))
    if numbers is None:
        numbers = max(values.shape) <= FEW
    shown = np.broadcast_to(True if mask is None else mask, values.shape)
    if numbers:
        for i, j in np.argwhere(shown):
            value = values[i, j]
            colour = "white" if value > 0.55 * largest else INK
            axes.text(j, i, f"{value:.2f}", ha="center", va="center", color=colour, fontsize=fontsize, family=FONT)
    return image


def _hatch(axes: Any, hidden: np.ndarray) -> None:
    from matplotlib.patches import Rectangle

    for i, j in np.argwhere(hidden):
        corner = (j - 0.5, i - 0.5)
        axes.add_patch(Rectangle(corner, 1, 1, facecolor="none", edgecolor="#bbbbbb", hatch="///", linewidth=0))


def _label_cells(axes: Any, rows: list[str], columns: list[str], fontsize: float = 9) -> None:
    """Tokens beside their rows and below their columns; a `$` is a token, not the beginning of a formula."""
    if rows:
        axes.set_yticks(range(len(rows)), rows, fontsize=fontsize, parse_math=False)
    if columns:
        long = max(len(label) for label in columns) > 2
        turned: dict[str, Any] = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"} if long else {}
        axes.set_xticks(range(len(columns)), columns, fontsize=fontsize, parse_math=False, **turned)
    if not rows or not columns:  # positions are whole numbers
        from matplotlib.ticker import MaxNLocator

        for axis in [] if rows else [axes.yaxis], [] if columns else [axes.xaxis]:
            for one in axis:
                one.set_major_locator(MaxNLocator(integer=True, nbins=8))
    axes.tick_params(length=0 if rows or columns else 3)


def _colour_bar(figure: Any, image: Any, axes: Any, label: str) -> None:
    bar = figure.colorbar(image, ax=axes, shrink=0.85, pad=0.02)
    bar.set_label(label, fontsize=10, color=INK, family=FONT)
    bar.ax.tick_params(labelsize=8, colors=INK, labelfontfamily=FONT)
    bar.outline.set_linewidth(0.5)


def _matrices(op: str, array: np.ndarray, ndim: int, fix: str) -> np.ndarray:
    array = np.asarray(array)
    if array.ndim != ndim or 0 in array.shape:
        expected = {2: "one matrix (T_q, T_k)", 3: "(H, T_q, T_k)", 4: "(B, H, T_q, T_k) in each layer"}[ndim]
        argument = {"mask_map": "mask", "positions_map": "table"}.get(op, "weights")
        raise shape_error(op, argument, expected if op != "positions_map" else "(T, d_model)", array.shape, fix)
    return array


def _tokens(op: str, weights: np.ndarray, queries: Tokens, keys: Tokens) -> tuple[list[str], list[str]]:
    T_q, T_k = weights.shape
    if keys is None and queries is not None and T_q == T_k:
        keys = queries
    for name, tokens, T in (("queries", queries, T_q), ("keys", keys, T_k)):
        if tokens is not None and len(tokens) != T:
            raise shape_error(op, name, f"{T} tokens, one for each of {name} in weights {(T_q, T_k)}", len(tokens))
    return (
        printable(queries) if queries is not None and T_q <= MANY else [],
        printable(keys) if keys is not None and T_k <= MANY else [],
    )


def _largest(values: np.ndarray) -> float:
    """The upper end of the scale; a head that looks at nothing still needs one."""
    return float(values.max()) or 1.0


def _inches(T_q: int, T_k: int) -> tuple[float, float]:
    """How wide and how high the cells are drawn: square ones, large while they are few."""
    longest = max(T_q, T_k)
    cell = 0.55 if longest <= FEW else max(0.22, 4.0 / longest)
    cell = min(cell, 9.0 / longest)
    return max(cell * T_k, 1.2), max(cell * T_q, 1.2)
