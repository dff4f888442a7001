"""Part VI. How a trained model works, studied by changing it and by its gradients."""

from numpy_attention.inside.c38_edits import Edit, edit, edit_backward
from numpy_attention.inside.c38b_run import backward_with, forward_with, one_head, replacing, with_edits
from numpy_attention.inside.c39_heads import copying_scores, prefix_matching_scores, previous_token_scores
from numpy_attention.inside.c40_lens import attention_rollout, direct_effects, logit_lens, unembedding
from numpy_attention.inside.c41_attribution import attributed_effects, patching_effects

__all__ = [
    "Edit", "attention_rollout", "attributed_effects", "backward_with", "copying_scores", "direct_effects", "edit",
    "edit_backward", "forward_with", "logit_lens", "one_head", "patching_effects", "prefix_matching_scores",
    "previous_token_scores", "replacing", "unembedding", "with_edits",
]
