"""Pictures of what a transformer does; they need matplotlib (`pip install 'numpy-attention[plots]'`).

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
