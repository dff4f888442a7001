"""Part VI: what a trained model does, found by changing it and by its gradients."""

from numpy_attention.inside.edits import Edit, edit, edit_backward
from numpy_attention.inside.heads import copying_scores, prefix_matching_scores, previous_token_scores
from numpy_attention.inside.run import backward_with, forward_with, one_head, replacing, with_edits

__all__ = [
    "Edit", "backward_with", "edit", "edit_backward", "forward_with", "one_head", "replacing", "with_edits",
    "copying_scores", "prefix_matching_scores", "previous_token_scores",
]
