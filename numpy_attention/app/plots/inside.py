"""Pictures of Part VI: the loss along the text, scores of heads, effects of patches, words that a lens reads."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from numpy_attention.app.plots import style
from numpy_attention.app.plots.cells import Tokens, add_colour_bar, checked, draw_cells, figure_of_cells, labels_of
from numpy_attention.app.plots.curves import Log, points
from numpy_attention.errors import shape_error
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

    Raises: ValueError if no row holds a step and losses by position.
    """
    rows = [row for row in log if "step" in row and "loss_at_0" in row]
    if not rows:
        expected = "rows with step and loss_at_0, loss_at_1, ..."
        raise shape_error("loss_by_position", "log", expected, f"{len(log)} rows without")
    T = sum(name.startswith("loss_at_") for name in rows[0])
    losses = np.array([[float(row[f"loss_at_{t}"]) for t in range(T)] for row in rows])  # (rows, T)
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


def _evenly(means: np.ndarray) -> list[int]:
    """A few rows, in order: the first, the last, and the rows nearest to evenly spaced levels between them."""
    finite = np.flatnonzero(np.isfinite(means))
    if not finite.size:
        return sorted({0, len(means) - 1})
    levels = np.linspace(means[finite[0]], means[finite[-1]], CURVES)[1:-1]
    between = {int(finite[np.argmin(np.abs(means[finite] - level))]) for level in levels}
    return sorted({int(finite[0]), int(finite[-1]), *between})


def head_scores(scores: Mapping[str, Any], title: str = "Scores of the heads") -> Any:
    """Draw a score of every head: a row for each layer, a column for each head.

    The colours run from white to blue for 0 to 1 if no score is negative, otherwise from orange through white to blue
    for -1 to 1. The scale is extended if a score lies outside.

    Shapes: scores {name of the layer: (H,)} -> Figure

    Raises: ValueError if layers have different numbers of heads, or if a score is not finite.
    """
    shapes = sorted({np.shape(of_layer) for of_layer in scores.values()})
    if len(shapes) != 1:
        raise shape_error("head_scores", "scores", "{layer: (H,)} with one H for all layers", shapes)
    matrix = checked("head_scores", "scores", [*scores.values()], "(layers, H)")
    heads, look = [str(h) for h in range(matrix.shape[1])], {"largest": max(1.0, float(np.abs(matrix).max()))}
    look["numbers"] = max(matrix.shape) <= 16
    return figure_of_cells(matrix, [*scores], heads, title, "head", "layer", "score", margins=(3.4, 1.5), **look)


def head_scores_over_training(log: Log, title: str = "The heads in training") -> Any:
    """Draw the scores of all heads against the step, with a panel for each kind of score.

    `log` is a list of rows like the lines of `log.jsonl`: `step` and any of `kind.layer.head`, such as
    `previous_token.blocks.0.attention.3`; other rows are skipped. The heads with the best final scores of each kind
    have a colour and a line style, the same in every panel; the other heads are faint.

    Units: those of the scores.

    Raises: ValueError if no row holds a step and a score.
    """
    curves: dict[str, dict[str, list[tuple[int, float]]]] = {}  # {kind: {head: [(step, score), ...]}}
    for name in dict.fromkeys(name for row in log if "step" in row for name in row):
        if found := re.fullmatch(r"(\w+)\.(.+\.\d+)", name):
            curves.setdefault(found[1], {})[found[2]] = points(log, name)
    if not curves:
        expected = "rows with step and scores, kind.layer.head"
        raise shape_error("head_scores_over_training", "log", expected, f"{len(log)} rows without")
    best = _best(curves)
    figure = style.new_figure(1.2 + 3.6 * len(curves), 4.0)
    lines: dict[str, Any] = {}
    for axes, (kind, of_heads) in zip(np.atleast_1d(figure.subplots(1, len(curves))), curves.items()):
        for head in sorted(of_heads, key=lambda head: head in best):  # the best heads above the others
            steps, scores = zip(*of_heads[head])
            if head not in best:
                axes.plot(steps, scores, color=style.FAINT, linewidth=1.0)
                continue
            n = best.index(head)
            look = {"color": style.COLOURS[n], "linestyle": style.DASHES[n], "linewidth": 1.8}
            (lines[head],) = axes.plot(steps, scores, label=head_name(head), **look)
        low, high = axes.get_ylim()
        axes.set_ylim(min(low, -0.03), max(high, 1.03))  # every panel shows at least 0 to 1
        style.dress(axes, kind.replace("_", " "), "step", "score", grid=True)
    figure.suptitle(style.fit(title, figure), fontsize=11, color=style.INK, family=style.FONT)
    figure.legend(
        handles=[lines[head] for head in best], loc="outside lower center", ncols=len(best), frameon=False,
        prop={"family": style.FONT, "size": 9}, labelcolor=style.INK,
    )
    return figure


def _best(curves: Mapping[str, Mapping[str, list[tuple[int, float]]]]) -> list[str]:
    """The head with the best final score of each kind, then the second of each kind, and so on: `NAMED` heads."""
    ranked = [
        sorted(of_heads, key=lambda head: np.nan_to_num(-of_heads[head][-1][1], nan=np.inf))
        for of_heads in curves.values()
    ]
    return list(dict.fromkeys(head for place in zip(*ranked) for head in place))[:NAMED]


def patching_map(
    effects: Mapping[str, Any], tokens: Tokens = None, title: str = "The effects of patches",
    value: str = "change of the measured number",
) -> Any:
    """Draw the effects of patches: a row for each place or head, a column for each position.

    No change is white, an increase is blue, a decrease is orange.

    Shapes: effects {place: (T,) or (H, T)}, the result of `inside.patching_effects` -> Figure

    Units: those of the effects; `value` is the label of the colour bar.

    Raises: ValueError if effects have different T or are not finite, or if there is not one token for each position.
    """
    op, rows = "patching_map", dict[str, np.ndarray]()
    for place, of_place in effects.items():
        heads = np.atleast_2d(of_place)  # (H, T)
        names = [place] if np.ndim(of_place) == 1 else [head_name(f"{place}.{h}") for h in range(len(heads))]
        rows |= dict(zip(names, heads))
    if len(lengths := {row.shape for row in rows.values()}) != 1:
        raise shape_error(op, "effects", "{place: (T,) or (H, T)} with one T for all places", sorted(lengths))
    matrix = checked(op, "effects", [*rows.values()], "(places, T)")
    labels = labels_of(op, "tokens", tokens, matrix.shape[1])
    return figure_of_cells(matrix, [*rows], labels, title, "position", "place", value)


def lens_table(
    words: Sequence[Sequence[str]], probabilities: np.ndarray, rows: Tokens = None, columns: Tokens = None,
    title: str = "The logit lens", x: str = "position", y: str = "stream",
) -> Any:
    """Draw a table of words. A stronger blue is a larger probability.

    `rows` usually are the streams, and `columns` the positions or the ranks; `x` and `y` name the axes.

    Shapes: words n lists of m words, probabilities (n, m) -> Figure

    Raises: ValueError if the numbers of words, labels and probabilities differ, or a probability is not finite.
    """
    p = checked("lens_table", "probabilities", probabilities, "(n, m)")
    if [len(row) for row in words] != [p.shape[1]] * len(p):
        expected = f"{len(p)} lists of {p.shape[1]}, as the probabilities"
        raise shape_error("lens_table", "words", expected, [len(row) for row in words])
    texts = [style.as_labels(row) for row in words]
    short = [[text if len(text) <= WIDEST else text[: WIDEST - 1] + "…" for text in row] for row in texts]
    figure = style.new_figure(2.2 + 1.15 * p.shape[1], 1.3 + 0.26 * len(p))
    axes = figure.subplots()
    image = draw_cells(axes, p, largest=1.0, numbers=True, texts=short, fontsize=8, aspect="auto")
    style.dress(axes, style.fit(title, figure), x, y)
    names = labels_of("lens_table", "rows", rows, len(p), tokens=False)
    ticks = labels_of("lens_table", "columns", columns, p.shape[1])
    axes.set_yticks(range(len(p)), names or range(len(p)), fontsize=8)
    axes.xaxis.tick_top()
    axes.set_xticks(range(p.shape[1]), ticks or range(p.shape[1]), fontsize=8, parse_math=False)
    axes.tick_params(length=0)
    add_colour_bar(figure, image, axes, "probability")
    return figure
