"""What can be learned: each task makes its batches, its model and its final report."""

from numpy_attention.training.config import TrainConfig
from numpy_attention.training.tasks.copying import CopyTask
from numpy_attention.training.tasks.dates import DateTask
from numpy_attention.training.tasks.digits import DigitsTask
from numpy_attention.training.tasks.reverse import ReverseTask
from numpy_attention.training.tasks.sums import SumTask
from numpy_attention.training.tasks.task import Task
from numpy_attention.training.tasks.text import TextTask

TASKS: dict[str, type[Task]] = {
    "text": TextTask,
    "sum": SumTask,
    "reverse": ReverseTask,
    "copy": CopyTask,
    "dates": DateTask,
    "digits": DigitsTask,
}


def make_task(config: TrainConfig) -> Task:
    """The task that the configuration names, its data read and checked."""
    return TASKS[config.task](config)
