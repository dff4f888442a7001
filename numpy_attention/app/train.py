"""train: learn a task, and write the log, the configuration and the checkpoint to a directory.

The path from this file to the update of a parameter:

    run                                       this file: the options become a TrainConfig, a task, a Trainer
    Trainer.run                               training/trainer.py: steps; at intervals log, evaluation, checkpoint
    Trainer.one_step                          batch, loss and gradients, step
      Trainer.loss_and_gradients              the gradients of this rank's shards, then the sum over all ranks
        parallel.loss_and_gradients           training/parallel.py: a thread for each shard
          model.loss, model.gradients         models/, layers/, ops/: Parts III, II and I
        ranks.total                           training/mpi.py: the sums over all machines
      take_step                               training/loop.py: clip
        optimizer.step                        training/optimizers.py: p -= ...

The optimizer updates the arrays of the model in place (`Layer.parameters`), so the next loss uses the new values.
"""

import argparse
import contextlib
import dataclasses
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

from numpy_attention.app.pictures import pictures
from numpy_attention.app.source import named_path
from numpy_attention.app.tasks import TASKS, kind_of_task, make_task
from numpy_attention.errors import InputError, shell_path
from numpy_attention.files import reading, writing
from numpy_attention.training import checkpoint
from numpy_attention.training.config import TrainConfig, command_line, option
from numpy_attention.training.mpi import Ranks, started_ranks
from numpy_attention.training.parallel import Workers
from numpy_attention.training.restore import load_run
from numpy_attention.training.signals import StopSignals
from numpy_attention.training.task import Task
from numpy_attention.training.tasks.sums import SumTask
from numpy_attention.training.trainer import SAMPLE, NonFiniteError, Trainer, generator

MOVABLE = ("text", "from_")  # files that may move: the checkpoint recognizes them by their fingerprint
SIGNAL_CODES = {"SIGINT": 130, "SIGTERM": 143}  # the exit codes of a shell
FIXED_BY_THE_MODEL = {
    "layers", "heads", "d_model", "d_ff", "positions", "norm", "activation", "dropout", "vocabulary", "vocab_size",
    "attention",
}
MAX_SETTINGS = 2**16  # bytes of a settings file
MAX_DOTS = 200  # in a line: for a.b.c.d a TOML reader also stores a, a.b, a.b.c, so memory grows with the square
BELONGS_TO = {  # a setting: the setting that decides whether it has an effect, and the values with an effect
    "text": ("task", ("text",)), "vocabulary": ("task", ("text",)), "vocab_size": ("vocabulary", ("bpe",)),
    "beta2": ("optimizer", ("adamw", "adam")), "weight_decay": ("optimizer", ("adamw",)),
}


def add_parser(commands: Any) -> None:
    """The arguments of `train`: one for each field of TrainConfig, and the directory of the run."""
    about = "train a model (without options: a character GPT on Python's help topics, about three minutes)"
    parser = commands.add_parser("train", help=about, allow_abbrev=False)
    add = parser.add_argument
    add("--out", type=named_path, metavar="DIR", help="the directory of the run (default: runs/<time>)")
    add("--resume", type=named_path, metavar="DIR", help="continue the run in DIR from its last checkpoint")
    lesson = "for the task sum: the plain gradient descent of the lesson, which does not learn"
    add("--as-in-the-lesson", action="store_true", help=lesson)
    add("--config", type=named_path, metavar="FILE.toml", help="settings from a file; options override them")
    for flag, how in command_line():
        add(flag, default=argparse.SUPPRESS, **how)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Check everything, then make the directory, then train."""
    ranks = started_ranks()
    with ranks.silence():
        make = _resumed if arguments.resume else _fresh
        trainer = ranks.together(lambda: make(arguments, ranks))
        _begin(trainer, arguments)
        with trainer.alone():
            if not arguments.resume:  # check again: with the lock, no other run can begin here
                ranks.together(lambda: None if ranks.rank else _check_free(trainer.directory))
            print(_announcement(trainer), flush=True)
            return _train(trainer)


def _train(trainer: Trainer) -> int:
    """Train, then report the ending by a message and the exit code."""
    ranks, again = trainer.ranks, f"python -m numpy_attention train --resume {shell_path(trainer.directory)}"
    try:
        ending = trainer.run()
    except NonFiniteError as error:
        if ranks.rank == 0:
            print(f"numpy-attention: stopped at {error}", file=sys.stderr, flush=True)
        ranks.everyones(None)  # a rank that ends with an error ends all ranks: wait until rank 0 has printed the reason
        return 1
    if ending in SIGNAL_CODES:
        print(f"\nstopped by {ending} after step {trainer.step}, which is saved; continue with:\n  {again}", flush=True)
        ranks.everyones(None)
        return SIGNAL_CODES[ending]
    try:
        stopped = None if ranks.rank else _finish(trainer, ending, again)
    except KeyboardInterrupt:
        stopped = "SIGINT"
    if stopped:
        message = f"stopped by {stopped}; the training is complete and saved; print its report again with {again}"
        print(f"numpy-attention: {message}", file=sys.stderr, flush=True)
        return SIGNAL_CODES[stopped]
    return 0


def _fresh(arguments: argparse.Namespace, ranks: Ranks) -> Trainer:
    config = new_config(arguments)
    if arguments.out:
        _check_free(arguments.out)
    return Trainer(config, make_task(config), arguments.out or Path("runs"), ranks)


def new_config(arguments: argparse.Namespace) -> TrainConfig:
    """The settings of a new run: the defaults of the task; the file overrides them, the options override both.

    Raises: InputError for impossible settings and for settings that would have no effect in this run.
    """
    settings = _settings_from_file(arguments.config) | given(arguments)
    of_task = _settings_of_task(settings)
    if arguments.as_in_the_lesson:
        if settings.get("task") != "sum":
            raise InputError("--as-in-the-lesson needs --task sum")
        of_task = of_task | SumTask.lesson
    config = TrainConfig.from_mapping(of_task | settings, str(arguments.config or ""))
    usual = [{field.name: field.default for field in dataclasses.fields(config)}, of_task]
    _check_use(config, {name for name in settings if settings[name] not in [one.get(name) for one in usual]})
    return config


def _check_use(config: TrainConfig, chosen: set[str]) -> None:
    """Refuse a chosen setting that would have no effect; a file may hold all settings with their default values."""
    for name, (decides, allowed) in BELONGS_TO.items():
        if name in chosen and getattr(config, decides) not in allowed:
            place = f"{option(decides)} {' or '.join(allowed)}, not with {getattr(config, decides)}"
            raise InputError(f"{option(name)} has an effect only with {place}; leave {option(name)} out")
    if "min_learning_rate" in chosen and config.min_learning_rate > config.learning_rate:
        rates = f"{config.learning_rate}, got {config.min_learning_rate}"
        raise InputError(f"--min-learning-rate must be at most --learning-rate, the peak, which is {rates}")


def _settings_of_task(settings: dict[str, Any]) -> dict[str, Any]:
    """The defaults of the task; empty if the task does not exist, since TrainConfig then refuses it."""
    start = settings.get("from_", settings.get("from"))
    if start is not None and (fixed := [option(name) for name in settings if name in FIXED_BY_THE_MODEL]):
        raise InputError(f"{', '.join(fixed)}: with --from the pretrained model decides this; leave it out")
    task = settings.get("task", "text")
    if not isinstance(task, str) or task not in TASKS or not isinstance(start, str | None):
        return {}
    return kind_of_task(task, start).defaults


def given(arguments: argparse.Namespace) -> dict[str, Any]:
    """The settings on the command line."""
    return {f.name: getattr(arguments, f.name) for f in dataclasses.fields(TrainConfig) if hasattr(arguments, f.name)}


def _settings_from_file(path: Path | None) -> dict[str, Any]:
    if path is None:
        return {}
    with reading(path), open(path, "rb") as file:
        raw = file.read(MAX_SETTINGS + 1)
    if len(raw) > MAX_SETTINGS:
        raise InputError(f"{path} is longer than {MAX_SETTINGS:,} bytes, so it is not a settings file")
    if (dots := max(line.count(b".") for line in raw.split(b"\n"))) > MAX_DOTS:
        raise InputError(f"{path} has a line with {dots} dots, so it is not a settings file")
    try:
        return tomllib.loads(raw.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text: byte at offset {error.start}") from None
    except (ValueError, RecursionError) as error:  # bad TOML, a huge number, or deeply nested lists
        raise InputError(f"{path} is not TOML: {error}") from None


def _check_free(directory: Path) -> None:
    """Refuse a directory that already holds a run."""
    if directory.exists() and not directory.is_dir():
        raise InputError(f"--out {directory} is a file; give a directory")
    if any((directory / name).exists() for name in (checkpoint.NAME, "log.jsonl", "config.json")):
        again = f"continue it with --resume {shell_path(directory)}"
        raise InputError(f"--out {directory} already holds a run; give another directory, or {again}")


def _resumed(arguments: argparse.Namespace, ranks: Ranks) -> Trainer:
    """The run in a directory, at its last checkpoint."""
    directory = arguments.resume
    if arguments.out or arguments.config:
        raise InputError("--resume uses the directory and the settings of its run; leave --out and --config out")
    if arguments.as_in_the_lesson:
        raise InputError("--as-in-the-lesson is for a new run; leave it out, --resume uses the settings of its run")
    config, arrays, meta = load_run(directory)
    if not directory.is_dir():
        raise InputError(f"--resume needs the directory of the run, got the file {directory}")
    new = given(arguments)
    free = {"workers", "backend", "recompute"}  # these change how the result is computed, not the result
    free |= {name for name in MOVABLE if getattr(config, name) is not None}
    free |= {"text"} if config.task == "text" else set()  # the default text may be in a file, too
    changed = [option(name) for name, value in new.items() if value != getattr(config, name) and name not in free]
    if changed:
        raise InputError(f"{', '.join(changed)} cannot change in a resumed run; leave this out")
    config = dataclasses.replace(config, **{name: new[name] for name in free if name in new})
    trainer = Trainer(config, _task_again(config), directory, ranks)
    trainer.restore(arrays, meta)
    return trainer


def _task_again(config: TrainConfig) -> Task:
    """The task of a resumed run; its files may have moved since the run began."""
    try:
        return make_task(config)
    except InputError as error:
        moved = " or ".join(option(name) for name in MOVABLE if getattr(config, name) is not None)
        raise InputError(f"{error}; if it has moved, give its new place by {moved}" if moved else str(error)) from None


def _begin(trainer: Trainer, arguments: argparse.Namespace) -> None:
    """Make sure that all ranks begin in the same state and that the directory exists."""
    ranks = trainer.ranks
    facts = trainer.config.to_mapping(), trainer.task.saved(), trainer.step
    if any(theirs != facts for theirs in ranks.everyones(facts)):
        raise InputError("the ranks have different settings, texts or checkpoints")
    if not (arguments.out or arguments.resume):
        made = ranks.together(lambda: trainer.directory if ranks.rank else _new_directory(trainer.directory))
        trainer.directory = ranks.everyones(made)[0]
    ranks.together(lambda: _make_directory(trainer.directory))  # on every machine


def _make_directory(directory: Path) -> None:
    with writing(f"--out {directory}"):
        directory.mkdir(parents=True, exist_ok=True)


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


def _finish(trainer: Trainer, ending: str, again: str) -> str | None:
    """Print the report of the task and draw the pictures; return the signal that came during the drawing, if any."""
    print(f"{ending} after step {trainer.step}, {trainer.seconds:.0f} seconds of training\n")
    with Workers(trainer.workers.count) as workers:
        print(trainer.task.report(trainer.model, generator(trainer.config, SAMPLE), workers))
    trainer.require_same_directory()
    try:
        written = trainer.task.write_result(trainer.model, trainer.directory)
    except OSError as error:
        reason = f"{error.strerror or error}; the training is complete and saved: free some space, then {again}"
        raise InputError(f"cannot write to {trainer.directory}: {reason}") from None
    with StopSignals() as signals:  # a signal waits for the pictures: matplotlib would turn it into an error
        drawn = pictures(trainer.task, trainer.directory)
    files = ["log.jsonl", "config.json", checkpoint.NAME, *([written] if written else [])]
    print(f"\nin {trainer.directory}: {', '.join(files)}{drawn}")
    return signals.name


def _new_directory(parent: Path) -> Path:
    """A new directory named by the time; a directory that another run makes at the same time is not used."""
    stem = time.strftime("%Y-%m-%d-%H%M%S")
    _make_directory(parent)
    for name in [stem] + [f"{stem}-{n}" for n in range(2, 1000)]:
        with writing(parent), contextlib.suppress(FileExistsError):
            (parent / name).mkdir()
            return parent / name
    raise InputError(f"{parent / stem} and a thousand more names are taken; give a directory with --out")
