"""train: learn a task, and leave a directory with the log, the configuration and the checkpoint."""

import argparse
import dataclasses
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

from numpy_attention.errors import InputError
from numpy_attention.runs import checkpoint
from numpy_attention.runs import trainer as loop
from numpy_attention.runs.config import TrainConfig, option, value_type
from numpy_attention.runs.log import read_log
from numpy_attention.runs.mpi import OneProcess, started_ranks
from numpy_attention.runs.parallel import Workers
from numpy_attention.runs.plot import draw_losses
from numpy_attention.runs.restore import load_run
from numpy_attention.runs.trainer import Trainer
from numpy_attention.tasks import TASKS, make_task
from numpy_attention.tasks.sums import SumTask

MAX_SETTINGS = 2**20  # bytes of a settings file
SIGNAL_CODES = {"SIGINT": 130, "SIGTERM": 143}  # as a shell reports them


def add_parser(commands: Any) -> None:
    """The arguments of `train`: one for each field of TrainConfig, and where to put the run."""
    parser = commands.add_parser(
        "train",
        help="train a model (with no options: a character GPT on text that Python carries, about three minutes)",
        allow_abbrev=False,
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="where the run is kept (default: runs/<time>)")
    parser.add_argument("--resume", type=Path, metavar="DIR", help="go on with the run in DIR from its last checkpoint")
    lesson = "for the task sum: the lesson's plain gradient descent, which stays at chance"
    parser.add_argument("--as-in-the-lesson", action="store_true", help=lesson)
    parser.add_argument("--config", type=Path, metavar="FILE.toml", help="settings from a file; options win over it")
    for field in dataclasses.fields(TrainConfig):
        default = "" if field.default is None else f" (default: {field.default})"
        parser.add_argument(
            option(field.name),
            dest=field.name,
            type=value_type(field),
            default=argparse.SUPPRESS,
            metavar={int: "N", float: "X", str: "NAME"}[value_type(field)],
            help=field.metadata["help"].replace("%", "%%") + _choices(field) + default,
        )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Check everything, then make the directory, then train."""
    ranks = started_ranks()
    with ranks.silence():
        return _train(arguments, ranks)


def _train(arguments: argparse.Namespace, ranks: OneProcess) -> int:
    given = {f.name: getattr(arguments, f.name) for f in dataclasses.fields(TrainConfig) if hasattr(arguments, f.name)}
    directory = ranks.everyones(arguments.out or arguments.resume or _new_directory(Path("runs")))[0]
    if arguments.resume:
        trainer = ranks.together(lambda: _resumed(arguments, given, ranks))
    else:
        trainer = ranks.together(lambda: _fresh(arguments, given, directory, ranks))
    ranks.together(lambda: _begin(trainer))
    model, c = trainer.model, trainer.config
    print(trainer.task.description())
    print(
        f"model: {type(model).__name__} with {model.num_parameters():,} parameters; "
        f"{c.steps} steps of {c.batch} examples, "
        + (f"{ranks.size} ranks of " if ranks.size > 1 else "")
        + f"{trainer.workers} worker{'s' * (trainer.workers > 1)}"
    )
    print(f"run: {trainer.directory}" + (f", from step {trainer.step}" if trainer.step else ""), flush=True)
    try:
        ending = trainer.run()
    except loop.NonFiniteError as error:
        if ranks.rank == 0:
            print(f"numpy-attention: stopped at {error}", file=sys.stderr, flush=True)
        ranks.everyones(None)  # whoever ends with an error ends the others: first let rank 0 say why
        return 1
    except OSError as error:  # of the data nothing is read any more: this is the log or a checkpoint
        raise InputError(f"cannot write to {trainer.directory}: {error.strerror or error}") from None
    if ending in SIGNAL_CODES:
        print(f"\nstopped by {ending} after step {trainer.step}, which is saved; go on with:")
        print(f"  python -m numpy_attention train --resume {trainer.directory}", flush=True)
        ranks.everyones(None)
        return SIGNAL_CODES[ending]
    if ranks.rank == 0:
        _finish(trainer, ending)
    return 0


def _fresh(arguments: argparse.Namespace, given: dict[str, Any], directory: Path, ranks: OneProcess) -> Trainer:
    settings = _settings_from_file(arguments.config) | given
    task_defaults = TASKS[settings["task"]].defaults if settings.get("task") in TASKS else {}
    if arguments.as_in_the_lesson:
        if settings.get("task") != "sum":
            raise InputError("--as-in-the-lesson belongs to --task sum")
        task_defaults = task_defaults | SumTask.lesson
    config = TrainConfig.from_mapping(task_defaults | settings, str(arguments.config or ""))
    if directory.exists() and not directory.is_dir():
        raise InputError(f"--out {directory} is a file; name a directory")
    for name in (checkpoint.NAME, "log.jsonl", "config.json"):
        if (directory / name).exists():
            raise InputError(f"--out {directory} already holds a run; name another, or go on with --resume {directory}")
    return Trainer(config, make_task(config), directory, ranks)


def _begin(trainer: Trainer) -> None:
    """Make sure that all ranks begin alike, and that there is a place to write to."""
    config, ranks = trainer.config, trainer.ranks
    ranks.same_start(trainer.model.parameters(), (config.to_mapping(), trainer.task.saved(), trainer.step))
    try:
        trainer.directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot write to --out {trainer.directory}: {error.strerror or error}") from None


def _resumed(arguments: argparse.Namespace, given: dict[str, Any], ranks: OneProcess) -> Trainer:
    if arguments.out or arguments.config:
        raise InputError("--resume goes on in its own directory with its own settings; leave --out and --config out")
    config, arrays, meta = load_run(arguments.resume)
    if arguments.resume.is_file():
        raise InputError(f"--resume needs the directory of the run, got the file {arguments.resume}")
    free = ("workers", "backend")  # how the work is done, not what is done
    changed = [option(name) for name, value in given.items() if value != getattr(config, name) and name not in free]
    if changed:
        raise InputError(f"a resumed run is the same run: {', '.join(changed)} cannot change; leave that out")
    config = dataclasses.replace(config, **{name: given[name] for name in free if name in given})
    trainer = Trainer(config, make_task(config), arguments.resume, ranks)
    trainer.restore(arrays, meta)
    return trainer


def _finish(trainer: Trainer, ending: str) -> None:
    print(f"{ending} after step {trainer.step}, {trainer.seconds:.0f} seconds of training\n")
    with Workers(trainer.workers) as workers:
        print(trainer.task.report(trainer.model, loop.generator(trainer.config, loop.SAMPLE), workers))
    log = read_log(trainer.directory / "log.jsonl")
    drawn = draw_losses(log, trainer.task.reference_lines(), trainer.directory / "loss.png")
    files = f"log.jsonl, config.json, {checkpoint.NAME}" + (", loss.png" if drawn else "")
    print(f"\nin {trainer.directory}: {files}" + ("" if drawn else " (pip install matplotlib for loss.png)"))


def _settings_from_file(path: Path | None) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        with open(path, "rb") as file:
            text = file.read(MAX_SETTINGS + 1).decode("utf-8")
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text: byte at offset {error.start}") from None
    if len(text) > MAX_SETTINGS:
        raise InputError(f"{path} is longer than {MAX_SETTINGS:,} bytes: that is no file of settings")
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # of TOML itself, or of numbers and lists without end
        raise InputError(f"{path} is not TOML: {error}") from None


def _new_directory(parent: Path) -> Path:
    stem = time.strftime("%Y-%m-%d-%H%M%S")
    names = [stem] + [f"{stem}-{n}" for n in range(2, 1000)]
    return next(parent / name for name in names if not (parent / name).exists())


def _choices(field: "dataclasses.Field[Any]") -> str:
    return f": {', '.join(field.metadata['choices'])}" if field.metadata["choices"] else ""
