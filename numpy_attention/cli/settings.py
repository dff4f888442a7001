"""What `train` is told: the settings of a file and of the options, and which of them belong together."""

import argparse
import dataclasses
import tomllib
from pathlib import Path
from typing import Any

from numpy_attention.errors import InputError
from numpy_attention.files import reading
from numpy_attention.runs.config import TrainConfig, option
from numpy_attention.tasks import TASKS, kind_of_task
from numpy_attention.tasks.sums import SumTask

FIXED_BY_THE_MODEL = {
    "layers", "heads", "d_model", "d_ff", "positions", "norm", "activation", "dropout", "vocabulary", "vocab_size",
    "attention",
}
MAX_SETTINGS = 2**16  # bytes of a settings file
MAX_DOTS = 200  # in a line of it: of a.b.c.d a reader of TOML keeps a, a.b, a.b.c as well, which grows with the square
BELONGS_TO = {  # a setting that does nothing elsewhere, the one that decides, and what it must be
    "text": ("task", ("text",)), "vocabulary": ("task", ("text",)), "vocab_size": ("vocabulary", ("bpe",)),
    "beta2": ("optimizer", ("adamw", "adam")), "weight_decay": ("optimizer", ("adamw",)),
}


def new_config(arguments: argparse.Namespace) -> TrainConfig:
    """The settings of a new run: the task's own, over them those of the file, over them those of the options.

    Raises: InputError for what no run can have, or what would do nothing in this one.
    """
    settings = _settings_from_file(arguments.config) | given(arguments)
    of_task = _settings_of_task(settings)
    if arguments.as_in_the_lesson:
        if settings.get("task") != "sum":
            raise InputError("--as-in-the-lesson belongs to --task sum")
        of_task = of_task | SumTask.lesson
    config = TrainConfig.from_mapping(of_task | settings, str(arguments.config or ""))
    usual = [{field.name: field.default for field in dataclasses.fields(config)}, of_task]
    _check_use(config, {name for name in settings if settings[name] not in [one.get(name) for one in usual]})
    return config


def _check_use(config: TrainConfig, chosen: set[str]) -> None:
    """Refuse what was chosen and would do nothing; a file may hold all settings with their usual values."""
    for name, (decides, allowed) in BELONGS_TO.items():
        if name in chosen and getattr(config, decides) not in allowed:
            place = f"{option(decides)} {' or '.join(allowed)}, and here that is {getattr(config, decides)}"
            raise InputError(f"{option(name)} is for {place}; leave it out")
    if "min_learning_rate" in chosen and config.min_learning_rate > config.learning_rate:
        rates = f"{config.learning_rate}, got {config.min_learning_rate}"
        raise InputError(f"--min-learning-rate must be at most --learning-rate, the peak, which is {rates}")


def _settings_of_task(settings: dict[str, Any]) -> dict[str, Any]:
    """The task's own settings, unless it is none: then TrainConfig says so."""
    start = settings.get("from_", settings.get("from"))
    if start is not None and (fixed := [option(name) for name in settings if name in FIXED_BY_THE_MODEL]):
        raise InputError(f"{', '.join(fixed)}: with --from the pretrained model decides that; leave it out")
    task = settings.get("task", "text")
    if not isinstance(task, str) or task not in TASKS or not isinstance(start, str | None):
        return {}
    return kind_of_task(task, start).defaults


def given(arguments: argparse.Namespace) -> dict[str, Any]:
    """The settings that the command line names."""
    return {f.name: getattr(arguments, f.name) for f in dataclasses.fields(TrainConfig) if hasattr(arguments, f.name)}


def _settings_from_file(path: Path | None) -> dict[str, Any]:
    if path is None:
        return {}
    with reading(path) as file:
        raw = file.read(MAX_SETTINGS + 1)
    if len(raw) > MAX_SETTINGS:
        raise InputError(f"{path} is longer than {MAX_SETTINGS:,} bytes: that is no file of settings")
    if (dots := max(line.count(b".") for line in raw.split(b"\n"))) > MAX_DOTS:
        raise InputError(f"{path} has a line with {dots} dots: that is no file of settings")
    try:
        return tomllib.loads(raw.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text: byte at offset {error.start}") from None
    except (ValueError, RecursionError) as error:  # of TOML itself, or of numbers and lists without end
        raise InputError(f"{path} is not TOML: {error}") from None
