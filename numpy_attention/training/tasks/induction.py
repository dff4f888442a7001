"""induction: a random piece of symbols, repeated.

    7 60 12 33  7 60 12 33  7 ...        the first copy cannot be predicted, the later copies can

A symbol of the first copy costs log(64), the loss of guessing. A later symbol costs almost nothing, if the model finds
the previous occurrence of the current symbol and predicts the symbol that followed it. Every training sequence has a
different period, so no fixed distance helps: the model must find the symbol itself. Two heads in two layers do this
together, and the model learns both at the same time: the loss stays on a plateau and then drops sharply. During the
run the log stores the loss at each position and what each head looks at (Chapter 39).

The test uses the longest period. Towards the end of the first half, a trained model does worse than guessing. In
training most pieces have already been repeated at these positions, so the model takes a symbol that occurs twice for
the beginning of the repetition.

Source: Olsson et al., In-context Learning and Induction Heads (2022).
"""

import math
from typing import Any, ClassVar

import numpy as np

from numpy_attention.backend import to_host
from numpy_attention.errors import InputError
from numpy_attention.inside.c39_heads import copying_scores, head_name, prefix_matching_scores, previous_token_scores
from numpy_attention.models.c23_gpt import GPT
from numpy_attention.ops.c11a_weighted_losses import weighted_cross_entropy
from numpy_attention.training.c28_loop import Batch, shards
from numpy_attention.training.c30_parallel import Workers
from numpy_attention.training.config import TrainConfig
from numpy_attention.training.task import Task
from numpy_attention.training.tasks.labelled import TEST

SYMBOLS = 64
FRESH = 64  # held-out sequences
AT_ONCE = 16
KINDS = {  # the kinds of scores, and what a head with a high score does
    "prefix_matching": "prefix matching: finds the next", "previous_token": "previous token",
    "copying": "copying: raises what it looks at",
}


class InductionTask(Task):
    """A GPT on sequences of period N: N is from context/4 to context/2 in training, and context/2 in the test."""

    defaults: ClassVar[dict[str, Any]] = {
        "layers": 2, "heads": 4, "d_model": 64, "d_ff": 64, "context": 64, "batch": 32, "steps": 1000,
        "learning_rate": 5e-3, "min_learning_rate": 5e-4, "beta2": 0.999, "eval_every": 25, "save_every": 250,
    }

    def __init__(self, config: TrainConfig) -> None:
        super().__init__(config)
        T = config.context
        if T % 4 or T < 8:
            raise InputError(f"--context must be a multiple of 4 from 8 on, got {T}")
        rng = np.random.default_rng([TEST, config.seed])
        self.test = self.examples(np.full(FRESH, T // 2), rng)

    def examples(self, periods: np.ndarray, rng: np.random.Generator) -> Batch:
        """Sequences of these periods, (B, T), and their targets: the sequences shifted by one symbol."""
        T = self.config.context
        pieces = rng.integers(0, SYMBOLS, size=(len(periods), T // 2))
        rows = np.take_along_axis(pieces, np.arange(T + 1) % periods[:, None], axis=1)  # (B, T + 1)
        return rows[:, :-1], rows[:, 1:]

    def model(self, rng: np.random.Generator | None) -> GPT:
        """A GPT with separate input and output tables. It also learns with one tied table, but then its heads show the
        copying less clearly."""
        return self.build(GPT, rng, vocab_size=SYMBOLS, tie_weights=False)

    def batch(self, rng: np.random.Generator) -> Batch:
        """A batch in which each sequence has its own random period."""
        T = self.config.context
        return self.examples(rng.integers(T // 4, T // 2 + 1, size=self.config.batch), rng)

    def evaluate(self, model: GPT, workers: Workers) -> dict[str, float]:
        """The loss of the test, of each half and at each position, the accuracy in the second half, and the scores of
        the heads."""
        cut = shards(self.test, FRESH // AT_ONCE)
        found = list(workers.map(lambda shard: _look(model, shard), cut))
        at, matching, previous = (_mean([one[i] for one in found]) for i in range(3))
        loss, right = at["loss"], at["right"]
        N = self.config.context // 2
        figures = {
            "val_loss": loss.mean(), "val_loss_first": loss[:N].mean(), "val_loss_second": loss[N:].mean(),
            "val_accuracy": right[N:].mean(),
        }
        figures |= {f"loss_at_{t}": value for t, value in enumerate(loss)}
        for kind, scores in zip(KINDS, (matching, previous, copying_scores(model))):
            figures |= {f"{kind}.{layer}.{h}": score for layer, of in scores.items() for h, score in enumerate(of)}
        return {name: float(value) for name, value in figures.items()}

    def description(self) -> str:
        T = self.config.context
        return f"task: random pieces of {T // 4} to {T // 2} out of {SYMBOLS} symbols, repeated to {T}"

    def reference_lines(self) -> dict[str, float]:
        """The loss of guessing everything, and the mean loss of guessing the first half and knowing the second half."""
        return {"guessing": math.log(SYMBOLS), "half known": math.log(SYMBOLS) / 2}

    def report(self, model: GPT, rng: np.random.Generator, workers: Workers) -> str:
        """The loss of each half compared with guessing, and the best heads."""
        figures = self.evaluate(model, workers)
        T = self.config.context
        lines = [
            f"nats per symbol on {FRESH} fresh sequences of the longest piece, {T // 2} symbols, repeated once:",
            f"  guessing                       {math.log(SYMBOLS):6.3f}",
            f"  this model, first copy         {figures['val_loss_first']:6.3f}",
            f"  this model, second copy        {figures['val_loss_second']:6.3f}   {figures['val_accuracy']:.1%} right",
            "",
            "the best head by each score (1 is the largest possible score):",
        ]
        for kind, means in KINDS.items():
            best = max((name for name in figures if name.startswith(f"{kind}.")), key=figures.__getitem__)
            head = head_name(best.removeprefix(f"{kind}."))
            lines.append(f"  {means:<33}{figures[best]:6.3f}   {head}")
        return "\n".join(lines)


def _look(model: GPT, shard: Batch) -> tuple[dict[str, np.ndarray], ...]:
    """For one shard: the loss and the accuracy at each position, and the scores of the heads."""
    ids, targets = shard
    logits = to_host(model.forward(ids)[0])  # (B, T, V)
    losses, _ = weighted_cross_entropy(logits, targets, reduction="none")  # (B, T)
    at = {"loss": losses.mean(0), "right": (logits.argmax(-1) == targets).mean(0)}
    return at, prefix_matching_scores(model, ids), previous_token_scores(model, ids)


def _mean(found: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    return {name: np.mean([one[name] for one in found], axis=0) for name in found[0]}
