"""loss.png and the other pictures of a run. They need matplotlib; without it the training still completes."""

import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numpy_attention.app import plots
from numpy_attention.errors import one_line
from numpy_attention.training.log import read_log
from numpy_attention.training.task import Task
from numpy_attention.training.tasks.induction import SYMBOLS, InductionTask


def pictures(task: Task, directory: Path) -> str:
    """Draw the pictures of a run from its log; return a text with the names of the files. Never raises."""
    log = read_log(directory / "log.jsonl")
    levels = {f"{name} {loss:.3f}": loss for name, loss in task.reference_lines().items()}
    made = draw(lambda: plots.training_curves(log, levels), directory / "loss.png")
    if isinstance(task, InductionTask):
        guessing = {"guessing": math.log(SYMBOLS)}
        title = "The loss along the sequence"
        made += draw(lambda: plots.loss_by_position(log, guessing, title), directory / "positions.png")
        made += draw(lambda: plots.head_scores_over_training(log), directory / "heads.png")
    return made


def draw(make: Callable[[], Any], path: Path) -> str:
    """Make a figure and write it; return its name for the list of files. A picture that fails is one line."""
    try:
        plots.save(make(), path, dpi=120)
    except ModuleNotFoundError:
        return f" (pip install matplotlib for {path.name})"
    except Exception as error:  # the errors of matplotlib depend on its version
        print(f"numpy-attention: there is no picture, {path.name}: {one_line(error)}", file=sys.stderr)
        return ""
    return f", {path.name}"
