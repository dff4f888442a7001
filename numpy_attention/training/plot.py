"""loss.png: the loss curve of a run, for those who have matplotlib."""

import importlib
from pathlib import Path
from typing import Any


def draw_losses(log: list[dict[str, Any]], references: dict[str, float], path: Path) -> bool:
    """Draw training and held-out loss over the steps, and reference losses as lines; False without matplotlib."""
    try:
        figures = importlib.import_module("matplotlib.figure")
    except ImportError:
        return False
    figure = figures.Figure(figsize=(7.0, 4.2), layout="constrained")
    axes = figure.add_subplot()
    trained = [e for e in log if "loss" in e]  # steps that were left out have none
    steps, losses = [e["step"] for e in trained], [e["loss"] for e in trained]
    axes.plot(steps, losses, color="0.65", linewidth=1, label="training batches")
    held_out = [e for e in log if "val_loss" in e]
    steps, losses = [e["step"] for e in held_out], [e["val_loss"] for e in held_out]
    axes.plot(steps, losses, color="black", marker="o", markersize=4, linewidth=1.6, label="held out")
    for (name, loss), style in zip(references.items(), ("--", "-.", ":"), strict=False):
        axes.axhline(loss, color="0.3", linestyle=style, linewidth=1, label=f"{name} {loss:.3f}")
    axes.set(title="Loss during training", xlabel="step", ylabel="loss (nats per prediction)")
    axes.grid(color="0.9")
    axes.legend(frameon=False)
    temporary = path.with_suffix(".tmp.png")
    figure.savefig(temporary, dpi=120)
    temporary.replace(path)
    return True
