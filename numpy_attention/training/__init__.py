"""Part IV. Training: from gradients to a model that has learned something.

The reading order: optimizers -> clipping -> schedules -> data -> byte_pairs -> long_texts -> ngrams -> loop. Then
`numpy_attention.runs` adds everything around the loop for long runs: trainer -> checkpoint -> parallel -> mpi.
"""

from numpy_attention.training.clipping import clip_by_global_norm, global_norm
from numpy_attention.training.loop import train
from numpy_attention.training.optimizers import SGD, Adam, AdamW
from numpy_attention.training.schedules import warmup_cosine

__all__ = ["SGD", "Adam", "AdamW", "clip_by_global_norm", "global_norm", "train", "warmup_cosine"]
