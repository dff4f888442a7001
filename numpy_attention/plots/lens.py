"""Pictures of Part VI, continued: what a patch changes, and which words a lens reads."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from numpy_attention.errors import dtype_error, shape_error, value_error
from numpy_attention.plots.cells import Tokens, add_colour_bar, require_finite, require_labels
from numpy_attention.plots.inside import head_name
from numpy_attention.plots.matrices import matrix_map
from numpy_attention.plots.style import (
    FONT,
    INK,
    WHITE_TO_BLUE,
    colour_map,
    drawable,
    dress,
    fit,
    new_figure,
    printable,
)

WIDEST = 12  # characters of a word in its cell


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
