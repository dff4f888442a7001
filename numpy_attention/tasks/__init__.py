"""What can be learned: each task makes its batches, its model and its final report."""

from numpy_attention.runs.config import TrainConfig
from numpy_attention.runs.task import Task
from numpy_attention.tasks.copying import CopyTask
from numpy_attention.tasks.dates import DateTask
from numpy_attention.tasks.digits import DigitsTask
from numpy_attention.tasks.reverse import ReverseTask
from numpy_attention.tasks.sums import SumTask
from numpy_attention.tasks.text import TextTask

TASKS: dict[str, type[Task]] = {
    "text": TextTask, "sum": SumTask, "reverse": ReverseTask, "copy": CopyTask, "dates": DateTask, "digits": DigitsTask,
}


def make_task(config: TrainConfig) -> Task:
    """The task that the configuration names, its data read and checked."""
    return TASKS[config.task](config)
