"""What tasks with a classifier share: held-out examples with labels, and accuracy on them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from numpy_attention.errors import InputError
from numpy_attention.models.sequence_classifier import SequenceClassifier, SequenceClassifierConfig
from numpy_attention.ops.losses import cross_entropy
from numpy_attention.runs.config import TrainConfig
from numpy_attention.runs.parallel import Batch, Workers, count_targets
from numpy_attention.runs.task import Task

TEST = 1_000_003  # seeds of test sets begin with it, those of training batches with the seed of the run


class LabelledTask(Task):
    """A SequenceClassifier, judged by its loss and accuracy on `test`, a pair of inputs and targets."""

    test: Batch

    def __init__(self, config: TrainConfig) -> None:
        self.config = config

    def classifier(self, rng: np.random.Generator | None, **sizes: Any) -> SequenceClassifier:
        """A classifier of the configured sizes; the task adds those that its data fix."""
        c = self.config
        try:
            config = SequenceClassifierConfig(
                **c.model_sizes(),
                **sizes,
            )
            return SequenceClassifier(config, rng)
        except ValueError as error:
            raise InputError(str(error)) from None

    def evaluate(self, model: SequenceClassifier, workers: Workers) -> dict[str, float]:
        """The mean loss, and the share of targets that the model thinks the likeliest."""
        counted, loss, right = 0, 0.0, 0
        for n, loss_of_part, right_in_part in workers.map(lambda part: _score(model, part), _parts(self.test)):
            counted, loss, right = counted + n, loss + n * loss_of_part, right + right_in_part
        return {"val_loss": loss / counted, "val_accuracy": right / counted}

    def saved(self) -> dict[str, Any]:
        """Nothing: the data are made anew from the seed."""
        return {}


def _score(model: SequenceClassifier, part: Batch) -> tuple[int, float, int]:
    inputs, targets = part
    logits, _ = model.forward(inputs)
    loss, _ = cross_entropy(logits, targets)
    return count_targets(part), float(loss), int((np.argmax(logits, axis=-1) == targets).sum())


def _parts(batch: Batch, size: int = 512) -> Iterator[Batch]:
    for start in range(0, len(batch[0]), size):
        yield tuple(array[start : start + size] for array in batch)
