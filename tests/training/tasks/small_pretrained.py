"""What the tests of fine-tuning share: a tiny pretrained model, and runs that start from it."""

import dataclasses

import pytest

from numpy_attention.app.tasks import FINE_TUNED, make_task
from numpy_attention.training.c32_trainer import Trainer
from numpy_attention.training.config import TrainConfig
from tests.pretrained import tiny


@pytest.fixture
def folder(tmp_path):
    """A llama of 24 numbers a token, with a context that holds a conversation spelled letter by letter."""
    settings = tiny.LLAMA | {"max_position_embeddings": 160}
    return tiny.write_folder(tmp_path / "llama", settings, tiny.tensors_of("llama", settings))


def run_from(folder, directory, task, **settings):
    """A trainer at its beginning."""
    of_task = FINE_TUNED[task].defaults | {"workers": 2, "batch": 4, "eval_every": 1000, "save_every": 3}
    config = TrainConfig(**({"task": task, "from_": str(folder), "lora": 2} | of_task | settings))
    directory.mkdir(exist_ok=True)
    return Trainer(config, make_task(config), directory)


def again(trainer, **changes):
    """A second trainer with the settings of the first, but for the changes, at its beginning."""
    config = dataclasses.replace(trainer.config, **changes)
    return Trainer(config, make_task(config), trainer.directory)
