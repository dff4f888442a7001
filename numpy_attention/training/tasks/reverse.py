"""reverse: write sixteen digits in reverse order.

Each output position must look at one input position, so one layer with one head is enough. The weights of this head
show the task: a diagonal from corner to corner. The setting and the published result (100.00 % of positions) come from
tutorial 6 of the University of Amsterdam's deep learning course (Lippe).
"""

from typing import Any, ClassVar

import numpy as np

from numpy_attention.models.c22_sequence_classifier import SequenceClassifier
from numpy_attention.training.c28_loop import Batch
from numpy_attention.training.c30_parallel import Workers
from numpy_attention.training.config import TrainConfig
from numpy_attention.training.tasks.labelled import TEST, LabelledTask

CATEGORIES = 10
EXAMPLES = 50_000
FRESH = 10_000


class ReverseTask(LabelledTask):
    """Sequences of 16 digits; the target at position t is the digit at position 15 - t."""

    defaults: ClassVar[dict[str, Any]] = LabelledTask.defaults | {
        "layers": 1, "heads": 1, "d_model": 32, "d_ff": 64, "context": 16, "batch": 128, "steps": 3900,
        "learning_rate": 5e-4, "beta2": 0.999, "clip": 5.0, "eval_every": 390, "save_every": 390,
    }

    def __init__(self, config: TrainConfig) -> None:
        super().__init__(config)
        self.training_ids = self.examples(EXAMPLES, np.random.default_rng([TEST - 1, config.seed]))[0]
        self.test = self.examples(FRESH, np.random.default_rng([TEST, config.seed]))

    def examples(self, count: int, rng: np.random.Generator) -> Batch:
        """Digits and the reversed digits, both (count, T)."""
        ids = rng.integers(0, CATEGORIES, size=(count, self.config.context))
        return ids, ids[:, ::-1]

    def model(self, rng: np.random.Generator | None) -> SequenceClassifier:
        """An encoder that labels every position."""
        return self.build(SequenceClassifier, rng, vocab_size=CATEGORIES, num_classes=CATEGORIES, pooling="none")

    def batch(self, rng: np.random.Generator) -> Batch:
        """Sequences drawn from the 50,000 of the training set."""
        ids = self.training_ids[rng.integers(0, EXAMPLES, size=self.config.batch)]
        return ids, ids[:, ::-1]

    def description(self) -> str:
        return f"task: reverse {self.config.context} digits; {EXAMPLES:,} sequences to learn from"

    def report(self, model: SequenceClassifier, rng: np.random.Generator, workers: Workers) -> str:
        """Accuracy per position on fresh sequences, compared with the published accuracy."""
        accuracy = self.evaluate(model, workers)["val_accuracy"]
        return (
            f"correct positions on {FRESH:,} fresh sequences:\n"
            f"  guessing    {1 / CATEGORIES:7.2%}\n"
            "  published   100.00%  (UvA deep learning tutorial 6)\n"
            f"  this model  {accuracy:7.2%}"
        )
