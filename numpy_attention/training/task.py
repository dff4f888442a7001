"""The interface of a task; its main methods:

    task = TextTask(config)               reads its data and checks them
    model = task.model(rng)               a model whose sizes fit the data
    task.batch(rng)                       every step
    task.evaluate(model, workers)         every eval_every steps
    task.report(model, rng, workers)      at the end

The trainer imports no task; the tasks are in `numpy_attention.training.tasks`, one layer of imports above.
"""

import dataclasses
import re
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np

from numpy_attention.errors import InputError
from numpy_attention.models.c21c_model import Model
from numpy_attention.training.c28_loop import Batch
from numpy_attention.training.c30_parallel import Workers
from numpy_attention.training.config import OF_MODELS, TrainConfig, option

M = TypeVar("M", bound=Model)


class Task(ABC):
    """The data, the model and the baselines of one learning task."""

    defaults: ClassVar[dict[str, Any]] = {}  # settings in which this task differs from TrainConfig

    def __init__(self, config: TrainConfig) -> None:
        self.config = config

    @abstractmethod
    def model(self, rng: np.random.Generator | None) -> Any:
        """A new model.

        Raises: InputError if the sizes do not fit together.
        """

    def build(self, kind: type[M], rng: np.random.Generator | None, **sizes: Any) -> M:
        """A model of the configured sizes; the task adds the sizes that its data determine.

        Raises: InputError if the sizes do not fit together.
        """
        try:
            return kind(kind.config_class(**self.config.model_sizes(), **sizes), rng)
        except ValueError as error:
            text = str(error).removeprefix(f"{kind.config_class.__name__}: ")
            # name the options instead of the fields
            text = re.sub(r"^\w+|\w+_\w+", lambda m: option(OF_MODELS[m[0]]) if m[0] in OF_MODELS else m[0], text)
            raise InputError(text) from None

    @abstractmethod
    def batch(self, rng: np.random.Generator) -> Batch:
        """The arguments of `model.loss` for one step; the targets come last."""

    @abstractmethod
    def evaluate(self, model: Any, workers: Workers) -> dict[str, float]:
        """Numbers measured on held-out data; one of them is `val_loss`."""

    @abstractmethod
    def description(self) -> str:
        """One line about the data."""

    def saved(self) -> dict[str, Any]:
        """The facts in a checkpoint that are needed to use the model without the data and to recognize the data; empty
        if the data are drawn from the seed."""
        return {}

    @abstractmethod
    def report(self, model: Any, rng: np.random.Generator, workers: Workers) -> str:
        """The final report: the results compared with their baselines, and examples."""

    def write_result(self, model: Any, directory: Path) -> str:
        """At the end of a run, write its result, if it has one besides the checkpoint; return the file's name."""
        return ""

    def model_settings(self, model: Any) -> dict[str, Any]:
        """The sizes and variants of the model as plain values; the model can be built again from them."""
        return dataclasses.asdict(model.config)

    def reference_lines(self) -> dict[str, float]:
        """Named losses to draw as horizontal lines in the loss curve."""
        return {}
