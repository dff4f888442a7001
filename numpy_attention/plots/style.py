"""One look for all pictures, set on each figure itself: matplotlib's global settings stay as the reader has them."""

import functools
import io
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from numpy_attention.errors import dtype_error

FONT = "DejaVu Sans"  # comes with matplotlib
ENDINGS = (".png", ".svg", ".pdf")  # of the pictures that need nothing but matplotlib
INK, FAINT = "#222222", "#d0d0d0"
COLOURS = ("#0b4f8a", "#c8540a", "#1b7a4b", "#7a3d94", "#777777")
DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))
MARKERS = ("o", "s", "^", "D", "v")
WHITE_TO_BLUE = ("#ffffff", "#cfe1f2", "#93c4de", "#4a97c9", "#1764ab", "#08306b")
# Blue for negative, red for positive, and lighter all the way up: in print without colour the sign is still there.
BLUE_TO_RED = ("#06184a", "#25459c", "#6c6d85", "#e46e50", "#ffb8a0")
VISIBLE_WHITESPACE = {" ": "␣", "\n": "↵", "\t": "⇥", "\r": "␍", "": "∅"}


def new_figure(width: float, height: float) -> Any:
    """A figure in inches that belongs to nobody else, and that a notebook can display."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        hint = "numpy_attention.plots needs matplotlib: pip install 'numpy-attention[plots]'"
        raise ModuleNotFoundError(hint, name="matplotlib") from None
    figure: Any = Figure(figsize=(width, height), dpi=110, layout="constrained", facecolor="white")
    # Notebooks know figures made by pyplot; ours are not, so they bring their own way to be displayed.
    figure._repr_png_ = functools.partial(_png, figure)
    return figure


def save(figure: Any, path: str | Path, dpi: int = 150) -> Path:
    """Write a figure, whole or not at all; the ending of the name (.png, .svg, .pdf) decides the format.

    The same figure gives the same file.

    Raises: ValueError for an ending that matplotlib does not know; TypeError for what is no figure; OSError when the
    file cannot be written.
    """
    from matplotlib import rc_context

    from numpy_attention.files import atomic_write  # here, that `import numpy_attention` stays quick

    if not hasattr(figure, "savefig"):
        raise dtype_error("save", "figure", "a Figure, such as attention_map gives", type(figure).__name__)
    path = Path(path)
    dated = {".svg": "Date", ".pdf": "CreationDate"}.get(path.suffix.lower())
    with rc_context({"svg.hashsalt": "numpy_attention"}), atomic_write(path) as temporary:
        _lay_out(figure)
        figure.savefig(temporary, dpi=dpi, metadata={dated: None} if dated else None)
    return path


def colour_map(name: str, colours: Sequence[str]) -> Any:
    """A smooth map through the given colours."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list(name, list(colours))


def dress(axes: Any, title: str = "", x: str = "", y: str = "", grid: bool = False) -> None:
    """Title, labels, thin spines, an unobtrusive grid."""
    axes.set_title(drawable(title), fontsize=11, color=INK, family=FONT, parse_math=False)
    axes.set_xlabel(drawable(x), fontsize=10, color=INK, family=FONT)
    axes.set_ylabel(drawable(y), fontsize=10, color=INK, family=FONT)
    axes.tick_params(labelsize=9, colors=INK, labelfontfamily=FONT)
    for side, spine in axes.spines.items():
        spine.set_color(INK)
        spine.set_linewidth(0.8)
        spine.set_visible(not grid or side in ("left", "bottom"))
    if grid:
        axes.grid(True, color=FAINT, linewidth=0.6)
        axes.set_axisbelow(True)


def legend(axes: Any) -> None:
    """A legend in the look of the rest, where there is something to tell apart."""
    handles, labels = axes.get_legend_handles_labels()
    if labels:
        labels = [drawable(label) for label in labels]
        axes.legend(handles, labels, frameon=False, prop={"family": FONT, "size": 9}, labelcolor=INK)


def fit(title: str, figure: Any) -> str:
    """The title in lines that are no longer than the figure is wide, at about eight letters an inch."""
    return textwrap.fill(str(title), max(16, int(8 * figure.get_figwidth() - 6)))


def printable(tokens: Sequence[object], spaces: bool = True) -> list[str]:
    """Tokens as labels: white space made visible if `spaces`, and what the font lacks by its code point."""
    from matplotlib import font_manager

    font: Any = font_manager.get_font(font_manager.findfont(FONT))
    labels = []
    for token in tokens:
        text = str(token)
        if spaces:
            text = "".join(VISIBLE_WHITESPACE.get(c, c) for c in text) or VISIBLE_WHITESPACE[""]
        labels.append("".join(c if font.get_char_index(ord(c)) else f"<{ord(c):x}>" for c in text))
    return labels


def drawable(text: object) -> str:
    """A title or another text, line by line, with what the font lacks by its code point."""
    return "\n".join(printable(str(text).split("\n"), spaces=False))


def _png(figure: Any) -> bytes:
    buffer = io.BytesIO()
    _lay_out(figure)
    figure.savefig(buffer, format="png")
    return buffer.getvalue()


def _lay_out(figure: Any) -> None:
    """Find a place for everything: with square cells one pass, which drawing makes, leaves long labels cut off."""
    figure.draw_without_rendering()
