"""Helpers for the tests of runs: a short text, a tiny model, and a function that resumes a stopped run."""

import numpy as np
import pytest

from numpy_attention.app.tasks import make_task
from numpy_attention.training.c32_trainer import Trainer
from numpy_attention.training.config import TrainConfig
from numpy_attention.training.log import read_log
from numpy_attention.training.restore import load_run

TEXT = "one fish two fish red fish blue fish. " * 40
TINY = {
    "layers": 1, "heads": 2, "d_model": 16, "context": 8, "batch": 6, "steps": 12, "warmup": 2, "workers": 2,
    "log_every": 1, "eval_every": 4, "save_every": 3, "learning_rate": 1e-2,
}


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(TEXT, encoding="utf-8")
    return str(path)


def trainer(directory, text, ranks=None, **settings):
    directory.mkdir(exist_ok=True)
    config = TrainConfig(**(TINY | {"text": text} | settings))
    return Trainer(config, make_task(config), directory, ranks)


def before_step(run, step, happens):
    """Call a function before a given step of a run; steps are counted from 0."""
    step_once = run.one_step

    def one_step():
        if run.step == step:
            happens()
        return step_once()

    run.one_step = one_step


def log_without_times(directory):
    return [
        {k: v for k, v in entry.items() if k not in ("seconds", "tokens_per_second")}
        for entry in read_log(directory / "log.jsonl")
    ]


def resume(directory):
    config, arrays, meta = load_run(directory)
    again = Trainer(config, make_task(config), directory)
    again.restore(arrays, meta)
    return again


def assert_same(run, other):
    """Two runs have the same parameters, bit for bit."""
    for name, p in run.model.parameters().items():
        np.testing.assert_array_equal(other.model.parameters()[name], p, err_msg=name)
