"""Pictures of Part VI: the loss along the text, what heads look at, what a patch changes, what a lens reads."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from numpy_attention.errors import dtype_error, shape_error, value_error
from numpy_attention.plots.cells import (
    Tokens,
    add_colour_bar,
    draw_values,
    inches,
    label_cells,
    require_finite,
    require_labels,
)
from numpy_attention.plots.curves import Log, rows_with_steps
from numpy_attention.plots.matrices import matrix_map
from numpy_attention.plots.style import (
    COLOURS,
    DASHES,
    FAINT,
    FONT,
    INK,
    WHITE_TO_BLUE,
    colour_map,
    drawable,
    dress,
    fit,
    legend,
    new_figure,
    printable,
)

CURVES = 6  # steps of which the losses are drawn
NAMED = 4  # heads with a colour of their own
WIDEST = 12  # characters of a word in its cell


def loss_by_position(
    log: Log, levels: Mapping[str, float] | None = None, title: str = "The loss along the text"
) -> Any:
    """Draw the loss at each position, a line for each of a few steps of training, from light to dark.

    `log` is a list of rows like the lines of `log.jsonl`: `step` and `loss_at_0`, `loss_at_1`, ...; other rows are
    skipped. The steps are the first, the last, and those between them where the mean loss is about evenly spaced: a
    fall in few steps is seen in full. `levels` draws levels to compare the loss with, by name, as in `training_curves`.

    Units: losses in nats.

    Raises: ValueError when no row holds a step and losses by position, or they are not those of the same positions;
    TypeError for what is no list of dicts.
    """
    op = "loss_by_position"
    rows = [row for row in rows_with_steps(op, log) if "loss_at_0" in row]
    if not rows:
        raise shape_error(op, "log", "rows with step and loss_at_0, loss_at_1, ...", f"{len(log)} rows without")
    names = [f"loss_at_{t}" for t in range(sum(name.startswith("loss_at_") for name in rows[0]))]
    if odd := [row["step"] for row in rows if any(row.get(name) is None for name in names)]:
        raise shape_error(op, "log", f"rows with {names[0]} to {names[-1]}", f"another row at step {odd[0]}")
    losses = np.array([[float(row[name]) for name in names] for row in rows])  # (rows, T)
    losses[~np.isfinite(losses)] = np.nan  # of a run that diverges: a gap
    chosen = _evenly(losses.mean(axis=1))
    figure = new_figure(7.2, 4.0)
    axes = figure.subplots()
    shades = colour_map("white_to_blue", WHITE_TO_BLUE)(np.linspace(0.35, 1.0, len(chosen)))
    for i, shade in zip(chosen, shades):
        axes.plot(losses[i], color=shade, linewidth=1.6, label=f"step {rows[i]['step']:,}")
    for name, level in (levels or {}).items():
        axes.axhline(level, color=COLOURS[4], linestyle=":", linewidth=1.2, label=name)
    axes.set_ylim(bottom=0.0)
    dress(axes, fit(title, figure), "position", "loss (nats)", grid=True)
    _legend_beside(axes)
    return figure


def head_scores(scores: Mapping[str, Any], title: str = "Scores of the heads") -> Any:
    """Draw a score of every head: a row for each layer, a column for each head.

    White to blue from 0 to 1 if none is negative, else blue below zero and red above, from -1 to 1; further if they go
    further.

    Shapes: scores {name of the layer: (H,)} -> Figure

    Raises: ValueError for no scores, layers of unequally many heads, or a score that is not finite; TypeError for what
    is no dict of arrays.
    """
    op = "head_scores"
    if not isinstance(scores, Mapping):
        raise dtype_error(op, "scores", "a dict of arrays by the names of layers", type(scores).__name__)
    found = [np.asarray(of_layer) for of_layer in scores.values()]
    shapes = {of_layer.shape for of_layer in found}
    if len(shapes) != 1 or len(min(shapes)) != 1 or 0 in min(shapes):
        raise shape_error(op, "scores", "{layer: (H,)} with one H for all layers", sorted(shapes))
    matrix = require_finite(op, "scores", np.stack(found))  # (layers, H)
    width, height = inches(*matrix.shape)
    figure = new_figure(3.4 + width, 1.5 + height)
    axes = figure.subplots()
    image = draw_values(axes, matrix, max(1.0, float(np.abs(matrix).max())), few=16)
    dress(axes, fit(title, figure), "head", "layer")
    label_cells(axes, [drawable(name) for name in scores], [str(h) for h in range(matrix.shape[1])])
    add_colour_bar(figure, image, axes, "score")
    return figure


def head_scores_over_training(log: Log, title: str = "The heads in training") -> Any:
    """Draw the scores of all heads against the step, a panel for each kind of score.

    `log` is a list of rows like the lines of `log.jsonl`: `step` and any of `kind.layer.head`, such as
    `previous_token.blocks.0.attention.3`; other rows are skipped. The best heads of each kind at the end have a colour
    and a dash, the same in every panel; the others are faint.

    Units: the scores as they are.

    Raises: ValueError when no row holds a step and a score; TypeError for what is no list of dicts.
    """
    op = "head_scores_over_training"
    rows = rows_with_steps(op, log)
    named = {name: found for row in rows for name in row if (found := re.fullmatch(r"(\w+)\.(.+\.\d+)", name))}
    if not named:
        raise shape_error(op, "log", "rows with step and scores, kind.layer.head", f"{len(log)} rows without")
    curves: dict[str, dict[str, list[tuple[int, float]]]] = {}
    for name, found in named.items():
        points = [(row["step"], float(row[name])) for row in rows if row.get(name) is not None]
        curves.setdefault(found[1], {})[found[2]] = points
    best = _best(curves)
    figure = new_figure(1.2 + 3.6 * len(curves), 4.0)
    for axes, (kind, of_heads) in zip(np.atleast_1d(figure.subplots(1, len(curves))), curves.items()):
        for head in sorted(of_heads, key=lambda head: head in best):
            n = best.index(head) if head in best else None
            look = {"color": FAINT, "linewidth": 1.0} if n is None else {
                "color": COLOURS[n], "linestyle": DASHES[n], "linewidth": 1.8, "label": head_name(head)
            }
            axes.plot(*np.transpose(of_heads[head]), **look)
        low, high = axes.get_ylim()
        axes.set_ylim(min(low, -0.03), max(high, 1.03))  # the same heights in every panel, as scores go
        dress(axes, kind.replace("_", " "), "step", "score", grid=True)
    handles = {label: line for axes in figure.axes for line, label in zip(*axes.get_legend_handles_labels())}
    figure.suptitle(drawable(fit(title, figure)), fontsize=11, color=INK, family=FONT)
    in_order = sorted(handles, key=[head_name(head) for head in best].index)
    figure.legend(
        [handles[label] for label in in_order], [drawable(label) for label in in_order], loc="outside lower center",
        ncols=len(in_order), frameon=False, prop={"family": FONT, "size": 9}, labelcolor=INK,
    )
    return figure


def patching_map(
    effects: Mapping[str, Any],
    tokens: Tokens = None,
    title: str = "What a patch changes",
    value: str = "change of the measured number",
) -> Any:
    """Draw what patches change: a row for each place or head, a column for each position, blue down and red up.

    Shapes: effects {place: (T,) or (H, T)}, as `inside.patching_effects` gives them -> Figure

    Units: those of the effects; `value` names them beside the bar of colours.

    Raises: TypeError for what is no dict of arrays; ValueError for effects of unequal T, or that are not finite.
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
        raise shape_error("patching_map", "effects", "of one T at all places", sorted(lengths))
    labels = printable(tokens) if tokens is not None else None
    return matrix_map(np.stack([*rows.values()]), [*rows], labels, title, "position", "place", value)


def lens_table(
    words: Sequence[Sequence[str]],
    probabilities: np.ndarray,
    rows: Tokens = None,
    columns: Tokens = None,
    title: str = "The logit lens",
    x: str = "position",
    y: str = "stream",
) -> Any:
    """Draw a table of words, each cell the darker the likelier its word.

    `rows` are the streams, usually, and `columns` the positions or the ranks; `x` and `y` name the axes.

    Shapes: words n lists of m, probabilities (n, m) -> Figure

    Raises: TypeError for words or probabilities of another kind; ValueError for words that are not as many as the
    probabilities, probabilities beyond 0 and 1, or labels that are not one for each row or column.
    """
    p = np.asarray(probabilities)
    if p.ndim != 2 or 0 in p.shape:
        raise shape_error("lens_table", "probabilities", "(n, m)", p.shape)
    p = require_finite("lens_table", "probabilities", p)
    if (beyond := p[(p < 0.0) | (p > 1.0 + 1e-6)]).size:  # a sum of exponentials rounds
        raise value_error("lens_table", "probabilities", "from 0 to 1", beyond[0], "softmax(logits)[0] are")
    lengths = [len(row) for row in words] if hasattr(words, "__len__") else None
    if lengths != [p.shape[1]] * len(p):
        raise shape_error("lens_table", "words", f"{len(p)} lists of {p.shape[1]}, as the probabilities", lengths)
    require_labels("lens_table", "rows", rows, len(p))
    require_labels("lens_table", "columns", columns, p.shape[1])
    figure = new_figure(2.2 + 1.15 * p.shape[1], 1.3 + 0.26 * len(p))
    axes = figure.subplots()
    blues = colour_map("white_to_blue", WHITE_TO_BLUE)
    image = axes.imshow(p, cmap=blues, vmin=0.0, vmax=1.0, aspect="auto", interpolation="nearest")
    for (i, j), share in np.ndenumerate(p):
        text = printable([words[i][j]])[0]
        text = text if len(text) <= WIDEST else text[: WIDEST - 1] + "…"
        look: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 8, "family": FONT, "parse_math": False}
        axes.text(j, i, text, color="white" if share > 0.55 else INK, **look)
    dress(axes, fit(title, figure), x, y)
    axes.set_yticks(range(len(p)), [drawable(row) for row in rows] if rows is not None else range(len(p)), fontsize=8)
    axes.xaxis.tick_top()
    ticks = printable(columns) if columns is not None else [str(j) for j in range(p.shape[1])]
    axes.set_xticks(range(p.shape[1]), ticks, fontsize=8, parse_math=False)
    axes.tick_params(length=0)
    add_colour_bar(figure, image, axes, "probability")
    return figure


def head_name(head: str) -> str:
    """`blocks.1.attention.3` in words: block 1, head 3."""
    found = re.fullmatch(r"(?:(\w+)\.)?blocks\.(\d+)\.(attention|cross_attention)\.(\d+)", head)
    if found is None:
        return head
    parts = [found[1], f"block {found[2]}", f"{'cross ' * (found[3] != 'attention')}head {found[4]}"]
    return ", ".join(part for part in parts if part)


def _evenly(means: np.ndarray) -> list[int]:
    """A few rows, in order: the first, the last, and those next to levels evenly spaced between."""
    finite = np.flatnonzero(np.isfinite(means))
    if not finite.size:
        return sorted({0, len(means) - 1})
    levels = np.linspace(means[finite[0]], means[finite[-1]], CURVES)
    between = {int(finite[np.argmin(np.abs(means[finite] - level))]) for level in levels[1:-1]}
    return sorted({int(finite[0]), int(finite[-1]), *between})


def _best(curves: Mapping[str, Mapping[str, list[tuple[int, float]]]]) -> list[str]:
    """The best head of each kind at the end, then the second of each kind, and so on, while there are colours."""
    ranked = [
        sorted(of_heads, key=lambda head: np.nan_to_num(-of_heads[head][-1][1], nan=np.inf))
        for of_heads in curves.values()
    ]
    return list(dict.fromkeys(head for place in zip(*ranked) for head in place))[:NAMED]


def _legend_beside(axes: Any) -> None:
    """The legend on the right of the picture, where it hides no line."""
    legend(axes)
    axes.get_legend().set_loc("upper left")
    axes.get_legend().set_bbox_to_anchor((1.0, 1.0))
