"""induction: a random piece of symbols, again and again.

    7 60 12 33  7 60 12 33  7 ...        first time: nobody can know; from then on: what came next last time

The first time a symbol costs log(64), guessing; afterwards almost nothing, for whoever finds what came next when the
same symbol stood there before. Every training sequence has a period of its own, so that no fixed distance helps: the
symbol itself must be found again. Two heads in two layers do that together, and they are learned all at once: the loss
stays on a plateau, and then falls off a cliff. The log says, all along the way, the loss at each position and what each
head looks at (Chapter 39).

The test has the longest period. Towards the end of its first half a trained model does worse than guessing: in training
most pieces have come again by then, so that it takes a symbol that has stood there before for the beginning of that.

Source: Olsson et al., In-context Learning and Induction Heads (2022).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from numpy_attention import plots
from numpy_attention.backend import to_host
from numpy_attention.errors import InputError
from numpy_attention.inside.heads import copying_scores, prefix_matching_scores, previous_token_scores
from numpy_attention.models.gpt import GPT
from numpy_attention.ops.losses import negative_log_likelihood_rows
from numpy_attention.ops.sums import as_rows
from numpy_attention.plots.inside import head_name
from numpy_attention.runs.config import TrainConfig
from numpy_attention.runs.parallel import Batch, Workers, shards
from numpy_attention.runs.task import Log, Task
from numpy_attention.tasks.labelled import TEST, symbols

SYMBOLS = 64
FRESH = 64  # held-out sequences
AT_ONCE = 16
LONGEST = 4096  # a line of the log holds the loss at each position
KINDS = {  # of scores, and what a head with a high one does
    "prefix_matching": "prefix matching: what came next", "previous_token": "previous token",
    "copying": "copying: raises what it looks at",
}


class InductionTask(Task):
    """A GPT on sequences of period N; N is context/4 to context/2 in training, context/2 in the test."""

    defaults: ClassVar[dict[str, Any]] = {
        "layers": 2, "heads": 4, "d_model": 64, "d_ff": 64, "context": 64, "batch": 32, "steps": 1000,
        "learning_rate": 5e-3, "min_learning_rate": 5e-4, "beta2": 0.999, "eval_every": 25, "save_every": 250,
    }

    def __init__(self, config: TrainConfig) -> None:
        super().__init__(config)
        T = config.context
        if T % 4 or not 8 <= T <= LONGEST:
            raise InputError(f"--context must be a multiple of 4 from 8 to {LONGEST} for periods of a quarter, got {T}")
        rng = np.random.default_rng([TEST, config.seed])
        self.test = self.examples(np.full(FRESH, T // 2), rng)

    def examples(self, periods: np.ndarray, rng: np.random.Generator) -> Batch:
        """Sequences of these periods, (B, T), and the same one symbol later."""
        T = self.config.context
        pieces = rng.integers(0, SYMBOLS, size=(len(periods), T // 2))
        rows = np.take_along_axis(pieces, np.arange(T + 1) % periods[:, None], axis=1)  # (B, T + 1)
        return rows[:, :-1], rows[:, 1:]

    def model(self, rng: np.random.Generator | None) -> GPT:
        """A GPT that reads and scores symbols by two tables; with one it learns as well, but its heads copy less
        plainly."""
        return self.build(GPT, rng, vocab_size=SYMBOLS, tie_weights=False)

    def batch(self, rng: np.random.Generator) -> Batch:
        """Each sequence of a period of its own."""
        T = self.config.context
        return self.examples(rng.integers(T // 4, T // 2 + 1, size=self.config.batch), rng)

    def evaluate(self, model: GPT, workers: Workers) -> dict[str, float]:
        """The loss of the test, of its halves and at each position, what is right in the second half, and the scores
        of the heads."""
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
        """Guessing, and the mean where the first half is guessed and the second known."""
        return {"guessing": math.log(SYMBOLS), "half known": math.log(SYMBOLS) / 2}

    def report(self, model: GPT, rng: np.random.Generator, workers: Workers) -> str:
        """The loss of the halves beside guessing, the best heads, and an example."""
        figures = self.evaluate(model, workers)
        T = self.config.context
        ids, targets = (array[0] for array in self.test)
        said = to_host(model.forward(ids[None])[0])[0].argmax(-1)
        lines = [
            f"nats per symbol on {FRESH} fresh sequences of the longest piece, {T // 2} symbols and the same again:",
            f"  guessing                       {math.log(SYMBOLS):6.3f}",
            f"  the first time, this model     {figures['val_loss_first']:6.3f}",
            f"  the second time, this model    {figures['val_loss_second']:6.3f}   {figures['val_accuracy']:.1%} right",
            "",
            "the best head by each score, at most 1:",
        ]
        for kind, means in KINDS.items():
            best = max((name for name in figures if name.startswith(f"{kind}.")), key=figures.__getitem__)
            head = head_name(best.removeprefix(f"{kind}."))
            lines.append(f"  {means:<33}{figures[best]:6.3f}   {head}")
        shown = slice(T // 2, T // 2 + 16)
        lines += ["", f"where the piece of {T // 2} begins again:"]
        lines += [f"  it sees     {symbols(ids[shown])}", f"  it says     {symbols(said[shown])}"]
        return "\n".join([*lines, f"  comes next  {symbols(targets[shown])}"])

    def pictures(self, log: Log) -> dict[str, Callable[[], Any]]:
        """The loss along the sequence, and the scores of the heads, all through training."""
        levels = {"guessing": math.log(SYMBOLS)}
        return {
            "positions.png": lambda: plots.loss_by_position(log, levels, "The loss along the sequence"),
            "heads.png": lambda: plots.head_scores_over_training(log),
        }


def _look(model: GPT, shard: Batch) -> tuple[dict[str, np.ndarray], ...]:
    """Of a shard: the losses at each position, what is right there, and who looks at what."""
    ids, targets = shard
    logits = to_host(model.forward(ids)[0])  # (B, T, V)
    losses, *_ = negative_log_likelihood_rows(as_rows(logits), targets.reshape(-1, 1), 0.0)  # (B T, 1)
    at = {"loss": losses.reshape(targets.shape).mean(0), "right": (logits.argmax(-1) == targets).mean(0)}
    return at, prefix_matching_scores(model, ids), previous_token_scores(model, ids)


def _mean(found: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    return {name: np.mean([one[name] for one in found], axis=0) for name in found[0]}
