"""The diagrams with numbers and words from the code, and the moving picture of the README.

All other diagrams in docs/_static/diagrams are SVG files that are written by hand.
"""

from collections.abc import Callable
from pathlib import Path

from docs.diagrams import head, masks, work
from docs.diagrams.pen import Drawing

FOLDER = Path(__file__).parents[1] / "_static" / "diagrams"
DRAWINGS: tuple[Callable[[], Drawing], ...] = (
    masks.masks, work.two_roads, work.package_layout, work.book_map, head.touchable_head,
)
