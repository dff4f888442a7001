"""The plain loop and the trainer take the same steps."""

import re
from pathlib import Path

import numpy as np
import pytest

import numpy_attention as na
from numpy_attention.app.tasks import TASKS, make_task
from numpy_attention.training.c28_loop import take_step, train
from numpy_attention.training.c32_trainer import BATCH, INITIAL, Trainer, generator
from numpy_attention.training.config import TrainConfig

PAGE = Path(__file__).parents[2] / "docs" / "tasks.md"
STEPS = 5
SMALL = {"layers": 1, "heads": 2, "d_model": 16, "batch": 4, "steps": STEPS, "warmup": 2, "workers": 1}


def run_of(task, **settings):
    """A trainer of a small model with one worker; a model and an optimizer in the same initial state."""
    config = TrainConfig(**(TASKS[task].defaults | SMALL | {"task": task} | settings))
    trainer = Trainer(config, make_task(config), Path())
    model = trainer.task.model(generator(config, INITIAL))
    optimizer = na.AdamW(
        model.parameters(), config.learning_rate, config.beta1, config.beta2, weight_decay=config.weight_decay
    )
    return trainer, model, optimizer


def assert_same(model, other):
    for name, p in model.parameters().items():
        np.testing.assert_array_equal(p, other.parameters()[name], err_msg=name)


@pytest.mark.parametrize(("task", "clip"), [("text", 1.0), ("sum", 0.0), ("copy", 1.0)])
def test_trainer_and_plain_loop_take_identical_steps(task, clip):
    trainer, model, optimizer = run_of(task, optimizer="adamw", clip=clip)
    start = {name: p.copy() for name, p in model.parameters().items()}
    batches = [trainer.task.batch(generator(trainer.config, BATCH, step)) for step in range(STEPS)]
    losses = train(model, optimizer, batches, trainer.rate, clip)
    assert [trainer.one_step()[0] for _ in range(STEPS)] == losses
    assert_same(trainer.model, model)
    assert any((p != start[name]).any() for name, p in model.parameters().items())


@pytest.mark.parametrize("shards", [2, 3, 5, 9])
def test_accumulated_steps_equal_those_of_the_whole_batch(shards, rng):
    """The texts have 6, 4, 1, 0 and 6 counted targets: a mean of the shards' means would be another loss."""
    config = na.GPTConfig(11, 6, d_model=12, num_heads=3, num_layers=1)
    ids, targets = rng.integers(0, 11, (2, 3, 5, 6))
    for row, padding in enumerate((0, 2, 5, 6, 0)):
        targets[:, row, 6 - padding :] = -100

    def run(**options):
        model = na.GPT(config, np.random.default_rng(1), np.float64)
        return model, train(model, na.SGD(model.parameters(), 0.3), zip(ids, targets), **options)

    model, losses = run()
    other, same = run(accumulate=shards)
    np.testing.assert_allclose(same, losses, rtol=1e-13)
    for name, p in model.parameters().items():
        np.testing.assert_allclose(other.parameters()[name], p, rtol=0, atol=1e-13, err_msg=name)
    with pytest.raises(ValueError, match="train: accumulate must be at least 1, got 0"):
        run(accumulate=0)


@pytest.mark.parametrize("bad", ["loss", "gradient"])
def test_step_with_nan_changes_no_parameters_and_no_moments(bad):
    w = np.array([1.0, 2.0])
    optimizer = na.Adam({"w": w})
    loss = np.float64(np.nan if bad == "loss" else 3.0)
    grads = {"w": np.array([1.0, np.inf if bad == "gradient" else 1.0])}
    with np.errstate(invalid="ignore"):
        seen = take_step(optimizer, loss, grads, 0.1, 1.0)
    assert not np.isfinite(seen).all()
    np.testing.assert_array_equal(w, [1.0, 2.0])
    assert optimizer.steps == 0
    assert not optimizer.m["w"].any()


def test_ten_lines_train_and_generate(capsys):
    block = re.search(r"<!-- ten lines -->\s*```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert block, "docs/tasks.md must have <!-- ten lines --> above a python block"
    lines = [line for line in block[1].splitlines() if line.strip()]
    assert len(lines) <= 10
    few, times = re.subn(r"\b600$", "3", block[1], flags=re.MULTILINE)
    assert times == 1
    names = {}
    exec(compile(few, "tasks.md", "exec"), names)
    assert len(names["losses"]) == 3
    printed = capsys.readouterr().out
    assert printed.startswith("The ")
    assert len(printed) > 100
