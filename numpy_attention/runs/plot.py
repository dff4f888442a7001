"""loss.png and what else is drawn of a run, for those who have matplotlib."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from numpy_attention import plots


def draw_losses(log: list[dict[str, Any]], references: dict[str, float], path: Path) -> str:
    """Draw the curves of a log, with reference losses as levels; what there is to say where there is no picture."""
    if not any("loss" in row or "val_loss" in row for row in log):
        return f"no {path.name}: no line of log.jsonl holds a loss"
    levels = {f"{name} {loss:.3f}": loss for name, loss in references.items()}
    return draw(lambda: plots.training_curves(log, levels), path)


def draw(make: Callable[[], Any], path: Path) -> str:
    """Write the figure that is made; what there is to say without matplotlib."""
    try:
        figure = make()
    except ModuleNotFoundError:
        return f"pip install matplotlib for {path.name}"
    plots.save(figure, path, dpi=120)
    return ""
