"""The tasks that a model can learn: each task makes its batches, its model and its final report."""

from numpy_attention.errors import InputError
from numpy_attention.pretrained.fine_tuned_dates import FineTunedDates
from numpy_attention.pretrained.fine_tuning import FineTunedText
from numpy_attention.training.config import TrainConfig
from numpy_attention.training.task import Task
from numpy_attention.training.tasks.copying import CopyTask
from numpy_attention.training.tasks.dates import DateTask
from numpy_attention.training.tasks.digits import DigitsTask
from numpy_attention.training.tasks.induction import InductionTask
from numpy_attention.training.tasks.reverse import ReverseTask
from numpy_attention.training.tasks.sums import SumTask
from numpy_attention.training.tasks.text import TextTask

TASKS: dict[str, type[Task]] = {
    "text": TextTask, "sum": SumTask, "reverse": ReverseTask, "copy": CopyTask, "dates": DateTask, "digits": DigitsTask,
    "induction": InductionTask,
}
FINE_TUNED: dict[str, type[Task]] = {"text": FineTunedText, "dates": FineTunedDates}


def kind_of_task(name: str, from_: str | None) -> type[Task]:
    """The task of that name. Its model starts at random or, with `from_`, from a pretrained model.

    Raises: InputError if no task has that name.
    """
    kinds = TASKS if from_ is None else FINE_TUNED
    if name not in kinds:
        with_from = "" if from_ is None else " with --from"
        raise InputError(f"--task{with_from} must be one of {', '.join(kinds)}, got {name!r}")
    return kinds[name]


def make_task(config: TrainConfig) -> Task:
    """The task that the configuration names. Its data are read and checked."""
    return kind_of_task(config.task, config.from_)(config)
