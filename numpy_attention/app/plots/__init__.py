"""Pictures of what a transformer does; they need matplotlib (`pip install 'numpy-attention[plots]'`).

Each function returns a new `matplotlib.figure.Figure`, which a notebook displays at the end of a cell, and which `save`
writes to a file. pyplot and its settings do not change. In every map zero is white, positive numbers are blue and
negative numbers are orange; a stronger colour is a larger number. Lines differ by colour, dash and marker. A wrong
shape, a wrong number of labels, and numbers in a map that are not finite raise ValueError.
"""

from numpy_attention.app.plots.curves import (
    gradient_flow,
    head_scores_over_training,
    largest_curvature,
    loss_by_position,
    step_error,
    training_curves,
)
from numpy_attention.app.plots.maps import (
    attention_heads,
    attention_layers,
    attention_map,
    head_scores,
    lens_table,
    mask_map,
    matrix_map,
    patching_map,
    positions_map,
)
from numpy_attention.app.plots.style import save

__all__ = [
    "attention_heads", "attention_layers", "attention_map", "gradient_flow", "head_scores",
    "head_scores_over_training", "largest_curvature", "lens_table", "loss_by_position", "mask_map", "matrix_map",
    "patching_map", "positions_map", "save", "step_error", "training_curves",
]
