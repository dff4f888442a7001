"""What a run asks of a task; most of all:

    task = TextTask(config)               reads its data and checks them
    model = task.model(rng)               of the sizes that the data ask for
    task.batch(rng)                       every step
    task.evaluate(model, workers)         every eval_every steps
    task.report(model, rng, workers)      at the end

The trainer knows no task; the tasks themselves stand above it, in `numpy_attention.tasks`.
"""

from __future__ import annotations

import dataclasses
import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np

from numpy_attention.errors import InputError
from numpy_attention.models.model import Model
from numpy_attention.runs.config import OF_MODELS, TrainConfig, option
from numpy_attention.runs.parallel import Batch, Workers

M = TypeVar("M", bound=Model)
Log = list[dict[str, Any]]


class Task(ABC):
    """Data, model and yardsticks of one thing to learn."""

    defaults: ClassVar[dict[str, Any]] = {}  # settings in which this task differs from TrainConfig

    def __init__(self, config: TrainConfig) -> None:
        self.config = config

    @abstractmethod
    def model(self, rng: np.random.Generator | None) -> Any:
        """A fresh model.

        Raises: InputError if the sizes do not fit together.
        """

    def build(self, kind: type[M], rng: np.random.Generator | None, **sizes: Any) -> M:
        """A model of the configured sizes; the task adds those that its data fix.

        Raises: InputError if they do not fit together.
        """
        try:
            return kind(kind.config_class(**self.config.model_sizes(), **sizes), rng)
        except ValueError as error:
            said = str(error).removeprefix(f"{kind.config_class.__name__}: ")
            named = re.sub(r"^\w+|\w+_\w+", lambda m: option(OF_MODELS[m[0]]) if m[0] in OF_MODELS else m[0], said)
            raise InputError(named) from None

    def prepare(self, directory: Path) -> bool:
        """Keep data beside the run, before the first step, if that is needed; a second call finds it done."""
        return False

    @abstractmethod
    def batch(self, rng: np.random.Generator) -> Batch:
        """The arguments of `model.loss` for one step; the targets come last."""

    @abstractmethod
    def evaluate(self, model: Any, workers: Workers) -> dict[str, float]:
        """Figures on data not trained on; `val_loss` is among them."""

    @abstractmethod
    def description(self) -> str:
        """One line on the data."""

    def saved(self) -> dict[str, Any]:
        """What a checkpoint must hold to use the model without the data, and to know the data again; nothing where the
        data are made anew from the seed."""
        return {}

    @abstractmethod
    def report(self, model: Any, rng: np.random.Generator, workers: Workers) -> str:
        """The closing lines: the figures beside their yardsticks, and something to look at."""

    def write_result(self, model: Any, directory: Path) -> str:
        """At the end of a run: write what it leaves besides its checkpoint, and name it. Nothing, for most tasks."""
        return ""

    def pictures(self, log: Log) -> dict[str, Callable[[], Any]]:
        """At the end of a run: pictures to lie beside that of the losses, by the names of their files, each with what
        makes a Figure of it from the lines of the log. None, for most tasks."""
        return {}

    def model_settings(self, model: Any) -> dict[str, Any]:
        """The sizes and variants of the model as plain values, from which it can be built again."""
        return dataclasses.asdict(model.config)

    def reference_lines(self) -> dict[str, float]:
        """Losses to draw in the loss curve as horizontal lines, by name."""
        return {}
