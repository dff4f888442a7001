"""digits: read 1,797 handwritten digits. Each is an 8 x 8 image, read as a sequence of 8 rows.

A linear layer replaces the embedding and reads the rows; the rest is the encoder of the other tasks. The baseline is
scikit-learn's `LogisticRegression(max_iter=2000)` on the 64 pixels, fitted on the same training images.
"""

import importlib
from typing import Any, ClassVar

import numpy as np

from numpy_attention.errors import InputError, install
from numpy_attention.models.c22_sequence_classifier import SequenceClassifier
from numpy_attention.training.c28_loop import Batch
from numpy_attention.training.c30_parallel import Workers
from numpy_attention.training.config import TrainConfig
from numpy_attention.training.tasks.labelled import LabelledTask

TEST_SHARE = 5  # every fifth image of a fixed shuffle is held out
ROWS = 8


class DigitsTask(LabelledTask):
    """Images (8 rows of 8 grey values) and the digits that they show."""

    defaults: ClassVar[dict[str, Any]] = LabelledTask.defaults | {
        "layers": 2, "d_model": 64, "d_ff": 128, "context": ROWS, "positions": "learned", "activation": "gelu",
        "batch": 64, "steps": 1500, "optimizer": "adamw", "learning_rate": 2e-3, "warmup": 100, "dropout": 0.1,
    }

    def __init__(self, config: TrainConfig) -> None:
        super().__init__(config)
        if config.context < ROWS:
            raise InputError(f"--context must be at least {ROWS}, the rows of an image, got {config.context}")
        images, labels = load_images()
        order = np.random.default_rng(0).permutation(len(images))  # the same split for every seed of the run
        held_out = np.arange(len(order)) % TEST_SHARE == 0
        self.train = images[order[~held_out]], labels[order[~held_out]]
        self.test = images[order[held_out]], labels[order[held_out]]

    def model(self, rng: np.random.Generator | None) -> SequenceClassifier:
        """An encoder over the rows, mean pooling, ten classes."""
        return self.build(SequenceClassifier, rng, d_input=ROWS, num_classes=10)

    def batch(self, rng: np.random.Generator) -> Batch:
        """Images drawn at random."""
        chosen = rng.integers(0, len(self.train[0]), size=self.config.batch)
        return self.train[0][chosen], self.train[1][chosen]

    def description(self) -> str:
        learned, held_out = len(self.train[0]), len(self.test[0])
        return f"task: read handwritten digits; {learned:,} images to learn from, {held_out} held out"

    def report(self, model: SequenceClassifier, rng: np.random.Generator, workers: Workers) -> str:
        """Accuracy on the held-out images, compared with logistic regression."""
        accuracy = self.evaluate(model, workers)["val_accuracy"]
        return (
            f"accuracy on {len(self.test[0])} held-out images:\n"
            "  logistic regression   97.78%  (scikit-learn, the same split)\n"
            f"  this model           {accuracy:7.2%}"
        )


def load_images() -> Batch:
    """Images (1797, 8, 8) with values from 0 to 1, and labels (1797,)."""
    try:
        datasets = importlib.import_module("sklearn.datasets")
    except ImportError:
        raise InputError(f"the task digits needs scikit-learn's images: {install('scikit-learn')}") from None
    data = datasets.load_digits()
    return (data.images / 16.0).astype(np.float32), data.target.astype(np.int64)
