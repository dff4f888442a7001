"""Chapter 29. The trainer: a long run

Each step is the step of Chapter 28, with the batch cut into shards and the gradients added up (Chapters 31 and 32).
This file adds everything around the step: at intervals a line in the log, an evaluation on held-out data, a
checkpoint.

    run:   step  step  step ... step  step  step ...            until the last step, a signal, or no more patience
             |                    |     |
             log                  log   evaluation, checkpoint  every log_every, eval_every, save_every steps

No random generator keeps a state from step to step. A generator seeded with (seed, BATCH, t) draws the batch of step
t; a generator seeded with (seed, DROPOUT, t, i) draws the dropout of shard i. So the random numbers of step t do not
depend on earlier steps, and a resumed run equals the uninterrupted run bit for bit, if it uses the same number of
threads and ranks. With another number, the shards differ, so sums are rounded differently and other generators draw
the dropout.
"""

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from numpy_attention.backend import get_backend
from numpy_attention.errors import InputError
from numpy_attention.files import read_into, writing
from numpy_attention.training import checkpoint, parallel
from numpy_attention.training.config import TrainConfig, make_optimizer
from numpy_attention.training.diagnose import NOT_AGAIN, first_non_finite
from numpy_attention.training.lock import hold
from numpy_attention.training.log import Log
from numpy_attention.training.loop import take_step
from numpy_attention.training.memory import keep_freed_memory
from numpy_attention.training.mpi import Ranks
from numpy_attention.training.parallel import Batch, Workers, count_targets
from numpy_attention.training.progress import Progress, per_second
from numpy_attention.training.restore import HowFar, check_optimizer, how_far
from numpy_attention.training.schedules import warmup_cosine
from numpy_attention.training.signals import StopSignals
from numpy_attention.training.task import Task

INITIAL, BATCH, DROPOUT, SAMPLE = range(4)  # the purposes of generators: the second number of a seed


class NonFiniteError(ArithmeticError):
    """The loss or a gradient is no longer a finite number."""


def generator(config: TrainConfig, purpose: int, *place: int) -> np.random.Generator:
    """The generator for one purpose at one place of the run."""
    return np.random.default_rng([config.seed, purpose, *place])


class Trainer:
    """A run: the model, its optimizer, and their progress."""

    def __init__(self, config: TrainConfig, task: Task, directory: Path, ranks: Ranks | None = None) -> None:
        self.config = config
        self.task = task
        self.directory = directory
        self.ranks = ranks or Ranks()
        self.backend = get_backend(config.backend)
        self.model = task.model(generator(config, INITIAL)).to(self.backend)
        self.model.recompute = config.recompute
        self.workers = Workers(self.ranks.threads(config, self.model.num_parameters()))
        self.shards = self.ranks.size * self.workers.count * config.accumulate
        self.optimizer = make_optimizer(config, self.model.parameters(), self.workers)
        self.signals = StopSignals()
        self.stop: str | None = None  # the signal that any rank has received
        self.step = 0
        self.seconds = 0.0  # the time spent in steps
        self.best = math.inf
        self.best_step = 0
        self.since_best = 0  # evaluations since the best one
        self.skipped = 0  # steps skipped because of a NaN or infinity
        self.fault = ""  # the reason if the last step was skipped
        self.is_alone = False  # whether no other run can write to the directory
        self.require_same_directory: Callable[[], None] = lambda: None  # with a lock: the check of `hold`

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Inside this context no other run writes to the directory; contexts may be nested.

        Raises: InputError that names the other run; on all ranks, although only rank 0 takes the lock.
        """
        if self.is_alone:
            yield
            return
        with contextlib.ExitStack() as stack:
            here = self.ranks.together(lambda: None if self.ranks.rank else stack.enter_context(hold(self.directory)))
            stack.callback(setattr, self, "require_same_directory", self.require_same_directory)
            self.require_same_directory = here or self.require_same_directory
            stack.callback(setattr, self, "is_alone", False)
            self.is_alone = True
            yield

    def run(self) -> str:
        """Train to the end and return the kind of ending: "finished", "stopped early" or the name of a signal.

        Raises: InputError if the directory cannot be written, or if another run uses it; NonFiniteError.
        """
        keep_freed_memory()
        with self.alone():
            if self.ranks.rank == 0:
                checkpoint.tidy(self.directory, self._is_best())  # finish the work of a killed run
            self.prepare()
            return self._train()

    def _train(self) -> str:
        c, first = self.config, self.ranks.rank == 0
        with self.workers, Progress(c.steps, self.step) as progress, self.signals:
            if self.step == 0:
                self.save()  # from here on the run can be resumed
            if first:  # also for a resumed run: its text may have moved
                checkpoint.write_config(self.directory, self.meta())
            log = Log(self.directory / "log.jsonl", self.step) if first else None
            tokens, started = 0, self.seconds
            while self.step < c.steps:
                loss, norm, counted = self.one_step()
                tokens += counted
                last = self.step == c.steps
                evaluate = last or self.step % c.eval_every == 0
                entry: dict[str, Any] | None = None
                if evaluate or self.step == 1 or self.step % c.log_every == 0 or self.fault:
                    entry = self._entry(loss, norm, per_second(tokens, self.seconds - started))
                    tokens, started = 0, self.seconds
                improved = False
                if entry and evaluate:
                    entry |= self.task.evaluate(self.model, self.ranks.workers(self.workers))
                    progress.line(entry)
                    improved = self._note_best(entry["val_loss"])
                if entry and log:
                    self.require_same_directory()
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

    def one_step(self) -> tuple[float, float, int]:
        """Take one step on a new batch; return the loss before the step, the gradient norm, and the counted tokens."""
        start = time.perf_counter()
        batch = self.task.batch(generator(self.config, BATCH, self.step))
        loss, grads = self.loss_and_gradients(batch)
        loss, norm = take_step(self.optimizer, loss, grads, self.rate(self.step), self.config.clip)
        self._note_fault(loss, norm, batch)
        self.step += 1
        self.seconds += time.perf_counter() - start
        return loss, norm, count_targets(batch)

    def loss_and_gradients(self, batch: Batch) -> tuple[Any, dict[str, np.ndarray]]:
        """The loss of a batch and its gradients, summed over the shards of all threads and ranks."""
        mine = self._mine(batch)
        dropout = self._dropout(mine)
        loss, grads = parallel.loss_and_gradients(self.model, batch, self.shards, self.workers, dropout, mine)
        loss, grads, self.stop = self.ranks.total(self.optimizer.parameters, loss, grads, self.signals.name)
        return loss, grads

    def rate(self, step: int) -> float:
        """The learning rate of a step; steps are counted from 0."""
        c = self.config
        return warmup_cosine(step, c.steps, c.warmup, c.learning_rate, min(c.min_learning_rate, c.learning_rate))

    def prepare(self) -> None:
        """Let the task write its data to the directory: first rank 0, then the ranks on machines without these data."""
        first, prepare = self.ranks.rank == 0, writing(self.directory)(self.task.prepare)
        self.ranks.together(lambda: first and prepare(self.directory))
        self.ranks.together(lambda: first or prepare(self.directory))

    def save(self) -> None:
        """Write the checkpoint; the previous checkpoint and the best checkpoint so far stay under other names."""
        if self.ranks.rank > 0:
            return
        arrays = {f"parameters.{name}": p for name, p in self.model.parameters().items()}
        arrays |= {f"optimizer.{name}": array for name, array in self.optimizer.state().items()}
        self.require_same_directory()
        checkpoint.save(self.directory, arrays, self.meta(), self._is_best())

    def meta(self) -> dict[str, Any]:
        """The part of a checkpoint that is not an array."""
        return {
            "config": self.config.to_mapping() | {"workers": self.workers.count},
            "model": self.task.model_settings(self.model),
            "task": self.task.saved(),
            **{name: getattr(self, name) for name in HowFar._fields},
            "best": None if math.isinf(self.best) else self.best,
        }

    def restore(self, arrays: dict[str, np.ndarray], meta: dict[str, Any]) -> None:
        """Restore the state of a checkpoint."""
        if meta["task"] != self.task.saved():
            advice = "give their paths with --text and --from"
            if self.config.task == "text" and self.config.text is None:  # the default text came from Python itself once
                advice += "; a run on the help topics of another Python needs them as a file: docs/pythons.md"
            raise InputError(
                "the data or the model of --from differ from those of the checkpoint; "
                f"a run can be resumed only with the same text and the same model; {advice}"
            )
        state = self.optimizer.state()  # the live arrays: reading into them needs no second copy
        read_into(state, arrays, "optimizer.", "optimizer")
        read_into(self.model.parameters(), arrays, "parameters.", "model")
        progress = how_far(meta, self.config.steps)
        check_optimizer(arrays, progress)
        self.optimizer.load_state(state)
        self.step, self.seconds, self.best, self.best_step, self.since_best, self.skipped = progress

    def _mine(self, batch: Batch) -> range:
        return self.ranks.share(min(self.shards, len(batch[0])))

    def _dropout(self, mine: range) -> dict[int, np.random.Generator | None]:
        return {i: generator(self.config, DROPOUT, self.step, i) if self.config.dropout else None for i in mine}

    def _entry(self, loss: float, norm: float, speed: float) -> dict[str, Any]:
        figures = {"skipped": self.fault} if self.fault else {"loss": loss, "grad_norm": norm}
        rate = self.rate(self.step - 1)
        return {
            "step": self.step, **figures, "learning_rate": rate, "tokens_per_second": speed, "seconds": self.seconds
        }

    def _note_fault(self, loss: float, norm: float, batch: Batch) -> None:
        """Record the reason if the step was skipped; NonFiniteError if too many steps were skipped."""
        self.fault = ""
        if math.isfinite(loss) and math.isfinite(norm):
            return
        self.fault = f"the loss is {loss} and the norm of the gradients is {norm}; {self._cause(batch)}"
        if self.skipped >= self.config.skip_bad_steps:
            raise NonFiniteError(f"step {self.step + 1}: {self.fault}")
        self.skipped += 1

    def _cause(self, batch: Batch) -> str:
        """The origin of this step's NaN, from the first rank on which the NaN occurs again."""
        mine = self._mine(batch)
        # the old generators have advanced; new ones repeat the dropout of this step
        rngs = list(self._dropout(mine).values())
        shards = parallel.shards(batch, self.shards)[mine.start : mine.stop]
        causes = self.ranks.everyones(first_non_finite(self.model, shards, rngs))
        return next((cause for cause in causes if cause != NOT_AGAIN), NOT_AGAIN)

    def _note_best(self, val_loss: float) -> bool:
        improved = val_loss < self.best
        if improved:
            self.best, self.best_step = val_loss, self.step
        self.since_best = 0 if improved else self.since_best + 1
        return improved

    def _is_best(self) -> bool:
        return self.best_step == self.step > 0
