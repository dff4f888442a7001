"""Pictures with lines: losses and scores during training, curvature, gradients, errors of numerical differences."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from numpy_attention.app.plots.style import COLOURS, DASHES, MARKERS, dress, legend, new_figure
from numpy_attention.errors import shape_error
from numpy_attention.inside.heads import head_name

__all__ = ["gradient_flow", "head_scores_over_training", "largest_curvature"]
__all__ += ["loss_by_position", "step_error", "training_curves"]

Log = Sequence[Mapping[str, Any]]  # rows like the lines of log.jsonl
Levels = Mapping[str, float] | None
SMALLEST = 1e-17  # a logarithmic scale has no zero: smaller numbers are drawn here


def training_curves(log: Log, levels: Levels = None, title: str = "Training") -> Any:
    """Draw the loss against the step and, if the log holds accuracies, a second panel with the accuracy.

    `log` is a list of rows with `step` and any of `loss`, `val_loss`, `accuracy`, `val_accuracy`. `levels` draws named
    levels to compare the loss with, such as {"guessing": math.log(2)}.
    """
    found = {kind: [_curve(log, kind), _curve(log, f"val_{kind}")] for kind in ("loss", "accuracy")}
    panels = {kind: dict(zip(("training batch", "held out"), curves)) for kind, curves in found.items() if any(curves)}
    _require("training_curves", panels, "loss, val_loss, accuracy or val_accuracy")
    figure = _figure({f"{title}: {kind}": curves for kind, curves in panels.items()}, "step", "", levels)
    for axes, kind in zip(figure.axes, panels):
        axes.set_ylabel("loss (nats)" if kind == "loss" else kind)
    return figure


def loss_by_position(log: Log, levels: Levels = None, title: str = "The loss along the text") -> Any:
    """Draw the loss at each position, for five rows of the log, evenly spaced from the first to the last.

    `log` is a list of rows with `step` and `loss_at_0`, `loss_at_1`, ...; other rows are skipped.
    """
    rows = [row for row in log if "step" in row and "loss_at_0" in row]
    _require("loss_by_position", rows, "loss_at_0, loss_at_1, ...")
    curves = {}
    for row in [rows[round(i)] for i in np.linspace(0, len(rows) - 1, 5)]:
        losses = [row[name] for name in row if name.startswith("loss_at_")]
        curves[f"step {row['step']:,}"] = range(len(losses)), losses
    return _figure({title: curves}, "position", "loss (nats)", levels)


def head_scores_over_training(log: Log, title: str = "The heads in training") -> Any:
    """Draw the scores of heads against the step: a panel for each kind of score, with the five best heads at the end.

    `log` is a list of rows with `step` and any of `kind.layer.head`, such as `previous_token.blocks.0.attention.3`.
    """
    panels: dict[str, dict[str, Any]] = {}
    for name in dict.fromkeys(name for row in log if "step" in row for name in row):
        if found := re.fullmatch(r"(\w+)\.(.+\.\d+)", name):
            panels.setdefault(found[1].replace("_", " "), {})[head_name(found[2])] = _curve(log, name)
    _require("head_scores_over_training", panels, "scores, kind.layer.head")
    for kind, heads in panels.items():
        panels[kind] = dict(sorted(heads.items(), key=lambda item: -item[1][1][-1])[:5])
    figure = _figure(panels, "step", "score")
    figure.suptitle(title)
    return figure


def gradient_flow(grads: Mapping[str, Any], title: str = "Gradient flow") -> Any:
    """Draw the size of the gradients, layer by layer from the input to the output, on a logarithmic scale.

    `grads` is the result of a `backward`, or {label: grads} to compare several. The line is the root mean square over
    all gradients of a layer; each small mark is one parameter. A gradient of exactly zero is drawn at 1e-17.
    """
    several = {"": grads} if all(hasattr(grad, "shape") for grad in grads.values()) else grads
    layers = list(dict.fromkeys(_layer(name) for one in several.values() for name in one))
    curves = {}
    for label, one in several.items():
        by_layer = [[grad for name, grad in one.items() if _layer(name) == layer] for layer in layers]
        curves[label] = range(len(layers)), [_size(*grads_of_layer) for grads_of_layer in by_layer]
    figure = _figure({title: curves}, "layer, from input to output", "root mean square of the gradient")
    axes = figure.axes[0]
    for n, one in enumerate(several.values()):
        places = [layers.index(_layer(name)) for name in one]
        axes.plot(places, [_size(grad) for grad in one.values()], "_", color=COLOURS[n % 5])
    axes.set_yscale("log")
    axes.set_xticks(range(len(layers)), layers, rotation=45, ha="right", rotation_mode="anchor")
    return figure


def step_error(
    steps: np.ndarray, errors: Mapping[str, np.ndarray], title: str = "Differences: the error against the step"
) -> Any:
    """Draw the error of numerical gradients against the step h; both axes are logarithmic.

    To the right of the minimum the error comes from the formula and is a power of h. To the left the error is round-off
    and grows like 1/h. An error of exactly zero is drawn at 1e-17.

    Shapes: steps (n,), errors {name of the method: (n,)} -> Figure
    """
    curves = {name: (steps, np.maximum(np.abs(values), SMALLEST)) for name, values in errors.items()}
    figure = _figure({title: curves}, "step h", "relative error")
    figure.axes[0].set(xscale="log", yscale="log")
    return figure


def largest_curvature(
    steps: np.ndarray, curvatures: Mapping[float, np.ndarray], title: str = "The largest curvature along training"
) -> Any:
    """Draw the largest curvature of the loss against the step, with a line for each learning rate.

    If the curvature is above the dotted level 2 / learning rate, a step along the direction of this curvature ends
    further from the minimum than it began.

    Shapes: steps (n,), curvatures {learning rate: (n,)} -> Figure
    """
    curves = {f"learning rate {rate:g}": (steps, values) for rate, values in curvatures.items()}
    levels = {f"2 / {rate:g}": 2 / rate for rate in curvatures}
    return _figure({title: curves}, "step", "largest curvature", levels)


def _figure(panels: Mapping[str, Mapping[str, Any]], x: str, y: str, levels: Levels = None) -> Any:
    """A figure of panels {title: {label of a line: (x, y)}}, with dotted levels in the first panel."""
    figure = new_figure(1.0 + 5.0 * len(panels), 4.0)
    for i, (title, curves) in enumerate(panels.items()):
        axes = figure.add_subplot(1, len(panels), i + 1)
        dress(axes, title, x, y, grid=True)
        for n, (label, curve) in enumerate(curves.items()):
            marker = MARKERS[n % 5] if curve and len(curve[0]) < 60 else ""
            axes.plot(*curve, label=label, color=COLOURS[n % 5], linestyle=DASHES[n % 5], marker=marker, markersize=4)
        legend(axes)
    for name, level in (levels or {}).items():
        figure.axes[0].axhline(level, color=COLOURS[4], linestyle=":")
        at_right: Any = ("axes fraction", "data")
        figure.axes[0].annotate(name, (1.01, level), xycoords=at_right, va="center", fontsize=8)
    return figure


def _curve(log: Log, name: str) -> Any:
    """(steps, values) of the rows of the log that hold both, or () if there is no such row."""
    return tuple(zip(*[(row["step"], row[name]) for row in log if "step" in row and row.get(name) is not None]))


def _require(op: str, found: object, names: str) -> None:
    if not found:
        raise shape_error(op, "log", f"rows with step and {names}", "none of them")


def _layer(name: str) -> str:
    """The layer of a parameter: `blocks.0` for `blocks.0.attention.w_q`, `head` for `head.w`."""
    return re.sub(r"(\.\d+)?\..*", r"\1", name)


def _size(*gradients: np.ndarray) -> float:
    """The root mean square of all elements together; NaN, which is not drawn, if there are none."""
    flat = np.concatenate([np.zeros(0), *map(np.ravel, gradients)])
    return max(float(np.sqrt(np.mean(flat**2))), SMALLEST) if flat.size else np.nan
