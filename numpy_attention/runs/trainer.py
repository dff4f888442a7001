"""Chapter 29. The training loop.

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

from __future__ import annotations

import json
import math
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from numpy_attention.backend import get_backend, to_host
from numpy_attention.errors import InputError
from numpy_attention.runs import checkpoint
from numpy_attention.runs.config import TrainConfig
from numpy_attention.runs.diagnose import NOT_AGAIN, first_non_finite
from numpy_attention.runs.log import Log
from numpy_attention.runs.memory import keep_freed_memory
from numpy_attention.runs.mpi import OneProcess
from numpy_attention.runs.parallel import Batch, Workers, count_targets, default_workers, loss_and_gradients, shards
from numpy_attention.runs.progress import Progress
from numpy_attention.runs.signals import StopSignals
from numpy_attention.runs.task import Task
from numpy_attention.training.clipping import clip_by_global_norm, global_norm
from numpy_attention.training.optimizers import SGD, Adam, AdamW
from numpy_attention.training.schedules import warmup_cosine

COUNTS = ("step", "best_step", "since_best", "skipped")  # whole numbers that say how far a run has come
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

    def __init__(self, config: TrainConfig, task: Task, directory: Path, ranks: OneProcess | None = None) -> None:
        self.config = config
        self.task = task
        self.directory = directory
        self.ranks = ranks or OneProcess()
        self.backend = get_backend(config.backend)
        self.model = task.model(generator(config, INITIAL)).to(self.backend)
        self.optimizer = make_optimizer(config, self.model.parameters())
        on_host = self.backend.name == "numpy"  # a GPU is one worker, who takes the batch whole
        if self.ranks.size > 1 and not on_host:
            raise InputError("ranks add up their gradients in the host's memory; leave --backend out")
        if self.ranks.size > config.batch:
            raise InputError(f"{self.ranks.size} ranks cannot share a batch of {config.batch}; give a larger --batch")
        examples = config.batch // self.ranks.size  # of one rank
        work = examples * config.context * self.model.num_parameters()
        self.workers = config.workers or (default_workers(examples, work, self.ranks.cores) if on_host else 1)
        self.pieces = self.ranks.size * self.workers * config.accumulate
        self.signals = StopSignals()
        self.stop: str | None = None  # the signal that any rank has got
        self.step = 0
        self.seconds = 0.0  # spent in steps
        self.best = math.inf
        self.best_step = 0
        self.since_best = 0  # evaluations without a new best
        self.skipped = 0  # steps left out for their NaN or infinity
        self.fault = ""  # what was wrong with the last step, if it was left out

    def run(self) -> str:
        """Train to the end, and say how it ended: "finished", "stopped early" or the name of a signal."""
        c, first = self.config, self.ranks.rank == 0
        keep_freed_memory()
        self.prepare()
        with (
            Workers(self.workers, alone=self.ranks.size == 1) as workers,
            Progress(c.steps, self.step) as progress,
            self.signals,
        ):
            if self.step == 0:
                self.save()  # from here on there is something to go on from
                self.write_config()
            log = Log(self.directory / "log.jsonl", self.step) if first else None
            tokens, started = 0, self.seconds
            while self.step < c.steps:
                loss, norm, counted = self.one_step(workers)
                tokens += counted
                last = self.step == c.steps
                evaluate = last or self.step % c.eval_every == 0
                entry: dict[str, Any] | None = None
                if evaluate or self.step == 1 or self.step % c.log_every == 0 or self.fault:
                    entry = {"step": self.step}
                    entry |= {"skipped": self.fault} if self.fault else {"loss": loss, "grad_norm": norm}
                    entry |= {"learning_rate": self.rate(self.step - 1)}
                    entry |= {"tokens_per_second": tokens / (self.seconds - started), "seconds": self.seconds}
                    tokens, started = 0, self.seconds
                improved = False
                if entry and evaluate:
                    entry |= self.task.evaluate(self.model, self.ranks.workers(workers))
                    progress.line(entry)
                    improved = self._note_best(entry["val_loss"])
                if entry and log:
                    log.write(entry)
                progress.advance(entry)
                impatient = bool(c.patience) and self.since_best >= c.patience
                if last or improved or impatient or self.stop or self.step % c.save_every == 0:
                    self.save()
                if self.stop and not last:
                    return self.stop
                if impatient and not last:
                    return "stopped early"
        return "finished"

    def prepare(self) -> None:
        """Let the task write its data beside the run: first rank 0, then those that do not find it done."""
        for turn in (True, False):
            mine = (self.ranks.rank == 0) == turn
            self.ranks.together(partial(self.task.prepare, self.directory) if mine else bool)

    def one_step(self, workers: Workers) -> tuple[float, float, int]:
        """Draw a batch, go down its gradient once; the loss before, the norm of the gradients, the tokens counted."""
        start = time.perf_counter()
        c = self.config
        batch = self.task.batch(generator(c, BATCH, self.step))
        mine = self.ranks.share(min(self.pieces, len(batch[0])))
        loss, grads = loss_and_gradients(self.model, batch, self.pieces, workers, self._dropout(mine), mine)
        loss, grads, self.stop = self.ranks.total(self.model.parameters(), loss, grads, self.signals.name)
        norm = clip_by_global_norm(grads, c.clip) if c.clip else global_norm(grads)
        # the one place in a step that waits for a GPU
        loss, norm = to_host(np.stack([loss, norm.astype(np.float64)])).tolist()
        self.fault = ""
        if math.isfinite(loss) and math.isfinite(norm):
            self.optimizer.workers = workers
            self.optimizer.step(grads, self.rate(self.step))
        else:
            self.fault = f"the loss is {loss}, the norm of the gradients {norm}; {self._cause(batch, mine)}"
            if self.skipped >= c.skip_bad_steps:
                raise NonFiniteError(f"step {self.step + 1}: {self.fault}")
            self.skipped += 1
        self.step += 1
        self.seconds += time.perf_counter() - start
        return loss, norm, count_targets(batch)

    def _dropout(self, mine: range) -> dict[int, np.random.Generator | None]:
        return {i: generator(self.config, DROPOUT, self.step, i) if self.config.dropout else None for i in mine}

    def _cause(self, batch: Batch, mine: range) -> str:
        """Where this step's NaN comes from, by whichever rank sees it come again."""
        parts = shards(batch, self.pieces)[mine.start : mine.stop]
        # the generators have moved on: made anew, the dropout is that of this step again
        causes = self.ranks.everyones(first_non_finite(self.model, parts, list(self._dropout(mine).values())))
        return next((cause for cause in causes if cause != NOT_AGAIN), NOT_AGAIN)

    def rate(self, step: int) -> float:
        """The learning rate of a step, counted from 0."""
        c = self.config
        return warmup_cosine(step, c.steps, c.warmup, c.learning_rate, min(c.min_learning_rate, c.learning_rate))

    def save(self) -> None:
        """Write the checkpoint; the one before it and the best so far stay under other names."""
        if self.ranks.rank > 0:
            return
        path = self.directory / checkpoint.NAME
        checkpoint.sweep(self.directory)
        if path.exists():
            checkpoint.keep_as(path, checkpoint.PREVIOUS)
        arrays = {f"parameters.{name}": p for name, p in self.model.parameters().items()}
        arrays |= {f"optimizer.{name}": array for name, array in self.optimizer.state().items()}
        checkpoint.save_arrays(path, arrays, self.meta())
        self._keep_best()

    def meta(self) -> dict[str, Any]:
        """The part of a checkpoint that is not arrays."""
        return {
            "config": self.config.to_mapping() | {"workers": self.workers},
            "model": self.task.model_settings(self.model),
            "task": self.task.saved(),
            "step": self.step,
            "seconds": self.seconds,
            "best": None if math.isinf(self.best) else self.best,
            "best_step": self.best_step,
            "since_best": self.since_best,
            "skipped": self.skipped,
        }

    def write_config(self) -> None:
        """config.json, for people and for the next run."""
        if self.ranks.rank > 0:
            return
        text = json.dumps({**self.meta()["config"], "model": self.meta()["model"]}, indent=2)
        (self.directory / "config.json").write_text(text + "\n", encoding="utf-8")

    def restore(self, arrays: dict[str, np.ndarray], meta: dict[str, Any]) -> None:
        """Go back to where a checkpoint was saved."""
        if meta["task"] != self.task.saved():
            raise InputError("the data is not that of the checkpoint; a run can only go on with the same text")
        state = self.optimizer.state()  # the live arrays: read in place, they are in memory once
        checkpoint.read_into(state, arrays, "optimizer.", "optimizer")
        checkpoint.read_into(self.model.parameters(), arrays, "parameters.", "model")
        self.optimizer.load_state(state)
        try:
            step, best_step, since_best, skipped = counts = [int(meta[name]) for name in COUNTS]
            best = math.inf if meta["best"] is None else float(meta["best"])
            seconds = float(meta["seconds"])
            if min(counts) < 0 or step > self.config.steps:
                raise ValueError(f"step {step} of {self.config.steps}")
            if not 0 <= seconds < math.inf or math.isnan(best):
                raise ValueError(f"{seconds} seconds, best {best}")
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise InputError(f"the checkpoint does not say how far the run has come: {error}") from None
        self.step, self.best_step, self.since_best, self.skipped = step, best_step, since_best, skipped
        self.best, self.seconds = best, seconds
        self._keep_best()  # a kill may have come between a save and this

    def _note_best(self, val_loss: float) -> bool:
        improved = val_loss < self.best
        if improved:
            self.best, self.best_step = val_loss, self.step
        self.since_best = 0 if improved else self.since_best + 1
        return improved

    def _keep_best(self) -> None:
        if self.best_step == self.step > 0 and self.ranks.rank == 0:
            checkpoint.keep_as(self.directory / checkpoint.NAME, checkpoint.BEST)
