"""loss.png and the other pictures of a run. They need matplotlib; without it the training still completes."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numpy_attention import plots
from numpy_attention.errors import MAX_SAID
from numpy_attention.runs.log import read_log
from numpy_attention.runs.task import Log, Task


def pictures(task: Task, directory: Path) -> str:
    """Draw the losses and the other pictures of the task; return a text with the names of the files."""
    losses = directory / "loss.png"
    try:
        log = read_log(directory / "log.jsonl")
        figures = {directory / name: make for name, make in task.pictures(log).items()}
    except Exception as error:
        return _no_picture(losses, error)
    figures = {losses: lambda: loss_curves(log, task.reference_lines())} | figures
    return "".join(draw(make, path) for path, make in figures.items())


def loss_curves(log: Log, references: dict[str, float]) -> Any:
    """The curves of a log, with reference losses as levels; None if the log holds no loss."""
    if not any("loss" in row or "val_loss" in row for row in log):
        return None
    return plots.training_curves(log, {f"{name} {loss:.3f}": loss for name, loss in references.items()})


def draw(make: Callable[[], Any], path: Path) -> str:
    """Make a figure, write it, and return a message about the result; never raise."""
    try:
        try:
            figure = make()
        except ModuleNotFoundError:
            return f" (pip install matplotlib for {path.name})"
        if figure is None:
            return f" (no {path.name}: no line of log.jsonl holds a loss)"
        plots.save(figure, path, dpi=120)
    except Exception as error:  # the errors of matplotlib depend on its version
        return _no_picture(path, error)
    return f", {path.name}"


def _no_picture(path: Path, error: Exception) -> str:
    """Print the reason, and return an empty entry for the list of files."""
    why = getattr(error, "strerror", None) or " ".join(str(error).split())[:MAX_SAID] or type(error).__name__
    of = " of the losses" if path.name == "loss.png" else ""
    print(f"numpy-attention: there is no picture{of}, {path.name}: {why}", file=sys.stderr)
    return ""
