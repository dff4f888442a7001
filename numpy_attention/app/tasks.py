"""The tasks that a model can learn: each task makes its batches, its model and its final report."""

from numpy_attention.beyond.c51a_answers import AnswersTask, DPOTask, GRPOTask
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
    "induction": InductionTask, "answers": AnswersTask, "grpo": GRPOTask, "dpo": DPOTask,
}
FINE_TUNED: dict[str, type[Task]] = {
    "text": FineTunedText, "dates": FineTunedDates, "grpo": GRPOTask, "dpo": DPOTask,
}


def kind_of_task(config: TrainConfig) -> type[Task]:
    """The class of the configured task. Its model starts at random or, with --from, from a pretrained model."""
    if config.from_ is None:
        return TASKS[config.task]
    if config.task not in FINE_TUNED:
        raise InputError(f"--task with --from must be one of {', '.join(FINE_TUNED)}, got {config.task!r}")
    return FINE_TUNED[config.task]


def make_task(config: TrainConfig) -> Task:
    """The configured task. Its data are read and checked."""
    return kind_of_task(config)(config)
