"""Pictures of Part VI: the loss along the text, scores of heads, effects of patches, words that a lens reads."""

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from numpy_attention.app.plots import style
from numpy_attention.app.plots.cells import (
    Tokens,
    add_colour_bar,
    draw_values,
    figure_of_cells,
    require_finite,
    require_labels,
)
from numpy_attention.app.plots.curves import Log, rows_with_steps
from numpy_attention.app.plots.matrices import matrix_map
from numpy_attention.errors import dtype_error, shape_error, value_error
from numpy_attention.inside.heads import head_name

CURVES = 6  # the number of steps whose losses are drawn
NAMED = 4  # the number of heads with their own colour
WIDEST = 12  # the most characters of a word in its cell


def loss_by_position(
    log: Log, levels: Mapping[str, float] | None = None, title: str = "The loss along the text"
) -> Any:
    """Draw the loss at each position: one line for each of a few training steps, from pale to strong.

    `log` is a list of rows like the lines of `log.jsonl`: `step` and `loss_at_0`, `loss_at_1`, ...; other rows are
    skipped. The drawn steps are the first, the last, and steps between them whose mean losses are about evenly spaced,
    so a sudden fall of the loss is visible. `levels` draws named levels, as in `training_curves`.

    Units: losses in nats.

    Raises: ValueError if no row holds a step and losses by position, or if rows hold different positions; TypeError if
    log is not a list of dicts.
    """
    op = "loss_by_position"
    rows = [row for row in rows_with_steps(op, log) if "loss_at_0" in row]
    if not rows:
        raise shape_error(op, "log", "rows with step and loss_at_0, loss_at_1, ...", f"{len(log)} rows without")
    names = [f"loss_at_{t}" for t in range(sum(name.startswith("loss_at_") for name in rows[0]))]
    if odd := [row["step"] for row in rows if any(row.get(name) is None for name in names)]:
        raise shape_error(op, "log", f"rows with {names[0]} to {names[-1]}", f"another row at step {odd[0]}")
    losses = np.array([[float(row[name]) for name in names] for row in rows])  # (rows, T)
    losses[~np.isfinite(losses)] = np.nan  # a run that diverges leaves a gap
    chosen = _evenly(losses.mean(axis=1))
    figure = style.new_figure(7.2, 4.0)
    axes = figure.subplots()
    shades = style.colour_map("white_to_blue", style.WHITE_TO_BLUE)(np.linspace(0.35, 1.0, len(chosen)))
    for i, shade in zip(chosen, shades):
        axes.plot(losses[i], color=shade, linewidth=1.6, label=f"step {rows[i]['step']:,}")
    for name, level in (levels or {}).items():
        axes.axhline(level, color=style.COLOURS[4], linestyle=":", linewidth=1.2, label=name)
    axes.set_ylim(bottom=0.0)
    style.dress(axes, style.fit(title, figure), "position", "loss (nats)", grid=True)
    style.legend(axes)
    axes.get_legend().set_loc("upper left")  # to the right of the picture, where it hides no line
    axes.get_legend().set_bbox_to_anchor((1.0, 1.0))
    return figure


def head_scores(scores: Mapping[str, Any], title: str = "Scores of the heads") -> Any:
    """Draw a score of every head: a row for each layer, a column for each head.

    The colours run from white to blue for 0 to 1 if no score is negative, otherwise from orange through white to blue
    for -1 to 1. The scale is extended if a score lies outside.

    Shapes: scores {name of the layer: (H,)} -> Figure

    Raises: ValueError if there are no scores, if layers have different numbers of heads, or if a score is not finite;
    TypeError if scores is not a dict of arrays.
    """
    op = "head_scores"
    if not isinstance(scores, Mapping):
        raise dtype_error(op, "scores", "a dict of arrays by the names of layers", type(scores).__name__)
    found = [np.asarray(of_layer) for of_layer in scores.values()]
    shapes = {of_layer.shape for of_layer in found}
    if len(shapes) != 1 or len(min(shapes)) != 1 or 0 in min(shapes):
        raise shape_error(op, "scores", "{layer: (H,)} with one H for all layers", sorted(shapes))
    matrix = require_finite(op, "scores", np.stack(found))  # (layers, H)
    labels = [style.drawable(name) for name in scores], [str(h) for h in range(matrix.shape[1])]
    largest = max(1.0, float(np.abs(matrix).max()))
    draw = partial(draw_values, values=matrix, largest=largest, few=16)
    return figure_of_cells(matrix.shape, draw, labels, title, "head", "layer", "score", margins=(3.4, 1.5))


def head_scores_over_training(log: Log, title: str = "The heads in training") -> Any:
    """Draw the scores of all heads against the step, with a panel for each kind of score.

    `log` is a list of rows like the lines of `log.jsonl`: `step` and any of `kind.layer.head`, such as
    `previous_token.blocks.0.attention.3`; other rows are skipped. The heads with the best final scores of each kind
    have a colour and a line style, the same in every panel; the other heads are faint.

    Units: those of the scores.

    Raises: ValueError if no row holds a step and a score; TypeError if log is not a list of dicts.
    """
    op = "head_scores_over_training"
    rows = rows_with_steps(op, log)
    columns = {name: found for row in rows for name in row if (found := re.fullmatch(r"(\w+)\.(.+\.\d+)", name))}
    if not columns:
        raise shape_error(op, "log", "rows with step and scores, kind.layer.head", f"{len(log)} rows without")
    curves: dict[str, dict[str, list[tuple[int, float]]]] = {}
    for name, found in columns.items():
        points = [(row["step"], float(row[name])) for row in rows if row.get(name) is not None]
        curves.setdefault(found[1], {})[found[2]] = points
    best = _best(curves)
    figure = style.new_figure(1.2 + 3.6 * len(curves), 4.0)
    for axes, (kind, of_heads) in zip(np.atleast_1d(figure.subplots(1, len(curves))), curves.items()):
        for head in sorted(of_heads, key=lambda head: head in best):
            n = best.index(head) if head in best else None
            look = {"color": style.FAINT, "linewidth": 1.0} if n is None else {
                "color": style.COLOURS[n], "linestyle": style.DASHES[n], "linewidth": 1.8, "label": head_name(head)
            }
            axes.plot(*np.transpose(of_heads[head]), **look)
        low, high = axes.get_ylim()
        axes.set_ylim(min(low, -0.03), max(high, 1.03))  # every panel shows at least 0 to 1
        style.dress(axes, kind.replace("_", " "), "step", "score", grid=True)
    handles = {label: line for axes in figure.axes for line, label in zip(*axes.get_legend_handles_labels())}
    figure.suptitle(style.drawable(style.fit(title, figure)), fontsize=11, color=style.INK, family=style.FONT)
    in_order = sorted(handles, key=[head_name(head) for head in best].index)
    figure.legend(
        [handles[label] for label in in_order], [style.drawable(label) for label in in_order], ncols=len(in_order),
        loc="outside lower center", frameon=False, prop={"family": style.FONT, "size": 9}, labelcolor=style.INK,
    )
    return figure


def patching_map(
    effects: Mapping[str, Any], tokens: Tokens = None, title: str = "The effects of patches",
    value: str = "change of the measured number",
) -> Any:
    """Draw the effects of patches: a row for each place or head, a column for each position.

    No change is white, an increase is blue, a decrease is orange.

    Shapes: effects {place: (T,) or (H, T)}, the result of `inside.patching_effects` -> Figure

    Units: those of the effects; `value` is the label of the colour bar.

    Raises: TypeError if effects is not a dict of arrays; ValueError if they have different T or are not finite.
    """
    if not isinstance(effects, Mapping) or not effects:
        got = type(effects).__name__ if not isinstance(effects, Mapping) else "an empty one"
        raise dtype_error("patching_map", "effects", "a dict of arrays by place", got)
    rows: dict[str, np.ndarray] = {}
    for place, of_place in effects.items():
        of_place = np.asarray(of_place)
        if of_place.ndim not in (1, 2) or 0 in of_place.shape:
            raise shape_error("patching_map", f"effects[{place!r}]", "(T,) or (H, T)", of_place.shape)
        if of_place.ndim == 1:
            rows[place] = of_place
        else:
            rows |= {head_name(f"{place}.{h}"): of_head for h, of_head in enumerate(of_place)}
    lengths = {len(row) for row in rows.values()}
    if len(lengths) > 1:
        raise shape_error("patching_map", "effects", "the same T at all places", sorted(lengths))
    labels = style.as_labels(tokens) if tokens is not None else None
    return matrix_map(np.stack([*rows.values()]), [*rows], labels, title, "position", "place", value)


def lens_table(
    words: Sequence[Sequence[str]], probabilities: np.ndarray, rows: Tokens = None, columns: Tokens = None,
    title: str = "The logit lens", x: str = "position", y: str = "stream",
) -> Any:
    """Draw a table of words. A stronger blue is a larger probability.

    `rows` usually are the streams, and `columns` the positions or the ranks; `x` and `y` name the axes.

    Shapes: words n lists of m words, probabilities (n, m) -> Figure

    Raises: TypeError for words or probabilities of a wrong type; ValueError if the numbers of words and probabilities
    differ, a probability is outside 0 to 1, or the number of labels differs from the number of rows or columns.
    """
    p = np.asarray(probabilities)
    if p.ndim != 2 or 0 in p.shape:
        raise shape_error("lens_table", "probabilities", "(n, m)", p.shape)
    p = require_finite("lens_table", "probabilities", p)
    if (beyond := p[(p < 0.0) | (p > 1.0 + 1e-6)]).size:  # round-off may lift a probability above 1
        raise value_error("lens_table", "probabilities", "from 0 to 1", beyond[0], "softmax(logits)[0] gives them")
    lengths = [len(row) for row in words] if hasattr(words, "__len__") else None
    if lengths != [p.shape[1]] * len(p):
        raise shape_error("lens_table", "words", f"{len(p)} lists of {p.shape[1]}, as the probabilities", lengths)
    require_labels("lens_table", "rows", rows, len(p))
    require_labels("lens_table", "columns", columns, p.shape[1])
    figure = style.new_figure(2.2 + 1.15 * p.shape[1], 1.3 + 0.26 * len(p))
    axes = figure.subplots()
    blues = style.colour_map("white_to_blue", style.WHITE_TO_BLUE)
    image = axes.imshow(p, cmap=blues, vmin=0.0, vmax=1.0, aspect="auto", interpolation="nearest")
    for (i, j), probability in np.ndenumerate(p):
        text = style.as_labels([words[i][j]])[0]
        text = text if len(text) <= WIDEST else text[: WIDEST - 1] + "…"
        colour = "white" if probability > 0.67 else style.INK
        axes.text(j, i, text, color=colour, fontsize=8, family=style.FONT, ha="center", va="center", parse_math=False)
    style.dress(axes, style.fit(title, figure), x, y)
    names = [style.drawable(row) for row in rows] if rows is not None else range(len(p))
    axes.set_yticks(range(len(p)), names, fontsize=8)
    axes.xaxis.tick_top()
    ticks = style.as_labels(columns) if columns is not None else [str(j) for j in range(p.shape[1])]
    axes.set_xticks(range(p.shape[1]), ticks, fontsize=8, parse_math=False)
    axes.tick_params(length=0)
    add_colour_bar(figure, image, axes, "probability")
    return figure


def _evenly(means: np.ndarray) -> list[int]:
    """A few rows, in order: the first, the last, and the rows nearest to evenly spaced levels between them."""
    finite = np.flatnonzero(np.isfinite(means))
    if not finite.size:
        return sorted({0, len(means) - 1})
    levels = np.linspace(means[finite[0]], means[finite[-1]], CURVES)
    between = {int(finite[np.argmin(np.abs(means[finite] - level))]) for level in levels[1:-1]}
    return sorted({int(finite[0]), int(finite[-1]), *between})


def _best(curves: Mapping[str, Mapping[str, list[tuple[int, float]]]]) -> list[str]:
    """The head with the best final score of each kind, then the second of each kind, and so on: `NAMED` heads."""
    ranked = [
        sorted(of_heads, key=lambda head: np.nan_to_num(-of_heads[head][-1][1], nan=np.inf))
        for of_heads in curves.values()
    ]
    return list(dict.fromkeys(head for place in zip(*ranked) for head in place))[:NAMED]
