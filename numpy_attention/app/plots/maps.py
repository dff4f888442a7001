"""Pictures of matrices: attention weights, masks, positions, scores of heads, effects of patches, words of a lens."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from numpy_attention.app.plots.style import INK, ORANGE_TO_BLUE, WHITE_TO_BLUE, colour_map, dress, new_figure
from numpy_attention.errors import require_bools, shape_error, value_error
from numpy_attention.inside.heads import head_name
from numpy_attention.pieces import non_finite

__all__ = ["attention_heads", "attention_layers", "attention_map", "head_scores", "lens_table", "mask_map"]
__all__ += ["matrix_map", "patching_map", "positions_map"]

FEW = 10  # up to this many rows and columns, each cell shows its number
NARROW = 0.11  # inches; labels do not fit narrower cells, and positions replace the labels
VISIBLE_WHITESPACE = str.maketrans({" ": "␣", "\n": "↵", "\t": "⇥", "\r": "␍"})

Labels = Sequence[object] | None


def attention_map(
    weights: np.ndarray, queries: Labels = None, keys: Labels = None, title: str = "Attention weights",
    mask: np.ndarray | None = None, x: str = "key", y: str = "query",
) -> Any:
    """Draw one head: a row for each query, a column for each key. Hidden pairs of the mask are hatched (thin lines).

    Shapes: weights (T_q, T_k), queries T_q tokens, keys T_k tokens, mask of bool, broadcastable to weights -> Figure
    """
    return _figure("attention_map", {title: weights}, queries, keys or queries, x, y, "weight", mask=mask)


def attention_heads(
    weights: np.ndarray, queries: Labels = None, keys: Labels = None, title: str = "Attention weights, head by head",
    x: str = "key", y: str = "query",
) -> Any:
    """Draw every head of a layer in one grid with one colour scale.

    Shapes: weights (H, T_q, T_k), queries T_q tokens, keys T_k tokens -> Figure
    """
    heads, across = {f"head {h}": head for h, head in enumerate(weights)}, int(np.ceil(np.sqrt(len(weights))))
    return _figure("attention_heads", heads, queries, keys or queries, x, y, "weight", across, title)


def attention_layers(
    weights: Mapping[str, np.ndarray], queries: Labels = None, keys: Labels = None,
    title: str = "Attention weights, layer by layer", x: str = "key", y: str = "query",
) -> Any:
    """Draw the result of `model.attention_weights(ids)` for the first sequence: a row of heads for each layer.

    All layers must have the same queries and keys: draw encoder, decoder and cross-attention in three figures.

    Shapes: weights {name: (B, H, T_q, T_k)}, queries T_q tokens, keys T_k tokens -> Figure
    """
    heads = {f"{name}, head {h}": head for name, layer in weights.items() for h, head in enumerate(layer[0])}
    across = len(heads) // len(weights)
    return _figure("attention_layers", heads, queries, keys or queries, x, y, "weight", across, title)


def mask_map(mask: np.ndarray, queries: Labels = None, keys: Labels = None, title: str = "Who may look at whom") -> Any:
    """Draw a mask: a cell is filled if the query may look at the key, and hatched if it may not.

    Shapes: mask (T_q, T_k) of bool, queries T_q tokens, keys T_k tokens -> Figure
    """
    x = "key\n(filled: may look; hatched: hidden)"
    return _figure("mask_map", {title: mask}, queries, keys or queries, x, "query", "", largest=1.7, mask=mask)


def matrix_map(
    matrix: np.ndarray, rows: Labels = None, columns: Labels = None, title: str = "", x: str = "column",
    y: str = "row", value: str = "value",
) -> Any:
    """Draw any matrix; `value` is the label of the colour bar, for example "nats".

    Shapes: matrix (n, m), rows n labels, columns m labels -> Figure
    """
    return _figure("matrix_map", {title: matrix}, rows, columns, x, y, value)


def positions_map(table: np.ndarray, title: str = "Sinusoidal positions") -> Any:
    """Draw a table of positions: one column for each position, one row for each dimension.

    Shapes: table (T, d_model) -> Figure
    """
    return _figure("positions_map", {title: np.transpose(table)}, None, None, "position", "dimension", "value")


def head_scores(scores: Mapping[str, Any], title: str = "Scores of the heads") -> Any:
    """Draw a score of every head: a row for each layer, a column for each head; a score of 1 has the strongest colour.

    Shapes: scores {name of the layer: (H,)} -> Figure
    """
    matrix = np.stack([*scores.values()])
    return _figure("head_scores", {title: matrix}, [*scores], None, "head", "layer", "score", largest=1.0)


def patching_map(
    effects: Mapping[str, Any], tokens: Labels = None, title: str = "The effects of patches",
    value: str = "change of the measured number",
) -> Any:
    """Draw the result of `inside.patching_effects`: a row for each place or head, a column for each position.

    Shapes: effects {place: (T,) or (H, T)}, tokens T -> Figure
    """
    rows: dict[str, np.ndarray] = {}
    for place, effect in effects.items():
        by_head = {head_name(f"{place}.{h}"): head for h, head in enumerate(effect)}
        rows |= by_head if np.ndim(effect) == 2 else {place: effect}
    return _figure("patching_map", {title: np.stack([*rows.values()])}, [*rows], tokens, "position", "place", value)


def lens_table(
    words: Sequence[Sequence[str]], probabilities: np.ndarray, rows: Labels = None, columns: Labels = None,
    title: str = "The logit lens", x: str = "position", y: str = "stream",
) -> Any:
    """Draw a table of words: a row for each stream, a column for each position or rank. The colour is the probability.

    Shapes: words n lists of m words, probabilities (n, m), rows n labels, columns m labels -> Figure
    """
    if np.shape(words) != np.shape(probabilities):
        raise shape_error("lens_table", "words", f"{np.shape(probabilities)}, as the probabilities", np.shape(words))
    table = {title: probabilities}
    return _figure("lens_table", table, rows, columns, x, y, "probability", largest=1.0, words=words)


def _figure(
    op: str, maps: Mapping[str, Any], rows: Labels, columns: Labels, x: str, y: str, value: str, across: int = 1,
    title: str = "", largest: float = 0.0, mask: np.ndarray | None = None, words: Any = None,
) -> Any:
    """A figure of matrices by title, `across` in a row, with the same labels and one colour scale.

    `value` is the label of the colour bar, if there is one. A number as large as `largest` has the strongest colour.
    """
    matrices = np.stack([*maps.values()]).astype(np.float64)
    if matrices.ndim != 3:
        raise shape_error(op, "each map", "a matrix", matrices.shape[1:], "pick one with [0], add an axis with [None]")
    if found := non_finite(matrices):
        raise value_error(op, "each number", "finite", found)
    count, n, m = matrices.shape
    visible = np.broadcast_to(True if mask is None else mask, (n, m))
    require_bools(op, "mask", visible, "of bool, True = may look", "see mask_from_blocked")
    side = min(0.55, 6.0 / max(n, m)) if count == 1 else min(0.4, 3.6 / max(n, m))  # of a cell, in inches
    height, width = (0.26, 1.2) if words else (side, side)
    across, down = min(across, count), -(-count // across)
    figure = new_figure(1.5 + across * (0.9 + m * width), 0.5 + down * (0.9 + n * height))
    largest, smallest = max(largest, np.abs(matrices).max()) or 1.0, matrices.min()
    colours, low = (WHITE_TO_BLUE, 0.0) if smallest >= 0.0 else (ORANGE_TO_BLUE, -largest)
    for i, (name, matrix) in enumerate(zip(maps, matrices)):
        axes = figure.add_subplot(down, across, i + 1)
        dress(axes, name, x if i >= count - across else "", y if i % across == 0 else "")
        image = axes.imshow(matrix, colour_map("cells", colours), vmin=low, vmax=largest, aspect=height / width)
        _label(op, axes.yaxis, "row", rows, n, height)
        _label(op, axes.xaxis, "column", columns, m, width)
        few = max(n, m) <= FEW and value
        _write(axes, image, words or [[f"{number:z.2f}" if few else "" for number in row] for row in matrix], visible)
    figure.suptitle(title)
    if value:
        figure.colorbar(image, ax=figure.axes, label=value, shrink=0.85)
    return figure


def _label(op: str, axis: Any, name: str, labels: Labels, count: int, room: float) -> None:
    """Write tokens to the left of their rows or below their columns; a `$` is a token, not the start of a formula."""
    axis.get_major_locator().set_params(integer=True, min_n_ticks=1)
    if labels is not None and len(labels) != count:
        raise shape_error(op, f"labels of {name}s", f"one for each {name}, {count}", len(labels))
    if labels is not None and room > NARROW:
        texts = [*map(_visible, labels)]
        long = name == "column" and 0.07 * max(map(len, texts)) > room
        turned = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"} if long else {}
        axis.set_ticks(range(count), texts, fontsize=8, parse_math=False, **turned)


def _write(axes: Any, image: Any, texts: Sequence[Sequence[str]], visible: np.ndarray) -> None:
    """Write a text into each visible cell, white if the cell is dark; hatch the other cells."""
    from matplotlib.patches import Rectangle

    lightness = image.to_rgba(image.get_array())[..., :3] @ np.array([0.299, 0.587, 0.114])
    for (i, j), seen in np.ndenumerate(visible):
        if not seen:
            axes.add_patch(Rectangle((j - 0.5, i - 0.5), 1, 1, fill=False, hatch="///", edgecolor="#bbbbbb", lw=0))
        elif texts[i][j]:
            look = {"color": "white" if lightness[i, j] < 0.5 else INK, "ha": "center", "va": "center", "fontsize": 8}
            axes.text(j, i, _visible(texts[i][j]), parse_math=False, **look)


def _visible(token: object) -> str:
    """A token whose white space at the start and at the end is visible."""
    return re.sub(r"^\s+|\s+$", lambda space: space[0].translate(VISIBLE_WHITESPACE), str(token))
