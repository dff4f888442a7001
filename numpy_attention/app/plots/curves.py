"""Pictures with lines: training, its curvature, the flow of gradients, the error of numerical differences."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from numpy_attention.app.plots.style import COLOURS, DASHES, FONT, INK, MARKERS, dress, legend, new_figure
from numpy_attention.errors import shape_error

Log = Sequence[Mapping[str, Any]]
PANELS = (("loss", "val_loss", "loss (nats)"), ("accuracy", "val_accuracy", "accuracy"))


def training_curves(log: Log, levels: Mapping[str, float] | None = None, title: str = "Training") -> Any:
    """Draw the loss against the step and, if the log holds accuracies, a second panel with the accuracy.

    `log` is a list of rows like the lines of `log.jsonl`: `step` and any of `loss`, `val_loss`, `accuracy`,
    `val_accuracy`; missing values are skipped. `levels` draws named levels to compare the loss with, such as
    {"guessing": math.log(2)}.

    Units: losses in nats, accuracies as a share from 0 to 1.

    Raises: ValueError if no row holds a step and a loss or an accuracy.
    """
    found = {name: points(log, name) for panel in PANELS for name in panel[:2]}
    panels = [panel for panel in PANELS if found[panel[0]] or found[panel[1]]]
    if not panels:
        expected = "rows with step and at least one of loss, val_loss, accuracy, val_accuracy"
        raise shape_error("training_curves", "log", expected, f"{len(log)} rows without")
    figure = new_figure(5.6 * len(panels), 3.8)
    for axes, (training, held_out, label) in zip(np.atleast_1d(figure.subplots(1, len(panels))), panels):
        for i, (name, text) in enumerate(((training, "training batch"), (held_out, "held out"))):
            if found[name]:
                many = len(found[name]) > (60 if i else 1)
                look: dict[str, Any] = {"color": COLOURS[i], "linestyle": DASHES[i], "linewidth": 1.2 + 0.6 * i}
                axes.plot(*zip(*found[name]), **look, marker="" if many else MARKERS[i], markersize=4, label=text)
        if training == "loss":
            for name, level in (levels or {}).items():
                _draw_level(axes, level, name, COLOURS[4], INK)
        else:
            axes.set_ylim(-0.02, 1.02)
        dress(axes, f"{title}: {training}", "step", label, grid=True)
        legend(axes)
    return figure


def gradient_flow(grads: Mapping[str, Any], title: str = "Gradient flow") -> Any:
    """Draw the size of the gradients, layer by layer from the input to the output, on a logarithmic scale.

    `grads` is the result of a `backward`, a dict whose names contain dots, or {label: grads} to compare several. The
    line is the root mean square over all gradients of a layer; each small mark is one of several parameters of the
    layer. A logarithmic scale has no zero: a gradient of exactly zero is a cross on the lower edge.

    Raises: ValueError if there are no gradients.
    """
    several = {"": grads} if all(hasattr(grad, "shape") for grad in grads.values()) else grads
    per_label = {label: _by_layer(one) for label, one in several.items()}
    layers = list(dict.fromkeys(layer for sizes in per_label.values() for layer in sizes))
    if not layers:
        raise shape_error("gradient_flow", "grads", "a dict of gradients by name", grads, "model.backward(cache)?")
    figure = new_figure(max(5.0, 1.8 + 0.55 * len(layers)), 4.0)
    axes = figure.subplots()
    axes.set_yscale("log")
    lower_edge = axes.get_xaxis_transform()  # x in layers, y from 0 to 1 along the axis
    for n, (label, of_layers) in enumerate(per_label.items()):
        look = _look(n)
        places = [layers.index(layer) for layer in of_layers]
        total = [_rms(np.concatenate(arrays)) for arrays in of_layers.values()]
        axes.plot(places, total, **{**look, "markersize": 6, "linewidth": 1.6}, label=label or None)
        for x, arrays in zip(places, of_layers.values()):
            beside, sizes = x + 0.12 + 0.12 * n, [_rms(array) for array in arrays]
            if len(arrays) > 1:  # the line already shows a single parameter
                axes.plot([beside] * len(sizes), sizes, "_", color=look["color"], markersize=7, alpha=0.7)
            if not all(array.any() for array in arrays):
                cross = {"marker": "x", "markersize": 8, "markeredgewidth": 2, "clip_on": False}
                axes.plot([beside], [0.02], **cross, linestyle="", color=look["color"], transform=lower_edge)
    dress(axes, title, "layer, from input to output", "root mean square of the gradient", grid=True)
    axes.set_xticks(range(len(layers)), layers, rotation=45, ha="right", rotation_mode="anchor")
    axes.set_xlim(-0.5, len(layers) - 0.2)
    legend(axes)
    return figure


def step_error(
    steps: np.ndarray, errors: Mapping[str, np.ndarray], title: str = "Differences: the error against the step"
) -> Any:
    """Draw the error of numerical gradients against the step h; both axes are logarithmic.

    To the right of the minimum the error comes from the formula and is a power of h. To the left the error is round-off
    and grows like 1/h. An error of exactly zero is drawn at 1e-17.

    Shapes: steps (n,), errors {name of the method: (n,)} -> Figure

    Raises: ValueError if a method does not have one error for each step.
    """
    figure = new_figure(6.4, 4.2)
    axes = figure.subplots()
    for n, (label, values) in enumerate(errors.items()):
        axes.plot(steps, np.maximum(np.abs(values), 1e-17), **_look(n), label=label)
    axes.set_xscale("log")
    axes.set_yscale("log")
    dress(axes, title, "step h", "relative error", grid=True)
    legend(axes)
    return figure


def largest_curvature(
    steps: np.ndarray, curvatures: Mapping[float, np.ndarray], title: str = "The largest curvature along training"
) -> Any:
    """Draw the largest curvature of the loss against the step, with a line for each learning rate.

    The level 2 / learning rate has the colour of its line. If the curvature is above this level, a step along the
    direction of this curvature ends further from the minimum than it began.

    Shapes: steps (n,), curvatures {learning rate: (n,)} -> Figure

    Raises: ValueError if a learning rate does not have one curvature for each step.
    """
    figure = new_figure(6.4, 4.2)
    axes = figure.subplots()
    for n, (rate, values) in enumerate(curvatures.items()):
        axes.plot(steps, values, **_look(n), label=f"learning rate {rate:g}")
        _draw_level(axes, 2 / rate, f"2 / {rate:g}", COLOURS[n % 5], COLOURS[n % 5])
    dress(axes, title, "step", "largest curvature", grid=True)
    legend(axes)
    return figure


def points(log: Log, name: str) -> list[tuple[int, float]]:
    """(step, value) of each row of the log that holds both."""
    return [(row["step"], float(row[name])) for row in log if "step" in row and row.get(name) is not None]


def _draw_level(axes: Any, level: float, name: str, colour: str, of_name: str) -> None:
    """Draw a dotted line across the picture, with its name at the right end."""
    axes.axhline(level, color=colour, linestyle=":", linewidth=1.2)
    right_end: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points"}
    font: dict[str, Any] = {"fontsize": 8, "color": of_name, "family": FONT}
    axes.annotate(name, (1, level), xytext=(4, 0), va="center", **right_end, **font)


def _look(n: int) -> dict[str, Any]:
    """The look of line number n in a picture."""
    styles = {"color": COLOURS[n % 5], "linestyle": DASHES[n % 5], "marker": MARKERS[n % 5]}
    return {**styles, "markersize": 4, "linewidth": 1.4}


def _by_layer(grads: Mapping[str, Any]) -> dict[str, list[np.ndarray]]:
    """The flat gradients of each layer: `blocks.0.attention.w_q` belongs to `blocks.0`, `head.w` to `head`."""
    layers: dict[str, list[np.ndarray]] = {}
    for name, grad in grads.items():
        parts = name.split(".")
        depth = 2 if len(parts) > 2 and parts[1].isdigit() else 1
        layers.setdefault(".".join(parts[:depth]), []).append(np.asarray(grad, dtype=np.float64).ravel())
    return layers


def _rms(flat: np.ndarray) -> float:
    """The root mean square; NaN, which is not drawn, if it is zero."""
    return float(np.sqrt(np.mean(flat * flat))) or float("nan")
