"""What the tests of pictures share: weights to draw, one picture of each kind, and what is written on one."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure

import numpy_attention as na
from numpy_attention import plots

WORDS = ["Manchester", "United", "hopes", "to", "perform", "better"]


def weights_of(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Rows that sum to one."""
    return na.softmax(3.0 * rng.standard_normal(shape))[0]


def ticks(axis: Any) -> list[str]:
    return [label.get_text() for label in axis.get_ticklabels()]


def cells(axes: Any) -> dict[tuple[int, int], str]:
    """The text of each cell by (row, column)."""
    return {(round(t.get_position()[1]), round(t.get_position()[0])): t.get_text() for t in axes.texts}


def lightness(rgba: Any) -> np.ndarray:
    """How light a colour prints in grey."""
    return np.asarray(rgba)[..., :3] @ np.array([0.299, 0.587, 0.114])


def one_of_each(rng: np.random.Generator) -> dict[str, Figure]:
    log = [{"step": i, "loss": 2.0 / (i + 1), "accuracy": 1 - 1 / (i + 1), "val_loss": 2.1 / (i + 1)} for i in range(9)]
    along = [{"step": i, "loss_at_0": 4.0, "loss_at_1": 4.0 / i, "copying.blocks.0.attention.1": i / 9} for i in (1, 5)]
    grads = {"token_embedding.table": rng.normal(size=(5, 4)), "blocks.0.attention.w_q": rng.normal(size=(4, 4))}
    return {
        "attention_map": plots.attention_map(weights_of(rng, 6, 6), WORDS),
        "attention_heads": plots.attention_heads(weights_of(rng, 5, 6, 6), WORDS),
        "attention_layers": plots.attention_layers({name: weights_of(rng, 1, 3, 6, 6) for name in ("a", "b")}),
        "mask_map": plots.mask_map(na.causal_mask(6), WORDS),
        "matrix_map": plots.matrix_map(rng.normal(size=(3, 4)), list("abc"), title="a matrix"),
        "positions_map": plots.positions_map(na.sinusoidal_positions(50, 64)),
        "training_curves": plots.training_curves(log, {"guessing": 1.0}),
        "gradient_flow": plots.gradient_flow(grads),
        "step_error": plots.step_error(10.0 ** -np.arange(1, 6), {"central": 10.0 ** -np.arange(2, 7)}),
        "largest_curvature": plots.largest_curvature(np.arange(3), {0.1: np.array([5.0, 30.0, 21.0])}),
        "loss_by_position": plots.loss_by_position(along, {"guessing": 4.2}),
        "head_scores": plots.head_scores({"blocks.0.attention": rng.random(3), "blocks.1.attention": rng.random(3)}),
        "head_scores_over_training": plots.head_scores_over_training(along),
        "patching_map": plots.patching_map({"blocks.0": rng.normal(size=6)}, WORDS),
        "lens_table": plots.lens_table([WORDS, WORDS], rng.random((2, 6)), ["blocks.0", "norm"]),
    }
