"""Chapter 27. The training loop.

    batch        = examples drawn for this step
    loss, cache  = model.loss(*batch)
    grads        = model.backward(cache)
    grads        = clipped to a joint norm of at most `clip`
    parameters  -= what the optimizer makes of grads and the learning rate of this step

and now and then: a line in the log, an evaluation on held-out data, a checkpoint. That is all of training; the rest of
this file sees to it that nothing is lost.

No state of a random generator runs through the loop. The batch of step t is drawn by a generator seeded with
(seed, t), the dropout of shard i by one seeded with (seed, t, i). So step t does not depend on how the run came to
it, and a run resumed from a checkpoint is the same run, bit for bit.
"""

import json
import math
import time
from pathlib import Path
from typing import Any

import numpy as np

from numpy_attention.backend import get_backend, to_host
from numpy_attention.training import checkpoint
from numpy_attention.training.config import TrainConfig
from numpy_attention.training.data import InputError
from numpy_attention.training.diagnose import first_non_finite
from numpy_attention.training.log import Log
from numpy_attention.training.optimizers import SGD, Adam, AdamW, clip_by_global_norm, global_norm
from numpy_attention.training.parallel import Workers, count_targets, default_workers, loss_and_gradients, shards
from numpy_attention.training.progress import Progress
from numpy_attention.training.schedules import warmup_cosine
from numpy_attention.training.signals import StopSignals
from numpy_attention.training.tasks.task import Task

INITIAL, BATCH, DROPOUT, SAMPLE = range(4)  # what a generator is for: the second number of its seed


class NonFiniteError(ArithmeticError):
    """The loss or a gradient is no longer a finite number."""


def generator(config: TrainConfig, purpose: int, *place: int) -> np.random.Generator:
    """The generator for one purpose at one place of the run."""
    return np.random.default_rng([config.seed, purpose, *place])


def make_optimizer(config: TrainConfig, parameters: dict[str, np.ndarray]) -> SGD | Adam:
    """The optimizer that the configuration names."""
    if config.optimizer == "sgd":
        return SGD(parameters, config.learning_rate, config.beta1)
    if config.optimizer == "adam":
        return Adam(parameters, config.learning_rate, config.beta1, config.beta2)
    return AdamW(parameters, config.learning_rate, config.beta1, config.beta2, weight_decay=config.weight_decay)


class Trainer:
    """A run: the model, its optimizer, and how far they have come."""

    def __init__(self, config: TrainConfig, task: Task, directory: Path) -> None:
        self.config = config
        self.task = task
        self.directory = directory
        self.backend = get_backend(config.backend)
        self.model = task.model(generator(config, INITIAL)).to(self.backend)
        self.optimizer = make_optimizer(config, self.model.parameters())
        on_host = self.backend.name == "numpy"  # a GPU is one worker, who takes the batch whole
        self.workers = config.workers or (default_workers(config.batch) if on_host else 1)
        self.pieces = self.workers * config.accumulate
        self.step = 0
        self.seconds = 0.0  # spent in steps
        self.best = math.inf
        self.since_best = 0  # evaluations without a new best

    def run(self) -> str:
        """Train to the end, and say how it ended: "finished", "stopped early" or the name of a signal."""
        c = self.config
        with (
            Workers(self.workers) as workers,
            Progress(c.steps, self.step) as progress,
            StopSignals() as stop,
        ):
            log = Log(self.directory / "log.jsonl", self.step)
            if self.step == 0:
                self.save()
            tokens, started = 0, self.seconds
            while self.step < c.steps:
                loss, norm, counted = self.one_step(workers)
                tokens += counted
                last = self.step == c.steps
                entry: dict[str, Any] | None = None
                evaluate = last or self.step % c.eval_every == 0
                if evaluate or self.step == 1 or self.step % c.log_every == 0:
                    entry = {"step": self.step, "loss": loss, "grad_norm": norm}
                    entry |= {"learning_rate": self.rate(self.step - 1)}
                    entry |= {"tokens_per_second": tokens / (self.seconds - started), "seconds": self.seconds}
                    tokens, started = 0, self.seconds
                if entry and evaluate:
                    entry |= self.task.evaluate(self.model, workers)
                    progress.line(entry)
                if entry:
                    log.write(entry)
                progress.advance(entry)
                improved = bool(entry and evaluate) and self._note_best(entry["val_loss"] if entry else math.inf)
                impatient = bool(c.patience) and self.since_best >= c.patience
                if last or improved or impatient or stop.name or self.step % c.save_every == 0:
                    self.save()
                    if improved:
                        checkpoint.keep_as(self.directory / checkpoint.NAME, checkpoint.BEST)
                if stop.name and not last:
                    return stop.name
                if impatient and not last:
                    return "stopped early"
        return "finished"

    def one_step(self, workers: Workers) -> tuple[float, float, int]:
        """Draw a batch, go down its gradient once; the loss before, the norm of the gradients, the tokens counted."""
        start = time.perf_counter()
        c = self.config
        batch = self.task.batch(generator(c, BATCH, self.step))
        rngs = [generator(c, DROPOUT, self.step, i) for i in range(self.pieces)] if c.dropout else [None] * self.pieces
        loss, grads = loss_and_gradients(self.model, batch, self.pieces, workers, rngs)
        norm = clip_by_global_norm(grads, c.clip) if c.clip else global_norm(grads)
        # the one place in a step that waits for a GPU
        loss, norm = to_host(np.stack([loss, norm.astype(np.float64)])).tolist()
        if not (math.isfinite(loss) and math.isfinite(norm)):
            # the generators have moved on: made anew, the dropout is that of this step again
            again = [generator(c, DROPOUT, self.step, i) for i in range(self.pieces)] if c.dropout else rngs
            cause = first_non_finite(self.model, shards(batch, self.pieces), again)
            raise NonFiniteError(f"step {self.step + 1}: the loss is {loss}, the norm of the gradients {norm}; {cause}")
        self.optimizer.step(grads, self.rate(self.step))
        self.step += 1
        self.seconds += time.perf_counter() - start
        return loss, norm, count_targets(batch)

    def rate(self, step: int) -> float:
        """The learning rate of a step, counted from 0."""
        c = self.config
        return warmup_cosine(step, c.steps, c.warmup, c.learning_rate, min(c.min_learning_rate, c.learning_rate))

    def save(self) -> None:
        """Write the checkpoint; the one before it stays under another name."""
        path = self.directory / checkpoint.NAME
        checkpoint.sweep(self.directory)
        if path.exists():
            checkpoint.keep_as(path, checkpoint.PREVIOUS)
        arrays = {f"parameters.{name}": p for name, p in self.model.parameters().items()}
        arrays |= {f"optimizer.{name}": array for name, array in self.optimizer.state().items()}
        checkpoint.save_arrays(path, arrays, self.meta())

    def meta(self) -> dict[str, Any]:
        """The part of a checkpoint that is not arrays."""
        return {
            "config": self.config.to_mapping() | {"workers": self.workers},
            "model": self.task.model_settings(self.model),
            "task": self.task.saved(),
            "step": self.step,
            "seconds": self.seconds,
            "best": None if math.isinf(self.best) else self.best,
            "since_best": self.since_best,
        }

    def write_config(self) -> None:
        """config.json, for people and for the next run."""
        text = json.dumps({**self.meta()["config"], "model": self.meta()["model"]}, indent=2)
        (self.directory / "config.json").write_text(text + "\n", encoding="utf-8")

    def restore(self, arrays: dict[str, np.ndarray], meta: dict[str, Any]) -> None:
        """Go back to where a checkpoint was saved."""
        if meta["task"] != self.task.saved():
            raise InputError("the data is not that of the checkpoint; a run can only go on with the same text")
        checkpoint.read_into(self.model.parameters(), arrays, "parameters.", "model")
        state = {name: array.copy() for name, array in self.optimizer.state().items()}
        checkpoint.read_into(state, arrays, "optimizer.", "optimizer")
        self.optimizer.load_state(state)
        self.step, self.seconds = int(meta["step"]), float(meta["seconds"])
        self.best = math.inf if meta["best"] is None else float(meta["best"])
        self.since_best = int(meta["since_best"])

    def _note_best(self, val_loss: float) -> bool:
        improved = val_loss < self.best
        self.best = min(self.best, val_loss)
        self.since_best = 0 if improved else self.since_best + 1
        return improved
