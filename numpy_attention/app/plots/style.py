"""The common style of all pictures. It is set on each figure; matplotlib's global settings do not change."""

import functools
import io
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from numpy_attention.errors import dtype_error

FONT = "DejaVu Sans"  # comes with matplotlib
ENDINGS = (".png", ".svg", ".pdf")  # the file formats that need only matplotlib
INK, FAINT = "#222222", "#d0d0d0"
COLOURS = ("#0b4f8a", "#c8540a", "#1b7a4b", "#7a3d94", "#777777")
DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))
MARKERS = ("o", "s", "^", "D", "v")
# Maps of cells: zero is white, positive numbers are blue, negative numbers are orange.
WHITE_TO_BLUE = ("#ffffff", COLOURS[0])
ORANGE_TO_BLUE = (COLOURS[1], *WHITE_TO_BLUE)
VISIBLE_WHITESPACE = {" ": "␣", "\n": "↵", "\t": "⇥", "\r": "␍", "": "∅"}


def new_figure(width: float, height: float) -> Any:
    """A new figure, sizes in inches, that a notebook can display."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        hint = "numpy_attention.app.plots needs matplotlib: pip install 'numpy-attention[plots]'"
        raise ModuleNotFoundError(hint, name="matplotlib") from None
    figure: Any = Figure(figsize=(width, height), dpi=110, layout="constrained", facecolor="white")
    # Notebooks can display figures made by pyplot. These figures are not, so they need this method.
    figure._repr_png_ = functools.partial(_png, figure)
    return figure


def save(figure: Any, path: str | Path, dpi: int = 150) -> Path:
    """Write a figure by an atomic write; the ending of the name (.png, .svg, .pdf) decides the format.

    The same figure gives the same file.

    Raises: ValueError if matplotlib does not know the ending; TypeError if figure is not a figure; OSError if the file
    cannot be written.
    """
    from matplotlib import rc_context

    from numpy_attention.files import atomic_write  # imported here to keep `import numpy_attention` fast

    if not hasattr(figure, "savefig"):
        raise dtype_error("save", "figure", "a Figure, such as the result of attention_map", type(figure).__name__)
    path = Path(path)
    dated = {".svg": "Date", ".pdf": "CreationDate"}.get(path.suffix.lower())
    with rc_context({"svg.hashsalt": "numpy_attention"}), atomic_write(path) as temporary:
        _lay_out(figure)
        figure.savefig(temporary, dpi=dpi, metadata={dated: None} if dated else None)
    return path


def colour_map(name: str, colours: Sequence[str]) -> Any:
    """A smooth colour map through the given colours."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list(name, list(colours))


def dress(axes: Any, title: str = "", x: str = "", y: str = "", grid: bool = False) -> None:
    """Set title, labels, thin spines and, with `grid`, a light grid."""
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
    """Add a legend in our style if there are labelled lines."""
    handles, labels = axes.get_legend_handles_labels()
    if labels:
        labels = [drawable(label) for label in labels]
        axes.legend(handles, labels, frameon=False, prop={"family": FONT, "size": 9}, labelcolor=INK)


def fit(title: str, figure: Any) -> str:
    """The title in lines that fit the width of the figure, at about eight letters per inch."""
    return textwrap.fill(str(title), max(16, int(8 * figure.get_figwidth() - 6)))


def as_labels(tokens: Sequence[object], spaces: bool = True) -> list[str]:
    """Tokens as labels; `spaces` makes white space visible; a character that the font lacks becomes its code point."""
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
    """A title or another text, line by line; a character that the font lacks becomes its code point."""
    return "\n".join(as_labels(str(text).split("\n"), spaces=False))


def _png(figure: Any) -> bytes:
    buffer = io.BytesIO()
    _lay_out(figure)
    figure.savefig(buffer, format="png")
    return buffer.getvalue()


def _lay_out(figure: Any) -> None:
    """Compute the layout once more: with square cells, long labels are still cut off after one pass."""
    figure.draw_without_rendering()
