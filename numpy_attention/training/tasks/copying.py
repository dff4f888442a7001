"""copy: an encoder-decoder copies ten symbols.

A synthetic task: the vocabulary has 11 symbols, 0 is padding, every sequence begins with symbol 1, and the model has
two layers. The decoder starts with symbol 1 and must copy the other nine.

Source: Rush, The Annotated Transformer (2018).
"""

from typing import Any, ClassVar

import numpy as np

from numpy_attention.models.c24_seq2seq import Seq2Seq
from numpy_attention.training.c28_loop import Batch
from numpy_attention.training.c30_parallel import Workers
from numpy_attention.training.config import TrainConfig
from numpy_attention.training.tasks.labelled import TEST
from numpy_attention.training.tasks.translation import PAD, TranslationTask

SYMBOLS = 11
FRESH = 1000


class CopyTask(TranslationTask):
    """Sequences of 10 symbols from 1 to 10, the first always 1."""

    start_token = 1
    # every output has the same length, so the decoder needs no stop token; an output of padding is always wrong
    stop_token = PAD
    defaults: ClassVar[dict[str, Any]] = TranslationTask.defaults | {
        "context": 10, "batch": 80, "steps": 1000, "learning_rate": 1e-3,
    }

    def __init__(self, config: TrainConfig) -> None:
        super().__init__(config)
        self.test = self.examples(FRESH, np.random.default_rng([TEST, config.seed]))

    def examples(self, count: int, rng: np.random.Generator) -> Batch:
        """Sequences, the sequences without their last symbol, and the sequences without their first symbol."""
        ids = rng.integers(1, SYMBOLS, size=(count, self.config.context))
        ids[:, 0] = self.start_token
        return ids, ids[:, :-1], ids[:, 1:]

    def model(self, rng: np.random.Generator | None) -> Seq2Seq:
        """A small version of the encoder-decoder of the paper."""
        return self.build(Seq2Seq, rng, pad_token=PAD, source_vocab_size=SYMBOLS, target_vocab_size=SYMBOLS)

    def batch(self, rng: np.random.Generator) -> Batch:
        return self.examples(self.config.batch, rng)

    def description(self) -> str:
        return f"task: copy {self.config.context} symbols out of {SYMBOLS - 1}"

    def report(self, model: Seq2Seq, rng: np.random.Generator, workers: Workers) -> str:
        """The share of fresh sequences that the model copies exactly."""
        exact = self.evaluate(model, workers)["val_exact"]
        return f"exact copies of {FRESH:,} fresh sequences, greedy decoding: {exact:.2%}"
