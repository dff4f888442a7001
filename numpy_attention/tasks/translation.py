"""What tasks with an encoder-decoder share: source and target sequences, judged by exact matches of greedy decoding."""

from __future__ import annotations

from typing import Any

import numpy as np

from numpy_attention.errors import InputError
from numpy_attention.models.seq2seq import Seq2Seq
from numpy_attention.models.seq2seq_config import Seq2SeqConfig
from numpy_attention.runs.config import TrainConfig
from numpy_attention.runs.parallel import Batch, Workers, mean_loss, shards
from numpy_attention.runs.task import Task

PAD = 0


class TranslationTask(Task):
    """A Seq2Seq, judged by its loss and the share of `test` that greedy decoding gets right to the last token.

    A batch is (source_ids, target_ids, targets): target_ids begins with the start token, targets is one step ahead.
    """

    test: Batch
    start_token: int
    stop_token: int

    def __init__(self, config: TrainConfig) -> None:
        self.config = config

    def translator(self, rng: np.random.Generator | None, **sizes: Any) -> Seq2Seq:
        """An encoder-decoder of the configured sizes; the task adds those that its data fix."""
        c = self.config
        try:
            config = Seq2SeqConfig(
                **c.model_sizes(),
                pad_token=PAD,
                **sizes,
            )
            return Seq2Seq(config, rng)
        except ValueError as error:
            raise InputError(str(error)) from None

    def evaluate(self, model: Seq2Seq, workers: Workers) -> dict[str, float]:
        """The mean loss per target token, and the share of exact matches."""
        parts = shards(self.test, max(1, len(self.test[0]) // 250))
        right = sum(workers.map(lambda part: int(self.exact(model, part).sum()), parts))
        return {"val_loss": mean_loss(model, parts, workers), "val_exact": right / len(self.test[0])}

    def exact(self, model: Seq2Seq, batch: Batch) -> np.ndarray:
        """Which examples of a batch greedy decoding gets right, (B,) of bool."""
        source_ids, _, targets = batch
        outputs = model.greedy(source_ids, self.start_token, self.stop_token, targets.shape[1])
        return np.array([np.array_equal(said, target[target >= 0]) for said, target in zip(outputs, targets)])

    def saved(self) -> dict[str, Any]:
        """Nothing: the data are made anew from the seed."""
        return {}
