"""The common part of all tasks with a classifier: held-out examples with labels, and the accuracy on them.

    batch          inputs (B, T) or (B, T, d_input), labels (B,) or (B, T)
    val_loss       the mean of -log p(label)
    val_accuracy   the share of labels to which the model gives the largest probability
"""

from typing import Any, ClassVar

import numpy as np

from numpy_attention.models.c22_sequence_classifier import SequenceClassifier
from numpy_attention.ops.c11_losses import cross_entropy
from numpy_attention.training.c28_loop import Batch, count_targets
from numpy_attention.training.c30_parallel import Workers
from numpy_attention.training.task import Task

TEST = 1_000_003  # the first number in the seed of each test set; in seeds of training batches it is the run's seed
AT_ONCE = 512  # held-out examples in one forward pass


class LabelledTask(Task):
    """A SequenceClassifier, evaluated by its loss and accuracy on `test`, a pair of inputs and targets."""

    defaults: ClassVar[dict[str, Any]] = {
        "positions": "sinusoidal", "activation": "relu", "optimizer": "adam", "min_learning_rate": 0.0, "warmup": 50,
        "log_every": 20,
    }
    test: Batch

    def evaluate(self, model: SequenceClassifier, workers: Workers) -> dict[str, float]:
        """The mean loss, and the share of targets to which the model gives the largest probability."""
        inputs, targets = self.test
        shards = [(inputs[i : i + AT_ONCE], targets[i : i + AT_ONCE]) for i in range(0, len(inputs), AT_ONCE)]
        counted, losses, right = np.sum(list(workers.map(lambda shard: _score(model, shard), shards)), axis=0).tolist()
        return {"val_loss": losses / counted, "val_accuracy": right / counted}


def _score(model: SequenceClassifier, shard: Batch) -> tuple[int, float, int]:
    """The number of targets, the sum of their losses, and the number of correct predictions."""
    inputs, targets = shard
    logits, _ = model.forward(inputs)
    loss, _ = cross_entropy(logits, targets)
    counted = count_targets(shard)
    return counted, counted * float(loss), int((np.argmax(logits, axis=-1) == targets).sum())
