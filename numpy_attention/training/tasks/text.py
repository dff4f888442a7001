"""text: predict the next character, byte or byte pair. The loss is compared with that of n-gram predictors.

    text  ->  vocabulary  ->  ids  ->  nine tenths to train on, the last tenth held out        Chapter 27
"""

import hashlib
from typing import Any

import numpy as np

from numpy_attention.errors import InputError
from numpy_attention.models.c23_gpt import GPT
from numpy_attention.training.c27_data import (
    CharVocabulary,
    Vocabulary,
    consecutive_blocks,
    default_text,
    random_blocks,
    read_text,
    split_text,
)
from numpy_attention.training.c27a_byte_pairs import BytePairVocabulary, ByteVocabulary, count_chunks, learn_merges
from numpy_attention.training.c27b_ngrams import ngram_losses
from numpy_attention.training.c28_loop import Batch
from numpy_attention.training.c30_parallel import Workers, mean_loss
from numpy_attention.training.config import TrainConfig
from numpy_attention.training.task import Task

NGRAMS = ("single tokens", "bigram", "trigram", "4-gram")
COUNTED = 2**22  # the largest number of ids on which the n-grams are counted
LEARNED_FROM = 2**24  # characters at the beginning of the text, from which the byte pairs are learned
UNITS = {"char": "characters", "byte": "bytes", "bpe": "byte pairs"}


class TextTask(Task):
    """A GPT on one text. The last tenth of the text is held out."""

    def __init__(self, config: TrainConfig) -> None:
        super().__init__(config)
        self.name = "the help topics of Python 3.11" if config.text is None else config.text
        text = default_text() if config.text is None else read_text(config.text)
        self.text_hash, self.characters = hashlib.sha256(text.encode()).hexdigest(), len(text)
        self.vocabulary = self._vocabulary(text)
        self.training_ids, self.held_out_ids = split_text(self.vocabulary.encode(text))
        if len(self.training_ids) < config.context + 1 or len(self.held_out_ids) < 2:
            tokens, unit = len(self.training_ids) + len(self.held_out_ids), UNITS[config.vocabulary]
            raise InputError(
                f"{self.name} has {tokens} {unit}, too few: nine tenths of it must hold one block of "
                f"{config.context} {unit} and one more; give a longer text or a smaller --context"
            )

    def _vocabulary(self, text: str) -> Vocabulary:
        if self.config.vocabulary == "char":
            return CharVocabulary(text)
        if self.config.vocabulary == "byte":
            return ByteVocabulary()
        return BytePairVocabulary(learn_merges(count_chunks([text[:LEARNED_FROM]]), self.config.vocab_size))

    def model(self, rng: np.random.Generator | None) -> GPT:
        return self.build(GPT, rng, vocab_size=len(self.vocabulary))

    def batch(self, rng: np.random.Generator) -> Batch:
        """Blocks from random places of the text."""
        return random_blocks(self.training_ids, self.config.context, self.config.batch, rng)

    def evaluate(self, model: GPT, workers: Workers) -> dict[str, float]:
        """The mean loss over the whole held-out text, in nats per token. If tokens are not characters, also the loss
        per character, which is comparable across vocabularies."""
        batches = consecutive_blocks(self.held_out_ids, self.config.context, max(1, 2048 // self.config.context))
        loss = mean_loss(model, batches, workers)
        if self._by_character():
            return {"val_loss": loss}
        return {"val_loss": loss, "val_loss_per_character": loss * self._tokens_per_character()}

    def description(self) -> str:
        tokens, held_out = len(self.training_ids) + len(self.held_out_ids), len(self.held_out_ids)
        of_ids = "" if self._by_character() else f"{tokens:,} {UNITS[self.config.vocabulary]}, "
        return (
            f"text: {self.name}, {self.characters:,} characters, {of_ids}{len(self.vocabulary)} different; "
            f"the last {held_out:,} are held out"
        )

    def saved(self) -> dict[str, Any]:
        """The vocabulary and the fingerprint of the text."""
        return self.vocabulary.saved() | {"sha256": self.text_hash}

    def reference_lines(self) -> dict[str, float]:
        """The held-out losses of the n-gram predictors, in nats per token."""
        counted = self.training_ids[-COUNTED:]
        if len(counted) < len(NGRAMS) or len(self.vocabulary) ** len(NGRAMS) >= 2**62:
            return {}
        losses = ngram_losses(counted, self.held_out_ids, len(self.vocabulary), len(NGRAMS))
        return dict(zip(NGRAMS[1:], losses[1:], strict=True))

    def report(self, model: GPT, rng: np.random.Generator, workers: Workers) -> str:
        """The held-out losses of the model and of the n-grams, and 400 tokens written by the model."""
        rows = {**self.reference_lines(), "this GPT": self.evaluate(model, workers)["val_loss"]}
        over = "" if self._by_character() else f" over {UNITS[self.config.vocabulary]}"
        lines = [f"held-out loss, nats per character (interpolated Witten-Bell counts{over}, and the model):"]
        ordered = sorted(rows.items(), key=lambda row: -row[1])
        lines += [f"  {name:<10} {loss * self._tokens_per_character():z.3f}" for name, loss in ordered]
        try:
            prompt = self.vocabulary.encode("The ")
        except InputError:  # the text does not contain these characters
            prompt = self.training_ids[:1]
        ids = model.generate(prompt, 400, rng=rng, temperature=0.8, top_p=0.95)
        return "\n".join([*lines, "", "a sample:", self.vocabulary.decode(ids)])

    def _by_character(self) -> bool:
        return self.config.vocabulary == "char"

    def _tokens_per_character(self) -> float:
        predicted = self.held_out_ids[1:]
        return len(predicted) / max(1, self.vocabulary.characters_in(predicted))
