"""Text: predict the next character, measured beside predictors that count."""

import hashlib
from typing import Any

import numpy as np

from numpy_attention.models.gpt import GPT
from numpy_attention.models.gpt_config import GPTConfig
from numpy_attention.training.config import TrainConfig
from numpy_attention.training.data import (
    CharVocabulary,
    InputError,
    consecutive_blocks,
    default_text,
    random_blocks,
    read_text,
    split_text,
)
from numpy_attention.training.ngrams import ngram_losses
from numpy_attention.training.parallel import Batch, Workers, mean_loss
from numpy_attention.training.tasks.task import Task

NGRAMS = ("single characters", "bigram", "trigram", "4-gram")


class TextTask(Task):
    """A character GPT on one text, whose last tenth is held out."""

    def __init__(self, config: TrainConfig) -> None:
        self.config = config
        text = default_text() if config.text is None else read_text(config.text)
        self.name = "the help topics of Python" if config.text is None else config.text
        self.vocabulary = CharVocabulary(text)
        self.text_hash = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        self.training_ids, self.held_out_ids = split_text(self.vocabulary.encode(text))
        if len(self.training_ids) < config.context + 1 or len(self.held_out_ids) < 2:
            raise InputError(
                f"{self.name} has {len(text)} characters, too few to train on nine tenths of them in blocks of "
                f"{config.context} characters and the one after; give a longer text or a smaller --context"
            )

    def model(self, rng: np.random.Generator | None) -> GPT:
        """The GPT of the configured sizes."""
        c = self.config
        try:
            config = GPTConfig(
                vocab_size=len(self.vocabulary),
                context_length=c.context,
                d_model=c.d_model,
                num_heads=c.heads,
                num_layers=c.layers,
                d_ff=c.d_ff or None,
                positions=c.positions,
                norm=c.norm,
                activation=c.activation,
                dropout=c.dropout,
            )
        except ValueError as error:
            raise InputError(str(error)) from None
        return GPT(config, rng)

    def batch(self, rng: np.random.Generator) -> Batch:
        """Blocks from random places."""
        return random_blocks(self.training_ids, self.config.context, self.config.batch, rng)

    def evaluate(self, model: GPT, workers: Workers) -> dict[str, float]:
        """The mean loss over the whole held-out text, in nats per character."""
        batches = consecutive_blocks(self.held_out_ids, self.config.context, max(1, 2048 // self.config.context))
        return {"val_loss": mean_loss(model, batches, workers)}

    def description(self) -> str:
        """Sizes of the text and its parts."""
        return (
            f"text: {self.name}, {len(self.training_ids) + len(self.held_out_ids):,} characters, "
            f"{len(self.vocabulary)} different; the last {len(self.held_out_ids):,} are held out"
        )

    def saved(self) -> dict[str, Any]:
        """The vocabulary, and a fingerprint of the text."""
        return {"characters": self.vocabulary.characters, "sha256": self.text_hash}

    def reference_lines(self) -> dict[str, float]:
        """The held-out losses of the predictors that count."""
        if len(self.training_ids) < len(NGRAMS) or len(self.vocabulary) ** len(NGRAMS) >= 2**62:
            return {}
        losses = ngram_losses(self.training_ids, self.held_out_ids, len(self.vocabulary), len(NGRAMS))
        return dict(zip(NGRAMS[1:], losses[1:], strict=True))

    def report(self, model: GPT, rng: np.random.Generator, workers: Workers) -> str:
        """The held-out loss among those of the n-grams, and 400 characters written by the model."""
        rows = {**self.reference_lines(), "this GPT": self.evaluate(model, workers)["val_loss"]}
        lines = ["held-out loss, nats per character (interpolated Witten-Bell counts, and the model):"]
        lines += [f"  {name:<10} {loss:.3f}" for name, loss in sorted(rows.items(), key=lambda row: -row[1])]
        known = set("The ") <= set(self.vocabulary.characters)
        prompt = "The " if known else self.vocabulary.decode(self.training_ids[:1])
        ids = model.generate(self.vocabulary.encode(prompt), 400, rng=rng, temperature=0.8, top_p=0.95)
        return "\n".join([*lines, "", "a sample:", self.vocabulary.decode(ids)])
