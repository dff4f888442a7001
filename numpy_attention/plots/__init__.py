"""Pictures of what a transformer does; they need matplotlib (`pip install 'numpy-attention[plots]'`).

    attention_map      one head: who looks at whom, with the tokens as labels
    attention_heads    every head of a layer as a grid
    attention_layers   every head of every layer: what `model.attention_weights(ids)` returns
    matrix_map         any matrix with its numbers
    mask_map           who may look at whom
    positions_map      a table of positions, red-blue
    training_curves    loss and accuracy, step by step
    gradient_flow      how large the gradients are, layer by layer
    step_error         the error of numeric gradients against the step they were taken with
    largest_curvature  the largest curvature of the loss along training, and how much of it a step endures
    loss_by_position   the loss along the text, at a few steps of training
    head_scores        a score of every head: layers x heads
    head_scores_over_training    the same, step by step
    patching_map       what a patch changes: places x positions
    lens_table         which words a lens reads: layers x positions, or x ranks

Each returns a `matplotlib.figure.Figure` of its own, shows nothing, and leaves pyplot and its settings alone. A
notebook displays a figure that ends a cell; `save(figure, path)` writes it. Every map runs from light to dark, and
every line has a dash and a marker of its own, so the pictures stay readable in grey.
"""

from numpy_attention.plots.attention import attention_heads, attention_layers, attention_map
from numpy_attention.plots.curves import gradient_flow, largest_curvature, step_error, training_curves
from numpy_attention.plots.inside import (
    head_scores,
    head_scores_over_training,
    lens_table,
    loss_by_position,
    patching_map,
)
from numpy_attention.plots.matrices import mask_map, matrix_map, positions_map
from numpy_attention.plots.style import save

__all__ = [
    "attention_heads", "attention_layers", "attention_map", "gradient_flow", "head_scores",
    "head_scores_over_training", "largest_curvature", "lens_table", "loss_by_position", "mask_map", "matrix_map",
    "patching_map", "positions_map", "save", "step_error", "training_curves",
]
