"""Pictures of what a transformer does; they need matplotlib (`pip install matplotlib`).

Each function returns a new `matplotlib.figure.Figure`, which a notebook displays at the end of a cell, and which `save`
writes to a file. pyplot and its settings do not change. In every map zero is white, positive numbers are blue and
negative numbers are orange; a stronger colour is a larger number. Lines differ by colour, dash and marker. A wrong
shape, a wrong number of labels, and numbers in a map that are not finite raise ValueError.
"""

import importlib
import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from numpy_attention.errors import install, require_bools, shape_error, value_error
from numpy_attention.files import atomic_write
from numpy_attention.inside.c39_heads import head_name
from numpy_attention.pieces import non_finite

__all__ = ["attention_heads", "attention_layers", "attention_map", "gradient_flow", "head_scores"]
__all__ += ["head_scores_over_training", "largest_curvature", "lens_table", "line_panels", "loss_by_position"]
__all__ += ["mask_map", "matrix_map", "patching_map", "positions_map", "save", "step_error", "training_curves"]

INK, FAINT = "#222222", "#d0d0d0"
COLOURS = ("#0b4f8a", "#c8540a", "#1b7a4b", "#7a3d94", "#777777")
DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))
MARKERS = ("o", "s", "^", "D", "v")
COLOURS_OF_CELLS = (COLOURS[1], "#ffffff", COLOURS[0])  # from negative to positive numbers; zero is white
FEW = 10  # up to this many rows and columns, each cell shows its number
NARROW = 0.11  # inches; labels do not fit narrower cells, and positions replace the labels
SMALLEST = 1e-17  # a logarithmic scale has no zero: smaller numbers are drawn here
VISIBLE_WHITESPACE = str.maketrans({" ": "␣", "\n": "↵", "\t": "⇥", "\r": "␍"})

Labels = Sequence[object] | None
Log = Sequence[Mapping[str, Any]]  # rows like the lines of log.jsonl
Levels = Mapping[str, float] | None


def attention_map(
    weights: np.ndarray, queries: Labels = None, keys: Labels = None, title: str = "Attention weights",
    mask: np.ndarray | None = None, x: str = "key", y: str = "query",
) -> Any:
    """Draw one head: a row for each query, a column for each key. Hidden pairs of the mask are hatched (thin lines).

    Shapes: weights (T_q, T_k), queries T_q tokens, keys T_k tokens, mask of bool, broadcastable to weights -> Figure
    """
    return _maps("attention_map", {title: weights}, queries, keys or queries, x, y, "weight", mask=mask)


def attention_heads(
    weights: np.ndarray, queries: Labels = None, keys: Labels = None, title: str = "Attention weights, head by head",
    x: str = "key", y: str = "query",
) -> Any:
    """Draw every head of a layer in one grid with one colour scale.

    Shapes: weights (H, T_q, T_k), queries T_q tokens, keys T_k tokens -> Figure
    """
    heads, across = {f"head {h}": head for h, head in enumerate(weights)}, int(np.ceil(np.sqrt(len(weights))))
    return _maps("attention_heads", heads, queries, keys or queries, x, y, "weight", across, title)


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
    return _maps("attention_layers", heads, queries, keys or queries, x, y, "weight", across, title)


def mask_map(mask: np.ndarray, queries: Labels = None, keys: Labels = None, title: str = "Who may look at whom") -> Any:
    """Draw a mask: a cell is filled if the query may look at the key, and hatched if it may not.

    Shapes: mask (T_q, T_k) of bool, queries T_q tokens, keys T_k tokens -> Figure
    """
    x = "key\n(filled: may look; hatched: hidden)"
    return _maps("mask_map", {title: mask}, queries, keys or queries, x, "query", "", largest=1.7, mask=mask)


def matrix_map(
    matrix: np.ndarray, rows: Labels = None, columns: Labels = None, title: str = "", x: str = "column",
    y: str = "row", value: str = "value",
) -> Any:
    """Draw any matrix; `value` is the label of the colour bar, for example "nats".

    Shapes: matrix (n, m), rows n labels, columns m labels -> Figure
    """
    return _maps("matrix_map", {title: matrix}, rows, columns, x, y, value)


def positions_map(table: np.ndarray, title: str = "Sinusoidal positions") -> Any:
    """Draw a table of positions: one column for each position, one row for each dimension.

    Shapes: table (T, d_model) -> Figure
    """
    return _maps("positions_map", {title: np.transpose(table)}, None, None, "position", "dimension", "value")


def head_scores(scores: Mapping[str, Any], title: str = "Scores of the heads") -> Any:
    """Draw a score of every head: a row for each layer, a column for each head; a score of 1 has the strongest colour.

    Shapes: scores {name of the layer: (H,)} -> Figure
    """
    matrix = np.stack([*scores.values()])
    return _maps("head_scores", {title: matrix}, [*scores], None, "head", "layer", "score", largest=1.0)


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
    return _maps("patching_map", {title: np.stack([*rows.values()])}, [*rows], tokens, "position", "place", value)


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
    return _maps("lens_table", table, rows, columns, x, y, "probability", largest=1.0, words=words)


def training_curves(log: Log, levels: Levels = None, title: str = "Training") -> Any:
    """Draw the loss against the step and, if the log holds accuracies, a second panel with the accuracy.

    `log` is a list of rows with `step` and any of `loss`, `val_loss`, `accuracy`, `val_accuracy`. `levels` draws named
    levels to compare the loss with, such as {"guessing": math.log(2)}.
    """
    found = {kind: [_curve(log, kind), _curve(log, f"val_{kind}")] for kind in ("loss", "accuracy")}
    panels = {kind: dict(zip(("training batch", "held out"), curves)) for kind, curves in found.items() if any(curves)}
    _require("training_curves", panels, "loss, val_loss, accuracy or val_accuracy")
    figure = line_panels({f"{title}: {kind}": curves for kind, curves in panels.items()}, "step", "", levels)
    for axes, kind in zip(figure.axes, panels):
        axes.set_ylabel("loss (nats)" if kind == "loss" else kind)
    return figure


def loss_by_position(log: Log, levels: Levels = None, title: str = "The loss along the text") -> Any:
    """Draw the loss at each position, for five rows of the log, evenly spaced from the first to the last.

    `log` is a list of rows with `step` and `loss_at_0`, `loss_at_1`, ...; other rows are skipped.
    """
    rows = [row for row in log if "step" in row and "loss_at_0" in row]
    _require("loss_by_position", rows, "loss_at_0, loss_at_1, ...")
    curves = {}
    for row in [rows[round(i)] for i in np.linspace(0, len(rows) - 1, 5)]:
        losses = [row[name] for name in row if name.startswith("loss_at_")]
        curves[f"step {row['step']:,}"] = range(len(losses)), losses
    return line_panels({title: curves}, "position", "loss (nats)", levels)


def head_scores_over_training(log: Log, title: str = "The heads in training") -> Any:
    """Draw the scores of heads against the step: a panel for each kind of score, with the five best heads at the end.

    `log` is a list of rows with `step` and any of `kind.layer.head`, such as `previous_token.blocks.0.attention.3`.
    """
    panels: dict[str, dict[str, Any]] = {}
    for name in dict.fromkeys(name for row in log if "step" in row for name in row):
        if found := re.fullmatch(r"(\w+)\.(.+\.\d+)", name):
            panels.setdefault(found[1].replace("_", " "), {})[head_name(found[2])] = _curve(log, name)
    _require("head_scores_over_training", panels, "scores, kind.layer.head")
    for kind, heads in panels.items():
        panels[kind] = dict(sorted(heads.items(), key=lambda item: -item[1][1][-1])[:5])
    figure = line_panels(panels, "step", "score")
    figure.suptitle(title)
    return figure


def gradient_flow(grads: Mapping[str, Any], title: str = "Gradient flow") -> Any:
    """Draw the size of the gradients, layer by layer from the input to the output, on a logarithmic scale.

    `grads` is the result of a `backward`, or {label: grads} to compare several. The line is the root mean square over
    all gradients of a layer; each small mark is one parameter. A gradient of exactly zero is drawn at 1e-17.
    """
    several = {"": grads} if all(hasattr(grad, "shape") for grad in grads.values()) else grads
    layers = list(dict.fromkeys(_layer(name) for one in several.values() for name in one))
    curves = {}
    for label, one in several.items():
        by_layer = [[grad for name, grad in one.items() if _layer(name) == layer] for layer in layers]
        curves[label] = range(len(layers)), [_size(*grads_of_layer) for grads_of_layer in by_layer]
    figure = line_panels({title: curves}, "layer, from input to output", "root mean square of the gradient")
    axes = figure.axes[0]
    for n, one in enumerate(several.values()):
        places = [layers.index(_layer(name)) for name in one]
        axes.plot(places, [_size(grad) for grad in one.values()], "_", color=COLOURS[n % 5])
    axes.set_yscale("log")
    axes.set_xticks(range(len(layers)), layers, rotation=45, ha="right", rotation_mode="anchor")
    return figure


def step_error(
    steps: np.ndarray, errors: Mapping[str, np.ndarray], title: str = "Differences: the error against the step"
) -> Any:
    """Draw the error of numerical gradients against the step h; both axes are logarithmic.

    To the right of the minimum the error comes from the formula and is a power of h. To the left the error is round-off
    and grows like 1/h. An error of exactly zero is drawn at 1e-17.

    Shapes: steps (n,), errors {name of the method: (n,)} -> Figure
    """
    curves = {name: (steps, np.maximum(np.abs(values), SMALLEST)) for name, values in errors.items()}
    figure = line_panels({title: curves}, "step h", "relative error")
    figure.axes[0].set(xscale="log", yscale="log")
    return figure


def largest_curvature(
    steps: np.ndarray, curvatures: Mapping[float, np.ndarray], title: str = "The largest curvature along training"
) -> Any:
    """Draw the largest curvature of the loss against the step, with a line for each learning rate.

    If the curvature is above the dotted level 2 / learning rate, a step along the direction of this curvature ends
    further from the minimum than it began.

    Shapes: steps (n,), curvatures {learning rate: (n,)} -> Figure
    """
    curves = {f"learning rate {rate:g}": (steps, values) for rate, values in curvatures.items()}
    levels = {f"2 / {rate:g}": 2 / rate for rate in curvatures}
    return line_panels({title: curves}, "step", "largest curvature", levels)


def save(figure: Any, path: str | Path, dpi: int = 150) -> Path:
    """Write a figure by an atomic write; the ending of the name (.png, .svg, .pdf) decides the format.

    Raises: ValueError if matplotlib does not know the ending; OSError if the file cannot be written.
    """
    path = Path(path)
    undated = {"Date": None} if path.suffix.lower() == ".svg" else None  # the same figure gives the same .svg
    with matplotlib("").rc_context({"svg.hashsalt": "numpy_attention"}), atomic_write(path) as temporary:
        figure.savefig(temporary, dpi=dpi, bbox_inches="tight", metadata=undated)
    return path


def _maps(
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
    colours, low = (COLOURS_OF_CELLS[1:], 0.0) if smallest >= 0.0 else (COLOURS_OF_CELLS, -largest)
    cells = matplotlib(".colors").LinearSegmentedColormap.from_list("cells", colours)
    for i, (name, matrix) in enumerate(zip(maps, matrices)):
        axes = figure.add_subplot(down, across, i + 1)
        dress(axes, name, x if i >= count - across else "", y if i % across == 0 else "")
        image = axes.imshow(matrix, cells, vmin=low, vmax=largest, aspect=height / width)
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
    patches = matplotlib(".patches")
    lightness = image.to_rgba(image.get_array())[..., :3] @ np.array([0.299, 0.587, 0.114])
    for (i, j), seen in np.ndenumerate(visible):
        if not seen:
            hatched = {"fill": False, "hatch": "///", "edgecolor": "#bbbbbb", "lw": 0}
            axes.add_patch(patches.Rectangle((j - 0.5, i - 0.5), 1, 1, **hatched))
        elif texts[i][j]:
            look = {"color": "white" if lightness[i, j] < 0.5 else INK, "ha": "center", "va": "center", "fontsize": 8}
            axes.text(j, i, _visible(texts[i][j]), parse_math=False, **look)


def _visible(token: object) -> str:
    """A token whose white space at the start and at the end is visible."""
    return re.sub(r"^\s+|\s+$", lambda space: space[0].translate(VISIBLE_WHITESPACE), str(token))


def line_panels(panels: Mapping[str, Mapping[str, Any]], x: str, y: str, levels: Levels = None) -> Any:
    """Draw panels of lines, {title: {label of a line: (x, y)}}, with dotted levels in the first panel."""
    figure = new_figure(1.0 + 5.0 * len(panels), 4.0)
    for i, (title, curves) in enumerate(panels.items()):
        axes = figure.add_subplot(1, len(panels), i + 1)
        dress(axes, title, x, y, grid=True)
        for n, (label, curve) in enumerate(curves.items()):
            marker = MARKERS[n % 5] if curve and len(curve[0]) < 60 else ""
            axes.plot(*curve, label=label, color=COLOURS[n % 5], linestyle=DASHES[n % 5], marker=marker, markersize=4)
        if any(curves):
            axes.legend(frameon=False, fontsize=9)
    for name, level in (levels or {}).items():
        figure.axes[0].axhline(level, color=COLOURS[4], linestyle=":")
        at_right: Any = ("axes fraction", "data")
        figure.axes[0].annotate(name, (1.01, level), xycoords=at_right, va="center", fontsize=8)
    return figure


def _curve(log: Log, name: str) -> Any:
    """(steps, values) of the rows of the log that hold both, or () if there is no such row."""
    return tuple(zip(*[(row["step"], row[name]) for row in log if "step" in row and row.get(name) is not None]))


def _require(op: str, found: object, names: str) -> None:
    if not found:
        raise shape_error(op, "log", f"rows with step and {names}", "none of them")


def _layer(name: str) -> str:
    """The layer of a parameter: `blocks.0` for `blocks.0.attention.w_q`, `head` for `head.w`."""
    return re.sub(r"(\.\d+)?\..*", r"\1", name)


def _size(*gradients: np.ndarray) -> float:
    """The root mean square of all elements together; NaN, which is not drawn, if there are none."""
    flat = np.concatenate([np.zeros(0), *map(np.ravel, gradients)])
    return max(float(np.sqrt(np.mean(flat**2))), SMALLEST) if flat.size else np.nan


def new_figure(width: float, height: float) -> Any:
    """A new figure, sizes in inches, that a notebook can display."""
    figure = matplotlib(".figure").Figure(figsize=(width, height), dpi=110, layout="constrained")
    figure._repr_png_ = lambda: _png(figure)  # notebooks themselves display only the figures of pyplot
    return figure


def matplotlib(module: str) -> Any:
    """matplotlib, or a module of it, at the first picture: its import takes half a second.

    Raises: ModuleNotFoundError, with the line that installs matplotlib, if it is missing.
    """
    try:
        return importlib.import_module(f"matplotlib{module}")
    except ImportError:
        hint = f"numpy_attention.app.plots needs matplotlib: {install('matplotlib')}"
        raise ModuleNotFoundError(hint, name="matplotlib") from None


def dress(axes: Any, title: str = "", x: str = "", y: str = "", grid: bool = False) -> None:
    """Set the title, the labels of the axes and, with `grid`, a light grid."""
    axes.set_title(title, fontsize=11)
    axes.set(xlabel=x, ylabel=y)
    if grid:
        axes.grid(color=FAINT, linewidth=0.6)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)


def _png(figure: Any) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", bbox_inches="tight")
    return buffer.getvalue()
