"""train: learn a task, and write the log, the configuration and the checkpoint to a directory.

The path from this file to the update of a parameter:

    run                                       this file: the options become a TrainConfig, a task, a Trainer
    Trainer.run                               training/c32_trainer.py: steps; at intervals log, evaluation, checkpoint
    Trainer.one_step                          batch, loss and gradients, step
      Trainer.loss_and_gradients              the gradients of this rank's shards, then the sum over all ranks
        parallel.loss_and_gradients           training/c30_parallel.py: a thread for each shard
          model.loss, model.gradients         models/, layers/, ops/: Parts III, II and I
        ranks.total                           training/c31_mpi.py: the sums over all machines
      take_step                               training/c28_loop.py: clip
        optimizer.step                        training/c25_optimizers.py: p -= ...

The optimizer updates the arrays of the model in place (`Layer.parameters`), so the next loss uses the new values.
"""

import argparse
import dataclasses
import signal
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

from numpy_attention.app import plots
from numpy_attention.app.tasks import kind_of_task, make_task
from numpy_attention.errors import InputError, command, one_line, shell_path
from numpy_attention.files import reading, writing
from numpy_attention.training import c29_checkpoint as checkpoint
from numpy_attention.training.c30_parallel import Workers
from numpy_attention.training.c31_mpi import Ranks, started_ranks
from numpy_attention.training.c32_trainer import SAMPLE, NonFiniteError, Trainer, generator
from numpy_attention.training.config import TrainConfig, option
from numpy_attention.training.log import read_log
from numpy_attention.training.restore import load_run
from numpy_attention.training.tasks.sums import SumTask

MAY_CHANGE = {"workers", "backend", "recompute", "text", "from_"}  # in a resumed run: a file may have moved
WITHOUT_EFFECT: dict[tuple[str, ...], Any] = {  # settings that do nothing unless a setting has one of these values
    ("text",): ("task", ["text"]),
    ("vocab_size",): ("vocabulary", ["bpe"]),
    ("beta2", "weight_decay"): ("optimizer", ["adam", "adamw"]),
    ("vocabulary", "vocab_size", "layers", "heads", "d_model", "d_ff", "positions", "norm", "activation", "dropout",
     "attention"): ("from_", [None]),
}


def run(a: argparse.Namespace) -> int:
    """Check everything, then make the directory, then train; the exit code tells how the run ended."""
    ranks, code = started_ranks(), 0
    with ranks.silence():
        typed = {f.name: getattr(a, f.name) for f in dataclasses.fields(TrainConfig) if hasattr(a, f.name)}
        trainer = ranks.together(lambda: _resumed(a, typed, ranks) if a.resume else _new(a, typed, ranks))
        facts = trainer.config.to_mapping(), trainer.task.saved(), trainer.step
        if any(theirs != facts for theirs in ranks.everyones(facts)):
            raise InputError("the ranks have different settings, texts or checkpoints")
        directory = trainer.directory = ranks.everyones(trainer.directory)[0]
        with writing(directory):
            directory.mkdir(parents=True, exist_ok=True)  # on every machine
        try:
            ending = trainer.run(_announcement(trainer))
        except NonFiniteError as error:
            code = 1
            if ranks.rank == 0:
                print(f"numpy-attention: stopped at {error}", file=sys.stderr, flush=True)
        else:
            if ending.startswith("SIG"):
                code = 128 + signal.Signals[ending]  # as in a shell
                print(f"\nstopped by {ending} after step {trainer.step}, which is saved; continue with:")
                print(f"  {command(f'train --resume {shell_path(directory)}')}", flush=True)
            elif ranks.rank == 0:
                _finish(trainer, ending)
        ranks.everyones(None)  # the first rank that ends with an error ends all: wait until rank 0 has printed
    return code


def _new(a: argparse.Namespace, typed: dict[str, Any], ranks: Ranks) -> Trainer:
    """A new run, at its first step. The file of settings overrides the defaults of the task, the options override both.

    Raises: InputError for impossible settings, settings without effect, and a directory that holds a run.
    """
    directory = a.out or Path("runs", time.strftime("%Y-%m-%d-%H%M%S"))
    if (directory / checkpoint.NAME).exists():
        raise InputError(f"{directory} already holds a run; continue it with --resume, or give another --out")
    settings, source = typed, str(a.config or "")
    if a.config:
        try:
            with reading(a.config):
                settings = tomllib.loads(a.config.read_text("utf-8")) | typed
        except ValueError as error:  # in the encoding or the syntax
            raise InputError(f"{a.config} is not TOML: {error}") from None
    config = TrainConfig.from_mapping(settings, source)
    defaults = kind_of_task(config).defaults
    if a.as_in_the_lesson:
        if config.task != "sum":
            raise InputError("--as-in-the-lesson needs --task sum")
        defaults = defaults | SumTask.lesson
    config = TrainConfig.from_mapping(defaults | settings, source)
    for names, (decides, values) in WITHOUT_EFFECT.items():
        if getattr(config, decides) not in values and (idle := [option(name) for name in names if name in typed]):
            raise InputError(f"{', '.join(idle)} has no effect with this {option(decides)}; leave it out")
    return Trainer(config, make_task(config), directory, ranks)


def _resumed(a: argparse.Namespace, typed: dict[str, Any], ranks: Ranks) -> Trainer:
    """The run in a directory, at its last checkpoint."""
    config, arrays, meta = load_run(a.resume)
    changed = [option(name) for name in typed if name not in MAY_CHANGE and typed[name] != getattr(config, name)]
    changed += [option(name) for name in ("out", "config", "as_in_the_lesson") if getattr(a, name)]
    if changed:
        raise InputError(f"{', '.join(changed)} cannot change in a resumed run; leave this out")
    config = TrainConfig.from_mapping(config.to_mapping() | typed, str(a.resume))
    trainer = Trainer(config, make_task(config), a.resume, ranks)
    trainer.restore(arrays, meta)
    return trainer


def _announcement(trainer: Trainer) -> str:
    """A message about the data, the model and the directory of the run."""
    model, c, workers = trainer.model, trainer.config, trainer.workers.count
    ranks = f"{trainer.ranks.size} ranks of " if trainer.ranks.size > 1 else ""
    return (
        f"{trainer.task.description()}\n"
        f"model: {type(model).__name__} with {model.num_parameters():,} parameters; "
        f"{c.steps} steps of {c.batch} examples, {ranks}{workers} worker{'s' * (workers > 1)}\n"
        f"run: {trainer.directory}" + (f", from step {trainer.step}" if trainer.step else "")
    )


def _finish(trainer: Trainer, ending: str) -> None:
    """Print the report of the task, write its result and draw the loss."""
    task, directory, files = trainer.task, trainer.directory, ["log.jsonl", "config.json", checkpoint.NAME]
    print(f"{ending} after step {trainer.step}, {trainer.seconds:.0f} seconds of training\n")
    with Workers(trainer.workers.count) as workers:
        print(task.report(trainer.model, generator(trainer.config, SAMPLE), workers))
    with writing(directory):
        files += [written] if (written := task.write_result(trainer.model, directory)) else []
    levels = {f"{name} {loss:.3f}": loss for name, loss in task.reference_lines().items()}
    try:
        figure = plots.training_curves(read_log(directory / "log.jsonl"), levels)
        files.append(plots.save(figure, directory / "loss.png", dpi=120).name)
    except Exception as error:  # no matplotlib, or an error of matplotlib, which depends on its version
        print(f"numpy-attention: there is no loss.png: {one_line(error)}", file=sys.stderr)
    print(f"\nin {directory}: {', '.join(files)}")
