"""loss.png: the curves of a run, for those who have matplotlib."""

from pathlib import Path
from typing import Any

from numpy_attention import plots


def draw_losses(log: list[dict[str, Any]], references: dict[str, float], path: Path) -> bool:
    """Draw the curves of a log, with reference losses as levels; False without matplotlib."""
    levels = {f"{name} {loss:.3f}": loss for name, loss in references.items()}
    try:
        figure = plots.training_curves(log, levels)
    except ModuleNotFoundError:
        return False
    temporary = path.with_suffix(".tmp.png")
    plots.save(figure, temporary, dpi=120)
    temporary.replace(path)
    return True
