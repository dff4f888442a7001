"""Part IV. Training: from gradients to a model that has learned something.

    optimizers, clipping, schedules, data, byte_pairs, ngrams, loop                   Chapters 25 to 28: one step
    checkpoint, parallel, mpi, trainer                                               Chapters 29 to 32: a long run
    task, config, restore, log, progress, diagnose, memory                           one small tool in each file
    tasks                                                                            what a model can learn

One step: `Trainer.one_step` -> `parallel.loss_and_gradients` -> `ranks.total` -> `loop.take_step`.
"""

from numpy_attention.training.c25_optimizers import SGD, Adam, AdamW
from numpy_attention.training.c25a_clipping import clip_by_global_norm, global_norm
from numpy_attention.training.c26_schedules import warmup_cosine
from numpy_attention.training.c28_loop import train

__all__ = ["SGD", "Adam", "AdamW", "clip_by_global_norm", "global_norm", "train", "warmup_cosine"]
