"""sum: is the sum of eight numbers below 100 greater than 400?

The classifier comes from the tutorial on attention of the JAX documentation, in which it does not learn: plain gradient
descent at rate 0.001 does no better than guessing. `--as-in-the-lesson` runs that setting. The gradients are right but
small. Adam, whose steps do not depend on the size of the gradient, learns the task in seconds.
"""

from typing import Any, ClassVar

import numpy as np

from numpy_attention.models.c22_sequence_classifier import SequenceClassifier
from numpy_attention.training.c28_loop import Batch
from numpy_attention.training.c30_parallel import Workers
from numpy_attention.training.config import TrainConfig
from numpy_attention.training.tasks.labelled import TEST, LabelledTask

NUMBERS = 100
FRESH = 4096


class SumTask(LabelledTask):
    """Sequences of 8 numbers from 0 to 99; class 1 if their sum is greater than 400."""

    defaults: ClassVar[dict[str, Any]] = LabelledTask.defaults | {
        "layers": 1, "d_model": 32, "d_ff": 128, "context": 8, "batch": 32, "steps": 4000,
        "learning_rate": 3e-3, "eval_every": 500, "save_every": 500,
    }
    lesson: ClassVar[dict[str, Any]] = {
        "optimizer": "sgd", "learning_rate": 1e-3, "min_learning_rate": 1e-3, "beta1": 0.0, "warmup": 0, "clip": 0.0,
        "steps": 100, "eval_every": 20, "log_every": 1,
    }

    def __init__(self, config: TrainConfig) -> None:
        super().__init__(config)
        self.test = self.examples(FRESH, np.random.default_rng([TEST, config.seed]))

    def examples(self, count: int, rng: np.random.Generator) -> Batch:
        """Numbers (count, T) and labels (count,)."""
        T = self.config.context
        ids = rng.integers(0, NUMBERS, size=(count, T))
        return ids, (ids.sum(axis=1) > NUMBERS * T / 2).astype(np.int64)

    def model(self, rng: np.random.Generator | None) -> SequenceClassifier:
        """The model of the lesson: one post-norm encoder block and mean pooling."""
        return self.build(SequenceClassifier, rng, vocab_size=NUMBERS, num_classes=2)

    def batch(self, rng: np.random.Generator) -> Batch:
        """Fresh sequences for each step, as in the lesson."""
        return self.examples(self.config.batch, rng)

    def description(self) -> str:
        T = self.config.context
        return f"task: is the sum of {T} numbers below {NUMBERS} greater than {NUMBERS * T // 2}?"

    def report(self, model: SequenceClassifier, rng: np.random.Generator, workers: Workers) -> str:
        """Accuracy on fresh sequences, compared with the best constant answer."""
        accuracy = self.evaluate(model, workers)["val_accuracy"]
        ids, labels = self.test
        constant = max(np.mean(labels), 1 - np.mean(labels))
        lines = [
            f"accuracy on {FRESH:,} fresh sequences:",
            f"  always the same answer      {constant:7.2%}",
            "  the setting of the lesson    51.90%  (SGD at 0.001, 100 steps)",
            f"  this model                  {accuracy:7.2%}",
            "",
        ]
        answers = "not greater", "greater"
        for sequence, label, predicted in zip(ids[:4], labels, model.predict(ids[:4])):
            terms = " + ".join(map(str, sequence))
            lines.append(f"  {terms} = {sequence.sum()}: {answers[predicted]}, correct is {answers[label]}")
        return "\n".join(lines)
