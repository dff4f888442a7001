"""text: predict the next character, byte or byte pair. The loss is compared with that of n-gram predictors.

    text  ->  vocabulary  ->  ids  ->  nine tenths to train on, the last tenth held out        Chapter 27

The task reads a text once. Only a text longer than IN_MEMORY is read a second time, piece by piece, for its ids; they
are written to a file in the run's directory and mapped into memory. The fingerprints of both readings must agree.
"""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from numpy_attention.errors import InputError
from numpy_attention.models.gpt import GPT
from numpy_attention.training.byte_pairs import BytePairVocabulary, ByteVocabulary, count_chunks, learn_merges
from numpy_attention.training.config import TrainConfig
from numpy_attention.training.data import (
    READ_AT_ONCE,
    CharVocabulary,
    Vocabulary,
    consecutive_blocks,
    default_text,
    distinct_characters,
    random_blocks,
    split_text,
    text_pieces,
)
from numpy_attention.training.long_texts import id_dtype, map_ids, write_ids
from numpy_attention.training.ngrams import ngram_losses
from numpy_attention.training.parallel import Batch, Workers, mean_loss
from numpy_attention.training.task import Task

NGRAMS = ("single tokens", "bigram", "trigram", "4-gram")
COUNTED = 2**22  # the largest number of ids on which the n-grams are counted
IN_MEMORY = 2**26  # characters; the ids of longer texts are written to a file
LEARNED_FROM = 16  # pieces at the beginning of the text, from which the byte pairs are learned
UNITS = {"char": "characters", "byte": "bytes", "bpe": "byte pairs"}


class TextTask(Task):
    """A GPT on one text. The last tenth of the text is held out."""

    def __init__(self, config: TrainConfig) -> None:
        super().__init__(config)
        self.name = "the help topics of Python 3.11" if config.text is None else config.text
        digest, characters, self.characters = hashlib.sha256(), set[str](), 0
        first: list[str] = []  # pieces to learn byte pairs from
        kept: list[str] = []  # all pieces of a text that is not too long
        for piece in self.pieces():
            digest.update(piece.encode())
            if self._by_character():
                characters |= set(distinct_characters(piece))
            self.characters += len(piece)
            if len(first) < LEARNED_FROM:
                first.append(piece)
            kept.append(piece)
            if self.characters > IN_MEMORY:
                kept.clear()
        self.text_hash = digest.hexdigest()
        self.vocabulary = self._vocabulary("".join(characters), first)
        self.training_ids = self.held_out_ids = np.zeros(0, dtype=np.int64)
        if self.characters <= IN_MEMORY:
            dtype = id_dtype(len(self.vocabulary))
            self._use(np.concatenate([ids.astype(dtype) for ids in self.vocabulary.encode_pieces(kept)]))

    def pieces(self) -> Iterator[str]:
        """The text, piece by piece."""
        return iter([default_text()]) if self.config.text is None else text_pieces(self.config.text, READ_AT_ONCE)

    def prepare(self, directory: Path) -> bool:
        """Write the ids of a long text to the run's directory, or find them there."""
        if len(self.training_ids):
            return False
        path, dtype = directory / self.ids_file(), id_dtype(len(self.vocabulary))
        ids = map_ids(path, dtype)
        if ids is None:
            write_ids(path, self.vocabulary.encode_pieces(self._same_pieces()), dtype)
            ids = map_ids(path, dtype)
        if ids is None:
            raise InputError(f"{path} does not hold the ids just written to it; is the disk full or failing?")
        self._use(ids)
        return True

    def ids_file(self) -> str:
        """The name of the file that holds the ids of this text in this vocabulary."""
        return f"ids-{hashlib.sha256(json.dumps(self.saved()).encode()).hexdigest()[:16]}.bin"

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
        unit, sizes = UNITS[self.config.vocabulary], f"text: {self.name}, {self.characters:,} characters, "
        tokens = len(self.training_ids) + len(self.held_out_ids)
        if not self._by_character():
            sizes += f"{tokens:,} {unit}, " if tokens else f"as {unit}, "
        sizes += f"{len(self.vocabulary)} different; "
        return sizes + (f"the last {len(self.held_out_ids):,} are held out" if tokens else f"ids: {self.ids_file()}")

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
            prompt = np.asarray(self.training_ids[:1], np.int64)
        ids = model.generate(prompt, 400, rng=rng, temperature=0.8, top_p=0.95)
        return "\n".join([*lines, "", "a sample:", self.vocabulary.decode(ids)])

    def _same_pieces(self) -> Iterator[str]:
        """The text once more; InputError if it has changed since its fingerprint was taken."""
        digest = hashlib.sha256()
        for piece in self.pieces():
            digest.update(piece.encode())
            yield piece
        if digest.hexdigest() != self.text_hash:
            raise InputError(f"{self.name} has changed while it was read; start again")

    def _vocabulary(self, characters: str, first: list[str]) -> Vocabulary:
        if self._by_character():
            return CharVocabulary(characters)
        if self.config.vocabulary == "byte":
            return ByteVocabulary()
        return BytePairVocabulary(learn_merges(count_chunks(first), self.config.vocab_size))

    def _use(self, ids: np.ndarray) -> None:
        self.training_ids, self.held_out_ids = split_text(ids)
        if len(self.training_ids) < self.config.context + 1 or len(self.held_out_ids) < 2:
            unit = UNITS[self.config.vocabulary]
            raise InputError(
                f"{self.name} has {len(ids)} {unit}, too few: nine tenths of it must hold one block of "
                f"{self.config.context} {unit} and one more; give a longer text or a smaller --context"
            )

    def _by_character(self) -> bool:
        return self.config.vocabulary == "char"

    def _tokens_per_character(self) -> float:
        predicted = np.asarray(self.held_out_ids[1:], np.int64)
        return len(predicted) / max(1, self.vocabulary.characters_in(predicted))
