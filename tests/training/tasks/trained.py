"""What the tests of the tasks share: a trainer that has taken its steps, and images without scikit-learn."""

import numpy as np

from numpy_attention.app.tasks import TASKS, make_task
from numpy_attention.training.c30_parallel import Workers
from numpy_attention.training.c32_trainer import Trainer
from numpy_attention.training.config import TrainConfig


def trained(tmp_path, task, **settings):
    """A trainer that has taken its steps, and its figures."""
    config = TrainConfig(**({"task": task} | TASKS[task].defaults | {"workers": 1} | settings))
    trainer = Trainer(config, make_task(config), tmp_path)
    with Workers(1) as workers:
        while trainer.step < config.steps:
            trainer.one_step()
        return trainer, trainer.task.evaluate(trainer.model, workers)


def synthetic_digits():
    """Images that show their label as a bright row: what the task needs of real ones, in small."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 8, size=200)
    images = rng.uniform(0, 0.2, size=(200, 8, 8)).astype(np.float32)
    images[np.arange(200), labels] += 0.8
    return images, labels
