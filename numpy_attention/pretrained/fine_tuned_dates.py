"""dates --from MODEL: a chat model learns to answer with the ISO form of a date and nothing more.

    <|im_start|>user
    Write this date as YYYY-MM-DD: 3rd of March, 1987<|im_end|>           input, without targets
    <|im_start|>assistant
    1987-03-03<|im_end|>                                                  answer: a target for each token

The training pairs and the held-out pairs are the same as for the encoder-decoder that learns this task from random
parameters (`dates.py`), so the two accuracies can be compared.
"""

from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from numpy_attention.errors import InputError
from numpy_attention.models.c23_gpt import GPT
from numpy_attention.pretrained.c35a_chat import Chat
from numpy_attention.pretrained.fine_tuning import Start
from numpy_attention.training.c28_loop import Batch, shards
from numpy_attention.training.c30_parallel import Workers, mean_loss
from numpy_attention.training.config import TrainConfig
from numpy_attention.training.task import Task
from numpy_attention.training.tasks.dates import FORMS, draw_dates
from numpy_attention.training.tasks.labelled import TEST

ASK = "Write this date as YYYY-MM-DD: {}"
HELD_OUT = 250  # pairs for the evaluation
AT_ONCE = 25
LONGEST_ANSWER = 24  # tokens: an ISO date has 10 characters, but a model may write more


class FineTunedDates(Task):
    """Dates from 1900 to 2099 in eleven forms, as questions to a pretrained chat model."""

    defaults: ClassVar[dict[str, Any]] = {
        "context": 96, "batch": 16, "steps": 100, "learning_rate": 1e-3, "min_learning_rate": 0.0, "warmup": 10,
        "weight_decay": 0.0, "eval_every": 50, "save_every": 25,
    }

    def __init__(self, config: TrainConfig) -> None:
        super().__init__(config)
        self.start = Start(config)
        self.chat = Chat(self.start.tokenizer, system="")
        self.test = draw_dates(HELD_OUT, np.random.default_rng([TEST, config.seed]), held_out=True)
        longest = max(len(self.question(written)) + len(self.answer(iso)) for written, iso in self.test)
        if config.context < longest:
            raise InputError(f"--context must be at least {longest}, a question with its answer, got {config.context}")

    def question(self, written: str) -> np.ndarray:
        """The ids of the conversation up to the answer, (N,)."""
        return np.concatenate([self.chat.turn("user", ASK.format(written)), self.chat.opened("assistant")])

    def answer(self, iso: str) -> np.ndarray:
        """The ids of an answer and the token that ends it, (N,)."""
        return np.append(self.start.tokenizer.encode(iso), self.chat.end_id)

    def model(self, rng: np.random.Generator | None) -> GPT:
        return self.start.model(rng)

    def batch(self, rng: np.random.Generator) -> Batch:
        """Conversations about pairs of form and date that are not held out."""
        return self.encode(draw_dates(self.config.batch, rng, held_out=False))

    def encode(self, pairs: list[tuple[str, str]]) -> Batch:
        """ids (B, T) and targets (B, T); a target is -100 outside the answer."""
        conversations = [(self.question(written), self.answer(iso)) for written, iso in pairs]
        T = max(len(question) + len(answer) for question, answer in conversations) - 1
        ids, targets = np.zeros((len(pairs), T), np.int64), np.full((len(pairs), T), -100)
        for row, target, (question, answer) in zip(ids, targets, conversations):
            end = len(question) + len(answer) - 1
            row[:end] = np.concatenate([question, answer[:-1]])
            target[len(question) - 1 : end] = answer
        return ids, targets

    def evaluate(self, model: GPT, workers: Workers) -> dict[str, float]:
        """The mean loss per token of the answers, and the share of answers in which every token is right."""
        cut = shards(self.encode(self.test), max(1, len(self.test) // AT_ONCE))
        parts = [self.test[i : i + AT_ONCE] for i in range(0, len(self.test), AT_ONCE)]
        right = sum(workers.map(lambda part: sum(self.exact(model, part)), parts))
        return {"val_loss": mean_loss(model, cut, workers), "val_exact": right / len(self.test)}

    def exact(self, model: GPT, pairs: list[tuple[str, str]]) -> list[bool]:
        """For each pair, whether the model answers correctly."""
        return [answer == iso for answer, (_, iso) in zip(self.answers(model, pairs), pairs, strict=True)]

    def answers(self, model: GPT, pairs: list[tuple[str, str]]) -> list[str]:
        """The answers of the model, by greedy decoding."""
        questions = [self.question(written) for written, _ in pairs]
        rows = model.generate(questions, LONGEST_ANSWER, temperature=0.0, stop_token=self.chat.end_id)
        return [self.start.tokenizer.decode(row[len(question) :]) for row, question in zip(rows, questions)]

    def description(self) -> str:
        name = self.start.path.name
        return f"task: {name} learns to answer with ISO dates; {len(FORMS)} forms, a tenth of the pairs held out"

    def saved(self) -> dict[str, Any]:
        """The fingerprint of the model."""
        return self.start.saved()

    def report(self, model: GPT, rng: np.random.Generator, workers: Workers) -> str:
        """The share of exact matches on held-out pairs before and after the fine-tuning, and six answers."""
        before, after = (self.evaluate(which, workers)["val_exact"] for which in (self.start.untouched(), model))
        lines = [f"exact matches on {HELD_OUT} held-out pairs of a date and a format:"]
        lines += [f"  before {before:>7.1%}", f"  after  {after:>7.1%}", ""]
        pairs = draw_dates(6, rng, held_out=True)
        lines += [f"  {written:<36} -> {answer}" for (written, _), answer in zip(pairs, self.answers(model, pairs))]
        return "\n".join(lines)

    def write_result(self, model: GPT, directory: Path) -> str:
        return self.start.write_result(model, directory)
