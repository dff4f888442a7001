"""The common part of all tasks with an encoder-decoder: source and target sequences, and exact matches.

    source_ids    3   M a y   1 9 8 7   .                padded with 0
    target_ids    <start>  1  9  8  7  ...               the input of the decoder
    targets             1  9  8  7  ...  <stop>          the correct output of the decoder
"""

from typing import Any, ClassVar

import numpy as np

from numpy_attention.models.c24_seq2seq import Seq2Seq
from numpy_attention.training.c28_loop import Batch, shards
from numpy_attention.training.c30_parallel import Workers, mean_loss
from numpy_attention.training.task import Task

PAD = 0
AT_ONCE = 250  # held-out examples in one forward pass


class TranslationTask(Task):
    """A Seq2Seq, evaluated by its loss and by the share of `test` for which greedy decoding gives every token right.

    A batch is (source_ids, target_ids, targets).
    """

    defaults: ClassVar[dict[str, Any]] = {
        "layers": 2, "d_model": 64, "d_ff": 256, "positions": "sinusoidal", "activation": "relu", "optimizer": "adam",
        "min_learning_rate": 0.0, "beta2": 0.98, "eval_every": 250, "save_every": 250,
    }
    test: Batch
    start_token: int
    stop_token: int

    def evaluate(self, model: Seq2Seq, workers: Workers) -> dict[str, float]:
        """The mean loss per target token and the share of exact matches."""
        cut = shards(self.test, max(1, len(self.test[0]) // AT_ONCE))
        right = sum(workers.map(lambda shard: int(self.exact(model, shard).sum()), cut))
        return {"val_loss": mean_loss(model, cut, workers), "val_exact": right / len(self.test[0])}

    def exact(self, model: Seq2Seq, batch: Batch) -> np.ndarray:
        """For each example of a batch, whether greedy decoding gives the exact target, (B,) of bool."""
        source_ids, _, targets = batch
        outputs = model.greedy(source_ids, self.start_token, self.stop_token, targets.shape[1])
        return np.array([np.array_equal(output, target[target >= 0]) for output, target in zip(outputs, targets)])
