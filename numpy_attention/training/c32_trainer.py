"""Chapter 32. The trainer: a long run

Each step is the step of Chapter 28, with the batch cut into shards and the gradients added up (Chapters 30 and 31).
This file adds everything around the step: at intervals a line in the log, an evaluation on held-out data, a
checkpoint.

    run:   step  step  step ... step  step  step ...            until the last step or a signal
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
import platform
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from numpy_attention.backend import get_backend
from numpy_attention.errors import InputError
from numpy_attention.files import StoredArray, read_into
from numpy_attention.training import c29_checkpoint as checkpoint
from numpy_attention.training import c30_parallel as parallel
from numpy_attention.training.c26_schedules import warmup_cosine
from numpy_attention.training.c28_loop import Batch, count_targets, shards, take_step
from numpy_attention.training.c30_parallel import Workers, default_workers, usable_cores
from numpy_attention.training.c31_mpi import Ranks, SharedWorkers
from numpy_attention.training.config import TrainConfig, make_optimizer
from numpy_attention.training.diagnose import NOT_AGAIN, first_non_finite
from numpy_attention.training.log import Log
from numpy_attention.training.memory import keep_freed_memory
from numpy_attention.training.progress import Progress
from numpy_attention.training.restore import PROGRESS
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
        self.workers = Workers(self._threads())
        self.shards = self.ranks.size * self.workers.count * config.accumulate
        self.optimizer = make_optimizer(config, self.model.parameters())
        self.num_parameters = self.model.num_parameters()
        self.signal = ""  # the signal that this process has received: SIGINT or SIGTERM
        self.stop = False  # any rank has received a signal
        self.step = 0
        self.seconds = 0.0  # the time spent in steps
        self.best = math.inf
        self.best_step = 0
        self.skipped = 0  # steps skipped because of a NaN or infinity
        self.fault = ""  # the reason if the last step was skipped

    def run(self, announcement: str = "") -> str:
        """Train to the end and return the kind of ending: "finished", "stopped early" or the name of a signal.

        The announcement is printed when it is certain that no other run uses the directory.

        Raises: InputError if the directory cannot be written, or if another run uses it; NonFiniteError.
        """
        keep_freed_memory()
        with contextlib.ExitStack() as stack:
            lock = contextlib.nullcontext() if self.ranks.rank else checkpoint.hold(self.directory)
            self.ranks.together(lambda: stack.enter_context(lock))
            if announcement:
                print(announcement, flush=True)
            with self.workers, Progress(self.config.steps, self.step) as progress, self._noting_signals():
                return self._train(progress)

    def _train(self, progress: Progress) -> str:
        c, log = self.config, None
        if self.step == 0:
            self.save()  # from here on the run can be resumed
        if self.ranks.rank == 0:
            checkpoint.write_config(self.directory, self.meta())  # also for a resumed run: its text may have moved
            log = Log(self.directory / "log.jsonl", self.step)
        tokens, started = 0, self.seconds
        while self.step < c.steps:
            loss, norm, counted = self.one_step()
            tokens += counted
            last, improved, entry = self.step == c.steps, False, None
            evaluate = last or self.step % c.eval_every == 0
            if evaluate or self.step == 1 or self.step % c.log_every == 0 or self.fault:
                figures: dict[str, Any] = {"skipped": self.fault} if self.fault else {"loss": loss, "grad_norm": norm}
                speed = tokens / max(self.seconds - started, 1e-9)  # some clocks do not advance within a short step
                entry = {
                    "step": self.step, **figures, "learning_rate": self.rate(self.step - 1),
                    "tokens_per_second": speed, "seconds": self.seconds,
                }
                tokens, started = 0, self.seconds
                if evaluate:
                    entry |= self.task.evaluate(self.model, SharedWorkers(self.ranks, self.workers))
                    progress.line(entry)
                    if improved := entry["val_loss"] < self.best:
                        self.best, self.best_step = entry["val_loss"], self.step
                if log:
                    log.write(entry)
            progress.advance(entry)
            impatient = evaluate and 0 < c.patience * c.eval_every <= self.step - self.best_step
            if last or improved or impatient or self.stop or self.step % c.save_every == 0:
                self.save()
            if self.stop and not last:
                return self.signal or "SIGTERM"  # this rank or another one received it
            if impatient and not last:
                return "stopped early"
        return "finished"

    def one_step(self) -> tuple[float, float, int]:
        """Take one step on a new batch; return the loss before the step, the gradient norm, and the counted tokens.

        Raises: NonFiniteError if too many losses or gradients were not finite; these steps change no parameter.
        """
        start = time.perf_counter()
        batch = self.task.batch(generator(self.config, BATCH, self.step))
        loss, grads = self.loss_and_gradients(batch)
        with self.workers.sharing(self.num_parameters):
            loss, norm = take_step(self.optimizer, loss, grads, self.rate(self.step), self.config.clip)
        self.fault = ""
        if not (math.isfinite(loss) and math.isfinite(norm)):
            self.fault = f"the loss is {loss} and the norm of the gradients is {norm}; {self._cause(batch)}"
            self.skipped += 1
            if self.skipped > self.config.skip_bad_steps:
                raise NonFiniteError(f"step {self.step + 1}: {self.fault}")
        self.step += 1
        self.seconds += time.perf_counter() - start
        return loss, norm, count_targets(batch)

    def loss_and_gradients(self, batch: Batch) -> tuple[Any, dict[str, np.ndarray]]:
        """The loss of a batch and its gradients, summed over the shards of all threads and ranks."""
        mine = self._mine(batch)
        dropout = self._dropout(mine)
        loss, grads = parallel.loss_and_gradients(self.model, batch, self.shards, self.workers, dropout, mine)
        loss, grads, self.stop = self.ranks.total(self.optimizer.parameters, loss, grads, bool(self.signal))
        return loss, grads

    def rate(self, step: int) -> float:
        """The learning rate of a step; steps are counted from 0."""
        c = self.config
        return warmup_cosine(step, c.steps, c.warmup, c.learning_rate, min(c.min_learning_rate, c.learning_rate))

    def save(self) -> None:
        """Write the checkpoint; the previous checkpoint and the best checkpoint so far stay under other names."""
        if self.ranks.rank > 0:
            return
        arrays = {f"parameters.{name}": p for name, p in self.model.parameters().items()}
        arrays |= {f"optimizer.{name}": array for name, array in self.optimizer.state().items()}
        checkpoint.save(self.directory, arrays, self.meta(), best=self.best_step == self.step > 0)

    def meta(self) -> dict[str, Any]:
        """The part of a checkpoint that is not an array."""
        return {
            "config": self.config.to_mapping() | {"workers": self.workers.count},
            "model": self.task.model_settings(self.model),
            "task": self.task.saved(),
            **{name: getattr(self, name) for name in PROGRESS},
            "best": None if math.isinf(self.best) else self.best,
        }

    def restore(self, arrays: dict[str, StoredArray], meta: dict[str, Any]) -> None:
        """Restore the state of a checkpoint.

        Raises: InputError for the checkpoint of another text, another model or another optimizer.
        """
        before, now = meta["task"], self.task.saved()
        if before.get("from_sha256") != now.get("from_sha256"):
            raise InputError("the model of --from is not the one that the run started from; give its path with --from")
        if before != now:
            fix = "give its path with --text (for an old run on the help topics of another Python see docs/pythons.md)"
            raise InputError(f"the text is not the one that the run was trained on; {fix}")
        state = self.optimizer.state()  # the live arrays: reading into them needs no second copy
        read_into(state, arrays, "optimizer.", "optimizer")
        read_into(self.model.parameters(), arrays, "parameters.", "model")
        self.optimizer.load_state(state)
        for name in PROGRESS:
            setattr(self, name, meta[name])
        self.best = math.inf if meta.get("best") is None else meta["best"]

    @contextlib.contextmanager
    def _noting_signals(self) -> Iterator[None]:
        """Inside this context the first Ctrl-C or SIGTERM is only noted; a second one ends the process at once.

        An interrupted step would have changed some parameters and not others, so the step ends before the run stops.
        """

        def note(number: int, frame: FrameType | None) -> None:
            self.signal = signal.Signals(number).name
            restore()

        def restore() -> None:
            for number, handler in before.items():
                signal.signal(number, handler)

        in_main = threading.current_thread() is threading.main_thread()  # Python handles signals only there
        before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM) if in_main}
        for number in before:
            signal.signal(number, note)
        try:
            yield
        finally:
            restore()

    def _threads(self) -> int:
        """The number of threads that share this rank's shards of a batch; InputError if the ranks cannot share it."""
        c, ranks, on_host = self.config, self.ranks, self.config.backend == "numpy"
        if ranks.size > 1 and not on_host:
            raise InputError("ranks add up their gradients in the memory of the host; leave --backend out")
        if ranks.size > c.batch:
            raise InputError(f"{ranks.size} ranks cannot share a batch of {c.batch}; give a larger --batch")
        if c.workers or not on_host:
            return c.workers or 1  # a GPU is one worker with the whole batch
        neighbours = ranks.everyones(platform.node()).count(platform.node())  # the ranks on this machine
        examples = c.batch // ranks.size
        work = examples * c.context * self.model.num_parameters()
        return default_workers(examples, work, max(1, usable_cores() // neighbours))

    def _mine(self, batch: Batch) -> range:
        """The shards of a batch that this rank computes."""
        count, ranks = min(self.shards, len(batch[0])), self.ranks
        return range(ranks.rank * count // ranks.size, (ranks.rank + 1) * count // ranks.size)

    def _dropout(self, mine: range) -> dict[int, np.random.Generator | None]:
        return {i: generator(self.config, DROPOUT, self.step, i) if self.config.dropout else None for i in mine}

    def _cause(self, batch: Batch) -> str:
        """The origin of this step's NaN, from the first rank on which the NaN occurs again."""
        mine = self._mine(batch)
        cut = shards(batch, self.shards)[mine.start : mine.stop]
        rngs = list(self._dropout(mine).values())  # new generators repeat the dropout of this step
        causes = self.ranks.everyones(first_non_finite(self.model, cut, rngs))
        return next((cause for cause in causes if cause != NOT_AGAIN), NOT_AGAIN)
