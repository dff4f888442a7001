"""Part IV. Training: from gradients to a model that has learned something.

optimizers -> schedules -> data -> byte_pairs -> long_texts -> ngrams -> loop -> checkpoint -> parallel -> mpi is the
reading order.
"""

from numpy_attention.training.optimizers import SGD, Adam, AdamW, clip_by_global_norm, global_norm
from numpy_attention.training.schedules import constant, warmup_cosine

__all__ = ["SGD", "Adam", "AdamW", "clip_by_global_norm", "constant", "global_norm", "warmup_cosine"]
