"""Pictures of what a transformer does; they need matplotlib (`pip install 'numpy-attention[plots]'`).

    attention_map      one head: the weight of each query for each key, with the tokens as labels
    attention_heads    every head of a layer as a grid
    attention_layers   every head of every layer, from the result of `model.attention_weights(ids)`
    matrix_map         any matrix with its numbers
    mask_map           which query may look at which key
    positions_map      a table of positions
    training_curves    loss and accuracy, step by step
    gradient_flow      the size of the gradients, layer by layer
    step_error         the error of numerical gradients against the step size
    largest_curvature  the largest curvature of the loss during training, and the limit 2 / learning rate
    loss_by_position   the loss along the text, at a few steps of training
    head_scores        a score of every head: layers x heads
    head_scores_over_training    the scores of all heads, step by step
    patching_map       the effects of patches: places x positions
    lens_table         the words that a lens reads: layers x positions, or layers x ranks

Each function returns a new `matplotlib.figure.Figure`. It displays nothing and does not change pyplot or its settings.
A notebook displays a figure at the end of a cell; `save(figure, path)` writes a figure to a file. In every map
zero is white, positive numbers are blue and negative numbers are orange; a stronger colour is a larger number. Printed
in grey, a map shows the sizes without the signs, and lines differ by dash and marker.
"""

from numpy_attention.app.plots.curves import gradient_flow, largest_curvature, step_error, training_curves
from numpy_attention.app.plots.inside import (
    head_scores,
    head_scores_over_training,
    lens_table,
    loss_by_position,
    patching_map,
)
from numpy_attention.app.plots.maps import (
    attention_heads,
    attention_layers,
    attention_map,
    mask_map,
    matrix_map,
    positions_map,
)
from numpy_attention.app.plots.style import save

__all__ = [
    "attention_heads", "attention_layers", "attention_map", "gradient_flow", "head_scores",
    "head_scores_over_training", "largest_curvature", "lens_table", "loss_by_position", "mask_map", "matrix_map",
    "patching_map", "positions_map", "save", "step_error", "training_curves",
]
