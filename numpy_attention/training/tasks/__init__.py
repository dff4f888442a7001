"""The tasks that a model can learn: each task makes its batches, its model and its final report."""
