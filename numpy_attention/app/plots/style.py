"""The common style of all pictures. It is set on each figure; matplotlib's global settings do not change."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from numpy_attention.files import atomic_write

INK, FAINT = "#222222", "#d0d0d0"
COLOURS = ("#0b4f8a", "#c8540a", "#1b7a4b", "#7a3d94", "#777777")
DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))
MARKERS = ("o", "s", "^", "D", "v")
# Maps of cells: zero is white, positive numbers are blue, negative numbers are orange.
WHITE_TO_BLUE = ("#ffffff", COLOURS[0])
ORANGE_TO_BLUE = (COLOURS[1], *WHITE_TO_BLUE)


def new_figure(width: float, height: float) -> Any:
    """A new figure, sizes in inches, that a notebook can display.

    Raises: ModuleNotFoundError, with the line that installs matplotlib, if it is missing.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        hint = "numpy_attention.app.plots needs matplotlib: pip install 'numpy-attention[plots]'"
        raise ModuleNotFoundError(hint, name="matplotlib") from None
    figure: Any = Figure(figsize=(width, height), dpi=110, layout="constrained")
    figure._repr_png_ = lambda: _png(figure)  # notebooks themselves display only the figures of pyplot
    return figure


def save(figure: Any, path: str | Path, dpi: int = 150) -> Path:
    """Write a figure by an atomic write; the ending of the name (.png, .svg, .pdf) decides the format.

    Raises: ValueError if matplotlib does not know the ending; OSError if the file cannot be written.
    """
    from matplotlib import rc_context

    path = Path(path)
    undated = {"Date": None} if path.suffix.lower() == ".svg" else None  # the same figure gives the same .svg
    with rc_context({"svg.hashsalt": "numpy_attention"}), atomic_write(path) as temporary:
        figure.savefig(temporary, dpi=dpi, bbox_inches="tight", metadata=undated)
    return path


def _png(figure: Any) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", bbox_inches="tight")
    return buffer.getvalue()


def colour_map(name: str, colours: Sequence[str]) -> Any:
    """A smooth colour map through the given colours."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list(name, list(colours))


def dress(axes: Any, title: str = "", x: str = "", y: str = "", grid: bool = False) -> None:
    """Set the title, the labels of the axes and, with `grid`, a light grid."""
    axes.set_title(title, fontsize=11)
    axes.set(xlabel=x, ylabel=y)
    if grid:
        axes.grid(color=FAINT, linewidth=0.6)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)


def legend(axes: Any) -> None:
    """Add a legend if there are labelled lines."""
    if axes.get_legend_handles_labels()[1]:
        axes.legend(frameon=False, fontsize=9)
